"""What a claim comes to, from the rows of its cells: order and size, each with its own test (`docs/judging.md`).

*Order* asks for an effect in the claimed direction: "in all" settings is an intersection, tested in every cell at the
full level; "at least k of m" and "reversed in at least j" follow by closed testing with Simes' test. *Size* asks
whether the mean over the cells is as large as printed. Several claims of a paper are corrected in `effects.corrected`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from workspace.analysis import words
from workspace.analysis.claim import BELOW, HALF
from workspace.analysis.estimators import ALPHA, LEVEL, MOST, POWER, Effect, not_rejected, quantile, simes

Row = Mapping[str, Any]


def effect_of(row: Row) -> Effect:
    """A cell's effect on the additive scale, from its row of the effects table."""
    bound = math.log(row["margin"]) if row["null"] == 1 else row["margin"]
    about = (row["open"], row["under"], row["finest"], row["lost"])
    return Effect.of(row["values"], bound, row["test"], *about)


def compared(cells: Sequence[Row]) -> list[dict[str, Any]]:
    """The cells that take part: those with two seeds or more that compare something, and those that lost seeds."""
    return [dict(row) for row in cells if row["outcome"] not in words.APART]


def pooled(cells: Sequence[Row]) -> tuple[Effect, dict[int, float]]:
    """The mean over cells, seed by seed, over the seeds that all of them have; and its value by seed."""
    effects = [effect_of(row) for row in cells]
    by_seed = [dict(zip(row["seeds"], row["values"], strict=True)) for row in cells]
    shared = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
    means = {int(seed): float(np.mean([values[seed] for values in by_seed])) for seed in shared}
    if not effects:
        return Effect.of([]), means
    bound = float(np.mean([effect.bound for effect in effects]))
    sides = (any(effect.open for effect in effects), any(effect.under for effect in effects))
    finest = float(np.mean([effect.finest for effect in effects]))
    lost = sum(effect.lost for effect in effects)
    test = "same" if all(effect.test == "same" for effect in effects) else "more"
    return Effect.of(list(means.values()), bound, test, *sides, finest, lost), means


# -- order


@dataclass(frozen=True)
class Order:
    """The order of a claim before any correction for the paper's other claims.

    m: settings that were compared; M: that the claim names. p, p_reversed: of the claim, and of what contradicts it.
    shown, reversed: in at least how many of m (95 %, simultaneous). where_shown, where_reversed: which ones surely.
    """

    m: int
    M: int
    p: float
    p_reversed: float
    shown: int
    reversed: int
    where_shown: tuple[str, ...] = ()
    where_reversed: tuple[str, ...] = ()


def order(cells: Sequence[Row], over: str, mean: Effect) -> Order:
    """over: "all", "average", or in how many settings at least (`claim.Claim.over`). mean: of `pooled`."""
    judged = {row["cell"] for row in compared(cells)}
    names, groups = [], []
    for name, rows in settings(cells, over).items():
        if all(row["cell"] in judged for row in rows):
            names.append(name)
            groups.append(rows)
    m, M = len(names), len(settings(cells, over))
    if not m:
        return Order(0, M, 1.0, 1.0, 0, 0)
    p = np.array(
        [max(row["p"] for row in rows) for rows in groups]
    )  # a setting shows it where all of its cells do,
    back = np.array(
        [simes([row["p_reversed"] for row in rows]) for rows in groups]
    )  # the opposite where one does
    h, h_back = int(not_rejected(p)), int(not_rejected(back))
    if over == "average":
        ends = mean.p_shown, mean.p_reversed
    else:
        least = m if over == "all" else min(m, int(over))
        ends = at_least(p, least), at_least(back, min(m, 1 if over == "all" else M - int(over) + 1))
    surely = [tuple(np.array(names)[q <= ALPHA / max(1, i)].tolist()) for q, i in ((p, h), (back, h_back))]
    return Order(m, M, *ends, m - h, m - h_back, *surely)


def settings(cells: Sequence[Row], over: str) -> dict[str, list[Row]]:
    """The cells by what the claim counts: each for itself, or, of "almost all", with its setting's other baselines."""
    if over in ("all", "average"):
        return {row["cell"]: [row] for row in cells}
    groups: dict[str, list[Row]] = {}
    for row in cells:
        name = ", ".join(filter(None, (row["data"], row["partition"], row["participation"])))
        groups.setdefault(name, []).append(row)
    return groups


def at_least(p: np.ndarray, k: int) -> float:
    """P-value that at least k of the hypotheses are false: the least level at which closed testing says so."""
    q = np.sort(p)
    return float(max(simes(q[len(q) - i :]) for i in range(len(q) - k + 1, len(q) + 1)))


