"""FedAU: each update is weighted by how long its client is usually away.

Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated Learning", ICLR 2024
(Algorithms 1 and 2). The mean interval between two participations estimates 1 / p_k, the inverse of the probability
that client k takes part, which the server does not know.

1. The paper has no selection: every client that is there takes part. Here m of those that are there are drawn
   uniformly; a world with `absences: all` gives the paper's case. An interval ends when an update arrives.
2. As in the authors' program, the weight of round t is made of the intervals before t: 1 before the first.
3. As in the paper, the sum is divided by N, whoever came. `eta_g` is the server's learning rate, which the authors tune
   for each method.
4. A round in which nobody is there lengthens all intervals; an interval that reaches K ends, and the next begins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Count, Federation, Positive, Report, Round, Sampler, Selection, register


@register("fedau", revision=0)
@dataclass
class FedAU(Sampler):
    """m uniform clients; new = old + eta_g / N sum_k omega_k update_k, with omega_k the mean interval of client k.

    K: intervals are cut off at this many rounds (the paper's K; 50 in its experiments).
    """

    asks = frozenset()
    K: Count = 50
    eta_g: Positive = 1.0

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.interval_start = np.zeros(fed.N, dtype=int)  # round of the beginning of the present interval
        self.total, self.intervals = np.zeros(fed.N), np.zeros(fed.N, dtype=int)

    @property
    def omega(self) -> np.ndarray:
        """(N,) estimates of 1 / p_k."""
        return np.where(self.intervals > 0, self.total / np.maximum(self.intervals, 1), 1.0)

    def select(self, round: Round) -> Selection:
        self.close(round.t - 1, self.fed.everyone[:0])  # rounds in which nobody was there
        clients = round.rng.choice(round.available, round.m, replace=False)
        return Selection(clients, weights=self.eta_g / self.fed.N * self.omega[clients])

    def observe(self, round: Round, report: Report) -> None:
        self.close(round.t, report.clients)

    def close(self, t: int, clients: np.ndarray) -> None:
        """End the intervals that reached K up to round t, and in round t those of `clients`, which came."""
        came = np.isin(self.fed.everyone, clients)
        length = t - self.interval_start
        cut = (length - came) // self.K
        self.total = self.total + np.where(came, length, cut * self.K)
        self.intervals = self.intervals + cut + came
        self.interval_start = np.where(came, t, self.interval_start + cut * self.K)
