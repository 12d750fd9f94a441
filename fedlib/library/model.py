"""Models as a program names them: one of ours by name, or a function that makes a module."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedlib.samplers.sources import digest_of, file_of
from fedlib.settings.errors import ConfigError
from fedlib.settings.schema import OWN
from fedlib.training.bench import drawn, made
from fedlib.training.executors import Own
from fedlib.training.models import maker
from fedlib.training.objective import Function

HOUSE = Path(__file__).resolve().parents[1]


def model_of(
    model: Any, shape: tuple[int, ...], classes: int, loss: Function | None, metric: Function | None
) -> tuple[str, str | Own]:
    """The name that a run's settings say, and what `make_executor` takes.

    shape, classes: for a model of ours, what its inputs look like and how many classes there are.

    Raises:
        ConfigError: it is no name and makes no module, or there is no model of that name.
    """
    if isinstance(model, str):
        make = maker(model)
        if loss is None and metric is None:
            return model, model
        return _named(Own(lambda: make(shape, classes), loss, metric), model)
    if isinstance(model, nn.Module):
        raise ConfigError(
            "model is a module; give a function that makes it, as lambda: MyNet(), so that every seed has its own "
            "initial values."
        )
    if not callable(model):
        raise ConfigError(f"model is {model!r}; give the name of a model, or a function that makes a module.")
    return _named(Own(model, loss, metric), getattr(model, "__name__", "model").strip("<>"))


def _named(own: Own, name: str) -> tuple[str, Own]:
    return f"{OWN}{name}:{digest(own)}", own


def digest(own: Own) -> str:
    """What a model of one's own is known by: its code, its layers, its initial values, its loss and its metric."""
    net = made(own.make, 0)
    kinds = {type(layer) for layer in net.modules() if not type(layer).__module__.startswith("torch.")}
    total = hashlib.sha256(repr(net).encode())
    total.update(drawn(lambda seed: made(own.make, seed), _Seed()).numpy().tobytes())
    for part in [own.make, *sorted(kinds, key=lambda kind: kind.__qualname__), own.loss, own.metric]:
        total.update(_code(part).encode())
    return total.hexdigest()[:12]


class _Seed:
    """In place of a run's generator: always the same seed."""

    def integers(self, _: int) -> int:
        return 0


def _code(part: Any) -> str:
    """What a function's or class's code is known by; of an object with settings, as torch's losses, these."""
    if part is None:
        return ""
    if isinstance(part, partial):
        return f"{_code(part.func)} {part.args} {part.keywords}"
    code = part if hasattr(part, "__qualname__") else type(part)
    file = file_of(code)
    if file and ("site-packages" in file.parts or file.is_relative_to(HOUSE)):
        return f"{code.__module__}.{code.__qualname__} {'' if code is part else part}"
    return digest_of(code)
