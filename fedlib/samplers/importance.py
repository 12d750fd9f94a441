"""Importance sampling by the norm of the clients' updates: the baseline of HCSFed.

`importance`: Chen, Horvath, Richtarik, "Optimal Client Sampling for Federated Learning", TMLR 2022, with its unbiased
aggregation. `importance_mean`: m distinct clients and the plain mean, which is biased. It is another reading of the
"importance sampling" in HCSFed, which states no rule.

Every client trains in every round and sends the norm of its update, one number. Only the chosen clients send their
update. A non-finite update counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Asking, Round, Sampler, Selection, Updates, register
from fedlib.samplers.weighted import draw_distinct


def norms(updates: np.ndarray) -> np.ndarray:
    """Euclidean norms of the rows of `updates` (n, d) -> (n,) float64; 0 for a non-finite row."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(updates, updates).astype(float)
    return np.sqrt(np.where(np.isfinite(squares), squares, 0))


def inclusion_probabilities(u: np.ndarray, m: int) -> np.ndarray:
    """Probabilities (N,) = min(1, c u_k) with c such that they sum to m; u (N,) must be >= 0.

    Where at most m clients have u > 0, these have probability 1 and the others share the rest equally.
    """
    N, positive = len(u), u > 0
    if positive.sum() <= m:
        rest = max(N - positive.sum(), 1)
        return np.where(positive, 1.0, (m - positive.sum()) / rest)
    order = np.argsort(u)
    total = np.cumsum(u[order])
    l = np.arange(1, N + 1)
    fits = (m + l - N > 0) & ((m + l - N) * u[order] <= total)
    last = l[fits].max()
    p = np.ones(N)
    low = order[:last]
    p[low] = (m + last - N) * u[low] / total[last - 1]
    return p


def draw_by_norm(rng: np.random.Generator, norms: np.ndarray, n: int) -> np.ndarray:
    """Draw n distinct indices one after another in proportion to `norms` (N,); zeros come last, in random order."""
    shares = norms / (norms.sum() or 1)
    return draw_distinct(rng, np.log(np.maximum(shares, 1e-12)), n)


@register("importance", revision=0)
@dataclass
class Importance(Sampler):
    """Client k joins independently with probability min(1, c p_k ||update_k||): m clients on average, perhaps none."""

    asks = frozenset({Updates})
    aggregation = "ipw"
    draws = "random"

    def select(self, round: Round) -> Asking:
        u = yield Updates(round.available, parameters=0, scalars=1, encode=norms)
        A, u = round.answered(round.available, u)
        p = inclusion_probabilities(self.fed.p[A] * u, min(round.m, len(A)))
        drawn = np.flatnonzero(round.rng.random(len(A)) < p)
        return Selection(A[drawn], expected=p[drawn])


@register("importance_mean", revision=0)
@dataclass
class ImportanceMean(Sampler):
    """m distinct clients, drawn one after another in proportion to ||update_k||."""

    asks = frozenset({Updates})

    def select(self, round: Round) -> Asking:
        u = yield Updates(round.available, parameters=0, scalars=1, encode=norms)
        A, u = round.answered(round.available, u)
        return Selection(A[draw_by_norm(round.rng, u, min(round.m, len(A)))])
