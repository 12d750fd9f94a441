"""DELTA: clients whose updates are long and unlike the others' are drawn more often, with unbiased weights.

Wang, Fan, Qu, Chen and others, "DELTA: Diverse Client Sampling for Fasting Federated Learning", NeurIPS 2023, in the
practical form that learns from the selected clients alone.

1. The theory's score also has the variance of a client's gradient, which a server does not see. As in the authors'
   program, the score is l_k ((1 - beta) |u_k| + beta |u_k - c|), with l_k the client's share of the losses and c the
   mean update of the round. beta = 1 is their program for LEAF.
2. The program draws without replacement and weights as if it drew with replacement, which is biased. `replacement`
   chooses; True, the theory's, is the default.
3. The scores of a round's clients share the probability that these clients had before, so that the others keep
   theirs. Where that would lose a client for ever, its probability is at least `floor` / N; the paper has no floor.
4. Absent clients keep their probabilities; those of the available ones are scaled to 1, and the weights estimate the
   plain mean over the available clients. A non-finite update leaves its client's probability unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, Share, register
from fedlib.samplers.importance import norms
from fedlib.samplers.weighted import draw_distinct


@register("delta", revision=0)
@dataclass
class Delta(Sampler):
    """m draws by P, each update weighted 1 / (n m P_k) among n available clients.

    beta: weight of the distance to the mean update against the length of the update.
    """

    asks = frozenset()
    reads = frozenset({"losses", "updates"})
    beta: Share = 0.5
    replacement: bool = True
    floor: Annotated[float, Field(gt=0, le=1)] = 0.01

    @property
    def draws(self) -> Literal["distinct", "repeated"]:  # ty: ignore[incompatible-property-override]  # by option
        return "repeated" if self.replacement else "distinct"

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.P = np.full(fed.N, 1 / fed.N)

    def select(self, round: Round) -> Selection:
        A, m = round.available, round.m
        p = self.P[A] / self.P[A].sum()
        picks = (
            round.rng.choice(len(A), m, p=p) if self.replacement else draw_distinct(round.rng, np.log(p), m)
        )
        return Selection(A[picks], weights=1 / (len(A) * m * p[picks]))

    def observe(self, round: Round, report: Report) -> None:
        usable = np.isfinite(report.updates).all(axis=1) & np.isfinite(report.losses)
        clients, first = np.unique(report.clients[usable], return_index=True)
        if len(clients) < 2:
            return
        updates, losses = report.updates[usable][first], np.maximum(report.losses[usable][first], 0)
        score = losses * (
            (1 - self.beta) * norms(updates) + self.beta * norms(updates - updates.mean(axis=0))
        )
        P = self.P.copy()
        if score.sum() > 0:
            P[clients] = score / score.sum() * P[clients].sum()
        P = np.maximum(P, self.floor / self.fed.N)
        self.P = P / P.sum()
