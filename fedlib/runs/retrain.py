"""Train archived runs again: a random sample, completely or only their first rounds, compared number by number.

`docs/determinism.md` says what may differ and why: the last digits; and, after a sampler that depends on training
results has made another choice, everything.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.data import datasets
from fedlib.errors import DataError, StoreError
from fedlib.runs import archive as archives
from fedlib.runs.place import Place, runs_in_lockstep
from fedlib.runs.work import LABELS, TIMES, is_measurement
from fedlib.samplers import Sampler
from fedlib.settings.code import NUMERICS
from fedlib.settings.schema import Run, Scale

ROUNDING = 1e-5  # relative; the largest measured difference is 2e-7
SAMPLES = 2  # of the test set, whose predicted class may change with the last digits
SHARE = 0.01  # of the clients' accuracies, likewise
UNLIKE = {
    *TIMES,
    *LABELS,
    "experiment",
    "rules",
    "clients",
    "missing",
    "notes",
}  # columns that are not numbers to compare


@dataclass(frozen=True)
class ArchivedRun:
    """An archived run: its experiment, its rows, its record."""

    experiment: str
    rows: pd.DataFrame
    record: dict[str, Any]


@dataclass(frozen=True)
class Compared:
    """A run trained again. rounds: how many. largest: relative difference of losses while the choices are the same.

    first_different: the first round with different numbers, None if there is none. allowed: whether this difference is
    allowed.
    """

    run: ArchivedRun
    rounds: int
    largest: float
    first_different: int | None
    allowed: bool

    @property
    def verdict(self) -> str:
        if self.first_different is None:
            return "the same"
        return (
            f"another choice, from round {self.first_different} on"
            if self.allowed
            else f"differs from round {self.first_different} on"
        )


def sample(scale: Scale, n: int, seed: int, archive: Path, place: Place) -> list[ArchivedRun]:
    """At most n archived runs at a scale, drawn at random from those that this code would train and whose dataset is
    prepared here.

    Each comes from another experiment, so that experiments with many runs do not dominate. An experiment gives a second
    run only after every other one has given a run.

    Raises:
        StoreError: there is no such run.
    """
    rng, visited, queues = np.random.default_rng(seed), set(), []
    paths, prepared = sorted((archive / scale).glob("*.parquet")), _prepared(place)
    for i in rng.permutation(len(paths)):
        packed = archives.read(paths[i].stem, scale, archive)
        runs = {a: record["data"] for a, record in packed.records.items() if not is_measurement(record)}
        candidates = [
            a for a, data in runs.items() if a not in visited and prepared.get(data["name"]) == data["digest"]
        ]
        visited.update(candidates)
        queues.append([(packed, paths[i].stem, candidates[j]) for j in rng.permutation(len(candidates))])
    in_turn = (candidate for turn in zip_longest(*queues) for candidate in turn if candidate)
    chosen = list(islice((candidate for candidate in in_turn if _is_of_this_code(*candidate)), n))
    if not chosen:
        raise StoreError(
            f"{archive / scale}: no run that this code would train has its dataset prepared here; see "
            "`fedlib data status`, or name another scale."
        )
    return [ArchivedRun(name, *packed.read(a)) for packed, name, a in chosen]


def _prepared(place: Place) -> dict[str, str]:
    """The digests of the datasets that are prepared here."""
    digests = {}
    for name in datasets.KINDS:
        with suppress(DataError):
            digests[name] = datasets.digest(name, place.datasets)
    return digests


def _is_of_this_code(packed: archives.Packed, _: str, address: str) -> bool:
    """Whether a run would have the same address if it were trained now."""
    record = packed.records[address]
    return Run(**record["run"]).address(NUMERICS, record["data"]["digest"]) == address


def rounds_within(run: ArchivedRun, seconds: float) -> int:
    """Number of a run's first rounds, at least one, that together took at most `seconds` when it was archived."""
    return max(1, int((run.rows["seconds"].cumsum() <= seconds).sum()) - 1)


def train_again(run: ArchivedRun, rounds: int, place: Place) -> Compared:
    """Train a run again, for at most its first `rounds` rounds, and compare."""
    lockstep = runs_in_lockstep([Run(**run.record["run"])], place)
    while lockstep.active and lockstep.live[0].t < rounds:
        lockstep.advance()
    trained = pd.DataFrame(lockstep.live[0].rows)
    return compare(run, trained, informed(lockstep.live[0].sampler))


def informed(sampler: Sampler) -> bool:
    """Whether a sampler's choices depend on training results, and therefore on last digits."""
    kind = type(sampler)
    return kind.observe is not Sampler.observe or inspect.isgeneratorfunction(kind.select)


def compare(archived: ArchivedRun, trained: pd.DataFrame, informed: bool, whole: bool = False) -> Compared:
    """Compare every number of every round, up to the first round that differs.

    Different numbers are allowed after a different choice by a sampler that depends on training results. Where choices
    are not archived, such a sampler is assumed to have made a different one.

    whole: the run was trained to its end, so that no row may be missing or additional.
    """
    n = min(len(trained), len(archived.rows))
    old, new = archived.rows.head(n), trained.head(n)
    differs, largest = np.zeros(n, bool), np.zeros(n)
    for column in (c for c in old if c in new and c not in UNLIKE):
        first, second = old[column].to_numpy(float), new[column].to_numpy(float)
        gap = np.where(first == second, 0, np.abs(first - second))  # infinite numbers equal themselves
        relative = gap / np.maximum(np.abs(first), 1e-3)
        if column == "test_accuracy":
            differs |= gap > SAMPLES / datasets.counts(archived.record["data"]["name"])[1] + 1e-9
        elif "accuracy" in column:
            differs |= gap > SHARE
        elif pd.api.types.is_float_dtype(new[column]):
            differs |= relative > ROUNDING
            largest = np.fmax(largest, relative) if "loss" in column else largest
        else:
            differs |= gap > 0
        unlike = np.isnan(first) != np.isnan(second)
        if (
            not whole
        ):  # the last round may be measured only because it is a run's last, or the other way round
            unlike[-1] = False
        differs |= unlike
    first_different = int(np.argmax(differs)) if differs.any() else None
    choices = _other_choice(old, new)
    if choices is not None and (first_different is None or choices <= first_different):
        first_different, allowed = choices, informed and choices > 0
    else:
        allowed = first_different is None or ("clients" not in old and informed and first_different > 1)
    if whole and first_different is None and len(trained) != len(archived.rows):
        first_different, allowed = n, False
    comparable = largest[: n if first_different is None else first_different]
    return Compared(archived, n - 1, float(np.nanmax(comparable, initial=0.0)), first_different, allowed)


def _other_choice(old: pd.DataFrame, new: pd.DataFrame) -> int | None:
    if "clients" not in old:
        return None
    pairs = zip(old["clients"], new["clients"], strict=True)
    return next((t for t, (first, two) in enumerate(pairs) if list(first) != list(two)), None)
