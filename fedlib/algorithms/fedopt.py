"""Server optimisers: the weighted sum of updates is a pseudo-gradient, which the server follows as SGD or Adam would.

FedAvgM: Hsu, Qi and Brown, 2019, section 4.3. FedAdagrad, FedAdam and FedYogi: Reddi et al., ICLR 2021, Algorithm 2,
which asks v_-1 >= tau^2; v starts at tau^2. Flower's start at 0, and its FedAdam also corrects the bias of the moments.
Only trained values are treated so; statistics of batch normalisation are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedlib.algorithms.base import FedAvg, register
from fedlib.kinds import Positive, Share

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Server(FedAvg):
    """FedAvg whose server takes a step of its own on the trained values, made from the mean update.

        @dataclass
        class Half(fedlib.Server):
            def step(self, delta):
                return delta / 2

    Fields of the dataclass are its parameters. What it sets on itself (tensors, numbers, lists) is its state.
    """

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        import torch

        self.m, self.v = torch.zeros(n_trainable, device=device), torch.zeros(n_trainable, device=device)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new, n = super().aggregate(models, clients, assigned, weights, updates, steps, lr), len(self.m)
        new[:, :n] = models[:, :n] + self.step(new[0, :n] - models[0, :n])
        return new

    def step(self, delta: Tensor) -> Tensor:
        """The server's step (n_trainable,) for a mean update of the same shape."""
        raise NotImplementedError


@register("fedavgm", revision=0)
@dataclass
class FedAvgM(Server):
    """m <- momentum m + delta; w <- w + lr m."""

    lr: Positive = 1.0
    momentum: Share = 0.9

    def step(self, delta: Tensor) -> Tensor:
        self.m = self.momentum * self.m + delta
        return self.lr * self.m


@register("fedadam", revision=0)
@dataclass
class FedAdam(Server):
    """m <- beta_1 m + (1 - beta_1) delta; v <- beta_2 v + (1 - beta_2) delta^2; w <- w + lr m / (sqrt(v) + tau)."""

    lr: Positive = 0.01
    beta_1: Share = 0.9
    beta_2: Share = 0.99
    tau: Positive = 1e-3

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        super().setup(N, d, n_trainable, device)
        self.v = self.v + self.tau**2

    def step(self, delta: Tensor) -> Tensor:
        self.m = self.beta_1 * self.m + (1 - self.beta_1) * delta
        self.v = self.second_moment(delta.square())
        return self.lr * self.m / (self.v.sqrt() + self.tau)

    def second_moment(self, square: Tensor) -> Tensor:
        return self.beta_2 * self.v + (1 - self.beta_2) * square


@register("fedyogi", revision=0)
@dataclass
class FedYogi(FedAdam):
    """FedAdam with v <- v - (1 - beta_2) delta^2 sign(v - delta^2)."""

    def second_moment(self, square: Tensor) -> Tensor:
        return self.v - (1 - self.beta_2) * square * (self.v - square).sign()


@register("fedadagrad", revision=0)
@dataclass
class FedAdagrad(Server):
    """FedAdam with v <- v + delta^2; the paper's beta_1 is 0."""

    lr: Positive = 0.01
    beta_1: Share = 0.0
    tau: Positive = 1e-3

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        super().setup(N, d, n_trainable, device)
        self.v = self.v + self.tau**2

    def step(self, delta: Tensor) -> Tensor:
        self.m = self.beta_1 * self.m + (1 - self.beta_1) * delta
        self.v = self.v + delta.square()
        return self.lr * self.m / (self.v.sqrt() + self.tau)
