"""Archived runs, trained again: a random sample of them, whole or their first rounds, compared number by number.

What may differ, and why, stands in `docs/determinism.md`: last digits, and from the round on in which a sampler that
goes by what training gave comes to another choice, everything.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.data import datasets, partition
from fedlib.data.sources import KINDS, DataError
from fedlib.runs import archive as archives
from fedlib.runs.place import Place, cores
from fedlib.samplers import Sampler
from fedlib.settings.schema import Run, Scale
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

ROUNDING = 1e-5  # relative; measured differences are of 2e-7 at most
SAMPLES = 2  # of the test set, whose class may change with last digits
LOSSES = ("test_loss", "train_loss", "local_loss")


@dataclass(frozen=True)
class Archived:
    """A run as the archive holds it: the experiment, its record, its rows."""

    experiment: str
    record: dict[str, Any]
    rows: pd.DataFrame


@dataclass(frozen=True)
class Compared:
    """A run trained again. rounds: how many were. largest: relative difference of losses while choices are the same.

    other: the first round with other numbers, None if there is none. allowed: whether that may be so.
    """

    run: Archived
    rounds: int
    largest: float
    other: int | None
    allowed: bool

    @property
    def verdict(self) -> str:
        if self.other is None:
            return "the same"
        return (
            f"another choice, from round {self.other} on"
            if self.allowed
            else f"differs from round {self.other} on"
        )


def sample(scale: Scale, n: int, seed: int, archive: Path, place: Place) -> list[Archived]:
    """At most n archived runs at a scale, drawn at random among those whose dataset is prepared here."""
    found: dict[str, tuple[archives.Packed, str]] = {}
    for path in sorted((archive / scale).glob("*.parquet")):
        packed = archives.read(path.stem, scale, archive)
        here = {a: (packed, path.stem) for a, record in packed.records.items() if _at_hand(record, place)}
        found = here | found
    addresses = sorted(found)
    drawn = np.random.default_rng(seed).permutation(len(addresses))[:n]
    chosen = [(addresses[i], *found[addresses[i]]) for i in sorted(drawn)]
    return [Archived(name, packed.records[a], packed.rows(a)) for a, packed, name in chosen]


def _at_hand(record: dict[str, Any], place: Place) -> bool:
    if "run" not in record:  # a study's unit
        return False
    try:
        return datasets.digest(record["data"]["name"], place.datasets) == record["data"]["digest"]
    except DataError:
        return False


def again(runs: list[Archived], rounds: int, place: Place) -> Iterator[Compared]:
    """Train each run again, its first `rounds` rounds at most, and compare."""
    for one in runs:
        run = Run(**one.record["run"])
        dataset = datasets.load(run.dataset, place.datasets)
        tensors = datasets.tensors(dataset, run.scaling)
        executor = make_executor(run.model, tensors, place.device, place.threads or cores())
        part = partition.make(run.partition, dataset, run.N, run.seed, run.holdout)
        lockstep = Lockstep([run], [part], executor)
        while lockstep.active and lockstep.live[0].t < rounds:
            lockstep.advance()
        trained = pd.DataFrame(lockstep.live[0].rows)
        yield compare(one, trained, informed(lockstep.live[0].sampler))


def informed(sampler: Sampler) -> bool:
    """Whether a sampler's choices depend on what training gives, and with it on last digits."""
    kind = type(sampler)
    return kind.observe is not Sampler.observe or inspect.isgeneratorfunction(kind.select)


def compare(archived: Archived, trained: pd.DataFrame, informed: bool) -> Compared:
    """Compare round by round, up to the first that differs.

    Another number is allowed where the choice before it is another, and the sampler goes by what training gave. Where
    choices are not archived, such a sampler is taken to have come to another.
    """
    n, dataset = min(len(trained), len(archived.rows)), archived.record["data"]["name"]
    before, now = archived.rows.head(n), trained.head(n)
    differs, largest = np.zeros(n, bool), np.zeros(n)
    for column in (c for c in LOSSES if c in before and c in now):
        relative = _relative(before[column], now[column])
        # the last round that is trained here may be measured only because it is a run's last, or not
        largest = np.fmax(largest, relative)
        differs |= relative > ROUNDING
    if "test_accuracy" in before:
        gap = np.abs(before["test_accuracy"].to_numpy(float) - now["test_accuracy"].to_numpy(float))
        differs |= gap > SAMPLES / KINDS[dataset].n_test + 1e-9
    other = int(np.argmax(differs)) if differs.any() else None
    choices = _other_choice(before, now)
    if choices is not None and (other is None or choices <= other):
        other, allowed = choices, informed and choices > 0
    else:
        allowed = other is None or ("clients" not in before and informed and other > 1)
    same = largest[: n if other is None else other]
    return Compared(archived, n - 1, float(np.nanmax(same, initial=0.0)), other, allowed)


def _relative(before: pd.Series, now: pd.Series) -> np.ndarray:
    one, two = before.to_numpy(float), now.to_numpy(float)
    return np.abs(one - two) / np.maximum(np.abs(one), 1e-3)


def _other_choice(before: pd.DataFrame, now: pd.DataFrame) -> int | None:
    if "clients" not in before:
        return None
    pairs = zip(before["clients"], now["clients"], strict=True)
    return next((t for t, (one, two) in enumerate(pairs) if list(one) != list(two)), None)
