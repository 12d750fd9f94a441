"""How studies follow a training run: one run alone, round by round, with its models at hand."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fedlib import data, partition
from fedlib.config import Run
from fedlib.engine import Lockstep
from fedlib.live import Live
from fedlib.local import Executor, make_executor
from fedlib.parallel import Place


def start(run: dict[str, Any], place: Place) -> Lockstep:
    """The run, about to begin, measuring nothing of itself but at its end."""
    run = Run(**run)
    run = run.model_copy(
        update={"evaluate": run.evaluate.model_copy(update={"every": run.T, "train": False})}
    )
    dataset = data.load(run.dataset, place.datasets)
    parts = partition.make(run.partition, dataset, run.N, run.seed, run.holdout)
    return Lockstep([run], [parts], executor(run, dataset, place))


def executor(run: Run, dataset: data.Dataset, place: Place) -> Executor:
    tensors = data.tensors(dataset, run.scaling)
    return make_executor(run.model, tensors, place.device, os.cpu_count())


def everyone(lockstep: Lockstep, live: Live) -> list[tuple[Live, int, int]]:
    """(run, client, draw) of all clients, to be trained from the run's current model."""
    return [(live, int(k), 0) for k in np.arange(live.fed.N)]
