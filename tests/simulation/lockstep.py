"""Small runs for tests of the round loop."""

from __future__ import annotations

import torch

from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep

N, M, CLASSES, FEATURES = 8, 3, 4, 6


def run(sampler="uniform", seed=0, T=4, **changes) -> Run:
    method = {"sampler": sampler} | changes.pop("method", {})
    proximal = {"mu": 0.1} if method.get("algorithm") == "feddyn" else {}
    settings = {
        "dataset": "digits",
        "partition": {"scheme": "iid"},
        "model": "logistic",
        "N": N,
        "m": M,
        "T": T,
        "local": {"lr": 0.1, "batch": 16, "steps": 5, **proximal},
        "evaluate": {"every": 1, "test": True, "train": True, "clients": True},
        "method": method,
        "seed": seed,
    }
    return Run(**(settings | changes))


def go(runs, partition, executor) -> list:
    lockstep = Lockstep(runs, [partition] * len(runs), executor)
    while lockstep.active:
        lockstep.advance()
    return lockstep.live


def numbers(live) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "server_seconds")} for row in live.rows]


def same(one, other):
    assert torch.equal(one.models, other.models)
    assert repr(numbers(one)) == repr(numbers(other))
