"""The tables of results: written once whole, and opened in every notebook.

`data/results/<scale>/<experiment>.parquet` has one row per (setting, method, seed, round), with the columns listed in
ARCHITECTURE.md. `<experiment>.json` beside it says what made each run and which runs are missing. `<experiment>.csv`
has the curves of test accuracy for `dvc plots`. `lacking` and `failed` say in words what a record lacks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from fedlib.errors import StoreError
from fedlib.files import read_sealed, unsealed, write_sealed, write_whole
from fedlib.runs.archive import mend, path_of
from fedlib.runs.sealed import check, info_of, named, rows_of, seals, to_parquet
from fedlib.runs.work import labels_of, words
from fedlib.settings.schema import ROOT, Scale

RESULTS = ROOT / "data" / "results"
MEASURES = [
    "test_loss",
    "test_accuracy",
    "train_loss",
    "train_loss_std",
    "client_accuracy",
    "client_accuracy_std",
    "local_loss",
    "local_loss_std",
]


def write_results(path: Path, table: pd.DataFrame, info: dict[str, Any]) -> None:
    """Write a table with the record of what made it inside; beside it the same record as JSON, and its curves as CSV.

    The JSON also has the digest of the table's file, `table`.

    A reader at the same time sees either the old table with its record or the new one with its own.
    """
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    labels = [labels_of(record) for record in info["runs"]]
    inside = {"name": path.stem, "scale": path.parent.name, "seals": seals(arrow.to_pandas(), labels)}
    content = to_parquet(arrow, info | inside, compression="zstd")
    write_whole(path.with_suffix(".csv"), curves_of(table))
    write_sealed(path.with_suffix(".json"), info | {"table": hashlib.sha256(content).hexdigest()})
    write_whole(path, content)


def curves_of(table: pd.DataFrame) -> bytes:
    """The CSV beside a table, which DVC plots."""
    return accuracy_curves(table).to_csv(index=False).encode()


def accuracy_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Test accuracy in percent, mean over seeds: one row per (setting, method, round) where all seeds were tested."""
    if not {"round", "test_accuracy"} <= set(table):  # nothing is finished, or it is a study's
        return pd.DataFrame(columns=["setting", "method", "round", "accuracy"])
    tested = table.groupby(["setting", "method", "round"], sort=False)["test_accuracy"].agg(["mean", "count"])
    seeds = tested["count"].groupby(level=[0, 1]).transform("max")
    mean = 100 * tested["mean"][tested["count"] == seeds]
    return mean.dropna().round(3).rename("accuracy").reset_index()


def shows(experiment: str, scale: Scale, addresses: Sequence[str | None], results: Path = RESULTS) -> bool:
    """Whether the table of an experiment consists of exactly the runs at these addresses (None: unfinished)."""
    path = path_of(experiment, scale, results)
    try:
        with named(path, mend(path)):
            info, _ = info_of(path.read_bytes())
    except (FileNotFoundError, StoreError):
        return False
    present = {run["address"] for run in info["runs"]}
    return info["planned"] == len(addresses) and present == set(addresses) - {None}


def record(experiment: str, scale: Scale, results: Path = RESULTS) -> dict[str, Any]:
    """The record of what made an experiment's or study's table; empty if it has not been run at this scale.

    Whoever reads the same record again gets the same object, not to be changed.

    Raises:
        StoreError: the record is damaged.
    """
    path = path_of(experiment, scale, results).with_suffix(".json")
    if not path.exists():
        return {}
    with named(path, mend(path)):
        return _record(path.read_bytes())


@lru_cache(256)
def _record(content: bytes) -> dict[str, Any]:
    return unsealed(json.loads(content))


