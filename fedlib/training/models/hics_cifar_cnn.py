"""HiCS-FL's CNN for CIFAR-100, from its code."""

from __future__ import annotations

from fedlib.training.chain import Chain, three_convolutions, xavier


def hics_cifar_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's CIFAR-100 network (its code): like hics_cifar10_cnn, with hidden size 256."""
    return three_convolutions(shape, classes, 256, xavier, drop=0.2)
