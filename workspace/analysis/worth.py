"""What to train next: the runs that decide most core claims per hour first, as many as fit into the time.

A `Need` is a part of a claim (a cell under the primary reading) that is open, and the runs that it asks for. If those
that are missing take h hours, an hour of them is worth `share` x `chance` / h claims. A unit is the missing runs of one
setting of an experiment with one seed that serve the same needs, and a fixed time to start them. Its worth is the sum
over these needs: over core claims first, then over others. Among units of equal worth, the lower seed comes first, then
the cheaper unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.runs.work import Work
from workspace.analysis import claim as data
from workspace.analysis import effects, judge
from workspace.analysis.readings import Where, primary, readings

START = 20.0  # seconds to start a process, read its data and archive its results
MARGIN = 120.0  # seconds that a start and the first checkpoint take


class Condition(NamedTuple):
    """The runs of a method in a setting, with all seeds."""

    experiment: str
    setting: str
    method: str

    @classmethod
    def of(cls, work: Work) -> Condition:
        """Of a run its own; a measurement of a study stands for the study, which is measured as a whole."""
        if work.run is None:
            return cls(work.name, "", "")
        return cls(work.name, work.labels["setting"], work.labels["method"])


@dataclass(frozen=True)
class Need:
    """An open part of a claim: the arms that it compares. share: of the claim, so that its parts make up one.

    chance: that one more seed shows it, at the spread that was observed.
    """

    claim: str
    core: bool
    share: float
    arms: frozenset[Condition]
    chance: float = 1.0


@dataclass(frozen=True)
class Unit:
    """Missing runs of one setting of an experiment with one seed.

    seconds: estimated time, `START` included. claims: that they help to decide, core claims first. worth: core claims
    per hour, and others per hour. chance: the highest of those that one seed more shows what it helps to decide.
    whole: whether it is expected to finish in time; otherwise it is begun, and its last checkpoint is kept.
    """

    experiment: str
    setting: str
    seed: int
    work: tuple[Work, ...]
    seconds: float
    claims: tuple[str, ...] = ()
    worth: tuple[float, float] = (0.0, 0.0)
    whole: bool = True
    chance: float = 1.0

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(str(work.labels["method"]) for work in self.work if work.run)


def units(missing: Iterable[Work], needs: Sequence[Need], cost: Callable[[Work], float]) -> list[Unit]:
    """The missing runs that some need asks for, as units in the order in which they should be trained.

    missing: of training runs. cost: seconds of a run.
    """
    asking: dict[Condition, frozenset[int]] = {}  # arm -> places of the needs that ask for it
    for k, need in enumerate(needs):
        for arm in need.arms:
            asking[arm] = asking.get(arm, frozenset()) | {k}
    groups: dict[tuple[str, str, int, frozenset[int]], list[Work]] = {}
    for work in missing:
        if of := asking.get(Condition.of(work)):
            place = ("", 0) if work.run is None else (work.labels["setting"], work.labels["seed"])
            groups.setdefault((work.name, *place, of), []).append(work)
    seconds = {key: START + sum(map(cost, work)) for key, work in groups.items()}
    hours = [sum(time for key, time in seconds.items() if k in key[3]) / 3600 for k in range(len(needs))]
    ordered = []
    for key, work in groups.items():
        served = sorted(key[3], key=lambda k: not needs[k].core)
        worth = [
            sum(needs[k].share * needs[k].chance / hours[k] for k in served if needs[k].core == core)
            for core in (True, False)
        ]
        claims = tuple(dict.fromkeys(needs[k].claim for k in served))
        likely = max(needs[k].chance for k in served)
        unit = Unit(*key[:3], tuple(work), seconds[key], claims, (worth[0], worth[1]), chance=likely)
        ordered.append(unit)
    return sorted(ordered, key=lambda unit: (-unit.worth[0], -unit.worth[1], unit.seed, unit.seconds))


def shared(parts: Mapping[str, tuple[bool, Mapping[frozenset[Condition], float]]]) -> list[Need]:
    """Needs whose shares make up one for each claim.

    parts: claim -> whether it is core, and the arms of each part with the chance that one seed more shows it.
    """
    return [
        Need(claim, core, 1 / len(arms), need, chance)
        for claim, (core, arms) in parts.items()
        for need, chance in arms.items()
    ]


def fitting(ordered: Iterable[Unit], within: float) -> list[Unit]:
    """The units to train within `within` seconds: those that fit, in order, then the first that does not, to be begun.

    A unit is begun only if the remaining time is enough for a checkpoint and one round.
    """
    chosen, partial, budget = [], None, within
    for unit in ordered:
        if unit.seconds <= budget:
            chosen.append(unit)
            budget -= unit.seconds
        elif partial is None:
            partial = unit
    if partial:
        rounds = min(work.run.T for work in partial.work if work.run)
        if budget > MARGIN + partial.seconds / rounds:
            chosen.append(replace(partial, whole=False))
    return chosen


Tables = Mapping[str, pd.DataFrame]
Parts = dict[
    frozenset[Condition], float
]  # the arms that a part of a claim compares -> the chance that it is shown
OPEN = ("unclear", "one seed", "not run")  # cells that more runs may change; an infeasible one they cannot
TYPICAL, SEEDS = 2.0, 5  # standard deviations and seeds that a cell without a spread is taken to have


def experiments_of(paper: str) -> set[str]:
    """The experiments and studies that a paper's claims may ask for, under any reading."""
    return set().union(*(data.asks(claim, readings(paper)) for claim in data.claims_of(paper)))


def needed(paper: str, results: Tables) -> dict[str, tuple[bool, Parts]]:
    """Open claim -> whether it is a core claim; the arms of each open cell, with the chance that one seed more has.

    results: tidy tables of what is finished.
    """
    arms = data.Arms(results)
    first = primary(paper).reading
    reading = next(reading for reading in readings(paper) if reading.name == first)
    requests: dict[str, tuple[bool, Parts]] = {}
    for claim in data.claims_of(paper):
        if claim.kind == "construction" or not claim.measure:
            continue
        cells = {cell.name: cell for cell in claim.cells}
        parts: Parts = {}
        for row in effects.rows(claim, arms):
            if row["primary"] and row["outcome"] in OPEN:
                cell = cells[row["cell"]]
                asked = frozenset(_arm(reading.find(arm.where), claim.measured_by(cell)) for arm in cell.arms)
                asked |= {Condition(name, "", "") for name in cell.needs}
                if asked:
                    parts[asked] = max(parts.get(asked, 0.0), chance(row))
        if parts:
            requests[claim.id] = claim.kind == "core", parts
    return requests


def chance(row: Mapping) -> float:
    """The chance that a cell is shown with one seed more, at the spread that was observed."""
    effect = judge.effect_of(row)
    if effect.n < 2:
        return judge.chance(np.array([TYPICAL]), SEEDS)
    distance = judge.distance(effect) if effect.test == "more" else 0.0
    return judge.chance(np.array([max(0.0, distance)]), effect.n + 1)


def _arm(where: Where, how: data.Measure | None) -> Condition:
    """A study has no methods that could be run alone."""
    if isinstance(how, data.Measurement) and how.by != "method":
        return Condition(where.experiment, "", "")
    return Condition(where.experiment, where.setting, where.method)
