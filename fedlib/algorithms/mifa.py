"""MIFA: Gu, Huang, Zhang, Huang, NeurIPS 2021: the latest update of every client, whoever is there.

1. The authors have two trainers. One waits until every client was there once, lets all train from the first model and
   then begins; the other begins at once, with memories of zero and the mean over all N, so that its first steps are
   short (`mean: all`). Here the mean is over the clients that have come so far (`mean: seen`), as in FLGo with c = 0.
   Once all have come, the three are the same.
2. As in both trainers, a round in which nothing arrives moves the model by the memories, too.
3. All clients that are there train (`absences: all`); with another world, the m selected ones.
4. The plain mean, as in the paper: the aggregation rule plays no part.
5. Memories are kept per unit of the learning rate, as the authors' program does, so they stay valid when it falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedlib.algorithms.base import FedAvg, register

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register("mifa", revision=1)
@dataclass
class MIFA(FedAvg):
    """new = old + lr mean of G_k; G_k = update_k / lr is renewed when client k comes.

    mean: over the clients "seen" so far, or over "all" N, with G_k = 0 for those that have not come.
    """

    mean: Literal["seen", "all"] = "seen"

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.G = torch.zeros(N, d, device=device)
        self.known_clients = torch.zeros(N, dtype=torch.bool, device=device)

    def skip(self, models: Tensor, lr: float) -> Tensor:
        if self.mean == "all":
            return models + lr * self.G.mean(0)
        return models + lr * self.G[self.known_clients].mean(0) if self.known_clients.any() else models

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        for k, update, rate in zip(clients.tolist(), updates, self.trained_at(lr, len(steps)), strict=True):
            self.G[k] = update / float(rate)
            self.known_clients[k] = True
        return self.skip(models, lr)
