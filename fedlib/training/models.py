"""The papers' models as plain modules, and how a model is written as one flat vector.

A model is a `Chain`: standard torch layers in a row, the last one linear. Nothing here draws from a global generator:
models are filled by `initialise`.

Sources: Clustered Sampling's and FedCor's code, HiCS-FL's code (its models.py, which matches the paper's layer counts).
Max-pooling stands before ReLU wherever both occur: they commute, and it is the cheaper order.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedlib.settings.schema import ConfigError, ModelName
from fedlib.streams import torch_generator

Fill = Callable[[nn.Module, torch.Generator], None]
RESNET18 = (
    "resnet18-f37072fd.pth"  # torchvision's ImageNet weights; the name ends with its SHA-256's beginning
)


class Chain(nn.Sequential):
    """Layers in a row. Dropout is given its masks, so that they can come from a job's own generator.

    fill: how each layer is initialised. dropouts: for each dropout layer its p and the (...) shape of what it masks.
    """

    def __init__(self, *layers: nn.Module, fill: Fill) -> None:
        super().__init__(*layers)
        self.fill = fill
        self.dropouts: list[tuple[float, tuple[int, ...]]] = []

    def forward(
        self, x: Tensor, masks: Sequence[Tensor] = (), keep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logits (B, K) of x: (B, ...), and the features (B, L) that the output layer saw.

        masks: one (B, ...) tensor of 0 and 1/(1-p) a dropout layer, or none. keep: (B,) 1 for samples and 0 for
        places that only fill up a stacked batch; batch normalisation must not see these.
        """
        *hidden, output = self
        given = iter(masks)
        for layer in hidden:
            if isinstance(layer, nn.Dropout):
                x = x * next(given) if masks else x
            elif isinstance(layer, nn.BatchNorm2d) and keep is not None:
                x = masked_batch_norm(layer, x, keep)
            else:
                x = layer(x)
        return output(x), x

    @property
    def is_dense(self) -> bool:
        """Whether it is made of linear layers, ReLU and dropout alone."""
        return all(isinstance(layer, nn.Flatten | nn.Linear | nn.ReLU | nn.Dropout) for layer in self)


def masked_batch_norm(layer: nn.BatchNorm2d, x: Tensor, keep: Tensor) -> Tensor:
    """Batch normalisation in training mode over the kept samples alone; x: (B, C, h, w), keep: (B,) 0 or 1."""
    n = keep.sum() * x[0, 0].numel()
    weight = keep[:, None, None, None] / n
    mean = (x * weight).sum((0, 2, 3))
    centred = x - mean[:, None, None]
    variance = (centred.square() * weight).sum((0, 2, 3))
    layer.running_mean.mul_(1 - layer.momentum).add_(layer.momentum * mean.detach())
    layer.running_var.mul_(1 - layer.momentum).add_(layer.momentum * variance.detach() * n / (n - 1))
    scale = layer.weight * torch.rsqrt(variance + layer.eps)
    return centred * scale[:, None, None] + layer.bias[:, None, None]


@dataclass(frozen=True)
class Layout:
    """Where each tensor of a model lies in its flat (d,) vector.

    Parameters come first, in the modules' order, so that the output layer's weight and bias are the last of them;
    batch normalisation's running means and variances follow: averaged like weights, never touched by an optimiser.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    n_trainable: int

    @classmethod
    def of(cls, net: nn.Module) -> Layout:
        tensors = dict(net.named_parameters())
        n_trainable = sum(p.numel() for p in tensors.values())
        tensors |= {name: b for name, b in net.named_buffers() if b.is_floating_point()}
        return cls(tuple(tensors), tuple(t.shape for t in tensors.values()), n_trainable)

    @cached_property
    def slices(self) -> dict[str, slice]:
        ends = np.cumsum([shape.numel() for shape in self.shapes]).tolist()
        return {name: slice(a, b) for name, a, b in zip(self.names, [0, *ends], ends, strict=False)}

    @property
    def d(self) -> int:
        return sum(shape.numel() for shape in self.shapes)

    @property
    def output_weight(self) -> slice:
        """Of the output layer's (K, L) weight."""
        bias = self.output_bias
        return next(s for s in self.slices.values() if s.stop == bias.start)

    @property
    def output_bias(self) -> slice:
        """Of the output layer's (K,) bias."""
        return next(s for s in self.slices.values() if s.stop == self.n_trainable)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """(..., d) -> views (..., *shape) by name."""
        return {
            name: flat[..., where].view(*flat.shape[:-1], *shape)
            for (name, where), shape in zip(self.slices.items(), self.shapes, strict=True)
        }


