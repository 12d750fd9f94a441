"""FedVARP: Jhunjhunwala, Sharma, Nagarkar, Joshi, UAI 2022, Algorithm 1: the server remembers every client's update.

1. `beta` is FedStale's mixture (Rodio and Neglia, 2024): 0 is FedAvg, 1 is FedVARP.
2. The weights of the aggregation rule take the place of 1 / |S| in the mean of the differences. The mean of all
   memories has the weights of the mean that these estimate: 1 / N, as in the paper, or p_k where clients are drawn or
   weighted by their sizes. With other weights the step would be biased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Share

if TYPE_CHECKING:
    import torch


@register("fedvarp", revision=0)
@dataclass
class FedVARP(FedAvg):
    """new = old + sum_k w_k (update_k - beta y_k) + beta mean y; then y_k = update_k for the clients that came."""

    beta: Share = 1.0

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.y = torch.zeros(N, d, device=device)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        differences = updates - self.beta * self.y[clients.tolist()]
        new = super().aggregate(models, clients, assigned, weights, differences, steps, lr)
        mean = self.y.mean(0) if self.shares is None else self.y.new_tensor(self.shares) @ self.y
        new = new + self.beta * mean
        for k, update in zip(clients.tolist(), updates, strict=True):
            self.y[k] = update
        return new
