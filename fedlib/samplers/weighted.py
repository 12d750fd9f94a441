"""Distinct clients drawn one after another in proportion to their weights: HiCS-FL's "random" baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Round, Sampler, Selection, register


def draw_distinct(rng: np.random.Generator, log_weights: np.ndarray, n: int) -> np.ndarray:
    """n distinct indices, each next one with probability proportional to exp(log_weights) among those left.

    The n largest of log_weights + Gumbel noise have exactly this law, and no weight is too small or too large
    for it (log_weights: (N,), -inf comes last). In the order of the draws.
    """
    keys = log_weights + rng.gumbel(size=len(log_weights))
    return np.argsort(-keys, kind="stable")[:n]


def log(weights: np.ndarray) -> np.ndarray:
    """Elementwise logarithm of weights >= 0, -inf at 0."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


@register("weighted")
@dataclass
class Weighted(Sampler):
    """m distinct clients, drawn one after another in proportion to p_k: "random" in HiCS-FL's code.

    HiCS-FL's paper speaks of a multinomial draw, which would be with replacement (sampler `md`).
    """

    def select(self, round: Round) -> Selection:
        return Selection(draw_distinct(round.rng, log(self.fed.p), self.fed.m))
