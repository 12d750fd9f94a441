"""SCAFFOLD: Karimireddy et al., ICML 2020, Algorithm 1 with option II and server step 1 (HCSFed's baseline)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedlib.algorithms.base import FedAvg, register

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register("scaffold", revision=0)
@dataclass
class Scaffold(FedAvg):
    """SCAFFOLD. Control variates correct the drift of local steps: y <- y - eta (g - c_k + c)."""

    payload: ClassVar[int] = 2

    def check(self, local: Any) -> None:
        if local.halve_every:
            raise ValueError("SCAFFOLD takes one learning rate per round; leave local.halve_every out")

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.c = torch.zeros(d, device=device)
        self.c_k = torch.zeros(N, d, device=device)
        self._trainable = n_trainable

    def linear(self, clients: Sequence[int]) -> Tensor:
        return self.c - self.c_k[list(clients)]

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new = super().aggregate(models, clients, assigned, weights, updates, steps, lr)
        rate = updates.new_tensor(steps * self.trained_at(lr, len(steps)))[:, None]
        delta = -self.c - updates / rate  # c_k+ - c_k, option II
        delta[:, self._trainable :] = 0
        for k, change in zip(clients.tolist(), delta, strict=True):
            self.c_k[k] += change
        self.c = self.c + delta.sum(0) / len(self.c_k)
        return new
