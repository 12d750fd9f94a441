"""Four blobs on eight clients, and a short simulation on them, for tests of programs of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

import fedlib

RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=160)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(160, 6))).astype(np.float32)
OWNER = np.arange(160) // 20


def simulate(T: int = 3, **options: Any) -> fedlib.Result:
    given = {
        "x": X,
        "y": Y,
        "clients": OWNER,
        "test": (X, Y),
        "model": lambda: nn.Linear(6, 4),
        "m": 3,
        "T": T,
    }
    given |= {"methods": {"Random": "uniform"}, "threads": 1, "tell": lambda text: None}
    return fedlib.simulate(**given | {"local": fedlib.Local(lr=0.1, batch=8, epochs=1)} | options)


def losses(result: fedlib.Result) -> list[float]:
    return result.table["test_loss"].tolist()