def build(model: ModelName, shape: tuple[int, ...], classes: int) -> Chain:
    """A model for inputs of `shape` (without the batch); its values are for `initialise` to set.

    Raises:
        ConfigError: the images are too small for the model's convolutions, or no images at all.
    """
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.no_grad(),
        ):  # torch's constructors draw from the global generator
            net = _MODELS[model](shape, classes)
            x = torch.zeros(2, *shape)
            for layer in net:
                if isinstance(layer, nn.Dropout):
                    net.dropouts.append((layer.p, tuple(x.shape[1:])))
                else:
                    x = layer(x)
    except RuntimeError:
        raise ConfigError(
            f"model {model!r} cannot take inputs of shape {' x '.join(map(str, shape))}: its convolutions need "
            "larger images; use mlp or logistic with this dataset."
        ) from None
    return net


def initialise(net: Chain, rng: np.random.Generator) -> Tensor:
    """(d,) a fresh model, float32 on the CPU, drawn as its specification says."""
    fresh = copy.deepcopy(net)
    generator = torch_generator(rng)
    for layer in fresh:
        if isinstance(layer, nn.BatchNorm2d | nn.PReLU):
            layer.reset_parameters()  # constants
        elif isinstance(layer, nn.Linear | nn.Conv2d):
            net.fill(layer, generator)
    tensors = dict(fresh.named_parameters()) | dict(fresh.named_buffers())
    return torch.cat([tensors[name].detach().flatten() for name in Layout.of(net).names])


def torch_default(layer: nn.Module, generator: torch.Generator) -> None:
    """Weights and biases uniform in +-1/sqrt(fan in), as torch's own reset_parameters."""
    bound = 1 / math.sqrt(layer.weight[0].numel())
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    nn.init.uniform_(layer.bias, -bound, bound, generator=generator)


def xavier(layer: nn.Module, generator: torch.Generator) -> None:
    """HiCS-FL's code: Xavier-uniform weights with ReLU's gain; biases as torch's default."""
    torch_default(layer, generator)
    nn.init.xavier_uniform_(layer.weight, nn.init.calculate_gain("relu"), generator=generator)


def zeros(layer: nn.Module, generator: torch.Generator) -> None:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)


def small_normal(layer: nn.Module, generator: torch.Generator) -> None:
    """HiCS-FL's head on the frozen ResNet-18: weights N(0, 0.01), bias 0."""
    nn.init.normal_(layer.weight, 0, 0.01, generator=generator)
    nn.init.zeros_(layer.bias)


def logistic(shape: tuple[int, ...], classes: int) -> Chain:
    """Multinomial logistic regression, zero initialisation (HCSFed)."""
    return Chain(nn.Flatten(), nn.Linear(math.prod(shape), classes), fill=zeros)


def mlp(shape: tuple[int, ...], classes: int) -> Chain:
    """One hidden layer of 50 (Clustered Sampling, HCSFed): 39 760 parameters on MNIST."""
    hidden = nn.Linear(math.prod(shape), 50)
    return Chain(nn.Flatten(), hidden, nn.ReLU(), nn.Linear(50, classes), fill=torch_default)


def fedcor_mlp(shape: tuple[int, ...], classes: int) -> Chain:
    """784-64-30-10 with dropout 0.5 before each ReLU (FedCor's code): 52 500 parameters."""
    return Chain(
        *(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Dropout(0.5), nn.ReLU()),
        *(nn.Linear(64, 30), nn.Dropout(0.5), nn.ReLU()),
        nn.Linear(30, classes),
        fill=torch_default,
    )


