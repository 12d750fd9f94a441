"""Randomness by name: every generator is derived from (seed, purpose, where), never from the order of events.

A run therefore draws the same clients, mini-batches and dropout masks whether it is trained alone or in lockstep with
others, in one process or in eight, straight through or killed and resumed; and two methods of one seed share the
partition, the initial model and each client's mini-batches.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

Purpose = Literal["partition", "init", "setup", "select", "observe", "local", "question", "probe"]

_PURPOSE = {
    "partition": 0,
    "init": 1,
    "setup": 2,
    "select": 3,
    "observe": 4,
    "local": 5,
    "question": 6,
    "probe": 7,
}


def stream(seed: int, purpose: Purpose, *where: int) -> np.random.Generator:
    """The generator of one purpose at one place, e.g. ``stream(seed, "local", t, client, draw)``."""
    key = np.random.SeedSequence(seed, spawn_key=(_PURPOSE[purpose], *where))
    return np.random.Generator(np.random.SFC64(key))


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from `rng`, for torch functions that take no numpy generator."""
    return torch.Generator().manual_seed(int(rng.integers(2**63)))
