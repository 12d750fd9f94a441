"""Clustered Sampling's CNN for CIFAR-10, from its code."""

from __future__ import annotations

from fedlib.training.chain import Chain, three_convolutions, torch_default


def cs_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """Clustered Sampling's CIFAR network (its code): dropout 0.2, no ReLU after the third convolution."""
    return three_convolutions(shape, classes, 64, torch_default, drop=0.2)
