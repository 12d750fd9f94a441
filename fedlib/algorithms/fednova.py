"""FedNova: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020 (equation 5 and section 4), and the authors' program.

Where clients take different numbers of steps, FedAvg follows those that take more. Here each update is divided by the
length a_k of its path, and their weighted mean is multiplied by the mean length of all.

1. a_k = tau_k for plain SGD with tau_k steps; with momentum rho or a proximal term mu, the sum of the weights that its
   gradients have in its update (section 4.2). With mu, the mean length is that of the tau_k, as in the program.
2. The aggregation rule's weights take the place of p_k, divided by their sum in the mean length only.
3. Momentum at the server, an option of the program, is left out; statistics of batch normalisation are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import NotNegative

if TYPE_CHECKING:
    import torch


@register("fednova", revision=0)
@dataclass
class FedNova(FedAvg):
    """new = old + tau_eff sum_k w_k update_k / a_k.

    momentum, mu: those of the local work, at most one of them above 0.
    """

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    mu: NotNegative = 0.0

    def check(self, local: Any) -> None:
        if self.momentum and self.mu:
            raise ValueError("FedNova knows the length of a path with momentum or with mu, not with both")
        for name in ("momentum", "mu"):
            if getattr(local, name) != getattr(self, name):
                raise ValueError(
                    f"local.{name} = {getattr(local, name)} must be FedNova's {name} = {getattr(self, name)}, by which "
                    "it knows the length of a path; set both equal"
                )
        if local.optimizer != "sgd" or local.halve_every:
            raise ValueError(
                "FedNova takes SGD with one learning rate per round; set local.optimizer: sgd, and leave "
                "local.halve_every out"
            )

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        self._trainable = n_trainable

    def lengths(self, steps: np.ndarray, lr: float) -> np.ndarray:
        """(n,) a_k: the sum of the weights of the gradients in an update of so many steps."""
        if rho := self.momentum:
            return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
        if shrinking := lr * self.mu:
            return (1 - (1 - shrinking) ** steps) / shrinking
        return steps.astype(float)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new = super().aggregate(models, clients, assigned, weights, updates, steps, lr)
        a, n = self.lengths(steps, lr), self._trainable
        tau_eff = weights @ (steps if self.mu else a) / weights.sum()
        new[:, :n] = models[:, :n] + updates.new_tensor(weights * tau_eff / a) @ updates[:, :n]
        return new
