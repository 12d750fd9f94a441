"""The server's side of a round: how updates become the next global model.

`FedAvg` is the plain case and the base class of the others. Each algorithm keeps its own state per run. It defines what
its clients add to their gradients (`linear`, one constant vector per client), where they start from (`assign`), and how
many model-sized vectors are sent.

* SCAFFOLD: Karimireddy et al., ICML 2020, Algorithm 1 with option II and server step 1 (HCSFed's baseline).
* FedDyn: Acar et al., ICLR 2021, Algorithm 1; mu is its alpha (named in HiCS-FL's appendix).
* Moon: Li et al., CVPR 2021; only the local objective changes (HiCS-FL's appendix).
* IFCA: Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging; `models` cluster models (HCSFed's baseline).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedlib.samplers import Aggregation, Selection
from fedlib.settings.schema import Algorithm


def aggregation_weights(rule: Aggregation, selection: Selection, sizes: np.ndarray) -> np.ndarray:
    """Weight of each draw's update in new = old + sum_k weight_k * update_k -> (n,) float64.

    mean: 1 / n. data_size: n_k over the sum for the drawn clients. attrition: p_k, so that the share of absent clients
    stays on the old model (Clustered Sampling, equation 3). ipw: p_k over the expected number of draws of client k,
    which is unbiased.
    """
    if selection.weights is not None:
        return np.asarray(selection.weights, dtype=float)
    clients = np.asarray(selection.clients)
    drawn = sizes[clients].astype(float)
    if rule == "mean":
        return np.full(len(clients), 1 / len(clients))
    if rule == "data_size":
        return drawn / drawn.sum()
    if rule == "attrition":
        return drawn / sizes.sum()
    return drawn / sizes.sum() / np.asarray(selection.expected, dtype=float)


@dataclass
class FedAvg:
    """One global model; the server adds the weighted updates (McMahan et al., AISTATS 2017)."""

    payload: ClassVar[int] = 1  # model-sized vectors that travel each way per trained model
    moon: ClassVar[bool] = False
    models: ClassVar[int] = 1

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        """Prepare the state. Called once before round 1, with the number of clients and parameters."""

    def assign(self, losses: np.ndarray) -> np.ndarray:
        """Index (n,) of the run's model that each client starts from; losses: (models, n)."""
        return np.zeros(losses.shape[1], dtype=int)

    def linear(self, clients: Sequence[int]) -> Tensor | None:
        """(n, d) a constant vector added to each client's gradients, or None."""
        return None

    def previous(self, clients: Sequence[int], start: Tensor) -> Tensor | None:
        """(n, d) the clients' previous local models, for objectives that use them, or None."""
        return None

    def aggregate(
        self,
        models: Tensor,
        clients: np.ndarray,
        assigned: np.ndarray,
        weights: np.ndarray,
        updates: Tensor,
        steps: np.ndarray,
        lr: float,
    ) -> Tensor:
        """The next global models.

        models: (models, d); clients, assigned, weights, steps: (n,), in sorted client order; updates: (n, d).
        """
        w = torch.as_tensor(weights, dtype=updates.dtype, device=updates.device)
        return models + (w @ updates)[None]

    def state_dict(self) -> dict[str, Any]:
        """The algorithm's state for a checkpoint."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        vars(self).update(state)


@dataclass
class Scaffold(FedAvg):
    """SCAFFOLD. Control variates correct the drift of local steps: y <- y - eta (g - c_k + c)."""

    payload: ClassVar[int] = 2
    c: Tensor = field(init=False, repr=False)
    c_k: Tensor = field(init=False, repr=False)

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        self.c = torch.zeros(d, device=device)
        self.c_k = torch.zeros(N, d, device=device)
        self._trainable = n_trainable

    def linear(self, clients: Sequence[int]) -> Tensor:
        return self.c - self.c_k[torch.as_tensor(clients)]

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new = super().aggregate(models, clients, assigned, weights, updates, steps, lr)
        rate = torch.as_tensor(steps * lr, dtype=updates.dtype, device=updates.device)[:, None]
        delta = -self.c - updates / rate  # c_k+ - c_k, option II
        delta[:, self._trainable :] = 0
        for k, change in zip(clients.tolist(), delta, strict=True):
            self.c_k[k] += change
        self.c = self.c + delta.sum(0) / len(self.c_k)
        return new


@dataclass
class FedDyn(FedAvg):
    """FedDyn. Each client's objective is shifted by its running first-order term, the server's by their mean.

    With g_k the client's term, client k minimises F_k(w) - <g_k, w> + (mu/2)||w - w_t||^2, then sets
    g_k <- g_k - mu (w_k - w_t). The server keeps h <- h - (mu/N) sum (w_k - w_t) and sets w = mean w_k - h / mu.
    """

    mu: float = 0.1
    h: Tensor = field(init=False, repr=False)
    g_k: Tensor = field(init=False, repr=False)

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        self.h = torch.zeros(d, device=device)
        self.g_k = torch.zeros(N, d, device=device)
        self._trainable = n_trainable

    def linear(self, clients: Sequence[int]) -> Tensor:
        return -self.g_k[torch.as_tensor(clients)]

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        mean = super().aggregate(models, clients, assigned, weights, updates, steps, lr)
        drift = updates.clone()
        drift[:, self._trainable :] = 0
        for k, change in zip(clients.tolist(), drift, strict=True):
            self.g_k[k] -= self.mu * change
        self.h = self.h - self.mu * drift.sum(0) / len(self.g_k)
        return mean - self.h / self.mu


@dataclass
class Moon(FedAvg):
    """Moon. Clients pull their features toward the global model's and away from those of their own previous model."""

    moon: ClassVar[bool] = True
    w_k: Tensor = field(init=False, repr=False)
    seen: Tensor = field(init=False, repr=False)

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        self.w_k = torch.zeros(N, d, device=device)
        self.seen = torch.zeros(N, dtype=torch.bool, device=device)

    def previous(self, clients: Sequence[int], start: Tensor) -> Tensor:
        k = torch.as_tensor(clients)
        return torch.where(self.seen[k, None], self.w_k[k], start)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        for k, update in zip(clients.tolist(), updates, strict=True):
            self.w_k[k] = models[0] + update
            self.seen[k] = True
        return super().aggregate(models, clients, assigned, weights, updates, steps, lr)


@dataclass
class IFCA(FedAvg):
    """IFCA. Each client trains the model with the lowest loss on its data; each model averages its clients' updates."""

    models: int = 4

    def assign(self, losses: np.ndarray) -> np.ndarray:
        return losses.argmin(axis=0)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new = models.clone()
        for j in np.unique(assigned):
            mine = assigned == j
            share = weights[mine] / weights[mine].sum()
            new[j] += torch.as_tensor(share, dtype=updates.dtype, device=updates.device) @ updates[mine]
        return new


ALGORITHMS: dict[str, type[FedAvg]] = {
    "fedavg": FedAvg,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
    "moon": Moon,
    "ifca": IFCA,
}


def make_algorithm(name: Algorithm, params: dict[str, Any]) -> FedAvg:
    """The algorithm `name` with its parameters (see `settings/parameters.py`)."""
    return ALGORITHMS[name](**params)
