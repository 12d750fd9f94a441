"""FedCor's CNN for CIFAR-10, from its code."""

from __future__ import annotations

from fedlib.training.chain import Chain, three_convolutions, torch_default


def fedcor_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """FedCor's CIFAR network (its code): no dropout."""
    return three_convolutions(shape, classes, 64, torch_default, last_relu=True)
