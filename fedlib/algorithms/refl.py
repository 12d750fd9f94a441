"""REFL: late updates count less the later they are, and more the more they differ from those that are in time.

Abdelmoniem, Sahu, Canini, Fahmy, "REFL: Resource-Efficient Federated Learning", EuroSys 2023 (staleness-aware
aggregation), and the authors' program. Its other half, the selection, is the sampler `refl`. It differs from FedAvg
only in worlds that keep late updates (`late: keep`).

1. An update in time has importance 1, one that is tau rounds late
   (1 - beta) / (tau + 1) + beta (1 - exp(-L / L_max) / s), with L the squared distance by which it moves the mean of
   those in time, over the squared length of that mean. Where none is in time, all L are equal.
2. `s` is the program's, 10 there. tau counts rounds since the training; the program's cache keeps an update for at
   least one round more, which it does not count.
3. The program's updates have equal weights. Here the aggregation rule's weights are multiplied by the importances, and
   their sum stays what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Positive, Share

if TYPE_CHECKING:
    from torch import Tensor


@register("refl", revision=0)
@dataclass
class StaleAware(FedAvg):
    """FedAvg with weights in proportion to w_k times the importance of update k.

    beta: weight of the difference from the others against the age. s: how little the difference may count.
    """

    beta: Share = 0.35
    s: Positive = 10.0

    def importances(self, ages: np.ndarray, weights: np.ndarray, updates: Tensor) -> np.ndarray:
        """(n,) importance of each update; ages: (n,) rounds since it was trained."""
        late = ages > 0
        fresh, apart = weights * ~late, np.ones(len(weights))
        if late.any() and not late.all():
            mean = updates.new_tensor(fresh / fresh.sum()) @ updates
            moves = ((updates - mean) ** 2).sum(1).cpu().numpy().astype(float)[late]
            apart[late] = moves / (moves.max() or 1)
        difference = 1 - np.exp(-apart) / self.s
        return np.where(late, (1 - self.beta) / (ages + 1) + self.beta * difference, 1.0)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        if self.ages is not None and (self.ages > 0).any():
            scaled = weights * self.importances(self.ages, weights, updates)
            weights = scaled * weights.sum() / scaled.sum()
        return super().aggregate(models, clients, assigned, weights, updates, steps, lr)
