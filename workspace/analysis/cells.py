"""The cells of one claim: what its runs say under each reading, as rows of the effects table (`effects.COLUMNS`)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedlib.measure import Missing
from workspace.analysis.arrivals import Arrivals, followed
from workspace.analysis.claim import Arms, Cell, Claim, Computed, Level, Rounds
from workspace.analysis.estimators import Effect, Outcome, outcome
from workspace.analysis.readings import Reading, Where, readings

Row = dict[str, Any]
OUT_OF_REACH = "full participation does not reach the target"
NOBODY = "no side reaches the target"
DIVERGED = "no finite value in seeds "


@dataclass(frozen=True)
class Seeds:
    """What the seeds of a cell give.

    values: seed -> effect on the additive scale. censored: seeds that did not arrive, over all sides. open: whether
    the true effect may be larger for that reason. words: what else there is to say.
    """

    values: Mapping[int, float]
    censored: int = 0
    open: bool = False
    words: str = ""


def rows(claim: Claim, arms: Arms, all_readings: bool = False) -> list[Row]:
    """The rows of one claim: those of the readings with runs, or without any those of the first.

    all_readings: those of the readings without runs too.
    """
    options = readings(claim.paper) if claim.measure else readings(claim.paper)[:1]
    cache: dict[tuple, Row] = {}  # many readings compare the same runs
    by_reading = [_under(claim, reading, arms, cache) for reading in options]
    ran = [cells for cells in by_reading if any(row["outcome"] != "not run" for row in cells)]
    return [row for cells in (by_reading if all_readings else ran or by_reading[:1]) for row in cells]


def _under(claim: Claim, reading: Reading, arms: Arms, cache: dict[tuple, Row]) -> list[Row]:
    labels = {
        "paper": claim.paper,
        "claim": claim.id,
        "artifact": claim.artifact,
        "kind": claim.kind,
        "estimator": claim.estimator,
        "reading": reading.name,
        "commit": reading.commit,
        "unit": claim.measure.unit if claim.measure else "",
        "null": claim.natural(0.0),
        "test": claim.test,
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
    effect = Effect.of(list(seeds.values.values()), claim.bound(cell), claim.test, seeds.open)
    decision = "infeasible" if seeds.words == OUT_OF_REACH else outcome(effect)
    if effect.n and (seeds.words == NOBODY or seeds.words.startswith(DIVERGED)):
        decision = "undecided"
    names = ";".join("/".join(where) for where in runs) or cell.name
    return _row(claim, cell, effect, seeds, decision, hashlib.sha256(names.encode()).hexdigest()[:12])


def _row(claim: Claim, cell: Cell, effect: Effect, seeds: Seeds, decision: Outcome, runs: str) -> Row:
    return {
        "cell": cell.name,
        "data": cell.data,
        "partition": cell.partition,
        "participation": cell.participation,
        "shown": cell.shown,
        "estimate": claim.natural(effect.estimate),
        "low": claim.natural(effect.low),
        "high": claim.natural(effect.high),
        "margin": claim.natural(effect.margin),
        "n": effect.n,
        "seeds": list(seeds.values),
        "values": list(seeds.values.values()),
        "printed": claim.natural(claim.expected(cell)),
        "censored": seeds.censored,
        "open": seeds.open,
        "outcome": decision,
        "needed": effect.needed if decision == "undecided" else 0,
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
    censoring = Seeds({})
    if isinstance(measure, Rounds):
        arrivals = [side for side in sides if isinstance(side, Arrivals)]
        tau = followed(arrivals, measure.T)
        censoring = _censoring(cell, arrivals, tau, _unreachable(runs, measure, arms), measure.T)
        sides = [side.until(tau) for side in arrivals]
    by_seed = [side for side in sides if isinstance(side, dict)]
    scaled = {
        seed: [claim.scaled(side[seed]) for side in by_seed]
        for seed in sorted(set.intersection(*map(set, by_seed)))
    }
    words = censoring.words
    if diverged := [str(seed) for seed, values in scaled.items() if any(map(math.isinf, values))]:
        words = DIVERGED + ", ".join(diverged)
    printed = claim.expected(cell) if claim.estimator == "agreement with print" else 0.0
    weights = [arm.weight for arm in cell.arms]
    effects = {
        seed: float(np.dot(weights, values)) - printed
        for seed, values in scaled.items()
        if all(map(math.isfinite, values))
    }
    return replace(censoring, values=effects, words=words)


def _unreachable(runs: Iterable[Where], measure: Rounds, arms: Arms) -> bool:
    """Whether full participation misses the target where some runs are compared."""
    references = (arms.measured(where._replace(method=measure.reference), measure) for where in runs)
    return any(isinstance(side, Arrivals) and not side.reached for side in references)


def _censoring(cell: Cell, sides: list[Arrivals], tau: float, unreachable: bool, T: float) -> Seeds:
    """What is censored in the first tau rounds, without effects."""
    late = [side.censored(tau) for side in sides]
    words = OUT_OF_REACH if unreachable else ""
    if (
        not words
        and len(sides) > 1
        and all(n == len(side.rounds) for n, side in zip(late, sides, strict=True))
    ):
        words = NOBODY
    larger = any(n and arm.weight > 0 for n, arm in zip(late, cell.arms, strict=True))
    # "not reached in T rounds" is what is printed
    agrees = len(sides) == 1 and cell.arms[0].printed == math.inf and tau >= T
    return Seeds({}, sum(late), larger and not agrees, words)


def _computed(measure: Computed, arms: Arms) -> Seeds:
    """The effects of a claim that computes them by itself; none if it lacks runs."""
    try:
        effects = measure.effect(arms.results)
    except (KeyError, Missing):
        return Seeds({})
    return Seeds({seed: value for seed, value in sorted(effects.items()) if math.isfinite(value)})


def _fact(claim: Claim, cell: Cell, arms: Arms) -> Row:
    assert cell.fact is not None
    nothing, nan = Seeds({}), math.nan
    if not all(name in arms.results for name in cell.needs):
        return _row(claim, cell, Effect(nan, nan, nan, nan, 0, nan), nothing, "not run", "")
    true = cell.fact(arms.results)
    effect = Effect(float(true), nan, nan, nan, 0, nan)
    return _row(claim, cell, effect, nothing, "replicated" if true else "refuted", cell.name)
