"""OSMD: probabilities learnt from the norms of the updates that were drawn, with unbiased weights.

Zhao, Wang, Liu, Kolar, "Adaptive Client Sampling in Federated Learning via Online Learning with Bandit Feedback",
arXiv 2112.14332 (Adaptive-OSMD), and the authors' program. Several experts, each with a rate of its own, move their
probabilities towards clients whose updates are long by online stochastic mirror descent; the probability of a client
is the mean over the experts, weighted by how small each one's variance was.

1. The program's unit of rates is the largest (norm / N)^2 of all clients' first gradients. Here it is the largest of
   the first round's updates, times the clients' shares, so that nobody else is asked.
2. As in the program, a client that is drawn twice counts twice in the experts' losses, once in their gradients, and the
   rate of the experts' weights contains the square root of that unit.
3. The program has equal clients; here p_k takes the place of 1 / N.
4. Absent clients keep their probabilities; those of the available ones are scaled to 1. A non-finite update counts 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, register
from fedlib.samplers.importance import norms


def floored(logs: np.ndarray, least: float) -> np.ndarray:
    """Probabilities (N,) in proportion to exp(logs), but at least `least` each: the nearest in relative entropy."""
    weights = np.exp(logs - logs.max())
    ascending = np.sort(weights)
    scale = (1 - least * np.arange(len(weights))) / np.cumsum(ascending[::-1])[::-1]
    return np.maximum(weights * scale[(ascending * scale >= least).argmax()], least)


@register("osmd", revision=0)
@dataclass
class OSMD(Sampler):
    """m draws with replacement by the experts' probabilities, each update weighted p_k / (m P_k).

    alpha: every probability is at least alpha / N.
    """

    asks = frozenset()
    reads = frozenset({"updates"})
    aggregation = "ipw"  # what its own weights estimate
    draws = "repeated"
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.4

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        growth = 4 * (fed.T - 1) * np.log(fed.N / self.alpha) / np.log(max(fed.N, 2))
        e = np.arange(1, int(np.ceil(0.5 * np.log2(1 + growth))) + 2)
        self.theta, self.P = (1 + 1 / len(e)) / (e * (e + 1)), np.full((len(e), fed.N), 1 / fed.N)
        self.unit = 0.0

    def select(self, round: Round) -> Selection:
        A, m = round.available, round.m
        q = self.mixed(A)
        picks = round.rng.choice(len(A), m, p=q)
        return Selection(A[picks], weights=self.fed.shares(A)[picks] / (m * q[picks]))

    def mixed(self, clients: np.ndarray) -> np.ndarray:
        """(n,) probabilities of drawing each of `clients`, the available ones."""
        q = (self.theta @ self.P)[clients]
        return q / q.sum()

    def observe(self, round: Round, report: Report) -> None:
        clients, fed, m = report.clients, self.fed, round.m
        a = (fed.p[clients] * norms(report.updates)) ** 2
        self.unit = self.unit or float(a.max(initial=0))
        if not self.unit:
            return
        N, E = fed.N, len(self.theta)
        q, P = np.ones(N), self.P[:, clients]
        q[round.available] = self.mixed(round.available)
        losses = (a / (m**2 * P * q[clients])).sum(axis=1)
        gradients = np.zeros((E, N))
        gradients[:, clients] = a / (m**2 * P**2 * q[clients])
        rates = (
            2.0 ** np.arange(E) * m**2 * self.alpha**3 / (N**3 * self.unit) * np.sqrt(np.log(N) / (2 * fed.T))
        )
        logs = np.log(self.P) + rates[:, None] * gradients
        self.P = np.array([floored(row, self.alpha / N) for row in logs])
        gamma = self.alpha / N * np.sqrt(8 * m / (fed.T * self.unit))
        theta = self.theta * np.exp(-gamma * (losses - losses.min()))
        self.theta = theta / theta.sum()
