"""F3AST: the clients that took part least, relative to their share of the data, with weights that make up for it.

Ribero, Vikalo, de Veciana, "Federated Learning Under Intermittent Client Availability and Time-Varying Communication
Constraints", IEEE JSTSP 2023, as in the authors' program.

1. The program fills a round with absent clients where fewer than m are there; here all that are there are selected.
2. All scores are equal at first. The program then takes the lowest ids; here ties are broken at random.
3. As in the program, weights p_k / r_k are not scaled to 1, and r is the rate after this round.
4. The paper's server sees who is there, so that whoever is selected takes part. Where that is not so (hidden absences,
   deadlines), r_k is the rate at which client k's updates arrive, not that at which it is selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, register


@register("f3ast", revision=1)
@dataclass
class F3AST(Sampler):
    """The m available clients of highest p_k / r_k, where r_k is client k's running rate of participation.

    beta: how fast the rates forget.
    """

    asks = frozenset()
    aggregation = "ipw"  # what its own weights estimate
    beta: Annotated[float, Field(gt=0, lt=1)] = 0.01

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.r = fed.p.copy()

    def select(self, round: Round) -> Selection:
        A, p = round.available, self.fed.p
        score = np.round(p[A] / self.r[A], 12)
        clients = A[np.lexsort((round.rng.random(len(A)), -score))[: round.m]]
        return Selection(clients, weights=p[clients] / self.rates(clients)[clients])

    def observe(self, round: Round, report: Report) -> None:
        self.r = self.rates(report.clients)

    def rates(self, came: np.ndarray) -> np.ndarray:
        """(N,) the rates after a round in which the updates of the clients `came` arrive."""
        return (1 - self.beta) * self.r + self.beta * np.isin(self.fed.everyone, came)
