"""Oort: exploit clients of high utility, explore clients never seen.

Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI
2021, as set up in HiCS-FL's public code. All clients are equally fast there. Therefore the paper's system utility, and
the pacer and penalty that act on it, are left out. There is no blacklist.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import (
    Federation,
    Report,
    Round,
    Sampler,
    Selection,
    Share,
    Whole,
    register,
)
from fedlib.samplers.weighted import draw_distinct, filled, log


def scaled(utility: np.ndarray, clip: float) -> np.ndarray:
    """Utilities (n,), clipped at the quantile `clip` of those above 0, on a scale from 0 to 1."""
    positive = np.sort(utility[utility > 0])
    if not len(positive):
        positive = np.zeros(1)
    high, low = positive[min(int(clip * len(positive)), len(positive) - 1)], 0.999 * positive[0]
    return (np.minimum(utility, high) - low) / max(positive[-1] - low, 1e-4)


def explorable(new: np.ndarray, reward: np.ndarray, window: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the clients `new`, the window n of highest reward, and their rewards."""
    best = np.argsort(-reward, kind="stable")[: int(window * n)]
    return new[best], reward[best]


def explore(
    rng: np.random.Generator, new: np.ndarray, reward: np.ndarray, window: float, n: int
) -> np.ndarray:
    """Draw n of the clients `new`, in proportion to their rewards, among the window n of highest reward."""
    pool, reward = explorable(new, reward, window, n)
    return pool[draw_distinct(rng, log(reward), n)]


@register("oort", revision=0)
@dataclass
class Oort(Sampler):
    """Epsilon-greedy lottery on the utility n_k sqrt(mean training loss) plus a bonus for long absence.

    warmup: rounds at the start that draw clients by p_k.
    exploration: share of explored clients. It is multiplied by `decay` each round, is at least `exploration_min`, and
        is 0 once all clients were seen (in the code, one round later).
    clip: quantile at which utilities are clipped.
    cut_off: a client takes part in the lottery if its score is at least this share of the best score that is not
        exploited.
    window: number of unexplored candidates per explored client; the largest clients come first.
    """

    asks = frozenset()
    reads = frozenset({"losses"})
    warmup: Whole = 25
    exploration: Share = 0.9
    decay: Share = 0.8
    exploration_min: Share = 0.2
    clip: Share = 0.98
    cut_off: Share = 0.7
    window: Annotated[float, Field(ge=1)] = 5.0

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.utility = fed.sizes.astype(float)
        self.seen = np.zeros(fed.N, dtype=int)  # last round in which the client took part, 0 for never

    def select(self, round: Round) -> Selection:
        fed, rng, t, A, m = self.fed, round.rng, round.t, round.available, round.m
        if t <= self.warmup:
            return Selection(A[draw_distinct(rng, log(fed.p[A]), m)])
        explored, new = A[self.seen[A] > 0], A[self.seen[A] == 0]
        share = (
            max(self.exploration * self.decay ** (t - self.warmup), self.exploration_min) if len(new) else 0
        )
        exploited = self.exploit(explored, min(int(m * (1 - share)), len(explored)), round)
        n = min(m - len(exploited), len(new))
        first = explore(rng, new, self.utility[new], self.window, n)
        clients = filled(rng, np.concatenate([exploited, first]), A, m)
        return Selection(clients, notes={"explored": len(first)})

    def exploit(self, explored: np.ndarray, n: int, round: Round) -> np.ndarray:
        """Draw n explored clients among those with the highest scores, in proportion to their scores."""
        if n == 0:
            return explored[:0]
        score = self.scores(round.t - self.warmup)[explored]
        best = np.sort(score)[::-1]
        pool = np.flatnonzero(score >= self.cut_off * best[min(n, len(best) - 1)])
        return explored[pool[draw_distinct(round.rng, log(score[pool]), n)]]

    def scores(self, t: int) -> np.ndarray:
        """(N,) clipped utilities scaled to [0, 1], plus the bonus for long absence. t: rounds after the warm-up."""
        bonus = np.sqrt(0.1 * np.log(t) / np.maximum(self.seen, 1))
        return np.maximum(scaled(self.utility, self.clip) + bonus, 0.0)

    def observe(self, round: Round, report: Report) -> None:
        self.utility, self.seen = self.utility.copy(), self.seen.copy()
        loss = np.where(np.isfinite(report.losses), np.maximum(report.losses, 0), 0)
        self.utility[report.clients] = self.fed.sizes[report.clients] * np.sqrt(loss)
        self.seen[report.clients] = round.t
