"""Convert a program's own module to a `Chain`, if it is layers in a row that the hand-written passes know."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor, nn

from fedlib.training.chain import Chain
from fedlib.training.layers import is_plain_convolution
from fedlib.training.models import traced
from fedlib.training.randomness import made

ON_MAPS = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
ANYWHERE = (nn.ReLU, nn.Dropout, nn.Tanh, nn.Sigmoid, nn.GELU, nn.LeakyReLU, nn.ELU)


def as_chain(net: nn.Module, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> Chain | None:
    """The module as a chain, for inputs of `shape` (without the batch); None where torch has to train it."""
    if type(net) is not nn.Sequential or any(
        _has_hooks(part) for part in [*net.modules(), *net.parameters()]
    ):
        return None
    layers = list(_in_a_row(net))
    flat = len(shape) == 1
    for layer in layers:
        if type(layer) is nn.Flatten:
            fits, flat = (layer.start_dim, layer.end_dim) == (1, -1), True
        elif type(layer) is nn.Linear:
            fits = flat and layer.bias is not None
        elif type(layer) in ON_MAPS:
            fits = not flat and (type(layer) is not nn.Conv2d or is_plain_convolution(layer))
        else:
            fits = type(layer) in ANYWHERE
        if not fits or any(not p.requires_grad for p in layer.parameters()):
            return None
    if not layers or type(layers[-1]) is not nn.Linear:
        return None
    chain = traced(Chain(*layers, make=lambda seed: made(make, seed)), shape)
    return chain if chain.is_dense or len(shape) == 3 else None


def _has_hooks(part: nn.Module | Tensor) -> bool:
    """Whether a module or parameter has hooks, which the hand-written passes would not run."""
    kinds = (
        "_backward_hooks",
        "_post_accumulate_grad_hooks",
        "_backward_pre_hooks",
        "_forward_hooks",
        "_forward_pre_hooks",
    )
    return any(getattr(part, kind, None) for kind in kinds)


def _in_a_row(net: nn.Sequential) -> Iterator[nn.Module]:
    for layer in net:
        yield from _in_a_row(layer) if type(layer) is nn.Sequential else [layer]
