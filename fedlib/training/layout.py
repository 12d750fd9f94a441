"""How a model is stored as one flat vector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Layout:
    """Position of each tensor of a model in its flat (d,) vector.

    Trained parameters come first, in the order of the modules. Tensors that are averaged like weights but never changed
    by an optimiser follow: parameters that require no gradient, and float buffers such as batch normalisation's running
    means and variances. output: name of the output layer, None where the model has no known one. frozen: number of
    values that require no gradient, which nobody sends.
    """

    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]
    n_trainable: int
    output: str | None = None
    frozen: int = 0

    @property
    def sent(self) -> int:
        """Number of values that travel with a model."""
        return self.d - self.frozen

    @classmethod
    def of(cls, net: nn.Module) -> Layout:
        """The layout of a module. Its attribute `output_layer`, if it has one, names its output layer."""
        parameters = dict(net.named_parameters())
        tensors: dict[str, Tensor] = {name: p for name, p in parameters.items() if p.requires_grad}
        n_trainable = sum(p.numel() for p in tensors.values())
        tensors |= parameters
        tensors |= {name: b for name, b in net.named_buffers() if b.is_floating_point()}
        shapes = tuple(t.shape for t in tensors.values())
        frozen = sum(p.numel() for p in parameters.values() if not p.requires_grad)
        return cls(tuple(tensors), shapes, n_trainable, getattr(net, "output_layer", None), frozen)

    def values(self, net: nn.Module) -> Tensor:
        """(d,) the values of a module of this layout."""
        tensors = dict(net.named_parameters()) | dict(net.named_buffers())
        return torch.cat([tensors[name].detach().flatten() for name in self.names])

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Position of each tensor in the flat vector, by name."""
        ends = np.cumsum([shape.numel() for shape in self.shapes]).tolist()
        return {name: slice(a, b) for name, a, b in zip(self.names, [0, *ends], ends, strict=False)}

    @cached_property
    def d(self) -> int:
        """Length of the flat vector."""
        return sum(shape.numel() for shape in self.shapes)

    @property
    def output_weight(self) -> slice | None:
        """Position of the output layer's (K, L) weight; None where no output layer is known."""
        return self.slices.get(f"{self.output}.weight")

    @property
    def output_bias(self) -> slice | None:
        """Position of the output layer's (K,) bias; None where no output layer is known."""
        return self.slices.get(f"{self.output}.bias")

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Views (..., *shape) by name, of a flat tensor (..., d)."""
        return {
            name: flat[..., where].view((*flat.shape[:-1], *shape))
            for (name, where), shape in zip(self.slices.items(), self.shapes, strict=True)
        }


@torch.no_grad()
def with_values(net: nn.Module, flat: Tensor) -> nn.Module:
    """A module with the values of a flat vector (d,)."""
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    for name, value in Layout.of(net).views(flat).items():
        tensors[name].copy_(value)
    return net
