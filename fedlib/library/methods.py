"""Methods as a program gives them: a sampler's name, its class, an instance with parameters, or a whole `Method`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from fedlib.errors import ConfigError
from fedlib.samplers import SAMPLERS, Sampler, register
from fedlib.settings.schema import Method


def methods_of(methods: Any) -> dict[str, Method | dict[str, Any]]:
    """Label -> the `method` of a run's settings.

    Raises:
        ConfigError: there is no method, or one of them is not a sampler.
    """
    if not isinstance(methods, Mapping) or not methods:
        raise ConfigError('methods must map labels to samplers, as {"Random": "uniform"}.')
    return {str(label): method_of(str(label), method) for label, method in methods.items()}


def method_of(label: str, method: Any) -> Method | dict[str, Any]:
    """One method. A sampler that is not registered is registered under the name of its class."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return {"sampler": method}
    if isinstance(method, type) and issubclass(method, Sampler):
        return {"sampler": registered(method)}
    if isinstance(method, Sampler):
        check_remade(label, method)
        return {"sampler": registered(type(method)), "params": parameters(method)}
    raise ConfigError(
        f"methods: {label!r} is a {type(method).__name__}; give a sampler's name, its class or an instance of it."
    )


def registered(cls: type[Sampler]) -> str:
    """The name of a sampler's class, which is registered if it was not."""
    own = vars(cls).get("name")
    if own and SAMPLERS.get(own) is cls:
        return own
    name = own or re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    try:
        register(name)(cls)
    except ValueError as error:
        raise ConfigError(f"methods: {error}") from None
    return name


def parameters(sampler: Sampler) -> dict[str, Any]:
    """The parameters of an instance that differ from their defaults."""
    out = {}
    for field in fields(sampler):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = getattr(sampler, field.name)
        if default is MISSING or value != default:
            out[field.name] = value
    return out


def check_remade(label: str, sampler: Sampler) -> None:
    """Check that an instance can be made again from its fields, as every run does.

    Raises:
        ConfigError: it holds what is no field, or its class has an `__init__` of its own.
    """
    try:
        again = vars(type(sampler)(**{field.name: getattr(sampler, field.name) for field in fields(sampler)}))
    except TypeError:
        again = {}
    mine = vars(sampler)
    other = [key for key in mine if key not in again or repr(mine[key]) != repr(again[key])]
    if other or set(again) - set(mine):
        raise ConfigError(
            f"methods: {label!r} holds {', '.join(map(repr, other)) or 'something'} that no run can make again: write "
            f"@dataclass above {type(sampler).__name__}, and its parameters as fields in place of an __init__."
        )
