"""The runs that open core and other claims ask for: those of the arms of each open cell, under the primary reading."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from workspace.analysis import claim as data
from workspace.analysis import effects, judge
from workspace.analysis.planning import Condition
from workspace.analysis.readings import Where, primary, readings

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
