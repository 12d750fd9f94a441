"""Selection by the clients' losses: Active Federated Learning and Power-of-Choice.

AFL: Goetz et al., "Active Federated Learning", 2019. Power-of-Choice: Cho, Wang, Joshi, "Towards
Understanding Biased Client Selection in Federated Learning", AISTATS 2022, Algorithm 1. Both as in FedCor's
experiments.

Differences from FedCor's code:
1. AFL's softmax subtracts its maximum, so that a large alpha2 does not overflow.
2. Where AFL keeps fewer candidates than it should draw, it takes all of them and draws the rest uniformly.
3. Products such as (1 - alpha3) m are rounded down exactly; the code's int((1 - 0.9) * 10) is 0.
4. A non-finite loss counts as the largest finite one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import (
    Asking,
    Count,
    Federation,
    Losses,
    NotNegative,
    Round,
    Sampler,
    Selection,
    Share,
    register,
)
from fedlib.samplers.weighted import draw_distinct, filled, log


def finite(losses: np.ndarray) -> np.ndarray:
    """`losses` (n,) with every non-finite value replaced by the largest finite one (0 if there is none)."""
    good = np.isfinite(losses)
    return np.where(good, losses, losses[good].max() if good.any() else 0.0)


def floor(x: float) -> int:
    """Largest integer <= x, where x is a product of decimal fractions (0.29 * 100 gives 29)."""
    return math.floor(round(x, 9))


@dataclass(frozen=True)
class Lottery:
    """AFL's draw: `sel_num` of the `candidates` (n,), the first of them with `probabilities` (n,)."""

    candidates: np.ndarray
    probabilities: np.ndarray
    sel_num: int


def lottery(v: np.ndarray, m: int, alpha1: float, alpha2: float, alpha3: float) -> Lottery:
    """AFL's draw from the valuations v (N,). The floor(alpha1 N) clients with the smallest valuations are dropped."""
    kept = np.argsort(v, kind="stable")[floor(alpha1 * len(v)) :]
    logits = alpha2 * v[kept]
    weights = np.exp(logits - logits.max(initial=-np.inf))
    return Lottery(kept, weights / weights.sum(), min(floor((1 - alpha3) * m), len(kept)))


@register("afl", revision=0)
@dataclass
class AFL(Sampler):
    """Clients of high valuation v_k = sqrt(n_k) l_k by a softmax lottery, and a few clients at random.

    At first, v uses every client's loss at the initial model. Later, a client's v is updated when it is selected, with
    its loss at the model that it received. A client that was absent at first is asked when it first comes.
    alpha1: share of clients that is dropped.
    alpha2: inverse temperature of the softmax.
    alpha3: share of the m clients that is drawn uniformly from all remaining clients, including the dropped ones.
    """

    asks = frozenset({Losses})
    alpha1: Annotated[float, Field(ge=0, lt=1)] = 0.75
    alpha2: NotNegative = 0.01
    alpha3: Share = 0.1

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.v = np.full(fed.N, np.nan)  # not asked yet

    def select(self, round: Round) -> Asking:
        A, m, scale = round.available, round.m, np.sqrt(self.fed.sizes)
        new = A[np.isnan(self.v[A])]
        if len(new):
            yield from self.ask(round, new, scale)
        known = A[~np.isnan(self.v[A])]
        draw = lottery(self.v[known], m, self.alpha1, self.alpha2, self.alpha3)
        first = known[draw.candidates[draw_distinct(round.rng, log(draw.probabilities), draw.sel_num)]]
        clients = filled(round.rng, first, A, m)
        asked_again = np.setdiff1d(clients, new, assume_unique=True)  # keeps the order of the clients
        if len(asked_again):
            yield from self.ask(round, asked_again, scale)
        return Selection(clients)

    def ask(self, round: Round, clients: np.ndarray, scale: np.ndarray) -> Asking:
        """Renew the valuations of the clients that answer."""
        clients, losses = round.answered(clients, (yield Losses(clients)))
        v = self.v.copy()
        v[clients] = scale[clients] * finite(losses)
        self.v = v


@register("power_of_choice", revision=0)
@dataclass
class PowerOfChoice(Sampler):
    """The m clients of highest loss at the current model among d candidates, drawn one after another by p_k.

    d: number of candidates, m <= d <= N; with d = m the loss plays no part. None asks every client, which is HiCS-FL's
        "ideal", deterministic setting. HiCS-FL's code takes d = 2m instead and draws round 1 by p_k without any loss.
        FedCor's README takes d = 10.

    Raises:
        ValueError: d is not between m and N.
    """

    asks = frozenset({Losses})
    d: Count | None = 10

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        if self.d is not None and not fed.m <= self.d <= fed.N:
            raise ValueError(
                f"sampler 'power_of_choice': d = {self.d} must lie between m = {fed.m} and N = {fed.N}."
            )

    def select(self, round: Round) -> Asking:
        A, p = round.available, self.fed.p
        if self.d is not None:
            A = A[draw_distinct(round.rng, log(p[A]), max(self.d, round.m))]
        asked, losses = round.answered(A, (yield Losses(A)))
        return Selection(highest(asked, losses, round.m))


def highest(A: np.ndarray, losses: np.ndarray, m: int) -> np.ndarray:
    """The m of the clients A (d,) with the highest losses (d,). Ties go to the lowest id."""
    return A[np.lexsort((A, -finite(losses)))[:m]]
