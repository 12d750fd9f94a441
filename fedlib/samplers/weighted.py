"""Distinct clients drawn one after another in proportion to their weights: the "random" baseline of HiCS-FL."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Round, Sampler, Selection, register


def draw_distinct(rng: np.random.Generator, log_weights: np.ndarray, n: int) -> np.ndarray:
    """Draw n distinct indices one after another, in proportion to exp(log_weights) among those left -> (n,) in order.

    log_weights: (N,); -inf comes last. The n largest values of log_weights + Gumbel noise have exactly this
    distribution, and no weight is too small or too large for this method.
    """
    keys = log_weights + rng.gumbel(size=len(log_weights))
    return np.argsort(-keys, kind="stable")[:n]


def filled(rng: np.random.Generator, clients: np.ndarray, available: np.ndarray, m: int) -> np.ndarray:
    """`clients` and, after them, other available clients, drawn uniformly -> (m,)."""
    spare = np.setdiff1d(available, clients)
    return np.concatenate([clients, rng.choice(spare, m - len(clients), replace=False)])


def log(weights: np.ndarray) -> np.ndarray:
    """Elementwise logarithm of weights >= 0, -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


@register("weighted", revision=0)
@dataclass
class Weighted(Sampler):
    """m distinct clients, drawn one after another in proportion to p_k: "random" in HiCS-FL's code.

    HiCS-FL's paper describes a multinomial draw, which would be with replacement (sampler `md`).
    """

    asks = frozenset()

    def select(self, round: Round) -> Selection:
        drawn = draw_distinct(round.rng, log(self.fed.p[round.available]), round.m)
        return Selection(round.available[drawn])