def _three_convolutions(
    shape: tuple[int, ...], classes: int, hidden: int, fill: Fill, drop: float = 0.0, last_relu: bool = False
) -> Chain:
    """Three 3x3 convolutions without padding (32, 64, 64 channels), two linear layers."""
    dropout = [nn.Dropout(drop)] if drop else []
    layers = [
        *(nn.Conv2d(shape[0], 32, 3), nn.MaxPool2d(2), nn.ReLU(), *dropout),
        *(nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), *dropout),
        *(nn.Conv2d(64, 64, 3), *([nn.ReLU()] if last_relu else []), *dropout, nn.Flatten()),
    ]
    flat = nn.Linear(_flat_size(layers, shape), hidden)
    return Chain(*layers, flat, nn.ReLU(), nn.Linear(hidden, classes), fill=fill)


def cs_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """Clustered Sampling's CIFAR network (its code): dropout 0.2, no ReLU after the third convolution."""
    return _three_convolutions(shape, classes, 64, torch_default, drop=0.2)


def fedcor_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """FedCor's CIFAR network (its code): no dropout."""
    return _three_convolutions(shape, classes, 64, torch_default, last_relu=True)


def hics_cifar10_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's CIFAR-10 network (conference version and code): cs_cnn with Xavier initialisation."""
    return _three_convolutions(shape, classes, 64, xavier, drop=0.2)


def hics_cifar_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's CIFAR-100 network (its code): as hics_cifar10_cnn, hidden size 256."""
    return _three_convolutions(shape, classes, 256, xavier, drop=0.2)


def hics_fmnist_cnn(shape: tuple[int, ...], classes: int) -> Chain:
    """HiCS-FL's Fashion-MNIST network: two 5x5 convolutions with PReLU and batch normalisation, one linear layer."""
    layers = [
        *(nn.Conv2d(shape[0], 32, 5), nn.PReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2)),
        *(
            nn.Conv2d(32, 32, 5),
            nn.PReLU(),
            nn.BatchNorm2d(32),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
            nn.Flatten(),
        ),
    ]
    return Chain(*layers, nn.Linear(_flat_size(layers, shape), classes), fill=xavier)


def resnet18_head(shape: tuple[int, ...], classes: int) -> Chain:
    """A linear layer on the features of a frozen ResNet-18 (HiCS-FL's Mini-ImageNet); see `resnet18_features`."""
    return Chain(nn.Flatten(), nn.Linear(math.prod(shape), classes), fill=small_normal)


_MODELS: dict[str, Callable[[tuple[int, ...], int], Chain]] = {
    f.__name__: f
    for f in (
        *(logistic, mlp, fedcor_mlp, cs_cnn, fedcor_cnn),
        *(hics_fmnist_cnn, hics_cifar10_cnn, hics_cifar_cnn, resnet18_head),
    )
}


def _flat_size(layers: Sequence[nn.Module], shape: tuple[int, ...]) -> int:
    return nn.Sequential(*layers)(torch.zeros(2, *shape)).shape[1]


def resnet18_features(x: Tensor, weights: Path | None = None) -> Tensor:
    """(n, 512) penultimate features of a ResNet-18 trained on ImageNet, in evaluation mode; x: (n, 3, h, w).

    weights: torchvision's file; None looks where torch keeps its downloads. Nothing is ever downloaded.

    Raises:
        ConfigError: the file is missing or is not torchvision's.
    """
    path = weights or Path(torch.hub.get_dir()) / "checkpoints" / RESNET18
    if not path.is_file():
        raise ConfigError(
            f"model 'resnet18_head' needs ImageNet weights: place torchvision's {RESNET18} at {path}."
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(RESNET18.removeprefix("resnet18-").removesuffix(".pth")):
        raise ConfigError(
            f"{path} is not torchvision's {RESNET18} (its SHA-256 is {digest[:8]}...); replace it."
        )
    from torchvision.models import resnet18  # slow to import, and rarely needed

    net = resnet18(weights=None)
    net.load_state_dict(torch.load(path, weights_only=True))
    net.fc = nn.Identity()
    with torch.inference_mode():
        return torch.cat([net.eval()(part) for part in x.split(100)])
