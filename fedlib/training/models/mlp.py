"""A small MLP, as in Clustered Sampling and HCSFed."""

from __future__ import annotations

import math

from torch import nn

from fedlib.training.chain import Chain, torch_default


def mlp(shape: tuple[int, ...], classes: int) -> Chain:
    """One hidden layer of 50 units (Clustered Sampling, HCSFed): 39,760 parameters on MNIST."""
    hidden = nn.Linear(math.prod(shape), 50)
    return Chain(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(50, classes), fill=torch_default)
