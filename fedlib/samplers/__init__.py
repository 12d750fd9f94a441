"""Samplers: one file a family. A new file in this folder that registers a class is a new sampler; nothing else to edit."""

from fedlib.samplers.base import (
    SAMPLERS,
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

load_all(__name__, __path__)

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
