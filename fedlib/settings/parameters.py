"""Parameters of samplers and algorithms: typed, bounded, and stored in one canonical form.

A sampler declares its parameters as dataclass fields. This module checks values against their annotations, which
include bounds (`samplers/base.py`). An address leaves out every parameter that equals its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from fedlib.errors import meant
from fedlib.kinds import first_error, whole


def checked(model: type[BaseModel], values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The given parameters, converted to their types. `where` begins error messages.

    Raises:
        ValueError: a parameter is unknown, or its value has the wrong type or is out of bounds.
    """
    declared = model.model_fields
    for key in values:
        if key not in declared:
            raise ValueError(f"{where} has no parameter {key!r}; {meant(key, declared)}")
    try:
        validated = model.model_validate({key: whole(value) for key, value in values.items()})
    except ValidationError as error:
        key, message = first_error(error)
        raise ValueError(f"{where}: {key}: {message}") from None
    converted = validated.model_dump()
    return {key: converted[key] for key in values}


def without_defaults(model: type[BaseModel], params: Mapping[str, Any]) -> dict[str, Any]:
    """The checked parameters that differ from their defaults."""
    return model.model_construct(**params).model_dump(exclude_defaults=True)
