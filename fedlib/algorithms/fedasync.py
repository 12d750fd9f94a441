"""FedAsync: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, Algorithm 1: the server mixes models.

1. FedBuff and the other algorithms add a client's update to a model that has moved since; FedAsync moves toward the
   client's model. The staleness function s is part of the world (`ends: {kind: buffer, size: 1, staleness: ...}`).
2. Of a buffer of several updates, it mixes the mean of their clients' models.
3. The paper's proximal term is `local.mu`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Share


@register("fedasync", revision=0)
@dataclass
class FedAsync(FedAvg):
    """x = x + alpha sum_k w_k s(tau_k) (x_k - x), with x_k the model of client k after its training."""

    reads_local: ClassVar[bool] = True
    alpha: Share = 0.6

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        import torch

        local = self.local or [None] * len(updates)
        apart = [
            update if model is None else model - models[0]
            for update, model in zip(updates, local, strict=True)
        ]
        mixed = torch.stack(apart)
        return super().aggregate(models, clients, assigned, self.alpha * weights, mixed, steps, lr)
