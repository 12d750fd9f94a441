"""What the seeds of a cell say: an effect with its interval, and one of three outcomes. Formulas: `docs/judging.md`.

Every effect is one number per seed, y_s, on an additive scale: the logarithm of a ratio, or a difference. Seeds are
paired: y_s compares runs that share partition, initial model and mini-batches. The interval is Student's, which has the
coverage that it names for three seeds too; a bootstrap of three seeds does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import special, stats

Outcome = Literal["replicated", "refuted", "undecided", "one seed", "not run", "infeasible"]
OUTCOMES: tuple[Outcome, ...] = ("replicated", "refuted", "undecided", "one seed", "not run", "infeasible")
LEVEL = 0.95
POWER = 0.8
MOST = 1000  # seeds; more are not counted


@dataclass(frozen=True)
class Effect:
    """An effect over paired seeds, on its additive scale (logarithms of ratios, differences).

    estimate: mean over seeds. low, high: 95 % t-interval; NaN with fewer than two seeds. spread: standard deviation
    over seeds. n: number of seeds. margin: the least effect that agrees with the claim ("more"), or the largest
    deviation that counts as none ("same"). The value of no effect is 0; a margin below it says by how much a side may
    be worse. open: the larger side is censored, so the true effect may be larger.
    """

    estimate: float
    low: float
    high: float
    spread: float
    n: int
    margin: float = 0.0
    test: Literal["more", "same"] = "more"
    open: bool = False

    @classmethod
    def of(
        cls, values: Sequence[float] | np.ndarray, margin: float = 0.0, test: Literal["more", "same"] = "more",
        open: bool = False,
    ) -> Effect:  # fmt: skip
        """The effect of (n,) values, one per seed."""
        y = np.asarray(values, dtype=float)
        mean = float(y.mean()) if len(y) else math.nan
        if len(y) < 2:
            return cls(mean, math.nan, math.nan, math.nan, len(y), margin, test, open)
        spread = float(y.std(ddof=1))
        half = quantile((1 + LEVEL) / 2, len(y)) * spread / math.sqrt(len(y))
        return cls(mean, mean - half, mean + half, spread, len(y), margin, test, open)

    def p(self, bound: float, upper: bool) -> float:
        """P-value of the one-sided t-test that the effect lies on one side of a bound; 1 with fewer than two seeds."""
        if self.n < 2:
            return 1.0
        error = self.spread / math.sqrt(self.n)
        distance = (self.estimate - bound) if upper else (bound - self.estimate)
        if error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(special.stdtr(self.n - 1, -distance / error))

    @property
    def null(self) -> float:
        """What the effect must exceed: no effect, or the margin where the claim is to be no worse by more than that."""
        return min(self.margin, 0.0)

    @property
    def p_replicated(self) -> float:
        """Against no effect, two-sided ("more"); against a deviation of the margin, two one-sided tests ("same")."""
        if self.test == "more":
            return min(1.0, 2 * self.p(self.null, upper=True))
        if self.open:  # how far beyond the estimate the truth lies is not known
            return 1.0
        return max(self.p(-self.margin, upper=True), self.p(self.margin, upper=False))

    @property
    def p_refuted(self) -> float:
        """Against the margin (no effect, where `open`), two-sided ("more"); against a smaller deviation ("same")."""
        if self.test == "more":
            return min(1.0, 2 * self.p(self.null if self.open else self.margin, upper=False))
        p = [self.p(self.margin, upper=True)] + [self.p(-self.margin, upper=False)] * (not self.open)
        return min(1.0, 2 * min(p))

    @property
    def reversed(self) -> bool:
        """Whether the estimate lies on the side that the claim denies."""
        return self.estimate < self.null if self.test == "more" else abs(self.estimate) > self.margin

    @property
    def needed(self) -> int:
        """The number of seeds with which such an effect would be decided with power 0.8; 0 without a spread."""
        if self.n < 2 or not self.spread > 0:
            return 0
        if self.test == "more":
            distance = max(
                self.estimate - self.null, (self.null if self.open else self.margin) - self.estimate
            )
        else:
            distance = abs(self.margin - abs(self.estimate))
        return seeds_for(distance / self.spread)


def outcome(effect: Effect, alpha: float = 1 - LEVEL) -> Outcome:
    """Replicated, refuted or undecided, at a level alpha.

    "more" is replicated if the interval lies above no effect and reaches the margin; it is refuted if the interval lies
    below the margin (below no effect, where the effect is `open`). "same" is replicated if the 90 % interval lies
    within the margin (two one-sided tests at 5 %), and refuted if the 95 % interval lies outside.
    """
    if effect.n == 0:
        return "not run"
    if effect.n == 1:
        return "one seed"
    if effect.p_refuted < alpha:
        return "refuted"
    return "replicated" if effect.p_replicated < alpha else "undecided"


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """P-values adjusted for their number by Holm's step-down method."""
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = (len(p) - np.arange(len(p))) * p[order]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(p) else steps
    return adjusted


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
def _least() -> np.ndarray:
    """The effect, in standard deviations, that n = 2, 3, ... seeds find with power 0.8; decreasing."""
    n = np.arange(2, MOST + 1)
    return (stats.t.ppf((1 + LEVEL) / 2, n - 1) + stats.t.ppf(POWER, n - 1)) / np.sqrt(n)


def seeds_for(effect: float) -> int:
    """The number of paired seeds that find an effect (in standard deviations) with power 0.8; at most `MOST` + 1."""
    return 2 + int((_least() > effect).sum())
