"""Small runs for tests of the round loop."""

from __future__ import annotations

import torch

from fedlib.runs.store import pack, unpack
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live

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


def finish(lockstep: Lockstep) -> list[Live]:
    while lockstep.active:
        lockstep.advance()
    return lockstep.live


def go(runs, partition, executor) -> list[Live]:
    return finish(Lockstep(runs, [partition] * len(runs), executor))


def resumed(run: Run, rounds: int, partition, executor) -> Live:
    """A run that is interrupted after so many rounds, stored, and continued in another lockstep."""
    first, second = (Lockstep([run], [partition], executor) for _ in range(2))
    for _ in range(rounds):
        first.advance()
    assert first.active
    second.live[0].load_state_dict(unpack(pack(first.live[0].state_dict())))
    return finish(second)[0]


def numbers(live) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "server_seconds")} for row in live.rows]


def same(one, other):
    assert torch.equal(one.models, other.models)
    assert repr(numbers(one)) == repr(numbers(other))
