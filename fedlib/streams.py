"""Named random streams: every generator is derived from (seed, purpose, where), never from the order of events.

Therefore a run draws the same clients, mini-batches and dropout masks whether it is trained alone or in lockstep with
others, in one process or in eight, in one go or after an interruption. Two methods with the same seed share the
partition, the initial model and each client's mini-batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Purpose = Literal["partition", "init", "setup", "select", "observe", "local", "question", "probe", "world"]

_PURPOSE = {
    "partition": 0,
    "init": 1,
    "setup": 2,
    "select": 3,
    "observe": 4,
    "local": 5,
    "question": 6,
    "probe": 7,
    "world": 8,
}


def stream(seed: int, purpose: Purpose, *where: int) -> np.random.Generator:
    """The generator for one purpose at one place, for example ``stream(seed, "local", t, client, draw)``."""
    key = np.random.SeedSequence(seed, spawn_key=(_PURPOSE[purpose], *where))
    return np.random.Generator(np.random.SFC64(key))


def torch_generator(rng: np.random.Generator) -> torch.Generator:
    """A torch generator seeded from `rng`, for torch functions that do not accept a numpy generator."""
    import torch  # here, so that drawing a partition does not load it

    return torch.Generator().manual_seed(int(rng.integers(2**63)))
