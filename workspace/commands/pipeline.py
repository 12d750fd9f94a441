"""The parts of `dvc.yaml` beyond single notebooks: inputs, the artifacts' stages, the whole pipeline.

DVC reads and writes its whole lock file at every stage, so stages depend on few files with much content: a notebook's
normalised copy contains the digests of the code that it uses (`uses.py`), and an experiment's input contains all its
settings. DVC can loop over the experiments of `params.yaml`, but not over lists of dependencies, so `fedlib pipeline`
writes out the artifacts' stages.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlib.errors import ConfigError, DataError
from fedlib.files import alone, read_sealed, say, sealed, write_whole
from fedlib.settings import params
from fedlib.settings.code import code_of
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis.paper import papers
from workspace.commands import notebooks
from workspace.commands.command import Command, Start, commands
from workspace.commands.progress import StageProgress, in_turn
from workspace.pages import seals

if TYPE_CHECKING:
    from fedlib.runs.work import Work

INPUTS = ROOT / "data" / "inputs"
PIPELINE = ROOT / "dvc.yaml"
MARK = "  # Artifacts, written by `fedlib pipeline` from params.yaml.\n"
LOG = ROOT / "data" / "report.log"
MOST = 8  # notebooks at once


def set_scale(scale: Scale, path: Path = params.PARAMS) -> None:
    """Rewrite the line of `params.yaml` that names the current scale."""
    line = rb"^(\xef\xbb\xbf)?scale:[ \t]*\w+"
    content, lines = re.subn(
        line, rb"\1scale: " + scale.encode(), path.read_bytes(), count=1, flags=re.MULTILINE
    )
    if not lines:
        raise ConfigError(f"{path.name} has no line `scale: ...` at its top level; add one.")
    write_whole(path, content)


def prepare_inputs(scale: Scale | None) -> dict[str, str]:
    """Prepare every dataset that the experiments need at a scale; returns dataset -> reason, for those that failed.

    `data/inputs/<scale>/<name>.json` then contains everything that determines an experiment or study: its settings at
    the scale, its data (provenance, digest) or the reason for its absence, and the digest of its archive. The
    simulation stage depends on this file.
    """
    from fedlib.runs import archive

    settings = params.load()
    scale = scale or settings.scale
    runs = {
        name: [
            vars(labelled) | {"run": labelled.run.model_dump(mode="json")}
            for labelled in settings.runs(name, scale)
        ]
        for name in settings.names
    }
    studies = {name: settings.study(name, scale) for name in settings.studies}
    used = {name: sorted({run["run"]["dataset"] for run in labelled}) for name, labelled in runs.items()}
    data = {name: _prepared(name) for name in sorted(set().union(*used.values()))}
    inputs: dict[str, dict[str, Any]] = {
        name: {"runs": labelled, "data": {d: data[d] for d in used[name]}} for name, labelled in runs.items()
    }
    for name, study in studies.items():
        followed = sorted(experiment for experiment in runs if experiment in _words(study))
        inputs[name] = {"study": study, "experiments": {e: _digest(inputs[e]) for e in followed}}
    for name, content in inputs.items():
        if code := code_of(content):
            content["code"] = code
        if tried := _failed(name, scale):
            content["failed"] = tried
        if (packed := archive.path_of(name, scale)).exists():
            content["archive"] = hashlib.sha256(packed.read_bytes()).hexdigest()
        write_whole(INPUTS / scale / f"{name}.json", _text(sealed(content)))
    for old in (INPUTS / scale).glob("*.json"):  # DVC keeps the files in this folder
        if old.stem not in inputs:
            old.unlink()
    return {name: entry["missing"] for name, entry in data.items() if "missing" in entry}


def _failed(name: str, scale: Scale) -> list[str]:
    """The times at which runs of an experiment failed, from its record; they make DVC try again."""
    from fedlib.runs import results

    return [run["failed"] for run in results.record(name, scale).get("missing", []) if "failed" in run]


def _text(content: Any) -> bytes:
    return json.dumps(content, indent=1, sort_keys=True).encode() + b"\n"


def _digest(content: Any) -> str:
    return hashlib.sha256(_text(content)).hexdigest()


def _words(nested: Any) -> set[str]:
    """Every string in nested settings."""
    if isinstance(nested, dict):
        nested = list(nested.values())
    if isinstance(nested, list):
        return set().union(*map(_words, nested))
    return {nested} if isinstance(nested, str) else set()


def _prepared(name: str) -> dict[str, str]:
    from fedlib.data import datasets

    try:
        datasets.prepare(name)
    except DataError as error:
        return {"missing": str(error)}
    status = datasets.status(name)
    return {key: status[key] for key in ("provenance", "digest")}


def forget_missing(dataset: str | None = None, root: Path = INPUTS) -> None:
    """Delete the inputs that record a dataset's absence (None: any dataset's), so that DVC looks for it again."""
    for path in root.rglob("*.json"):
        try:
            data = read_sealed(path).get("data", {})
        except ValueError:  # a damaged input, which DVC makes again
            path.unlink()
            continue
        if any("missing" in data.get(name, {}) for name in ([dataset] if dataset else data)):
            path.unlink()


def forget_changed(scale: Scale) -> None:
    """Delete the inputs of experiments whose samplers' code changed or whose runs failed: DVC runs them again."""
    for path in (INPUTS / scale).glob("*.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        code = content.pop("code", {})
        with suppress(ValueError):  # a sampler that no longer exists is reported by its own stage
            if code_of(content) != code or _failed(path.stem, scale):
                path.unlink()


def stages(settings: Experiments) -> str:
    """The artifacts' stages, as text of `dvc.yaml`."""
    return "".join(_stage(name, experiments) for name, experiments in settings.artifacts.items())


def _stage(name: str, experiments: list[str]) -> str:
    results = [
        f"data/results/${{scale}}/{experiment}.{kind}"
        for experiment in experiments
        for kind in ("parquet", "json")
    ]
    if name in notebooks.WHOLE_SCALE:
        results = ["data/results/${scale}"]
    results += notebooks.beside_results(name)
    needed = [f"data/notebooks/{notebooks.place(name)}.ipynb", *results]
    lines = [
        f"  {name}:",
        f"    desc: the page {notebooks.place(name)}, its figures, tables and verdicts",
        f"    cmd: fedlib notebook run {name} --scale ${{scale}}",
        "    deps:",
        *(f"      - {dependency}" for dependency in needed),
        "    outs:",
        f"      - data/artifacts/${{scale}}/{name}",
    ]
    if name in notebooks.MEASURED:
        lines += ["    metrics:", f"      - data/metrics/${{scale}}/{name}.json"]
    return "\n".join(lines) + "\n"


def write_stages(path: Path = PIPELINE) -> bool:
    """Update the artifacts' part of `dvc.yaml`; True if it changed."""
    text = path.read_text(encoding="utf-8")
    if MARK not in text:
        raise ConfigError(
            f"{path.name} has lost the line {MARK.strip()!r}; put it back before the artifacts."
        )
    new = text[: text.index(MARK)] + MARK + stages(params.load(path.parent / params.PARAMS.name))
    if new == text:
        return False
    write_whole(path, new.encode())
    return True


USUAL = {
    "table": 2.0,
    "effects": 10.0,
    "page": 4.0,
    "report": 60.0,
}  # seconds of a step on two quiet cores, until the last time is known


@dataclass(frozen=True)
class Making:
    """A command of a report: `fedlib <words> --scale <scale>`, once the steps that it needs have ended.

    is_stale: whether it still has to run, when its turn comes.
    """

    words: list[str]
    scale: Scale
    needs: frozenset[str] = frozenset()
    is_stale: Callable[[], bool] = lambda: True

    @property
    def command(self) -> str:
        return f"fedlib {' '.join(self.words)} --scale {self.scale}"


def make_pages(scale: Scale, tell: Callable[[str], None] = print, with_site: bool = False) -> list[str]:
    """Make the logs and pages that are missing, not as they were made, or made from other results, code or settings.

    Nothing is trained: results come from the store and the archive (`plans.collect`). If a page lacks a method that
    another scale has (`INSTEAD`), the page at that scale is made too, from tables without logs: the site has the
    logs of its own scale. with_site: also the site, from all of them, unless it stands as it would be made.

    Returns the commands that failed. A failure is shown in the terminal and does not stop the other pages.

    Raises:
        StoreError: another process is making pages or packing the archive.
    """
    with (
        alone(ROOT / "data"),
        open(LOG, "w", encoding="utf-8", buffering=1) as log,
        commands(log, tell) as start,
    ):
        notebooks.normalise_all()
        todo = steps(params.load(), scale)
        if with_site:
            from workspace.pages import site

            words = ["report", "--as-is"]
            todo["report"] = Making(words, scale, frozenset(todo), lambda: not site.is_current(scale))
        return _run(todo, scale, tell, start)


def steps(settings: Experiments, scale: Scale) -> dict[str, Making]:
    """What a report at a scale has to make: tables with their logs, and pages."""
    from workspace.pages.page import INSTEAD

    sources = settings.artifacts
    finished_work = _finished([*settings.names, *settings.studies], settings, scale)
    tables = _stale_tables(finished_work, scale)
    effects = _stale_effects(scale, tables)
    todo, pages = tables | effects, _stale_pages(sources, scale, finished_work, tables, effects)
    if instead := INSTEAD.get(scale):
        gaps = {name for name, addresses in finished_work.items() if not all(addresses.values())}
        used = {n for experiments in sources.values() if gaps & set(experiments) for n in experiments}
        more = _finished(sorted(used), settings, instead)
        fuller = {
            name: experiments
            for name, experiments in sources.items()
            if any(_covered(more.get(n, {})) - _covered(finished_work[n]) for n in experiments)
        }
        ending = f" at scale {instead}"
        tables = _stale_tables(more, instead, logs=False, ending=ending)
        effects = _stale_effects(instead, tables) if fuller else {}
        todo |= tables | effects
        pages |= _stale_pages(fuller, instead, more, tables, effects, ending)
    return todo | pages


def _finished(names: Iterable[str], settings: Experiments, scale: Scale) -> dict[str, dict[Work, str | None]]:
    """Experiment or study -> its work, with the address of what is finished, in the store or the archive."""
    from fedlib.runs.lookup import Finished
    from fedlib.runs.place import Place
    from workspace.analysis.experiments import plan

    finished_work, environment = {}, Place.from_environment()
    for name in names:
        whole = plan(name, scale, settings)
        finished = Finished(whole, environment, any_data=True)
        finished_work[name] = {work: finished.address(work) for work in whole.work}
    return finished_work


def _covered(finished_work: Mapping[Work, str | None]) -> set[tuple[str, str, str]]:
    """All (data, setting, method) that have at least one seed."""
    return {
        (str(work.labels.get("data", "")), work.columns["setting"], work.columns["method"])
        for work, address in finished_work.items()
        if address
    }


def _stale_tables(
    finished_work: Mapping[str, Mapping[Work, str | None]], scale: Scale, logs: bool = True, ending: str = ""
) -> dict[str, Making]:
    """The stale tables and logs of experiments and studies (`_finished`); without `logs`, only tables."""
    from fedlib.runs import results
    from fedlib.runs.archive import path_of

    stale = {}
    for name, addresses in finished_work.items():
        page = path_of(name, scale, results.RESULTS).with_suffix(".ipynb")
        current = results.shows(name, scale, list(addresses.values())) and (
            not logs or seals.is_current(page, notebooks.log_sources(name, scale))
        )
        if any(addresses.values()) and not current:
            log = ["notebook", "run", "simulate", "--experiment", name, "--only-finished"]
            stale[f"table@{name}{ending}"] = Making(log if logs else ["results", name], scale)
    return stale


def _stale_effects(scale: Scale, tables: Mapping[str, Making]) -> dict[str, Making]:
    """The effects table, on which the pages of papers wait: each would make it for itself. At scale demo none does."""
    from workspace.analysis import effects

    step = Making(["effects"], scale, frozenset(tables), lambda: not effects.is_current(scale))
    return {f"effects@{scale}": step} if scale != "demo" and (tables or step.is_stale()) else {}


def _stale_pages(
    sources_of: Mapping[str, list[str]],
    scale: Scale,
    finished_work: Mapping[str, Mapping[Work, str | None]],
    tables: Mapping[str, Making],
    effects: Mapping[str, Making],
    ending: str = "",
) -> dict[str, Making]:
    """The stale pages of artifacts.

    sources_of: artifact -> the experiments that its page shows. tables, effects: those that are made before.

    Those that read nothing come first, because they compute, then those that read most: a long one does not end alone.
    """
    sizes, stale = {}, {}
    for name, experiments in sources_of.items():
        needed = finished_work if name in notebooks.WHOLE_SCALE else experiments
        needs = frozenset(key for key, step in tables.items() if set(step.words) & set(needed))
        judges = needed and (name in notebooks.WHOLE_SCALE or name.split("-")[0] in papers())

        def is_stale(name: str = name, experiments: list[str] = experiments) -> bool:
            sources = notebooks.page_sources(name, experiments, scale)
            return not seals.is_current(notebooks.page(name, scale), sources)

        if needs or is_stale():
            finished = [address for n in needed for address in finished_work.get(n, {}).values() if address]
            sizes[name] = len(finished)
            waits = needs | frozenset(effects) if judges else needs
            stale[name] = Making(["notebook", "run", name], scale, waits, is_stale)
    order = sorted(stale, key=lambda name: (sizes[name] > 0, -sizes[name]))
    return {f"{name}{ending}": stale[name] for name in order}


def _run(todo: Mapping[str, Making], scale: Scale, tell: Callable[[str], None], start: Start) -> list[str]:
    """Run the steps, one a core; returns the commands that failed, of which the last lines are shown."""
    from fedlib.runs.place import cores

    at_once, lock = min(cores(), MOST), threading.Lock()
    progress = StageProgress(
        LOG.with_suffix(".json"), scale, at_once, lambda name: name == "report", tell, usual=USUAL
    )
    progress.planned({name: set(step.needs) for name, step in todo.items()}, set())
    running: set[Command] = set()

    def work(name: str) -> Command | None:
        if not todo[name].is_stale():
            return None
        with lock:
            progress.begins(name)
        command = start(name, todo[name].command, os.environ)
        running.add(command)
        command.wait()
        return command

    def stop() -> None:
        for command in running:
            command.stop()

    failed = []
    needs = {name: step.needs for name, step in todo.items()}
    with closing(in_turn(list(todo), needs, work, stop, at_once)) as turns:
        for name, future in turns:
            command = future.result()
            with lock:
                progress.ended(name, command is None or not command.status)
            if command is not None and command.status:
                failed.append(name)
                for line in command.tail:
                    say(line)
    progress.keep()
    return [step.command for name, step in todo.items() if name in failed]


def without_git() -> None:
    """Tell DVC, which refuses otherwise, where the project is in no git repository but comes from an archive."""
    local = ROOT / ".dvc" / "config.local"
    if not local.exists() and not any((folder / ".git").exists() for folder in (ROOT, *ROOT.parents)):
        write_whole(local, b"[core]\n    no_scm = true\n")
