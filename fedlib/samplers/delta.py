"""DELTA: clients whose updates are long and unlike the others' are drawn more often, with unbiased weights.

Wang, Fan, Qu, Chen and others, "DELTA: Diverse Client Sampling for Fasting Federated Learning", NeurIPS 2023, in the
practical form that learns from the selected clients alone.

1. The theory's score also has the variance of a client's gradient, which a server does not see. As in the authors'
   program for CIFAR-10 and FEMNIST, the score is p_k ((1 - beta) |u_k| + beta |u_k - c|), with c the mean update of the
   round. Their program for LEAF instead computes P from all clients' gradients in every round.
2. `replacement: true`, the theory's, draws with replacement; the weights p_k / (m P_k) are unbiased for the mean over
   the available clients by size. The program draws without replacement and weights n_k / (N P_k sum n) with the sum
   over the drawn ones, as if it had drawn with replacement, which is biased: `replacement: false`.
3. The scores of a round's clients share the probability that these clients had before, so that the others keep
   theirs. Where that would lose a client for ever, its probability is at least `floor` / N; the paper has no floor.
4. The program adds momentum at the server, .2 or .5; here that is the algorithm's matter (`fedavgm`).
5. Absent clients keep their probabilities; those of the available ones are scaled to 1. A non-finite update leaves its
   client's probability unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, Share, register
from fedlib.samplers.importance import norms
from fedlib.samplers.weighted import draw_distinct


@register("delta", revision=1)
@dataclass
class Delta(Sampler):
    """m draws by P, each update weighted p_k / (m P_k), with p_k the share of its client among the available ones.

    beta: weight of the distance to the mean update against the length of the update.
    """

    asks = frozenset()
    reads = frozenset({"updates"})
    aggregation = "ipw"  # what its own weights estimate
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
        P = self.P[A] / self.P[A].sum()
        picks = (
            round.rng.choice(len(A), m, p=P) if self.replacement else draw_distinct(round.rng, np.log(P), m)
        )
        return Selection(A[picks], weights=self.weights(self.fed.sizes[A], P, picks))

    def weights(self, sizes: np.ndarray, P: np.ndarray, picks: np.ndarray) -> np.ndarray:
        """(m,) weights of the updates of the drawn `picks` among n clients with the sizes and probabilities (n,)."""
        drawn = len(picks) * sizes.mean() if self.replacement else sizes[picks].sum()
        return sizes[picks] / (len(P) * P[picks] * drawn)

    def observe(self, round: Round, report: Report) -> None:
        usable = np.isfinite(report.updates).all(axis=1)
        clients, first = np.unique(report.clients[usable], return_index=True)
        if len(clients) < 2:
            return
        updates = report.updates[usable][first]
        apart = norms(updates - updates.mean(axis=0))
        score = self.fed.sizes[clients] * ((1 - self.beta) * norms(updates) + self.beta * apart)
        P = self.P.copy()
        if score.sum() > 0:
            P[clients] = score / score.sum() * P[clients].sum()
        P = np.maximum(P, self.floor / self.fed.N)
        self.P = P / P.sum()
