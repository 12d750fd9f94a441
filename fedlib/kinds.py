"""Kinds of values that settings may have, and the base class of all typed settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator

from fedlib.errors import ConfigError, meant

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

# how pydantic names the kinds of a key that may be several
ALTERNATIVES = ("constrained-", "literal[", "callable")

Count = Annotated[int, Field(ge=1, le=10**9)]
Steps = Annotated[int, Field(ge=1, le=10**6)]  # more would take weeks a round
Whole = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Settings(BaseModel, frozen=True):
    """Text is neither a number nor a flag, and a flag is not a number. A whole number may be written 10 or 10.0."""

    model_config = ConfigDict(**STRICT, validate_default=True)

    def __init__(self, /, **values: Any) -> None:
        """Raises ConfigError, one sentence, where a program writes settings that are invalid."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise one_sentence(error, type(self).__name__) from None

    vars(__init__)["__pydantic_base_init__"] = True  # settings inside settings are validated without it

    @model_validator(mode="before")
    @classmethod
    def _whole_numbers(cls, values: Any) -> Any:
        return {key: whole(value) for key, value in values.items()} if isinstance(values, dict) else values


def whole(value: Any) -> Any:
    """10.0 as 10, which is valid both as a whole number and as a decimal; any other value unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def optional() -> Any:
    """A key of a run that, where it is not set, is left out of record and address, so that older runs keep theirs."""
    return Field(default=None, exclude_if=lambda value: value is None)


@cache
def parameters_of(cls: type[DataclassInstance]) -> type[BaseModel]:
    """A pydantic model of the parameters that a dataclass (a sampler, an algorithm) declares as its fields."""
    hints = get_type_hints(cls, include_extras=True)
    defaults = {
        f.name: f.default_factory() if f.default_factory is not MISSING else f.default
        for f in fields(cls)
        if f.init
    }
    config = ConfigDict(**STRICT, protected_namespaces=(), arbitrary_types_allowed=True)
    kinds: dict[str, Any] = {k: (hints[k], ... if v is MISSING else v) for k, v in defaults.items()}
    return create_model(cls.__name__, __config__=config, **kinds)


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


def first_error(error: ValidationError) -> tuple[str, str]:
    """The key and the message of the first error that pydantic reports, with the value where it says more."""
    first = error.errors()[0]
    parts = [str(part) for part in first["loc"]]
    key = ".".join(part for part in parts if not part.startswith(ALTERNATIVES))
    if first["type"] == "extra_forbidden":
        return key, "there is no such key; correct its spelling, or take it away"
    message = first["msg"].removeprefix("Value error, ")
    plain = not isinstance(first.get("input"), dict) and not message.endswith("?")
    return key, f"{message} (given: {shortened(first['input'])})" if plain else message


def one_sentence(error: ValidationError, place: str) -> ConfigError:
    """A ConfigError for the first of the errors that pydantic found."""
    key, message = first_error(error)
    return ConfigError(f"{place}{'.' + key if key else ''}: {message}{'' if message.endswith('?') else '.'}")


def shortened(value: Any) -> str:
    """A value as an error message shows it."""
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:120]} ..."
