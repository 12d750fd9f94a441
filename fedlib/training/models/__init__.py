"""Models, one a file: a new file here is a new model, under its own name, with nothing else to edit.

A file `NAME.py` has a function `NAME(shape, classes)`, which makes the model for inputs of `shape` (without the batch)
and so many classes: a `Chain`, whose passes are written by hand, or any other `nn.Module`. A file may also have
`features(x)`: what the model sees in place of the images x, for models on top of a frozen one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from fedlib.settings.errors import ConfigError, meant
from fedlib.settings.schema import model_names
from fedlib.training.chain import Chain

Maker = Callable[[tuple[int, ...], int], nn.Module]


def maker(model: str) -> Maker:
    """The function that makes the model of that name.

    Raises:
        ConfigError: there is no such model.
    """
    return getattr(_file(model), model)


def features(model: str) -> Callable[[Tensor], Tensor] | None:
    """What the model of that name sees in place of images; None if it sees these."""
    return getattr(_file(model), "features", None)


def _file(model: str) -> Any:
    if model not in model_names():
        raise ConfigError(f"unknown model {model!r}; {meant(model, model_names())}")
    return import_module(f"{__name__}.{model}")


def build(model: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model for inputs of `shape` (without the batch); its values are for `initialise` to set.

    Raises:
        ConfigError: there is no such model, the images are too small for its convolutions, or no images at all.
    """
    make = maker(model)
    try:
        with torch.random.fork_rng(devices=[]):  # torch's constructors draw from the global generator
            return traced(make(shape, classes), shape)
    except RuntimeError:
        raise ConfigError(
            f"model {model!r} cannot take inputs of shape {' x '.join(map(str, shape))}: its convolutions need "
            "larger images; use mlp or logistic with this dataset."
        ) from None


@torch.no_grad()
def traced(net: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """The model; a `Chain` has learnt what its dropout layers mask."""
    if isinstance(net, Chain):
        x = torch.zeros(2, *shape)
        for layer in net:
            if isinstance(layer, nn.Dropout):
                net.dropouts.append((layer.p, tuple(x.shape[1:])))
            else:
                x = layer(x)
    return net
