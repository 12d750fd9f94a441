"""FedDyn: Acar et al., ICLR 2021, Algorithm 1; mu is its alpha (named in HiCS-FL's appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Positive

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register("feddyn", revision=0)
@dataclass
class FedDyn(FedAvg):
    """FedDyn. Each client's objective is shifted by its running first-order term, the server's by their mean.

    With g_k the client's term, client k minimises F_k(w) - <g_k, w> + (mu/2)||w - w_t||^2, then sets
    g_k <- g_k - mu (w_k - w_t). The server keeps h <- h - (mu/N) sum (w_k - w_t) and sets w = mean w_k - h / mu.
    """

    mu: Positive = 0.1

    def check(self, local: Any) -> None:
        if local.mu != self.mu:
            raise ValueError(
                f"local.mu = {local.mu} must be FedDyn's mu = {self.mu}, its proximal term; set both equal"
            )

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.h = torch.zeros(d, device=device)
        self.g_k = torch.zeros(N, d, device=device)
        self._trainable = n_trainable

    def linear(self, clients: Sequence[int]) -> Tensor:
        return -self.g_k[list(clients)]

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        mean = super().aggregate(models, clients, assigned, weights, updates, steps, lr)
        drift = updates.clone()
        drift[:, self._trainable :] = 0
        for k, change in zip(clients.tolist(), drift, strict=True):
            self.g_k[k] -= self.mu * change
        self.h = self.h - self.mu * drift.sum(0) / len(self.g_k)
        return mean - self.h / self.mu
