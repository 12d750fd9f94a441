"""The base of all typed settings: frozen, no unknown keys, each value of its own kind."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Settings(BaseModel):
    """Text is no number and no flag, a flag is no number; a whole number may be written 10 or 10.0."""

    model_config = ConfigDict(**STRICT, frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, given: Any) -> Any:
        return {key: whole(value) for key, value in given.items()} if isinstance(given, dict) else given


def whole(value: Any) -> Any:
    """10.0 as 10, which is a value of a whole number and of a decimal one; anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def optional() -> Any:
    """A key of a run that is no part of its record and address where it is not set: older ones stay as they are."""
    return Field(default=None, exclude_if=lambda value: value is None)
