"""Chains: models that are layers in a row, with hand-written passes, and their initialisation.

Logistic regression, MLPs and plain CNNs are a `Chain`: standard torch layers, the last one linear. Nothing here draws
from a global generator: dropout receives its masks, and `initialise` draws a model's values.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.streams import torch_generator
from fedlib.training.layout import Layout
from fedlib.training.randomness import drawn

KINDS = {"F": nn.Flatten, "L": nn.Linear, "R": nn.ReLU, "D": nn.Dropout}
Weighted = nn.Linear | nn.Conv2d
Fill = Callable[[Weighted, torch.Generator], None]


class Chain(nn.Sequential):
    """Layers in a row. Dropout receives its masks, so that they can come from a job's own generator.

    fill: how each layer is initialised.
    make: alternatively, makes a model with the same tensors in the same order from a seed; its values are used.
    dropouts: for each dropout layer, its p and the (...) shape that it masks.
    """

    def __init__(
        self, *layers: nn.Module, fill: Fill | None = None, make: Callable[[int], nn.Module] | None = None
    ) -> None:
        super().__init__(*layers)
        self.fill, self.make = fill, make
        self.dropouts: list[tuple[float, tuple[int, ...]]] = []

    def forward(
        self, input: Tensor, masks: Sequence[Tensor] = (), keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, K) of the input x: (B, ...), and the features (B, L) that enter the output layer.

        masks: one (B, ...) tensor of 0 and 1/(1-p) per dropout layer, or none.
        keep: (B,) 1 for samples and 0 for places that only fill up a stacked batch. Batch normalisation must not see
            the latter.
        """
        *hidden, output = self
        x, waiting = input, iter(masks)
        for layer in hidden:
            if isinstance(layer, nn.Dropout):
                x = x * next(waiting) if masks else x
            elif isinstance(layer, nn.BatchNorm2d) and keep is not None:
                x = masked_batch_norm(layer, x, keep)
            else:
                x = layer(x)
        return output(x), x

    @property
    def output_layer(self) -> str:
        """The name of the output layer, as `Layout` expects it."""
        return str(len(self) - 1)

    @property
    def is_dense(self) -> bool:
        """Whether all layers are linear layers with ReLU, with dropout after each of them or after none."""
        kinds = "".join(next((k for k, kind in KINDS.items() if type(layer) is kind), "?") for layer in self)
        return bool(re.fullmatch("F?((LR)*|(LDR|LRD)*)L", kinds))


def masked_batch_norm(layer: nn.BatchNorm2d, x: Tensor, keep: Tensor) -> Tensor:
    """Batch normalisation in training mode over the kept samples only; x: (B, C, h, w), keep: (B,) 0 or 1."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    assert layer.momentum is not None
    n = keep.sum() * x[0, 0].numel()
    weight = keep[:, None, None, None] / n
    mean = (x * weight).sum((0, 2, 3))
    centred = x - mean[:, None, None]
    variance = (centred.square() * weight).sum((0, 2, 3))
    layer.running_mean.mul_(1 - layer.momentum).add_(layer.momentum * mean.detach())
    layer.running_var.mul_(1 - layer.momentum).add_(layer.momentum * variance.detach() * n / (n - 1))
    scale = layer.weight * torch.rsqrt(variance + layer.eps)
    return centred * scale[:, None, None] + layer.bias[:, None, None]


def initialise(net: Chain, rng: np.random.Generator) -> Tensor:
    """(d,) the values of a fresh model, float32 on the CPU, drawn by the rule of its specification."""
    if net.make is not None:
        return drawn(net.make, rng)
    fresh = copy.deepcopy(net)
    generator = torch_generator(rng)
    for layer in fresh:
        if isinstance(layer, nn.BatchNorm2d | nn.PReLU):
            layer.reset_parameters()  # sets constants
        elif isinstance(layer, nn.Linear | nn.Conv2d):
            assert net.fill is not None
            net.fill(layer, generator)
        elif any(True for _ in layer.parameters()):
            reset(layer, generator)
    return Layout.of(net).values(fresh)


def reset(layer: nn.Module, generator: torch.Generator) -> None:
    """Let any other layer, with all that it contains, draw its values as torch does, but from a generator of ours."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        for module in layer.modules():
            getattr(module, "reset_parameters", lambda: None)()


def bias_of(layer: Weighted) -> Tensor:
    assert layer.bias is not None
    return layer.bias


def torch_default(layer: Weighted, generator: torch.Generator) -> None:
    """Weights and biases uniform in +-1/sqrt(fan in), as in torch's own reset_parameters."""
    bound = 1 / math.sqrt(layer.weight[0].numel())
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(bias_of(layer), -bound, bound, generator=generator)


def xavier(layer: Weighted, generator: torch.Generator) -> None:
    """As in HiCS-FL's code: Xavier-uniform weights with the gain for ReLU, torch's default for biases."""
    torch_default(layer, generator)
    nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"), generator=generator)


def zeros(layer: Weighted, generator: torch.Generator) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(bias_of(layer))


def small_normal(layer: Weighted, generator: torch.Generator) -> None:
    """HiCS-FL's head on the frozen ResNet-18: weights N(0, 0.01), bias 0."""
    nn.init.normal_(layer.weight, 0, 0.01, generator=generator)
    nn.init.zeros_(bias_of(layer))


def flat_size(layers: Sequence[nn.Module], shape: tuple[int, ...]) -> int:
    """Number of values of a sample of `shape` after it passed through layers that end flat."""
    return nn.Sequential(*layers)(torch.zeros(2, *shape)).shape[1]


def three_convolutions(
    shape: tuple[int, ...], classes: int, hidden: int, fill: Fill, drop: float = 0.0, last_relu: bool = False
) -> Chain:
    """Three 3x3 convolutions without padding (32, 64, 64 channels), then two linear layers.

    Max-pooling comes before ReLU: they commute, and this order is cheaper.
    """
    dropout = [nn.Dropout(drop)] if drop else []
    layers = [
        *(nn.Conv2d(shape[0], 32, 3), nn.MaxPool2d(2), nn.ReLU(), *dropout),
        *(nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), *dropout),
        *(nn.Conv2d(64, 64, 3), *([nn.ReLU()] if last_relu else []), *dropout, nn.Flatten()),
    ]
    flat = nn.Linear(flat_size(layers, shape), hidden)
    return Chain(*layers, flat, nn.ReLU(), nn.Linear(hidden, classes), fill=fill)
