"""Importance sampling by the norm of the clients' updates, HCSFed's baseline.

`importance`: Chen, Horvath, Richtarik, "Optimal Client Sampling for Federated Learning", TMLR 2022, with its unbiased
aggregation. `importance_mean`: m distinct clients and the plain mean, which is biased; another reading of HCSFed's
"importance sampling", which states no rule.

Every client trains in every round and sends its norm, one number; those that are chosen send their update. A
non-finite update counts as a zero one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Asking, Round, Sampler, Selection, Updates, register
from fedlib.samplers.weighted import draw_distinct


def norms(updates: np.ndarray) -> np.ndarray:
    """Euclidean norms of the rows of `updates` (n, d) -> (n,) float64, 0 where one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(updates, updates).astype(float)
    return np.sqrt(np.where(np.isfinite(squares), squares, 0))


def inclusion_probabilities(u: np.ndarray, m: int) -> np.ndarray:
    """Probabilities (N,) = min(1, c u_k) with c such that they sum to m; u >= 0 (N,).

    Where at most m have u > 0, these are certain and the zeros share what is left.
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
    """n distinct indices, drawn one after another in proportion to `norms` (N,); zeros last, among them at random."""
    shares = norms / (norms.sum() or 1)
    return draw_distinct(rng, np.log(np.maximum(shares, 1e-12)), n)


@register("importance")
@dataclass
class Importance(Sampler):
    """Each client joins independently with probability min(1, c p_k ||update_k||), m in the mean, none at worst."""

    aggregation = "ipw"
    draws = "random"

    def select(self, round: Round) -> Asking:
        u = yield Updates(self.fed.everyone, parameters=0, scalars=1, encode=norms)
        p = inclusion_probabilities(self.fed.p * u, self.fed.m)
        clients = np.flatnonzero(round.rng.random(self.fed.N) < p)
        return Selection(clients, expected=p[clients])


@register("importance_mean")
@dataclass
class ImportanceMean(Sampler):
    """m distinct clients, drawn one after another in proportion to ||update_k||."""

    def select(self, round: Round) -> Asking:
        u = yield Updates(self.fed.everyone, parameters=0, scalars=1, encode=norms)
        return Selection(draw_by_norm(round.rng, u, self.fed.m))
