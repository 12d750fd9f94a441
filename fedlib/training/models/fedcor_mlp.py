"""FedCor's MLP, from its code."""

from __future__ import annotations

import math

from torch import nn

from fedlib.training.chain import Chain, torch_default


def fedcor_mlp(shape: tuple[int, ...], classes: int) -> Chain:
    """784-64-30-10 with dropout 0.5 before each ReLU (FedCor's code): 52,500 parameters."""
    return Chain(
        *(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Dropout(0.5), nn.ReLU()),
        *(nn.Linear(64, 30), nn.Dropout(0.5), nn.ReLU()),
        nn.Linear(30, classes),
        fill=torch_default,
    )
