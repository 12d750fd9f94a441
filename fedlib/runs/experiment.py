"""Do the missing work of an experiment or study, gather what is finished into one tidy table, and archive it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.errors import DataError, StoreError, Unfinished
from fedlib.runs import archive as archives
from fedlib.runs.archive import ARCHIVE, LISTS, path_of
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place
from fedlib.runs.results import MEASURES, RESULTS, nothing_of, open_results, write_results
from fedlib.runs.work import LABELS, Plan, Work

Tell = Callable[[str], None]


def simulate(
    plan: Plan,
    only: Plan | None = None,
    place: Place | None = None,
    results: Path = RESULTS,
    archive: Path = ARCHIVE,
    tell: Tell = print,
    only_finished: bool = False,
) -> Path:
    """Do the missing work of a plan and write its table; returns the table's path.

    What is archived with the same settings and data is not done again. Work whose dataset is not available is left out
    and named in the record.

    only: the part of the plan to do (`Plan.only`). The table then holds it and everything that was finished before.
    only_finished: do nothing.

    Raises:
        ConfigError: settings cannot be run.
        DataError: nothing is finished, and data is missing. Unfinished: nothing is finished.
        Failed: some runs failed; the others are finished, and the table is written. StoreError: an archive is damaged.
    """
    place = place or Place.from_environment()
    finished = Finished(plan, place, results, archive, any_data=only_finished)
    tried: Sequence[Work] = () if only_finished else (only or plan).work
    title = f"{plan.name} [{plan.scale}]"
    if tried:
        missing, _ = finished.lacking(tried)
        do(missing, finished, tell, title)
        for reason in finished.absent.values():
            tell(f"{title}: {reason}")
    path = gather(plan, finished, results)
    reasons = {work.words: finished.failure(work) for work in tried}
    if failures := {name: why for name, why in reasons.items() if why}:
        raise Failed(title, failures, len(tried))
    return path


def do(missing: Sequence[Work], finished: Finished, tell: Tell, title: str) -> None:
    """Train runs, and measure the units of studies; the store has them afterwards."""
    runs = [work.run for work in missing if work.run]
    if runs:
        from fedlib.runs.train import train  # here, so that opening results does not import torch

        train(runs, finished.place, tell, title)
    measurements = [work for work in missing if not work.run]
    if measurements:
        from fedlib.runs.measuring import measure

        measure(measurements, finished, tell, title)


class Failed(StoreError):
    """Some runs failed. All others continued, and the table is written unless no run is finished.

    traces: name of the run -> traceback of its error. missing: the missing runs as in the record of results, where
    there is no table.
    """

    def __init__(
        self, title: str, failures: dict[str, dict[str, str]], planned: int, missing: Sequence[Any] = ()
    ) -> None:
        self.traces = {name: why["trace"] for name, why in failures.items()}
        self.missing = list(missing)
        lines = "".join(f"\n{name}: {why['reason']}" for name, why in failures.items())
        super().__init__(
            f"{title}: {len(failures)} of {planned} runs failed; repeat the command to try them again, with "
            f"--traceback to see where.{lines}"
        )


def tidy(
    plan: Plan, finished: Finished
) -> tuple[pd.DataFrame, list[dict[str, Any]], list[dict[str, Any]], dict[str, dict[str, str]]]:
    """The table of all finished work, what made it, what is missing, and why runs failed."""
    frames, labels, records, missing = [], [], [], []
    failures: dict[str, dict[str, str]] = {}
    for work in plan.work:
        if (result := finished.read(work)) is None:
            if why := finished.failure(work):
                failures[work.words] = why
            reason = why["reason"] if why else finished.why_not(work)
            gap = {**work.columns, "labels": work.labels, "reason": reason}
            missing.append(gap | ({"failed": why["date"]} if why else {}))
            continue
        rows, record = result
        frames.append(rows if "diverged" in rows else rows.assign(diverged=False))
        labels.append({"experiment": plan.name, **work.labels})
        records.append({**record, **work.columns, **({} if work.run else work.settings)})
    if not frames:
        return pd.DataFrame(), records, missing, failures
    table = pd.concat(frames, ignore_index=True).drop(columns=[*labels[0]], errors="ignore")
    label_of_row = [k for k, rows in enumerate(frames) for _ in range(len(rows))]
    for k, (label, values) in enumerate(pd.DataFrame(labels).iloc[label_of_row].items()):
        table.insert(k, str(label), values.array)
    for column in LISTS:
        if column in table:
            table[column] = table[column].where(table[column].notna(), None)
    for column in table.columns[[kind == "object" for kind in table.dtypes]]:
        table[column] = of_one_type(table[column])
    further = dict.fromkeys(MEASURES, float("nan")) if plan.work[0].run else LABELS
    for column, default in further.items():
        if column not in table:
            table[column] = default
    return table, records, missing, failures


def of_one_type(values: pd.Series) -> pd.Series:
    """Arrays as values, all in the widest of their types: an archive keeps them in fewer bits than a new result has."""
    types = {value.dtype for value in values if isinstance(value, np.ndarray)}
    if len(types) < 2:
        return values
    widest = np.result_type(*types)
    return values.map(lambda value: value.astype(widest) if isinstance(value, np.ndarray) else value)


def gather(plan: Plan, finished: Finished, results: Path = RESULTS) -> Path:
    """Write the tidy table of all finished work of a plan, and beside it what made it and what is missing.

    Raises:
        DataError, Failed, Unfinished: nothing is finished: data is missing, or some runs failed, or none was tried.
    """
    table, records, missing, failures = tidy(plan, finished)
    planned = len(plan.work)
    if not records:
        for reason in () if finished.any_data else finished.absent.values():
            raise DataError(reason)
        if failures:
            raise Failed(f"{plan.name} [{plan.scale}]", failures, planned, missing)
        raise Unfinished(nothing_of(plan.name, plan.scale, planned))
    info = {"experiment": plan.name, "scale": plan.scale, "planned": planned}
    path = path_of(plan.name, plan.scale, results)
    write_results(path, table, info | {"runs": records, "missing": missing})
    return path


def pack(plan: Plan, tell: Tell = print, folder: Path | None = None) -> Path:
    """Archive what is finished of a plan; returns the archive's path. folder: as in `places`.

    Raises:
        As `simulate`. Unfinished: also if other archives already contain everything that is finished.
    """
    place, results, archive = places(folder)
    simulate(plan, place=place, results=results, tell=tell, only_finished=True)
    table, info = open_results(plan.name, plan.scale, results)
    if archives.elsewhere(plan.name, plan.scale, plan.archived, info["runs"]):
        raise Unfinished(
            f"all that is finished of {plan.name} at scale {plan.scale} is in other archives already; nothing to pack."
        )
    return archives.write(plan.name, plan.scale, plan.archived, table, info["runs"], archive)


def places(folder: Path | None = None) -> tuple[Place, Path, Path]:
    """Where runs, tables and archives are written: as usual, or all in this folder."""
    place = Place.from_environment()
    if folder is None:
        return place, RESULTS, ARCHIVE
    return replace(place, runs=folder / "runs"), folder / "results", folder / "archive"
