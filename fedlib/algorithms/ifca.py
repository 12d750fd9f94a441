"""IFCA: Ghosh et al., NeurIPS 2020, Algorithm 1, model averaging; `models` cluster models (HCSFed's baseline)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.algorithms.base import FedAvg, register


@register("ifca", revision=0)
@dataclass
class IFCA(FedAvg):
    """IFCA. Each client trains the model with the lowest loss on its data; each model averages its clients' updates."""

    models: Annotated[int, Field(ge=1, le=100)] = 4

    def assign(self, losses: np.ndarray) -> np.ndarray:
        return losses.argmin(axis=0)

    def aggregate(self, models, clients, assigned, weights, updates, steps, lr):
        new = models.clone()
        for j in np.unique(assigned):
            mine = assigned == j
            new[j] += updates.new_tensor(weights[mine] / weights[mine].sum()) @ updates[mine]
        return new
