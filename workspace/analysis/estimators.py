"""What the seeds of a cell say: an effect with its interval, and the probability of it on either side of a bound.

Every effect is one number per seed, y_s, on an additive scale: the logarithm of a ratio, or a difference. Seeds are
paired: y_s compares runs that share partition, initial model and mini-batches. The interval is Student's, which has the
coverage that it names for three seeds too; a bootstrap of three seeds does not. Formulas: `docs/judging.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special, stats

from workspace.analysis import words

LEVEL = 0.95
ALPHA = (1 - LEVEL) / 2  # in each direction, so that every statement can be read off a 95 % interval
POWER = 0.8
MOST = 1000  # seeds; more are not counted
ROUNDING = 1 / math.sqrt(12)  # standard deviation of what is rounded to whole units


@dataclass(frozen=True)
class Effect:
    """An effect over paired seeds, on its additive scale (logarithms of ratios, differences).

    estimate: mean over seeds. low, high: 95 % t-interval; NaN with fewer than two seeds, infinite where a side is
    censored. spread: standard deviation over seeds. n: number of seeds. bound: what the claim says the effect exceeds
    ("more"; 0: no effect), or the largest deviation that counts as none ("same"). open, under: a side did not arrive,
    so that the true effect may be larger, smaller. finest: the least spread that the measure can show. lost: seeds
    without a finite value.
    """

    estimate: float
    low: float
    high: float
    spread: float
    n: int
    bound: float = 0.0
    test: Literal["more", "same"] = "more"
    open: bool = False
    under: bool = False
    finest: float = 0.0
    lost: int = 0

    @classmethod
    def of(
        cls, values: Sequence[float] | np.ndarray, bound: float = 0.0, test: Literal["more", "same"] = "more",
        open: bool = False, under: bool = False, finest: float = 0.0, lost: int = 0,
    ) -> Effect:  # fmt: skip
        """The effect of (n,) values, one per seed."""
        y = np.asarray(values, dtype=float)
        mean = float(y.mean()) if len(y) else math.nan
        about = (bound, test, open, under, finest, lost)
        if len(y) < 2:
            return cls(mean, math.nan, math.nan, math.nan, len(y), *about)
        spread = float(y.std(ddof=1))
        half = quantile((1 + LEVEL) / 2, len(y)) * spread / math.sqrt(len(y))
        low, high = -math.inf if under else mean - half, math.inf if open else mean + half
        return cls(mean, low, high, spread, len(y), *about)

    def p(self, bound: float, upper: bool) -> float:
        """P-value of the one-sided t-test that the effect lies on one side of a bound.

        It is 1 with fewer than two seeds, with lost seeds, and where that side is not bounded by what was seen.
        """
        if self.n < 2 or self.lost or (self.under if upper else self.open):
            return 1.0
        distance = (self.estimate - bound) if upper else (bound - self.estimate)
        error = max(self.spread, self.finest) / math.sqrt(self.n)
        if error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.n - 1, -distance / error))

    @property
    def p_shown(self) -> float:
        """One-sided p-value of the claimed direction: above the bound, or a deviation within it ("same")."""
        if self.test == "more":
            return self.p(self.bound, upper=True)
        return max(self.p(-self.bound, upper=True), self.p(self.bound, upper=False))

    @property
    def p_reversed(self) -> float:
        """One-sided p-value of the opposite: below the bound, or a deviation beyond it ("same")."""
        if self.test == "more":
            return self.p(self.bound, upper=False)
        return min(self.p(self.bound, upper=True), self.p(-self.bound, upper=False))

    @property
    def needed(self) -> int:
        """The number of seeds that would show such an effect with power 0.8; 0 where none would."""
        distance = self.estimate - self.bound if self.test == "more" else self.bound - abs(self.estimate)
        spread = max(self.spread, self.finest)
        return seeds_for(distance / spread) if self.n >= 2 and spread > 0 and distance > 0 else 0


def cell_outcome(effect: Effect) -> words.Cell:
    """What a cell comes to by itself."""
    if effect.lost:
        return "lost seeds"
    if effect.n < 2:
        return "one seed" if effect.n else "not run"
    if effect.p_shown <= ALPHA:
        return "shown"
    return "reversed" if effect.p_reversed <= ALPHA else "unclear"


def outcome(effect: Effect) -> Literal["higher", "lower", "unclear", "one seed", "not run"]:
    """The side of no effect on which the 95 % interval lies."""
    if effect.n < 2:
        return "one seed" if effect.n else "not run"
    return "higher" if effect.low > 0 else "lower" if effect.high < 0 else "unclear"


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values adjusted for their number by Holm's step-down method."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = (len(p) - np.arange(len(p))) * p[order]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(p) else steps
    return adjusted


def not_rejected(p: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """h: the size of the largest set of hypotheses that closed testing with Simes' test does not reject.

    p: (..., m) p-values. -> (...). At least m - h hypotheses are false, with simultaneous confidence 1 - alpha (Goeman
    and Solari 2011); single ones are rejected where p <= alpha / h (Hommel 1988).
    """
    p = np.sort(np.asarray(p, dtype=float), axis=-1)
    m = p.shape[-1]
    h = np.zeros(p.shape[:-1], dtype=int)
    for i in range(1, m + 1):  # the i largest
        alone = (p[..., m - i :] > alpha * np.arange(1, i + 1) / i).all(axis=-1)
        h = np.where(alone, i, h)
    return h


def simes(p: np.ndarray | Sequence[float]) -> np.ndarray:
    """Simes' p-value that at least one of (..., m) hypotheses is false."""
    p = np.sort(np.asarray(p, dtype=float), axis=-1)
    m = p.shape[-1]
    return np.minimum(1.0, (p * m / np.arange(1, m + 1)).min(axis=-1))


def trend(levels: Sequence[float]) -> np.ndarray:
    """Weights of the least-squares slope over an ordered factor: sum_k weight_k y_k is the change per unit."""
    x = np.asarray(levels, dtype=float)
    centred = x - x.mean()
    return centred / (centred @ centred)


@lru_cache
def quantile(share: float, n: int) -> float:
    """The quantile of Student's t with n - 1 degrees of freedom."""
    return float(stats.t.ppf(share, n - 1))


@lru_cache
def _least(alpha: float) -> np.ndarray:
    """The effect, in standard deviations, that n = 2, 3, ... seeds find at a level with power 0.8; decreasing."""
    n = np.arange(2, MOST + 1)
    return (stats.t.ppf(1 - alpha, n - 1) + stats.t.ppf(POWER, n - 1)) / np.sqrt(n)


def seeds_for(effect: float, alpha: float = ALPHA) -> int:
    """The number of paired seeds that find an effect (in standard deviations) with power 0.8; at most `MOST` + 1."""
    return 2 + int((_least(alpha) > effect).sum())
