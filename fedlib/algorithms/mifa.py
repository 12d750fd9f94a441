"""MIFA: Gu, Huang, Zhang, Huang, NeurIPS 2021: the latest update of every client, whoever is there.

1. The paper waits until every client was there once, or lets all train at the start. Here the mean is over the clients
   that have come so far, as in FLGo with c = 0.
2. All clients that are there train (`absences: all`); with another world, the m selected ones.
3. The plain mean, as in the paper: the aggregation rule plays no part.
4. Memories are kept per unit of the learning rate, as the authors' program does, so they stay valid when it falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedlib.algorithms.base import FedAvg, register

if TYPE_CHECKING:
    import torch


@register("mifa", revision=0)
@dataclass
class MIFA(FedAvg):
    """new = old + lr mean of G_k over the clients seen so far; G_k = update_k / lr is renewed when client k comes."""

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.G = torch.zeros(N, d, device=device)
        self.known_clients = torch.zeros(N, dtype=torch.bool, device=device)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        for k, update in zip(clients.tolist(), updates, strict=True):
            self.G[k] = update / lr
            self.known_clients[k] = True
        return models + lr * self.G[self.known_clients].mean(0)
