"""The results that a page may read, and in words what it is made from: scale, data, finished and missing runs."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError, meant
from fedlib.runs.results import failed, lacking, record
from fedlib.runs.work import is_measurement
from fedlib.settings.params import Experiments, Labelled
from fedlib.settings.schema import Scale
from workspace.pages.layout import escaped


def described(
    name: str,
    scale: Scale,
    info: Mapping[str, dict[str, Any]],
    missing: Sequence[str],
    settings: Experiments,
    results: Path,
) -> str:
    """In Markdown: scale, data, the number of finished and planned runs, reductions, and missing runs.

    name: of the artifact. info: experiment -> the record of its runs. missing: its experiments without results.
    """
    lines = []
    for experiment, results_record in info.items():
        data = ", ".join(sorted({run["data"]["provenance"] for run in results_record["runs"]}))
        counted = f"{len(results_record['runs'])} of {results_record['planned']} runs"
        lacks = f" Missing: {escaped(lacking(results_record))}." if results_record.get("missing") else ""
        reduction = cut(settings, experiment, scale)
        reduction = f" Reduced from scale paper: {reduction}." if reduction else ""
        words = f"{counted}, {escaped(data)}.{reduction}{lacks}{_failures(results_record)}"
        lines.append(f"`{experiment}` at scale **{scale}**: {words}")
    for experiment in missing:
        command = f"`fedlib run {experiment} --scale {scale}`"
        why = _failures(record(experiment, scale, results))
        lines.append(f"`{experiment}` has not been run at scale **{scale}**: {command}{why}")
    if missing:
        lines.append(f"To make everything this page needs: `fedlib scale {scale} && dvc repro {name}`")
    return "\n".join(f"- {line}" for line in lines)


def _failures(results_record: dict[str, Any]) -> str:
    return "".join(f" Failed: {escaped(failure)}" for failure in failed(results_record))


def cut(settings: Experiments, name: str, scale: Scale) -> str:
    """How an experiment or study is reduced from scale `paper`, in words; empty if it is not."""
    if scale == "paper":
        return ""
    seldom = often = 1
    if name in settings.studies:
        planned, paper = settings.study(name, scale), settings.study(name, "paper")
        keys = [key for key in ("subsets", "seeds", "rounds") if key in planned and key in paper]
        pairs = [(planned[key], paper[key], key) for key in keys]
        follows = "every" in planned and "rounds" not in planned  # its experiments' runs, to their end
        followed = planned["experiments"].values() if follows else []
    else:
        followed, pairs = [name], []
        plans = settings.runs(name, scale), settings.runs(name, "paper")
        for noun, key in (("settings", lambda run: run.setting), ("seeds", lambda run: run.run.seed)):
            pairs.append((*(len(set(map(key, plan))) for plan in plans), noun))
        seldom, often = (max(run.run.evaluate.every for run in plan) for plan in plans)
    rounds = {pair for experiment in followed for pair in _rounds(settings, experiment, scale)}
    pairs = [*((*pair, "rounds") for pair in sorted(rounds)), *pairs]
    reductions = [f"{reduced:,} of {full:,} {noun}" for reduced, full, noun in pairs if reduced < full]
    return ", ".join([*reductions, *([f"measured every {seldom} rounds"] if seldom > often else [])])


def _rounds(settings: Experiments, experiment: str, scale: Scale) -> set[tuple[int, int]]:
    """(T at this scale, T at scale paper) of an experiment's settings; 0 where scale paper has no such setting."""
    planned, paper = _longest(settings.runs(experiment, scale)), _longest(settings.runs(experiment, "paper"))
    return {(T, paper.get(setting, 0)) for setting, T in planned.items()}


def _longest(plan: list[Labelled]) -> dict[str, int]:
    """setting -> the largest T of its runs."""
    return {run.setting: run.run.T for run in sorted(plan, key=lambda run: run.run.T)}


class ResultsMissing(KeyError):  # so that `Results.get` returns its default, as every mapping's does
    """An experiment has not been run at this scale; the notebook ends with a notice and no traceback."""

    def __init__(self, experiment: str, scale: str) -> None:
        super().__init__(experiment, scale)
        self.experiment, self.scale = experiment, scale

    def __str__(self) -> str:
        return f"{self.experiment} has not been run at scale {self.scale}"

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{self}."]


