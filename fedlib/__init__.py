"""Client selection in federated learning: every sampler, one fast simulator.

    result = fedlib.simulate(x, y, clients, test=(x_test, y_test), model=lambda: MyNet(), methods={"Random": "uniform"},
                             m=10, T=100, local=fedlib.Local(lr=0.05, batch=32, epochs=1))

The names in `__all__` keep their documented behaviour until CHANGELOG announces a change. Nothing else is promised.
`import fedlib` loads nothing else: each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
_HOMES = {
    "simulate": "library.simulate",
    "Result": "library.result",
    "load": "library.result",
    "Callback": "library.callbacks",
    "EarlyStop": "library.callbacks",
    "Metric": "library.metric",
    "Local": "settings.schema",
    "Evaluate": "settings.schema",
    "Method": "library.methods",
    "Server": "algorithms.fedopt",
    "IID": "data.schemes",
    "Shards": "data.schemes",
    "OneClass": "data.schemes",
    "DirichletClients": "data.schemes",
    "DirichletPrior": "data.schemes",
    "DirichletClasses": "data.schemes",
    "Partition": "data.partition",
    "ConfigError": "errors",
    "SamplerError": "errors",
}
__all__ = ["algorithms", "samplers", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in ("algorithms", "samplers"):
        return import_module(f"fedlib.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fedlib' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = globals()[name] = getattr(import_module(f"fedlib.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
