"""Methods as a program gives them: a sampler's name, its class, an instance with parameters, or a whole `Method`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from pydantic import PrivateAttr

from fedlib import algorithms, samplers
from fedlib.algorithms import FedAvg
from fedlib.errors import ConfigError
from fedlib.kinds import parameters_of
from fedlib.samplers import Sampler
from fedlib.settings import schema
from fedlib.settings.identity import digest_of_value

REGISTRIES = {"sampler": samplers.registry.REGISTRY, "algorithm": algorithms.base.REGISTRY}


class Method(schema.Method):
    """A sampler, and what the server makes of the updates of the clients that it selects.

    sampler: its name, its class, or an instance with parameters.
    server: "mean" adds their weighted mean to the global model. Otherwise a server optimiser: "fedavgm", "fedadam" or
        "fedyogi", an instance of one with parameters, as `fedlib.algorithms.FedAdam(lr=0.1)`, or a class of your own
        that inherits from `fedlib.Server`.
    algorithm: of the clients and the server together, in place of `server`: "scaffold", "feddyn", "moon", ...
    params, algorithm_params: the parameters of what is named by a text.
    aggregation: the weights of the mean, if they are not the sampler's own.

    Raises:
        ConfigError: a name or parameter is unknown, or two arguments contradict each other.
    """

    _classes: dict[str, type] = PrivateAttr(default_factory=dict)

    def __init__(
        self,
        sampler: str | type[Sampler] | Sampler,
        server: str | type[FedAvg] | FedAvg = "mean",
        **keys: Any,
    ) -> None:
        if server != "mean" and "algorithm" in keys:
            raise ConfigError("Method: server and algorithm say the same thing; give one of them.")
        settings = _settings_of("sampler", "params", sampler, Sampler, "methods", keys)
        if server != "mean":
            settings |= _settings_of("algorithm", "algorithm_params", server, FedAvg, "server", keys)
        super().__init__(**keys | settings)
        self._classes = {key: REGISTRIES[key].find(settings[key]) for key in REGISTRIES if key in settings}


def methods_of(methods: Any) -> dict[str, schema.Method]:
    """Label -> the `method` of a run's settings.

    Raises:
        ConfigError: there is no method, or one of them is not a sampler.
    """
    if not isinstance(methods, Mapping) or not methods:
        raise ConfigError('methods must map labels to samplers, as {"Random": "uniform"}.')
    labels = [str(label) for label in methods]
    for label in labels:
        if label.startswith("_") or labels.count(label) > 1:
            raise ConfigError(
                f"methods: the label {label!r} begins with _, which figures leave out, or names two methods; change it."
            )
    by_label = {str(label): method_of(str(label), method) for label, method in methods.items()}
    for label, method in by_label.items():
        for key, cls in method._classes.items() if isinstance(method, Method) else ():
            if REGISTRIES[key].find(getattr(method, key)) is not cls:
                raise ConfigError(
                    f"methods: {label!r} uses a class {cls.__name__}, but another class of that name was given later; "
                    "rename one of them."
                )
    return by_label


def method_of(label: str, method: Any) -> schema.Method:
    """One method. A sampler that is not registered is registered under the name of its class."""
    if isinstance(method, schema.Method):
        return method
    if isinstance(method, str | Sampler) or (isinstance(method, type) and issubclass(method, Sampler)):
        return Method(method)
    raise ConfigError(
        f"methods: {label!r} is a {type(method).__name__}; give a sampler's name, its class or an instance of it."
    )


def _settings_of(
    key: str, params: str, value: Any, base: type, where: str, keys: Mapping[str, Any]
) -> dict[str, Any]:
    """A sampler or an algorithm as settings write it: its name, and the parameters of an instance."""
    if isinstance(value, type) and issubclass(value, base):
        return {key: registered(key, value, where)}
    if isinstance(value, base):
        if params in keys:
            raise ConfigError(
                f"Method.{params}: {type(value).__name__} is an instance and has its own; leave it out."
            )
        return {params: parameters(where, value), key: registered(key, type(value), where)}
    return {key: value}


def registered(key: str, cls: type, where: str) -> str:
    """The name of a sampler's or algorithm's class, which is registered if it was not."""
    names = [name for name, entry in REGISTRIES[key].load_all().items() if entry is cls]
    if names:
        return names[0]
    try:
        parameters_of(cls)
    except NameError as error:
        raise ConfigError(
            f"{where}: {cls.__name__} is annotated with {error.name}, which is known only inside a function; define it "
            "at the top of the file."
        ) from None
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__).lower()
    name = vars(cls).get("name") or words
    register = samplers.register if key == "sampler" else algorithms.register
    try:
        register(name)(cls)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    return name


def parameters(where: str, instance: Any) -> dict[str, Any]:
    """The parameters of an instance that differ from their defaults.

    Raises:
        ConfigError: no run can make the instance again from them: it holds what is no field, or its class has an
            `__init__` of its own.
    """
    cls, settings = type(instance), {}
    for field in fields(instance):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        value = getattr(instance, field.name)
        if field.init and (default is MISSING or _content(value) != _content(default)):
            settings[field.name] = value
    try:
        remade = vars(cls(**settings))
    except TypeError:
        remade = {}
    mine = vars(instance)
    lost = [key for key in mine if key not in remade or _content(mine[key]) != _content(remade[key])]
    if lost or set(remade) - set(mine):
        raise ConfigError(
            f"{where}: {cls.__name__} holds {', '.join(map(repr, lost)) or 'something'} that no run can make again: "
            f"write @dataclass above the class, and its parameters as fields in place of an __init__."
        )
    return settings


def _content(value: Any) -> str:
    return digest_of_value(value, "", skip=True)
