"""How long CIFAR-10 runs of scale paper take on a GPU: at a measured speed, or as estimated from counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from fedlib.runs import cost
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place
from fedlib.runs.work import Plan
from fedlib.settings import params
from fedlib.settings.schema import Run
from fedlib.training.models import build

MODEL, SHAPE = "hics_cifar10_cnn", (3, 32, 32)
Rows = list[dict[str, Any]]
SpeedOf = Callable[[Run], cost.Speed | None]


@cache
def needed(model: str, training: bool = True) -> float:
    """Operations of a sample's training step, or of its evaluation."""
    net = build(model, SHAPE, 10)
    with FlopCounterMode(display=False) as counter:
        logits = net(torch.zeros(8, *SHAPE))[0]
        if training:
            logits.sum().backward()
    return counter.get_total_flops() / 8


def left(speed_of: SpeedOf, most: int | None = None) -> Rows:
    """Run-rounds/s of every CIFAR-10 experiment at scale paper, and the hours that its missing runs take.

    speed_of: the speed of a run's steps and evaluation; None if it is unknown, and its experiment is left out.
    """
    settings, place, rows = params.load(), Place.from_environment(), []
    for name in settings.names:
        plan = Plan.of_experiment(name, "paper", settings)
        work = [one for one in plan.work if one.run and one.run.dataset == "cifar10"]
        speeds = [speed_of(one.run) for one in work]
        if not work or None in speeds:
            continue
        finished = Finished(plan, place, any_data=True)
        taken = [cost.seconds(one.run, speed) for one, speed in zip(work, speeds, strict=True)]
        missing = [hours for one, hours in zip(work, taken, strict=True) if not finished.contains(one)]
        rows.append({
            "experiment": name,
            "run-rounds/s": sum(one.run.T for one in work) / sum(taken),
            "missing runs": len(missing),
            "hours": sum(missing) / 3600,
        })  # fmt: skip
        if len(rows) == most:
            break
    return rows


def estimated() -> dict[str, Any]:
    """What an H100 would take. Counted: arithmetic, and the bytes between products after the compiler fused a step.

    Assumed: products run at 60 % of the card's rate, and the rest at 85 % of its memory's.
    """
    rate, memory, share, of_memory = 67e12, 3.35e12, 0.6, 0.85  # the first two as its maker states them
    samples, between = 64 * 64, 4.9e9
    operations = needed(MODEL) * samples
    step = operations / (share * rate) + between / (of_memory * memory)

    def speed_of(run: Run) -> cost.Speed:
        taken = [needed(run.model, training) * step / operations for training in (True, False)]
        return cost.Speed(taken[0] * run.local.batch, taken[1])

    return {"step ms": 1e3 * step, "TFLOP/s": operations / step / 1e12, "experiments": left(speed_of)}
