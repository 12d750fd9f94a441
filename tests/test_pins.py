"""Every sampler chooses the clients that it chose when `pins.json` was written: numerics change on purpose only.

What is pinned are choices, not floats: these depend on the processor in their last digits. After a deliberate change
of a sampler or an algorithm, raise the revision with which it is registered (of a model, `REVISION` in its file; of
what all runs share, NUMERICS in `fedlib/settings/code.py`), renew the pins, then run `fedlib revision keep NAME`:

    .venv/bin/python tests/test_pins.py
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedlib.data import datasets, partition
from fedlib.samplers import SAMPLERS
from fedlib.settings.code import NUMERICS
from fedlib.settings.params import build, merge, split_method
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

PINS = Path(__file__).with_name("pins.json")
RENEW = f"`python tests/{Path(__file__).name}`"
SETTING: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_clients", "alpha": 0.1, "sizes": [[10, 20], [10, 40], [5, 60]]},
    "model": "mlp",
    "N": 25,
    "m": 5,
    "T": 8,
    "local": {"lr": 0.05, "batch": 10, "steps": 5},
    "evaluate": {"every": 8},
}
CHANGES: dict[str, dict[str, Any]] = {  # so that 8 rounds show more than a warm-up
    "fedcor": {"warmup": 4, "dt": 10},  # a second update differs between processors
    "greedyfed": {"validation": 50},
    "oort": {"warmup": 3},
    "s_fedavg": {"validation": 50},
    "target": {"partition": {"scheme": "one_class", "n": 20, "n_test": 5}, "N": 20, "m": 10},
}


def names() -> list[str]:
    """The house's samplers: not those that other tests register."""
    return sorted(name for name, cls in SAMPLERS.items() if cls.__module__.startswith("fedlib."))


def choices(sampler: str, device: str = "cpu") -> list[list[int]]:
    """The clients that a sampler draws in each round."""
    raw = merge(SETTING, split_method({"sampler": sampler, **CHANGES.get(sampler, {})}))
    run = build(raw, 0, sampler)
    dataset = datasets.load("digits")
    parts = partition.make(run.partition, dataset, run.N, run.seed)
    lockstep = Lockstep([run], [parts], make_executor(run.model, datasets.tensors(dataset), device))
    while lockstep.active:
        lockstep.advance()
    return [row["clients"] for row in lockstep.live[0].rows[1:]]


@cache
def pinned() -> dict[str, Any]:
    return json.loads(PINS.read_text())


def test_pins_belong_to_these_numerics():
    assert pinned()["numerics"] == NUMERICS, (
        f"the pins are of numerics {pinned()['numerics']}, the engine's are {NUMERICS}: renew them with {RENEW}."
    )


@pytest.mark.parametrize("sampler", names())
def test_choices_are_the_pinned_ones(sampler: str, record_property):
    record_property("results identical", 1)
    assert sampler in pinned()["choices"], f"{sampler} has no pin yet: add it with {RENEW}."
    assert choices(sampler) == pinned()["choices"][sampler], (
        f"{sampler} no longer chooses the clients that it did. If that is meant, raise the revision with which it is "
        f"registered (NUMERICS in fedlib/settings/code.py, if others choose otherwise too) "
        f"and renew the pins with {RENEW}; if it is not, a change altered numbers that it should have left alone."
    )


def renew() -> None:
    """Write the pins anew, one line per sampler."""
    lines = [f"  {json.dumps(name)}: {json.dumps(choices(name))}" for name in names()]
    PINS.write_text(f'{{"numerics": {NUMERICS}, "choices": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    renew()
