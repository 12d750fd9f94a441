"""Moon: Li et al., CVPR 2021; only the local objective changes (HiCS-FL's appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedlib.algorithms.base import FedAvg, register

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@register("moon", revision=0)
@dataclass
class Moon(FedAvg):
    """Moon. Clients pull their features toward the global model's and away from those of their own previous model."""

    reads_local: ClassVar[bool] = True

    def check(self, local: Any) -> None:
        if not local.mu:
            raise ValueError(
                "Moon with local.mu = 0 is FedAvg; set local.mu, the weight of its contrastive term"
            )

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.w_k = torch.zeros(N, d, device=device)
        self.seen = torch.zeros(N, dtype=torch.bool, device=device)

    def previous(self, clients: Sequence[int], start: Tensor) -> Tensor:
        import torch

        k = list(clients)
        return torch.where(self.seen[k, None], self.w_k[k], start)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        local = self.local or [None] * len(updates)
        for k, update, model in zip(clients.tolist(), updates, local, strict=True):
            self.w_k[k] = models[0] + update if model is None else model
            self.seen[k] = True
        return super().aggregate(models, clients, assigned, weights, updates, steps, lr)
