"""The arguments of `fedlib.simulate`, each with its type: one model decides, before anything is computed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from torch import nn

from fedlib.errors import ConfigError
from fedlib.kinds import STRICT, Count, Settings, Whole, first_error
from fedlib.library.callbacks import Callback, EarlyStop, Keep
from fedlib.library.metric import Better, Metric
from fedlib.settings.schema import Evaluate, Local
from fedlib.training.objective import Function


def python_number(value: Any) -> Any:
    """A number of numpy or torch as Python's own; any other value unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def seeds_listed(value: Any) -> Any:
    """A sequence of seeds as a list of Python's numbers."""
    if isinstance(value, np.ndarray) and value.ndim != 1:
        raise ValueError("they must be a number of seeds, or a list of them")
    if isinstance(value, np.ndarray | range | tuple | list):
        return [python_number(seed) for seed in value]
    return python_number(value)


def plain(value: Any) -> Any:
    """Text, numbers, and lists and mappings of these. Raises ValueError: it is something else."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value
    if isinstance(value, list | tuple | dict):
        for part in inner:
            plain(part)
    elif not isinstance(value, str | bytes | int | float | complex | np.generic | None):
        raise ValueError("it must be text or numbers")
    return value


def folder(value: Any) -> Any:
    """A store's path, with ~ as the home folder."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise ValueError("it must be the path of a folder; Path('.') is the working directory")
    try:
        path = Path(os.fspath(value)).expanduser()
        exists = path.exists()
    except (RuntimeError, ValueError, TypeError, OSError) as error:
        raise ValueError(f"it cannot be the path of a folder, because {error}") from None
    if exists and not path.is_dir():
        raise ValueError("it is a file; name a folder")
    return path


def a_sentence(value: Any, kind: type, example: str) -> Any:
    """The value. Raises ValueError: it is of another kind."""
    if not isinstance(value, kind):
        raise ValueError(f"it must be {example}")
    return value


Listed = Annotated[list[Whole], Field(min_length=1)]


class Arguments(Settings):
    """What `fedlib.simulate` was given, but for its data; its docstring says what each argument means."""

    model_config = ConfigDict(**STRICT, arbitrary_types_allowed=True, protected_namespaces=())

    model: Any
    methods: Any
    m: Annotated[Count, BeforeValidator(python_number)]
    T: Annotated[Count, BeforeValidator(python_number)]
    local: Any
    seeds: Annotated[Count | Listed, BeforeValidator(seeds_listed)]
    N: Annotated[Count | None, BeforeValidator(python_number)]
    loss: Function | None
    metric: Function | None
    holdout: Annotated[float, Field(ge=0, lt=1), BeforeValidator(python_number)]
    world: Any
    evaluate: Any
    callbacks: Any
    keep: Keep | None
    store: Annotated[Path | None, BeforeValidator(folder)]
    key: Annotated[Any, AfterValidator(plain)]
    recheck: Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(python_number)]
    device: Any
    threads: Annotated[Annotated[int, Field(ge=1, le=1024)] | None, BeforeValidator(python_number)]
    tell: Callable[..., Any]

    @field_validator("model")
    @classmethod
    def _model(cls, value: Any) -> Any:
        if isinstance(value, nn.Module):
            raise ValueError(
                "it is a module; give a function that makes it, as lambda: MyNet(), so that every seed has its own "
                "initial values"
            )
        if not isinstance(value, str) and not callable(value):
            raise ValueError("it must be the name of a model, or a function that makes a module")
        return value

    @field_validator("device")
    @classmethod
    def _device(cls, value: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(r"(cpu|cuda)(:\d+)?", value):
            raise ValueError("it must be cpu or cuda")
        return value

    @field_validator("methods")
    @classmethod
    def _methods(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not value:
            raise ValueError('it must map labels to samplers, as {"Random": "uniform"}')
        return value

    @field_validator("local")
    @classmethod
    def _local(cls, value: Any) -> Any:
        return a_sentence(value, Local, "a fedlib.Local, as fedlib.Local(lr=0.05, batch=32, epochs=1)")

    @field_validator("evaluate")
    @classmethod
    def _evaluate(cls, value: Any) -> Any:
        if value is None:
            return None
        return a_sentence(value, Evaluate, "a fedlib.Evaluate, as fedlib.Evaluate(every=5)")

    @field_validator("world")
    @classmethod
    def _world(cls, value: Any) -> Any:
        if value is not None and not (isinstance(value, Mapping) and all(isinstance(k, str) for k in value)):
            raise ValueError("it must be a mapping of the settings of docs/world.md, as {'mean': 0.5}")
        return dict(value) if value else None

    @field_validator("callbacks")
    @classmethod
    def _callbacks(cls, value: Any) -> Any:
        if not isinstance(value, Sequence) or not all(isinstance(callback, Callback) for callback in value):
            raise ValueError(
                "it must be a list of instances of classes that inherit from fedlib.Callback, as "
                "[fedlib.EarlyStop(patience=3)]"
            )
        return list(value)

    @classmethod
    def of(cls, **values: Any) -> Arguments:
        """The arguments, if they can be used.

        Raises:
            ConfigError: one cannot; the sentence begins with its name.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            key, message = first_error(error)
            raise ConfigError(f"{key}: {message}." if key else f"{message}.") from None

    @property
    def better(self) -> Better | None:
        """Which values of the metric are good, if it says so."""
        return self.metric.better if isinstance(self.metric, Metric) else None

    @model_validator(mode="after")
    def _metric_with_a_direction(self) -> Arguments:
        """What needs to know which values of a metric are good asks before anything is trained."""
        if self.metric is None or isinstance(self.metric, Metric):
            return self
        asking = [
            "EarlyStop"
            for callback in self.callbacks
            if isinstance(callback, EarlyStop)
            and callback.column in (None, "test_metric")
            and callback.better is None
        ]
        asking += ["keep='best'"] if self.keep == "best" else []
        if asking:
            raise ValueError(
                f"{asking[0]} must know which values of the metric are good: pass metric=fedlib.Metric(f, "
                "better='high'), or better='low'"
            )
        return self
