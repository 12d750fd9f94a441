"""HiCS-FL's CNN for CIFAR-10, from its code, which matches the paper's layer counts."""

from __future__ import annotations

from fedlib.training.chain import Chain, three_convolutions, xavier


def hics_cifar10_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's CIFAR-10 network (conference version and code): cs_cnn with Xavier initialisation."""
    return three_convolutions(shape, classes, 64, xavier, drop=0.2)
