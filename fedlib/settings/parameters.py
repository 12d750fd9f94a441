"""Parameters of samplers and algorithms: typed, bounded, and stored in one canonical form.

A sampler declares its parameters as dataclass fields. This module checks values against their annotations, which
include bounds (`samplers/base.py`). An address leaves out every parameter that equals its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from fedlib.errors import meant
from fedlib.samplers import Sampler
from fedlib.samplers.base import Positive
from fedlib.settings.kinds import STRICT, Settings, whole


class NoParameters(Settings):
    """Parameters of FedAvg, SCAFFOLD and Moon: none."""


class FedDyn(Settings):
    """mu: the alpha of FedDyn."""

    mu: Positive = 0.1


class IFCA(Settings):
    """models: number of cluster models."""

    models: Annotated[int, Field(ge=1, le=100)] = 4


ALGORITHMS: dict[str, type[Settings]] = {
    "fedavg": NoParameters,
    "scaffold": NoParameters,
    "feddyn": FedDyn,
    "moon": NoParameters,
    "ifca": IFCA,
}


@cache
def of_sampler(cls: type[Sampler]) -> type[BaseModel]:
    """A pydantic model of a sampler's parameters."""
    hints = get_type_hints(cls, include_extras=True)
    defaults = {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(cls)
        if f.init
    }
    config = ConfigDict(**STRICT, protected_namespaces=())
    kinds = {k: (hints[k], ... if v is MISSING else v) for k, v in defaults.items()}
    return create_model(cls.__name__, __config__=config, **kinds)


def checked(model: type[BaseModel], given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The given parameters, converted to their types. `where` begins error messages.

    Raises:
        ValueError: a parameter is unknown, or its value has the wrong type or is out of bounds.
    """
    known = model.model_fields
    for key in given:
        if key not in known:
            raise ValueError(f"{where} has no parameter {key!r}; {meant(key, known)}")
    try:
        made = model.model_validate({key: whole(value) for key, value in given.items()})
    except ValidationError as error:
        first = error.errors()[0]
        key, message = first["loc"][0], first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {key}: {message} (given: {given.get(key)!r})") from None
    converted = made.model_dump()
    return {key: converted[key] for key in given}


def own(model: type[BaseModel], params: Mapping[str, Any]) -> dict[str, Any]:
    """The checked parameters that differ from their defaults."""
    return model.model_construct(**params).model_dump(exclude_defaults=True)
