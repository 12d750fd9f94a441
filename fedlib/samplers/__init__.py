"""Samplers, one file per family. To add one, put a file here that registers a class; nothing else needs an edit."""

from typing import Any

from fedlib.samplers import registry
from fedlib.samplers.base import (
    Aggregation,
    Federation,
    Gradients,
    Information,
    Losses,
    Question,
    Report,
    Round,
    Sampler,
    Selection,
    ServerLosses,
    TrialLosses,
    Updates,
    answered,
    read_only,
    sees,
)
from fedlib.samplers.registry import find, register, unloaded, version_of


def __getattr__(name: str) -> Any:
    """`SAMPLERS` and their classes, which are loaded when the first is asked for; reading results needs none."""
    if name == "SAMPLERS":
        return registry.load_all()
    for cls in registry.load_all().values() if name[:1].isupper() else ():
        if cls.__name__ == name:
            return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "SAMPLERS",
    "Aggregation",
    "Federation",
    "Gradients",
    "Information",
    "Losses",
    "Question",
    "Report",
    "Round",
    "Sampler",
    "Selection",
    "ServerLosses",
    "TrialLosses",
    "Updates",
    "answered",
    "find",
    "read_only",
    "register",
    "sees",
    "unloaded",
    "version_of",
]
