"""What runs are trained on: the data, executor and clients that their settings name; and runs in lockstep on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from fedlib.data import datasets
from fedlib.runs.place import Place, address, cores
from fedlib.settings.schema import Run

if TYPE_CHECKING:
    from fedlib.data.partition import Partition
    from fedlib.simulation.engine import Lockstep
    from fedlib.training.contract import Executor


class Supply(Protocol):
    """What a group of runs of one shape needs for training."""

    def address(self, run: Run) -> str:
        """Address of the run in a store."""

    def executor(self, run: Run, threads: int) -> Executor:
        """The executor for all runs of the group that this run belongs to."""

    def partition(self, run: Run) -> Partition:
        """Partition of the data over the run's clients."""

    def data_record(self, run: Run) -> dict[str, str]:
        """Name, provenance and digest of the data."""


class Prepared:
    """The usual supply: a prepared dataset, a model of this library, and the clients that the settings describe.

    What is made once is used again: all runs of a shape share an executor, and those on the same clients a partition.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.loaded: dict[str, datasets.Dataset] = {}
        self.executors: dict[tuple[str, str | None, str, int], Executor] = {}
        self.partitions: dict[str, Partition] = {}

    def address(self, run: Run) -> str:
        return address(run, self.place)

    def executor(self, run: Run, threads: int = 0) -> Executor:
        """As in `Supply`. threads: cores; 0: as many as the place allows."""
        from fedlib.training.executors import make_executor

        threads = threads or self.place.threads or cores()
        key = run.dataset, run.scaling, run.model, threads
        if key not in self.executors:
            tensors = datasets.tensors(self.dataset(run), run.scaling)
            self.executors[key] = make_executor(
                run.model, tensors, self.place.device, threads, run.local.by_torch
            )
        return self.executors[key]

    def partition(self, run: Run) -> Partition:
        from fedlib.data import partition

        key = run.dataset + partition_key(run)
        if key not in self.partitions:
            self.partitions[key] = partition.make(
                run.partition, self.dataset(run), run.N, run.seed, run.holdout
            )
        return self.partitions[key]

    def data_record(self, run: Run) -> dict[str, str]:
        dataset = self.dataset(run)
        return {"name": dataset.name, "provenance": dataset.provenance, "digest": dataset.digest}

    def dataset(self, run: Run) -> datasets.Dataset:
        """The dataset of a run."""
        if run.dataset not in self.loaded:
            self.loaded[run.dataset] = datasets.load(run.dataset, self.place.datasets)
        return self.loaded[run.dataset]


def partition_key(run: Run) -> str:
    """What runs on the same clients have in common, as text."""
    shared = run.model_dump(mode="json", include={"partition", "N", "seed", "holdout"})
    return json.dumps(shared, sort_keys=True)


def runs_in_lockstep(
    runs: Sequence[Run],
    place: Place,
    supply: Supply | None = None,
    threads: int = 0,
    strict: bool = True,
) -> Lockstep:
    """Runs of one shape before their first round, with the executor and the clients that their settings name.

    supply: what they are trained on, if it differs from what their settings name. threads: cores; 0: as many as the
    place allows. strict: see `Lockstep`.
    """
    from fedlib.simulation.engine import Lockstep

    supply = supply or Prepared(place)
    executor = supply.executor(runs[0], threads or place.threads or cores())
    parts = {partition_key(run): run for run in runs}
    partitions = {key: supply.partition(run) for key, run in parts.items()}
    return Lockstep(runs, [partitions[partition_key(run)] for run in runs], executor, strict)
