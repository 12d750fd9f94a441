"""REFL: clients that are likely to be gone in the next round are selected first.

Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023, Algorithm 1 (intelligent
participant selection), and the authors' program. Its other half, the weights of late updates, is the algorithm `refl`.

1. In the paper clients forecast their own availability; the program looks it up in the trace, in two classes, right
   with a given probability. Here the forecast is learnt from who was there: client k's probability to stay is
   (1 + the rounds after which it stayed) / (2 + the rounds in which it was there).
2. As in the paper, clients are selected by ascending probability, ties by chance. Where absences are hidden, all are
   equal, and the choice is uniform.
3. As in the program, a client whose update arrived less than `pause` rounds ago waits; the program puts random clients
   in the place of those, here the next ones in order, and where there are none, those that waited longest.
4. A round in which nobody is there ends the stay of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, Whole, register


@register("refl", revision=0)
@dataclass
class REFL(Sampler):
    """The m available clients that are least likely to be there in the next round.

    pause: rounds from one update of a client to the next, at least, unless too few others are there.
    """

    asks = frozenset()
    pause: Whole = 5

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.here, self.t = np.zeros(fed.N, dtype=bool), 0  # in the last round with anybody there, round t
        self.last = np.full(fed.N, -np.inf)  # round of the client's last update
        self.rounds, self.stayed = np.zeros(fed.N, dtype=int), np.zeros(fed.N, dtype=int)

    def select(self, round: Round) -> Selection:
        now = np.isin(self.fed.everyone, round.available)
        self.rounds = self.rounds + self.here
        self.stayed = self.stayed + (self.here & now & (round.t == self.t + 1))
        self.here, self.t = now, round.t
        A = round.available
        waits = np.maximum(self.last[A] - (round.t - self.pause), 0)
        order = np.lexsort((round.rng.random(len(A)), self.staying[A], waits))
        return Selection(A[order[: round.m]])

    def observe(self, round: Round, report: Report) -> None:
        self.last = np.where(np.isin(self.fed.everyone, report.clients), round.t, self.last)

    @property
    def staying(self) -> np.ndarray:
        """(N,) probabilities that a client that is there is there in the next round, too."""
        return (1 + self.stayed) / (2 + self.rounds)