@dataclass(frozen=True)
class Results(Mapping[str, pd.DataFrame]):
    """Experiment -> tidy table, for those that have been run.

    Raises:
        ResultsMissing: a lookup of another one.
    """

    scale: Scale
    tables: dict[str, pd.DataFrame]

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        if experiment not in self.tables:
            raise ResultsMissing(experiment, self.scale)
        return self.tables[experiment]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __contains__(self, experiment: object) -> bool:
        return experiment in self.tables


def chosen(
    frames: Mapping[str, pd.DataFrame], info: Mapping[str, dict[str, Any]], **choice: Any
) -> tuple[dict[str, pd.DataFrame], dict[str, dict[str, Any]]]:
    """The rows and records of the runs with these methods, seeds and settings; the parameters of a page's notebook.

    choice: `methods`, `seeds` and `settings`, each a value or a list of values; None: all. What a study measured stays.

    Raises:
        ConfigError: no run has one of them, or none has all.
    """
    runs = [name for name in frames if not any(map(is_measurement, info[name]["runs"]))]
    wanted: dict[str, list[Any]] = {}
    for name, given in choice.items():
        if given is None:
            continue
        column = name.removesuffix("s")
        wanted[column] = list(given) if isinstance(given, list | tuple | set | range) else [given]
        known = {value for experiment in runs for value in frames[experiment][column].unique()}
        for value in wanted[column]:
            if value not in known:
                there = meant(value, _words(known))
                raise ConfigError(f"{name}: no run of this page has the {column} {value!r}; {there}")
    if not wanted:
        return dict(frames), dict(info)
    some = {name: frames[name][frames[name][[*wanted]].isin(wanted).all(axis=1)] for name in runs}
    if not any(map(len, some.values())):
        raise ConfigError(
            f"{', '.join(choice)}: no run of this page has all of these; set one of them to None."
        )
    kept = {name: some.get(name, frame) for name, frame in frames.items() if len(some.get(name, frame))}
    records = {name: info[name]["runs"] for name in kept}
    for name in set(kept) & set(some):
        records[name] = [
            run for run in records[name] if all(run[column] in values for column, values in wanted.items())
        ]
    return kept, {name: info[name] | {"runs": records[name]} for name in kept}


NUMBERS: dict[str, tuple[Callable[[float], bool], str]] = {  # parameter of a notebook -> what it may be
    "target": (lambda value: 0 < value < 1, "a test accuracy between 0 and 1, such as 0.8"),
    "smoothing": (
        lambda value: value >= 0 and value == int(value),
        "a number of rounds, such as 11, or 0 for raw curves",
    ),
    "share": (lambda value: 0 < value < 1, "a share between 0 and 1, such as 0.05"),
    "coverage": (lambda value: 0 < value < 1, "a share between 0 and 1, such as 0.95"),
    "noise": (lambda value: value >= 0, "a standard deviation, such as 0.15"),
    "alpha": (lambda value: value > 0, "a concentration above 0, such as 0.1"),
    "T_s": (lambda value: value > 0, "a temperature above 0, such as 0.0025"),
    **{
        name: (lambda value: value >= 1 and value == int(value), "a whole number from 1")
        for name in ("in_a_row", "rounds", "m", "H")
    },
}


def turned(values: Mapping[str, Any], place: str, root: Path) -> bool:
    """Whether a notebook's own parameters are other than those in its file, once they have been checked.

    place: of the notebook below `notebooks/`.

    Raises:
        ConfigError: a parameter is not what it may be.
    """
    declared = parameters(root / "notebooks" / f"{place}.ipynb")
    for name, value in values.items():
        fits, words = NUMBERS.get(name, (None, ""))
        if fits is None or (value is None and declared.get(name) is None):
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not fits(value):
            raise ConfigError(f"{name} is {value!r}; write {words}.")
    return any(name not in declared or declared[name] != value for name, value in values.items())


def parameters(notebook: Path) -> dict[str, Any]:
    """The parameters that a notebook's file declares as plain values, with these."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"] if notebook.exists() else []
    code = ["".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", [])]
    declared = {}
    for line in ast.parse("\n".join(code)).body:
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            with suppress(ValueError):  # it is computed
                declared[line.targets[0].id] = ast.literal_eval(line.value)
    return declared


def one_of(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Check a notebook's parameter that is one of several values.

    Raises:
        ConfigError: it is none of them.
    """
    if value not in (allowed := list(allowed)):
        raise ConfigError(f"{name}: there is no {value!r}; {meant(value, _words(allowed))}")


def _words(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in sorted(values, key=lambda value: (isinstance(value, str), value))]
