"""The base class of all typed settings: frozen, no unknown keys, strict types."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Settings(BaseModel):
    """Text is neither a number nor a flag, and a flag is not a number. A whole number may be written 10 or 10.0."""

    model_config = ConfigDict(**STRICT, frozen=True, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, given: Any) -> Any:
        return {key: whole(value) for key, value in given.items()} if isinstance(given, dict) else given


def whole(value: Any) -> Any:
    """10.0 as 10, which is valid both as a whole number and as a decimal; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def optional() -> Any:
    """A key of a run that, where it is not set, is left out of record and address, so that older runs keep theirs."""
    return Field(default=None, exclude_if=lambda value: value is None)
