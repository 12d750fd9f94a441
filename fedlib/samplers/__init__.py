"""Samplers, one file a family: a new file here that registers a class is a new sampler, with nothing else to edit."""

from typing import Any

from fedlib.samplers import registry
from fedlib.samplers.base import (
    Aggregation,
    Federation,
    Gradients,
    Losses,
    Report,
    Round,
    Sampler,
    Selection,
    TrialLosses,
    Updates,
    read_only,
)
from fedlib.samplers.registry import find, register, unloaded, version_of


def __getattr__(name: str) -> Any:
    """`SAMPLERS`, and the class of each, load the families when first asked for: drawing results needs none."""
    if name[:1].isupper() and name != "SAMPLERS":
        for cls in registry.load_all().values():
            if cls.__name__ == name:
                return cls
    if name != "SAMPLERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = registry.load_all()  # from now on it is found without asking here
    return registry.SAMPLERS


__all__ = [
    "SAMPLERS",
    "Aggregation",
    "Federation",
    "Gradients",
    "Losses",
    "Report",
    "Round",
    "Sampler",
    "Selection",
    "TrialLosses",
    "Updates",
    "find",
    "read_only",
    "register",
    "unloaded",
    "version_of",
]
