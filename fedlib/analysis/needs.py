"""The runs that undecided claims ask for: those of the arms of each cell, under each reading.

A claim that is data names its arms. Of a claim that is a rule, they are found by giving the rule a stand-in of
everything that is planned, and recording what it looks up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib.analysis import claim as data
from fedlib.analysis import claims as rules
from fedlib.analysis import effects
from fedlib.analysis.measure import Missing
from fedlib.analysis.planning import Arm
from fedlib.analysis.readings import Reading, Where, named, readings
from fedlib.runs.results import MEASURES
from fedlib.runs.work import Plan

Tables = Mapping[str, pd.DataFrame]
OPEN = ("undecided", "one seed", "not run")  # outcomes that more runs may change


def experiments_of(paper: str) -> set[str]:
    """The experiments and studies that a paper's claims may ask for, under any reading."""
    if claims := data.claims_of(paper):
        arms = [arm.where for claim in claims for cell in claim.cells for arm in cell.arms]
        return {reading.find(where).experiment for reading in readings(paper) for where in arms}
    asked = {name for claim in rules.claims(paper) for name in claim.needs}
    return asked | {swap.source for reading in named(paper) for swap in reading.swaps if swap.source}


def needed(
    paper: str, results: Tables, plans: Mapping[str, Plan]
) -> dict[str, tuple[bool, list[frozenset[Arm]]]]:
    """Undecided claim -> whether it is a core claim, and the arms that each of its undecided parts compares.

    results: tidy tables of what is finished. plans: of the same experiments.
    """
    if not data.claims_of(paper):
        return _of_rules(paper, results, plans)
    arms = data.Arms(results)
    asked: dict[str, tuple[bool, list[frozenset[Arm]]]] = {}
    for claim in data.claims_of(paper):
        of = {reading.name: reading for reading in readings(paper)}
        cells = {cell.name: cell for cell in claim.cells}
        open_rows = [row for row in effects.rows(claim, arms, every=True) if row["outcome"] in OPEN]
        parts = [
            frozenset(_arm(of[row["reading"]].find(arm.where)) for arm in cells[row["cell"]].arms)
            for row in open_rows
        ]
        asked[claim.id] = claim.kind == "core", [part for part in dict.fromkeys(parts) if part]
    return {claim: of for claim, of in asked.items() if of[1]}


def _arm(where: Where) -> Arm:
    return Arm(where.experiment, where.setting, where.method)


def _of_rules(
    paper: str, results: Tables, plans: Mapping[str, Plan]
) -> dict[str, tuple[bool, list[frozenset[Arm]]]]:
    stand_ins = {name: stand_in(plan) for name, plan in plans.items() if plan.work and plan.work[0].run}
    asked: dict[str, tuple[bool, list[frozenset[Arm]]]] = {}
    for reading in named(paper):
        runs, planned = rules.Runs(reading.of(results)), rules.Runs(reading.of(stand_ins))
        for claim in rules.claims(paper):
            if not claim.informative and _undecided(claim, runs.only(claim.needs)):
                core, parts = asked.setdefault(claim.id, (True, []))
                parts += looked_up(claim, planned.only(claim.needs), reading)
    return {claim: (core, list(dict.fromkeys(parts))) for claim, (core, parts) in asked.items() if parts}


def _undecided(claim: rules.Claim, runs: rules.Runs) -> bool:
    """Whether a rule lacks runs of a part, or its verdict is not settled."""
    try:
        if "not run" in claim.rule(runs).words:
            return True
    except Missing:
        return True
    return claim.judge(runs).strength != "settled"  # takes the rule once more for each seed


def looked_up(claim: rules.Claim, runs: rules.Runs, reading: Reading) -> list[frozenset[Arm]]:
    """The arms that a rule looks up, one set per experiment; runs: `stand_in` of all plans, under a reading.

    Where the rule ends early because a stand-in cannot satisfy it, all arms of what it has not looked up.
    """
    lookups: set[tuple[str, str | None, tuple[str, ...]]]
    try:
        claim.rule(runs)
        lookups = set(runs.notes)
    except Exception:  # a rule may fail in any way on numbers that mean nothing
        seen = {name for name, _, _ in runs.notes}
        lookups = {
            *runs.notes,
            *((name, None, ()) for name in claim.needs if name in runs and name not in seen),
        }
    parts: dict[str, set[Arm]] = {}
    for name, setting, methods in lookups:
        table = runs.results[name].drop_duplicates(["setting", "method"])
        for where in zip(table["setting"], table["method"], strict=True):
            if setting in (None, where[0]) and (not methods or where[1] in methods):
                parts.setdefault(name, set()).add(_arm(reading.find(Where(name, *where))))
    return [frozenset(arms) for arms in parts.values()]


def stand_in(plan: Plan) -> pd.DataFrame:
    """A tidy table in the place of all runs of a plan: one seed, the planned rounds, numbers that mean nothing."""
    rng, frames = np.random.default_rng(0), []
    for work in plan.work:
        run = work.run
        if run is None or run.seed != plan.work[0].labels["seed"]:
            continue
        rounds = np.arange(0, run.T + 1, run.evaluate.every)
        numbers = {column: rng.random(len(rounds)) for column in (*MEASURES, "seconds", "server_seconds")}
        frames.append(
            pd.DataFrame(numbers).assign(
                **work.labels,
                round=rounds,
                experiment=plan.name,
                diverged=False,
                clients=[list(range(run.m))] * len(rounds),
                notes=None,
                client_steps=1,
            )
        )
    return pd.concat(frames, ignore_index=True)
