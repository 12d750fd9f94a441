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
from fedlib.data.sources import KINDS
from fedlib.errors import DataError, StoreError
from fedlib.runs import archive as archives
from fedlib.runs.place import Place
from fedlib.runs.supply import runs_in_lockstep
from fedlib.runs.work import is_measurement
from fedlib.samplers import Sampler
from fedlib.settings.code import NUMERICS
from fedlib.settings.schema import Run, Scale

ROUNDING = 1e-5  # relative; the largest measured difference is 2e-7
SAMPLES = 2  # of the test set, whose predicted class may change with the last digits
LOSSES = ("test_loss", "train_loss", "local_loss")


@dataclass(frozen=True)
class Archived:
    """An archived run: its experiment, its record, its rows."""

    experiment: str
    record: dict[str, Any]
    rows: pd.DataFrame


@dataclass(frozen=True)
class Compared:
    """A run trained again. rounds: how many. largest: relative difference of losses while the choices are the same.

    other: the first round with different numbers, None if there is none. allowed: whether this difference is allowed.
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
    """At most n archived runs at a scale, drawn at random from those that this code would train and whose dataset is
    prepared here.

    Each comes from another experiment, so that experiments with many runs do not dominate. An experiment gives a second
    run only after every other one has given a run.

    Raises:
        StoreError: there is no such run.
    """
    rng, seen, found = np.random.default_rng(seed), set(), []
    paths, here = sorted((archive / scale).glob("*.parquet")), _prepared(place)
    for i in rng.permutation(len(paths)):
        packed = archives.read(paths[i].stem, scale, archive)
        own = [a for a, record in packed.records.items() if a not in seen and _at_hand(record, here)]
        seen.update(own)
        found.append([(packed, paths[i].stem, own[j]) for j in rng.permutation(len(own))])
    in_turn = (one for turn in zip_longest(*found) for one in turn if one)
    drawn = list(islice((one for one in in_turn if _is_of_this_code(*one)), n))
    if not drawn:
        raise StoreError(
            f"{archive / scale}: no run that this code would train has its dataset prepared here; see "
            "`fedlib data status`, or name another scale."
        )
    return [Archived(name, packed.records[a], packed.rows(a)) for packed, name, a in drawn]


def _prepared(place: Place) -> dict[str, str]:
    """The digests of the datasets that are prepared here."""
    found = {}
    for name in datasets.KINDS:
        with suppress(DataError):
            found[name] = datasets.digest(name, place.datasets)
    return found


def _at_hand(record: dict[str, Any], here: dict[str, str]) -> bool:
    data = record["data"]
    return not is_measurement(record) and here.get(data["name"]) == data["digest"]


def _is_of_this_code(packed: archives.Packed, _: str, address: str) -> bool:
    """Whether a run would have the same address if it were trained now."""
    record = packed.records[address]
    return Run(**record["run"]).address(NUMERICS, record["data"]["digest"]) == address


def rounds_within(run: Archived, seconds: float) -> int:
    """Number of a run's first rounds, at least one, that together took at most `seconds` when it was archived."""
    return max(1, int((run.rows["seconds"].cumsum() <= seconds).sum()) - 1)


def again(run: Archived, rounds: int, place: Place) -> Compared:
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


def compare(archived: Archived, trained: pd.DataFrame, informed: bool) -> Compared:
    """Compare round by round, up to the first round that differs.

    Different numbers are allowed after a different choice by a sampler that depends on training results. Where choices
    are not archived, such a sampler is assumed to have made a different one.
    """
    n, dataset = min(len(trained), len(archived.rows)), archived.record["data"]["name"]
    before, now = archived.rows.head(n), trained.head(n)
    differs, largest = np.zeros(n, bool), np.zeros(n)
    for column in (c for c in LOSSES if c in before and c in now):
        relative = _relative(before[column], now[column])
        # the last round trained here may be measured only because it is a run's last, or the other way round
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