def open_results(
    experiment: str, scale: Scale, results: Path = RESULTS
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The tidy table of an experiment, and the record of what made it.

    Raises:
        FileNotFoundError: the experiment has not been run at this scale.
        StoreError: the table is damaged, or is not the one that was written.
    """
    return read_table(path_of(experiment, scale, results))


def read_table(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table as `write_results` wrote it, and its record. Raises the same errors as `open_results`."""
    with named(path, mend(path)):
        content = path.read_bytes()
        info, _ = info_of(content)
        if (info.pop("name"), info["scale"]) != (path.stem, path.parent.name):
            raise ValueError("it belongs to another one")
        table, expected = rows_of(content), info.pop("seals")
        if not _is_whole(path, content):
            check(table, [labels_of(record) for record in info["runs"]], expected)
        return table, info


def _is_whole(path: Path, content: bytes) -> bool:
    """Whether a table's file has the digest that the record beside it names: it then is as written to the last byte."""
    with suppress(OSError, ValueError):
        return read_sealed(path.with_suffix(".json")).get("table") == hashlib.sha256(content).hexdigest()
    return False


FEW = 6  # names that are listed; more are counted


def lacking(info: dict[str, Any]) -> str:
    """The missing runs in a record of results (`open_results`), in words; empty if none is missing.

    A setting without any run is named as a whole, and so is a method. Otherwise the missing seeds are named. Methods
    that lack the same seeds are named together, and so are settings that lack the same methods.
    """
    finished = {(_setting(run), run["method"]) for run in info["runs"]}
    started = {setting for setting, _ in finished}
    seeds: dict[tuple[str, str], list[str]] = {}
    for run in info.get("missing", []):
        setting = _setting(run)
        method = run.get("method", "") if setting in started else "all"
        seeds.setdefault((setting, method), []).append(str(run["seed"]))
    return _grouped(
        {key: f" (seeds {', '.join(numbers)})" if key in finished else "" for key, numbers in seeds.items()}
    )


def present(info: dict[str, Any]) -> str:
    """What the record of results says is there, in words: "HiCS-FL / Random of (2), 1 seed"; empty if nothing is."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in info.get("runs", []):
        seeds.setdefault((_setting(run), run.get("method", "")), set()).add(run["seed"])
    return _grouped(
        {key: f", {len(numbers)} seed{'s' * (len(numbers) > 1)}" for key, numbers in seeds.items()}
    )


def _grouped(suffixes: dict[tuple[str, str], str]) -> str:
    """What is said of each (setting, method), once for all methods of a setting, and all settings, with the same."""
    methods: dict[tuple[str, str], list[str]] = {}  # (setting, what is said) -> methods
    for (setting, method), suffix in suffixes.items():
        methods.setdefault((setting, suffix), []).append(method)
    settings: dict[tuple[str, str], list[str]] = {}  # (methods, what is said) -> settings
    for (setting, suffix), names in methods.items():
        settings.setdefault((_counted(names, "methods"), suffix), []).append(setting)
    return "; ".join(
        " of ".join(filter(None, [names, _counted(alike, "settings")])) + suffix
        for (names, suffix), alike in settings.items()
    )


def failed(info: dict[str, Any]) -> list[str]:
    """The failed runs in a record of results, one sentence each."""
    return [f"{words(run)}: {run['reason']}" for run in info.get("missing", []) if "failed" in run]


def nothing_of(name: str, scale: Scale, planned: int) -> str:
    """What is said where nothing of an experiment or study is finished."""
    return (
        f"{name} at scale {scale}: none of its {planned:,} planned runs is finished or archived; run: "
        f"fedlib run {name} --scale {scale}"
    )


def covered(experiments: Iterable[str], scale: Scale, results: Path = RESULTS) -> set[tuple[str, str, str]]:
    """All (experiment, setting, method) that have at least one seed at a scale."""
    finished = ((name, run) for name in experiments for run in record(name, scale, results).get("runs", []))
    return {(name, _setting(run), run.get("method", "")) for name, run in finished}


def _setting(run: dict[str, Any]) -> str:
    """The setting of a run; of a measurement, whose settings may occur on several datasets, with the dataset."""
    data, setting = labels_of(run).get("data", ""), run.get("setting", "")
    return data if setting in data else f"{data} {setting}".strip()


def _counted(names: list[str], plural: str) -> str:
    return " / ".join(names) if len(names) <= FEW else f"{len(names)} {plural}"
