"""The runs that undecided claims ask for: those of the arms of each cell, under each reading."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workspace.analysis import claim as data
from workspace.analysis import effects
from workspace.analysis.planning import Condition
from workspace.analysis.readings import Where, readings

Tables = Mapping[str, pd.DataFrame]
OPEN = ("undecided", "one seed", "not run")  # outcomes that more runs may change


def experiments_of(paper: str) -> set[str]:
    """The experiments and studies that a paper's claims may ask for, under any reading."""
    return set().union(*(data.asks(claim, readings(paper)) for claim in data.claims_of(paper)))


def needed(paper: str, results: Tables) -> dict[str, tuple[bool, list[frozenset[Condition]]]]:
    """Undecided claim -> whether it is a core claim, and the arms that each of its undecided parts compares.

    results: tidy tables of what is finished.
    """
    arms = data.Arms(results)
    requests: dict[str, tuple[bool, list[frozenset[Condition]]]] = {}
    for claim in data.claims_of(paper):
        by_name = {reading.name: reading for reading in readings(paper)}
        cells = {cell.name: cell for cell in claim.cells}
        open_rows = [row for row in effects.rows(claim, arms, all_readings=True) if row["outcome"] in OPEN]
        parts = [
            frozenset(_arm(by_name[row["reading"]].find(arm.where)) for arm in cells[row["cell"]].arms)
            for row in open_rows
        ]
        requests[claim.id] = claim.kind == "core", [part for part in dict.fromkeys(parts) if part]
    return {claim: by_name for claim, by_name in requests.items() if by_name[1]}


def _arm(where: Where) -> Condition:
    return Condition(where.experiment, where.setting, where.method)
