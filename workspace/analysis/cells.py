"""The cells of one claim: what its runs say under each reading, as rows of the effects table (`effects.COLUMNS`)."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlib.measure import Missing
from workspace.analysis import words as outcomes
from workspace.analysis.arrivals import Arrivals, Censored, followed
from workspace.analysis.claim import Arms, Cell, Claim, Computed, Level, Measurement, Rounds
from workspace.analysis.estimators import ROUNDING, Effect, cell_outcome
from workspace.analysis.readings import Reading, Where, primary, readings

Row = dict[str, Any]
OUT_OF_REACH = "full participation does not reach the target"
NOBODY = "no side reaches the target"
DIVERGED = "no finite value in seeds "


@dataclass(frozen=True)
class Seeds:
    """What the seeds of a cell give.

    values: seed -> effect on the additive scale. censored: seeds that did not arrive, over all sides. open, under:
    whether the true effect may be larger, or smaller, for that reason. finest: the least spread that the measure can
    show. late: runs beyond twice the median of their arm. lost: seeds without a value. words: what else there is.
    """

    values: Mapping[int, float]
    censored: int = 0
    open: bool = False
    under: bool = False
    finest: float = 0.0
    late: int = 0
    lost: tuple[int, ...] = ()
    words: str = ""


def rows(claim: Claim, arms: Arms, all_readings: bool = False) -> list[Row]:
    """The rows of one claim: those of its paper's primary reading, and of the other readings with runs.

    all_readings: those of the readings without runs too.
    """
    first = primary(claim.paper).reading
    options = readings(claim.paper) if claim.measure else []
    cache: dict[tuple, Row] = {}  # many readings compare the same runs
    by_reading = {reading.name: _under(claim, reading, arms, cache) for reading in options}
    if not options:
        chosen = next(reading for reading in readings(claim.paper) if reading.name == first)
        by_reading = {first: _under(claim, chosen, arms, cache)}
    kept = (
        cells
        for name, cells in by_reading.items()
        if all_readings or name == first or any(row["outcome"] != "not run" for row in cells)
    )
    return [_told(row, row["reading"] == first) for cells in kept for row in cells]


def _told(row: Row, is_primary: bool) -> Row:
    """A row of the table: only the primary reading has outcomes."""
    silent = not is_primary and row["outcome"] in outcomes.BY_ITSELF
    return row | {"primary": is_primary} | ({"outcome": "", "needed": 0} if silent else {})


def _under(claim: Claim, reading: Reading, arms: Arms, cache: dict[tuple, Row]) -> list[Row]:
    labels = {
        "paper": claim.paper,
        "claim": claim.id,
        "artifact": claim.artifact,
        "kind": claim.kind,
        "estimator": claim.estimator,
        "over": str(claim.over),
        "reading": reading.name,
        "commit": reading.commit,
        "unit": claim.measure.unit if claim.measure else "",
        "null": claim.natural(0.0),
    }
    cells = []
    for cell in claim.cells:
        runs = tuple(reading.find(arm.where) for arm in cell.arms)
        if (cell.name, runs) not in cache:
            cache[cell.name, runs] = _cell(claim, cell, runs, arms)
        cells.append(labels | cache[cell.name, runs])
    return cells


def _cell(claim: Claim, cell: Cell, runs: tuple[Where, ...], arms: Arms) -> Row:
    if cell.fact is not None:
        return _fact(claim, cell, arms)
    seeds = _seeds(claim, cell, runs, arms)
    effect = Effect.of(
        list(seeds.values.values()),
        claim.bound(cell),
        claim.test_of(cell),
        seeds.open,
        seeds.under,
        seeds.finest,
        len(seeds.lost),
    )
    decision = cell_outcome(effect)
    if seeds.words == OUT_OF_REACH:
        decision = "infeasible"
    elif effect.n and seeds.words == NOBODY:
        decision = "nobody arrives"
    names = ";".join("/".join(where) for where in runs) or cell.name
    return _row(claim, cell, effect, seeds, decision, hashlib.sha256(names.encode()).hexdigest()[:12])


def _row(claim: Claim, cell: Cell, effect: Effect, seeds: Seeds, decision: outcomes.Cell, runs: str) -> Row:
    sized = claim.sized() and math.isfinite(claim.expected(cell))
    spreads = {"/".join(arm.where): (arm.weight, arm.spread) for arm in cell.arms} if sized else {}
    return {
        "cell": cell.name,
        "data": cell.data,
        "partition": cell.partition,
        "participation": cell.participation,
        "shown": cell.shown,
        "test": effect.test,
        "estimate": claim.natural(effect.estimate),
        "low": claim.natural(effect.low),
        "high": claim.natural(effect.high),
        "margin": claim.natural(effect.bound),
        "n": effect.n,
        "seeds": list(seeds.values),
        "values": list(seeds.values.values()),
        "printed": claim.natural(claim.expected(cell)),
        "arms": json.dumps(spreads) if spreads else "",
        "censored": seeds.censored,
        "open": seeds.open,
        "under": seeds.under,
        "finest": seeds.finest,
        "late": seeds.late,
        "lost": len(seeds.lost),
        "p": effect.p_shown,
        "p_reversed": effect.p_reversed,
        "outcome": decision,
        "needed": effect.needed if decision == "unclear" else 0,
        "runs": runs,
        "words": seeds.words,
    }


def _seeds(claim: Claim, cell: Cell, runs: tuple[Where, ...], arms: Arms) -> Seeds:
    measure = claim.measured_by(cell)
    assert measure is not None
    if isinstance(measure, Computed):
        return _computed(measure, arms)
    if isinstance(measure, Level):
        measure = replace(measure, until=min(measure.until, arms.common(runs)))
    sides = [arms.measured(where, measure) for where in runs]
    if any(side is None for side in sides):
        return Seeds({})
    found = Seeds({})
    if isinstance(measure, Rounds):
        arrivals = [side for side in sides if isinstance(side, Arrivals)]
        tau = followed(arrivals, measure.T)
        found = _censoring(cell, arrivals, tau, _unreachable(runs, measure, arms))
        sides = [side.until(tau) for side in arrivals]
    by_seed = [side for side in sides if isinstance(side, dict)]
    if isinstance(measure, Measurement):
        late = [sum(isinstance(value, Censored) for value in side.values()) for side in by_seed]
        found = _bounded(cell, late, [len(side) for side in by_seed])
        found = replace(found, finest=ROUNDING * measure.resolution)
    weights = np.array([arm.weight for arm in cell.arms])
    if isinstance(measure, Rounds) and measure.log:
        means = np.array([np.mean(list(side.values())) for side in by_seed])
        late = sum(int((np.array([*s.values()]) > 2 * np.median([*s.values()])).sum()) for s in by_seed)
        found = replace(found, finest=ROUNDING * float(np.linalg.norm(weights / means)), late=late)
    shared = sorted(set.intersection(*map(set, by_seed)))
    scaled = {seed: np.array([claim.scaled(side[seed]) for side in by_seed]) for seed in shared}
    printed = claim.expected(cell) if claim.estimator == "agreement with print" else 0.0
    effects = {
        seed: float(np.dot(weights, values)) - printed
        for seed, values in scaled.items()
        if np.isfinite(values).all()
    }
    lost = tuple(seed for seed in shared if seed not in effects)
    if scaled and all(np.isnan(values).any() for values in scaled.values()):
        return Seeds({})  # it has not been measured
    if not lost:
        return replace(found, values=effects)
    return replace(found, values=effects, lost=lost, words=DIVERGED + ", ".join(map(str, lost)))


def _unreachable(runs: Iterable[Where], measure: Rounds, arms: Arms) -> bool:
    """Whether full participation misses the target where some runs are compared."""
    references = (arms.measured(where._replace(method=measure.reference), measure) for where in runs)
    return any(isinstance(side, Arrivals) and not side.reached for side in references)


def _censoring(cell: Cell, sides: list[Arrivals], tau: float, unreachable: bool) -> Seeds:
    """What is censored in the first tau rounds, without effects: a side that is late bounds the effect on one side."""
    found = _bounded(cell, [side.censored(tau) for side in sides], [len(side.rounds) for side in sides])
    return replace(found, words=OUT_OF_REACH) if unreachable else found


def _bounded(cell: Cell, late: list[int], seeds: list[int]) -> Seeds:
    """What is censored, without effects. late: of each arm, how many of its seeds did not arrive."""
    words = NOBODY if len(seeds) > 1 and late == seeds else ""
    larger, smaller = (
        any(n and sign * arm.weight > 0 for n, arm in zip(late, cell.arms, strict=True)) for sign in (1, -1)
    )
    return Seeds({}, sum(late), larger, smaller, words=words)


def _computed(measure: Computed, arms: Arms) -> Seeds:
    """The effects of a claim that computes them by itself; none if it lacks runs."""
    try:
        effects = dict(sorted(measure.effect(arms.results).items()))
    except (KeyError, Missing):
        return Seeds({})
    values = {seed: value for seed, value in effects.items() if math.isfinite(value)}
    lost = tuple(seed for seed in effects if seed not in values)
    words = DIVERGED + ", ".join(map(str, lost)) if lost else ""
    return Seeds(values, finest=ROUNDING * measure.resolution, lost=lost, words=words)


def _fact(claim: Claim, cell: Cell, arms: Arms) -> Row:
    assert cell.fact is not None
    nothing, nan = Seeds({}), math.nan
    if not all(name in arms.results for name in cell.needs):
        return _row(claim, cell, Effect(nan, nan, nan, nan, 0, nan), nothing, "not run", "")
    true = cell.fact(arms.results)
    effect = Effect(float(true), nan, nan, nan, 0, nan)
    return _row(claim, cell, effect, nothing, "true" if true else "false", cell.name)