def decided(found: Order, adjusted: float, adjusted_reversed: float, over: str) -> words.Order:
    """The word for an order. adjusted, adjusted_reversed: its p-values after correction."""
    if adjusted <= ALPHA:
        return "holds" if found.m == found.M else "holds where run"
    if adjusted_reversed <= ALPHA:
        return "contradicted"
    if found.p <= ALPHA:
        return "not after correction"
    return "shown in part" if over != "average" and found.shown else "not shown"


def seeds_to_hold(cells: Sequence[Row], level: float, over: str, mean: Effect) -> tuple[int, str]:
    """The seeds with which the claim would hold with power 0.8 at a level, and the weakest of its cells.

    0 where no number would: a cell's estimate lies on the other side, or a side is not bounded by what was seen.
    """
    judged = [effect_of(row) for row in compared(cells)]
    chosen = [mean] if over == "average" else judged
    names = [row["cell"] for row in compared(cells)]
    if not chosen or any(effect.test != "more" for effect in chosen):
        return 0, ""
    d = np.array([distance(effect) for effect in chosen])
    weakest = "" if over == "average" or len(names) < 2 else names[int(np.argmin(d))]
    if not (d > 0).all() or any(effect.under or effect.lost for effect in chosen):
        return 0, weakest
    low, high = 2, MOST + 1
    if chance(d, MOST, level) < POWER:
        return MOST + 1, weakest
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if chance(d, middle, level) >= POWER else (middle + 1, high)
    return low, weakest


def distance(effect: Effect) -> float:
    """The effect beyond its bound, in standard deviations over seeds."""
    spread = max(effect.spread, effect.finest)
    beyond = effect.estimate - effect.bound
    return beyond / spread if spread > 0 else math.copysign(math.inf, beyond)


def chance(d: np.ndarray, n: int, level: float = ALPHA) -> float:
    """The probability that n seeds show effects of d standard deviations in every cell, were cells independent."""
    t = float(-special.stdtrit(n - 1, level))
    nc = np.minimum(np.asarray(d) * math.sqrt(n), 35.0)  # beyond it is certain, and not computed
    return float(np.prod(1 - special.nctdtr(n - 1, nc, t)))


# -- size


@dataclass(frozen=True)
class Size:
    """Whether the mean over cells is as large as printed; on the additive scale.

    printed: the printed mean over the same cells. margin: the least mean that is as large. ratio, low, high: ours less
    the printed, with its 95 % interval, into which print's own spread enters.
    """

    outcome: words.Size = ""
    printed: float = math.nan
    margin: float = math.nan
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    needed: int = 0


def size(cells: Sequence[Row]) -> Size:
    """From the cells that were compared and for which print says how large the effect is."""
    chosen = [row for row in compared(cells) if row["arms"] and math.isfinite(row["printed"])]
    if not chosen:
        return Size()
    mean, _ = pooled(chosen)
    log = chosen[0]["null"] == 1
    printed = float(np.mean([math.log(row["printed"]) if log else row["printed"] for row in chosen]))
    tau = spread_of_print([json.loads(row["arms"]) for row in chosen])
    margin = least(printed, tau)
    if printed <= 0 or mean.n < 2:
        return Size(printed=printed)
    half = quantile((1 + LEVEL) / 2, mean.n) * math.sqrt(mean.spread**2 / mean.n + tau**2)
    ratio = mean.estimate - printed
    outcome: words.Size = "size open"
    if not mean.lost and mean.low >= margin:
        outcome = "as large as printed"
    elif not mean.lost and mean.high < margin:
        outcome = "smaller than printed"
    return Size(
        outcome,
        printed,
        margin,
        ratio,
        -math.inf if mean.under else ratio - half,
        math.inf if mean.open else ratio + half,
        _seeds_for_size(mean, margin) if outcome == "size open" else 0,
    )


def spread_of_print(arms: Sequence[Mapping[str, tuple[float, float]]]) -> float:
    """tau: standard deviation of the printed mean over cells, from the spreads of its printed arms.

    arms: of each cell, name -> (weight, standard deviation). An arm that several cells share is one printed number.
    """
    weights: dict[str, float] = {}
    spreads: dict[str, float] = {}
    for cell in arms:
        for name, (weight, spread) in cell.items():
            weights[name] = weights.get(name, 0.0) + weight / len(arms)
            spreads[name] = spread
    return math.sqrt(sum((weights[name] * spreads[name]) ** 2 for name in weights))


def least(printed: float, tau: float) -> float:
    """The least mean effect that counts as large as printed."""
    return max(HALF * printed, printed - BELOW * tau)


def _seeds_for_size(mean: Effect, margin: float) -> int:
    """The seeds that would decide a size; 0 where none would, as a censored side leaves it open."""
    distance = mean.estimate - margin
    if mean.lost or (mean.under if distance > 0 else mean.open) or not mean.spread > 0 or distance == 0:
        return 0
    d = np.array([abs(distance) / mean.spread])
    return next((n for n in range(2, MOST + 1) if chance(d, n) >= POWER), MOST + 1)
