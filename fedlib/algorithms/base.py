"""The contract of federated algorithms: how clients' updates become the next global model.

`FedAvg` is the plain case and the base class of the others. Each algorithm keeps its own state per run. It defines what
its clients add to their gradients (`linear`, one constant vector per client), where they start from (`assign`), and how
many model-sized vectors are sent. Its dataclass fields are its hyper-parameters, which `params.yaml` may set.

torch is imported inside functions, so that reading settings does not load it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedlib.registry import Registry
from fedlib.samplers import Aggregation, Selection
from fedlib.samplers.base import Stateful

if TYPE_CHECKING:
    import torch
    from torch import Tensor

REGISTRY = Registry("algorithm", "fedlib.algorithms", group="fedlib.algorithms")
find, version_of, load_all, register = (
    REGISTRY.find,
    REGISTRY.version_of,
    REGISTRY.load_all,
    REGISTRY.register,
)


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


def by_size(rule: Aggregation, draws: str) -> bool:
    """Whether weights estimate the mean of all clients' updates by size, and not the plain mean.

    With the rule `mean`, that is so where clients are drawn repeatedly: such schemes draw in proportion to the sizes.
    """
    return rule != "mean" or draws == "repeated"


@register("fedavg", revision=0)
@dataclass
class FedAvg(Stateful):
    """One global model; the server adds the weighted updates (McMahan et al., AISTATS 2017)."""

    payload: ClassVar[int] = 1  # model-sized vectors that travel each way per trained model
    reads_local: ClassVar[bool] = False  # whether it reads the clients' models, `local`
    models: int = field(default=1, init=False)  # that a run trains side by side
    shares: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)
    # (N,) of the clients in the mean that the weights estimate; None: equal ones
    rates: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)
    ages: np.ndarray | None = field(default=None, init=False, repr=False, compare=False)
    local: Sequence[Any] = field(default=(), init=False, repr=False, compare=False)
    # set before `aggregate`, because late updates are of earlier rounds: (n,) learning rates that clients trained with;
    # (n,) rounds since then; their models after training, of late ones

    def check(self, local: Any) -> None:
        """Raise ValueError where clients cannot do this local work (`settings.schema.Local`) under the algorithm."""

    def setup(self, N: int, d: int, n_trainable: int, device: torch.device) -> None:
        """Prepare the state. Called once before round 1, with the number of clients and parameters."""

    def assign(self, losses: np.ndarray) -> np.ndarray:
        """Index (n,) of the run's model that each client starts from; losses: (models, n)."""
        return np.zeros(losses.shape[1], dtype=int)

    def starts(self, clients: Sequence[int], models: Tensor) -> Tensor | None:
        """(n, d) the models that clients start from, or None: a global model; models: (models, d)."""
        return None

    def linear(self, clients: Sequence[int]) -> Tensor | None:
        """(n, d) a constant vector added to each client's gradients, or None."""
        return None

    def previous(self, clients: Sequence[int], start: Tensor) -> Tensor | None:
        """(n, d) the clients' previous local models, for objectives that use them, or None."""
        return None

    def trained_at(self, lr: float, n: int) -> np.ndarray:
        """(n,) the learning rates that the clients trained with; lr, of this round, unless updates are late."""
        return np.full(n, lr) if self.rates is None else self.rates

    def skip(self, models: Tensor, lr: float) -> Tensor:
        """The next global models (models, d) after a round in which no update arrives."""
        return models

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
        return models + (updates.new_tensor(weights) @ updates)[None]
