"""F3AST: the clients that took part least, relative to their share of the data, with weights that make up for it.

Ribero, Vikalo, de Veciana, "Federated Learning Under Intermittent Client Availability and Time-Varying Communication
Constraints", IEEE JSTSP 2023, as in the authors' program.

1. The program fills a round with absent clients where fewer than m are there; here all that are there are selected.
2. All scores are equal at first. The program then takes the lowest ids; here ties are broken at random.
3. As in the program, weights p_k / r_k are not scaled to 1, and r is the rate after this round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Federation, Round, Sampler, Selection, register


@register("f3ast", revision=0)
@dataclass
class F3AST(Sampler):
    """The m available clients of highest p_k / r_k, where r_k is client k's running rate of participation.

    beta: how fast the rates forget.
    """

    asks = frozenset()
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.01

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.r = fed.p.copy()

    def select(self, round: Round) -> Selection:
        A, p = round.available, self.fed.p
        score = np.round(p[A] / self.r[A], 12)
        clients = A[np.lexsort((round.rng.random(len(A)), -score))[: round.m]]
        self.r = (1 - self.beta) * self.r + self.beta * np.isin(self.fed.everyone, clients)
        return Selection(clients, weights=p[clients] / self.r[clients])
