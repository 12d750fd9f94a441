"""Models as a program gives them: the name of a shipped model, or a function that makes a module."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedlib.errors import ConfigError
from fedlib.samplers.sources import digest_of, file_of
from fedlib.settings.schema import OWN
from fedlib.training.bench import drawn, made
from fedlib.training.executors import Own
from fedlib.training.models import maker
from fedlib.training.objective import Function

HOUSE = Path(__file__).resolve().parents[1]


def model_of(
    model: Any, shape: tuple[int, ...], classes: int, loss: Function | None, metric: Function | None
) -> tuple[str, str | Own]:
    """The name for a run's settings, and what `make_executor` takes.

    shape, classes: for a shipped model, the shape of its inputs and the number of classes.

    Raises:
        ConfigError: it is neither a name nor a function that makes a module, or no model has that name.
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
    """Identifies a program's own model: a digest of its code, layers, initial values, loss and metric."""
    net = made(own.make, 0)
    kinds = {type(layer) for layer in net.modules() if not type(layer).__module__.startswith("torch.")}
    total = hashlib.sha256(repr(net).encode())
    total.update(drawn(lambda seed: made(own.make, seed), _Seed()).numpy().tobytes())
    for part in [own.make, *sorted(kinds, key=lambda kind: kind.__qualname__), own.loss, own.metric]:
        total.update(_code(part).encode())
    return total.hexdigest()[:12]


class _Seed:
    """Replaces a run's generator: always returns the same seed."""

    def integers(self, _: int) -> int:
        return 0


def _code(part: Any) -> str:
    """Identifies the code of a function or class. For an object with settings, such as torch's losses: its settings."""
    if part is None:
        return ""
    if isinstance(part, partial):
        return f"{_code(part.func)} {part.args} {part.keywords}"
    code = part if hasattr(part, "__qualname__") else type(part)
    file = file_of(code)
    if file and ("site-packages" in file.parts or file.is_relative_to(HOUSE)):
        return f"{code.__module__}.{code.__qualname__} {'' if code is part else part}"
    return digest_of(code)
