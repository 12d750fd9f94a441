"""Models, one per file. To add one, put a file here; it is available under its name and nothing else needs an edit.

A file `NAME.py` has a function `NAME(shape, classes)`, which makes the model for inputs of `shape` (without the batch)
and this number of classes: a `Chain`, whose passes are hand-written, or any other `nn.Module`. A file may also have
`features(x)`: what the model sees instead of the images x, for models on top of a frozen one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError, meant
from fedlib.settings.schema import model_names
from fedlib.training.chain import Chain

M = TypeVar("M", bound=nn.Module)
Maker = Callable[[tuple[int, ...], int], nn.Module]


def maker(model: str) -> Maker:
    """The function that makes the model `model`.

    Raises:
        ConfigError: no model has that name.
    """
    return getattr(_file(model), model)


def features(model: str) -> Callable[[Tensor], Tensor] | None:
    """The function that computes the input of `model` from images; None if the model takes the images."""
    return getattr(_file(model), "features", None)


def _file(model: str) -> Any:
    if model not in model_names():
        raise ConfigError(f"unknown model {model!r}; {meant(model, model_names())}")
    return import_module(f"{__name__}.{model}")


def build(model: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model for inputs of `shape` (without the batch). `initialise` sets its values.

    Raises:
        ConfigError: the model does not exist, or its inputs are too small for its convolutions, or not images.
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
def traced(net: M, shape: tuple[int, ...]) -> M:
    """The model; a `Chain` has now recorded the shapes that its dropout layers mask."""
    if isinstance(net, Chain):
        x = torch.zeros(2, *shape)
        for layer in net:
            if isinstance(layer, nn.Dropout):
                net.dropouts.append((layer.p, tuple(x.shape[1:])))
            else:
                x = layer(x)
    return net
