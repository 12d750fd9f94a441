"""Power-of-Choice's MLP for Fashion-MNIST."""

from __future__ import annotations

import math

from torch import nn

from fedlib.training.chain import Chain, torch_default


def poc_mlp(shape: tuple[int, ...], classes: int) -> Chain:
    """784-64-30-10 with ReLU (Cho et al., section 5): two hidden layers, 52,500 parameters."""
    return Chain(
        *(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.ReLU(), nn.Linear(64, 30), nn.ReLU()),
        nn.Linear(30, classes),
        fill=torch_default,
    )
