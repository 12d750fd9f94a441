"""Samplers, one file a family: a new file here that registers a class is a new sampler, with nothing else to edit."""

from typing import Any

from fedlib.samplers import base
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
    load_all,
    register,
)


def __getattr__(name: str) -> Any:
    """`SAMPLERS` loads the families when it is first asked for: drawing results needs none."""
    if name != "SAMPLERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load_all(__name__, __path__)
    globals()[name] = base.SAMPLERS  # from now on it is found without asking here
    return base.SAMPLERS


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
    "register",
]
