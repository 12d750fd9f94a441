"""FedAWE: every client goes on from its own model, and updates count for the rounds in which their client was away.

Xiang, Ioannidis, Yeh, Joe-Wong, Su, "Efficient Federated Learning against Heterogeneous and Non-stationary Client
Unavailability", NeurIPS 2024, Algorithm 1, and the authors' program.

1. Client k trains from its own model x_k, of the last round in which it took part ("implicit gossip"), not from the
   global one. All clients that are there train (`absences: all`); with another world, the m selected ones.
2. As in the program, the mean of the updates times the rounds t - tau_k since then ("echo") is cut off at the norm
   `clip`. The bound is the program's; null leaves it out. tau_k is 0 before the first time.
3. As in both, the plain mean: the aggregation rule plays no part. The evaluated model is the mean of all clients'
   models, those of absent clients too; other methods are measured on the global model.
4. The authors' step size falls with 1 / sqrt(t / 10 + 1). Here `local` sets it, as for all methods.
5. Questions (`Losses`) are answered at the evaluated model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Positive

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register("fedawe", revision=0)
@dataclass
class FedAWE(FedAvg):
    """x = mean of x_k + eta_g (t - tau_k) update_k over the clients A that came; x_k = x and tau_k = t in A."""

    eta_g: Positive = 1.0
    clip: Positive | None = 0.5

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.N = N
        self.x = torch.zeros(0, d, device=device)  # (N, d) from the first round on
        self.tau = torch.zeros(N, dtype=torch.int64)
        self.t = torch.zeros((), dtype=torch.int64)

    def starts(self, clients: Sequence[int], models: Tensor) -> Tensor:
        self.begin(models)
        return self.x[list(clients)]

    def begin(self, models: Tensor) -> None:
        """Before the first round, every client has the initial model."""
        if not len(self.x):
            self.x = models.repeat(self.N, 1)

    def skip(self, models: Tensor, lr: float) -> Tensor:
        self.t = self.t + 1
        return models

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        self.begin(models)
        self.t = self.t + 1
        places = clients.tolist()
        away = (self.t - self.tau[places]).to(updates)
        echo = (away[:, None] * updates).mean(0)
        if self.clip is not None:
            echo = echo * (self.clip / echo.norm().clamp(min=self.clip))
        self.x[places] = self.x[places].mean(0) + self.eta_g * echo
        self.tau[places] = self.t
        return self.x.mean(0, keepdim=True)
