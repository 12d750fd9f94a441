"""Multinomial logistic regression, as in HCSFed."""

from __future__ import annotations

import math

from torch import nn

from fedlib.training.chain import Chain, zeros


def logistic(shape: tuple[int, ...], classes: int) -> Chain:
    """Multinomial logistic regression, initialised with zeros (HCSFed)."""
    return Chain(nn.Flatten(), nn.Linear(math.prod(shape), classes), fill=zeros)
