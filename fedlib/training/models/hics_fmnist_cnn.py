"""HiCS-FL's CNN for Fashion-MNIST, from its code."""

from __future__ import annotations

from torch import nn

from fedlib.training.chain import Chain, flat_size, xavier


def hics_fmnist_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's Fashion-MNIST network: two 5x5 convolutions with PReLU and batch normalisation, one linear layer."""
    layers = [
        *(nn.Conv2d(shape[0], 32, 5), nn.PReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 5), nn.PReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2)),
        *(nn.Dropout(0.2), nn.Flatten()),
    ]
    return Chain(*layers, nn.Linear(flat_size(layers, shape), classes), fill=xavier)
