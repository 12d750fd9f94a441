"""Models as a program gives them: the name of a shipped model, or a function that makes a module."""

from __future__ import annotations

from typing import Any

from torch import nn

from fedlib.errors import ConfigError
from fedlib.settings.identity import digest_of_value
from fedlib.settings.schema import OWN
from fedlib.training.executors import Own
from fedlib.training.models import maker
from fedlib.training.objective import Function
from fedlib.training.randomness import made


def model_of(
    model: Any,
    shape: tuple[int, ...],
    classes: int,
    loss: Function | None,
    metric: Function | None,
    key: Any = None,
    stored: bool = True,
) -> tuple[str, str | Own]:
    """The name for a run's settings, and what `make_executor` takes.

    shape, classes: for a shipped model, the shape of its inputs and the number of classes. key, stored: see `digest`.

    Raises:
        ConfigError: it is neither a name nor a function that makes a module, or no model has that name.
    """
    if isinstance(model, str):
        make = maker(model)
        if loss is None and metric is None:
            return model, model
        return _named(Own(lambda: make(shape, classes), loss, metric), model, key, stored)
    if isinstance(model, nn.Module):
        raise ConfigError(
            "model is a module; give a function that makes it, as lambda: MyNet(), so that every seed has its own "
            "initial values."
        )
    if not callable(model):
        raise ConfigError(f"model is {model!r}; give the name of a model, or a function that makes a module.")
    return _named(Own(model, loss, metric), getattr(model, "__name__", "model").strip("<>"), key, stored)


def _named(own: Own, name: str, key: Any, stored: bool) -> tuple[str, Own]:
    return f"{OWN}{name}:{digest(own, key, stored)}", own


def digest(own: Own, key: Any = None, stored: bool = True) -> str:
    """Identifies a program's own model: a digest of its code, attributes, initial values, loss and metric.

    key: stands for what cannot be identified. stored: whether something that cannot be identified is an error.

    Raises:
        ConfigError: something cannot be identified, and there is no key.
    """
    parts = {"model": own.make, "model()": made(own.make, 0), "loss": own.loss, "metric": own.metric}
    skip = key is not None or not stored
    each = [digest_of_value(value, name, skip) for name, value in parts.items()]
    return digest_of_value([*each, key], "key")[:12]
