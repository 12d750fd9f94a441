"""Federated algorithms. To add one, put a file here that registers a class; nothing else needs an edit."""

from typing import Any

from fedlib.algorithms.base import (
    FedAvg,
    aggregation_weights,
    by_size,
    find,
    load_all,
    register,
    version_of,
)


def __getattr__(name: str) -> Any:
    """The algorithms' classes, which are loaded when the first of them is asked for."""
    for cls in load_all().values() if name[:1].isupper() else ():
        if cls.__name__ == name:
            return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["FedAvg", "aggregation_weights", "by_size", "find", "load_all", "register", "version_of"]
