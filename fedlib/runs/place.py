"""Where and how runs are trained (processes, device, folders), a run's address there, and the data that it asks for."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fedlib.data import datasets
from fedlib.errors import ConfigError
from fedlib.runs.store import RUNS
from fedlib.settings.schema import Run

if TYPE_CHECKING:
    from fedlib.data.partition import Partition
    from fedlib.simulation.engine import Lockstep
    from fedlib.training.contract import Executor

CHECKPOINT_SECONDS = 60.0
FEW_ROUNDS = 3_000  # of all runs together: fewer take less time than starting worker processes


@dataclass(frozen=True)
class Place:
    """Where and how runs are trained.

    workers: number of parallel processes (0: as many as the cores and the work suggest). threads: cores of each process
        (0: an equal share of all). device: "cpu" or "cuda". scheduler: address of a Dask scheduler; its workers then
        replace local processes.
    """

    runs: Path = RUNS
    datasets: Path = datasets.DATASETS
    workers: int = 0
    threads: int = 0
    device: str = "cpu"
    scheduler: str | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @classmethod
    def from_environment(cls) -> Place:
        """From the variables FEDLIB_RUNS, _DATASETS, _WORKERS, _DEVICE, _SCHEDULER and _CHECKPOINT_SECONDS."""
        return cls(
            runs=_folder("FEDLIB_RUNS", RUNS),
            datasets=_folder("FEDLIB_DATASETS", datasets.DATASETS),
            workers=_number("FEDLIB_WORKERS", 0),
            device=_device(),
            scheduler=os.environ.get("FEDLIB_SCHEDULER") or None,
            checkpoint_seconds=_number("FEDLIB_CHECKPOINT_SECONDS", CHECKPOINT_SECONDS),
        )

    def processes(self, rounds: int) -> int:
        """Number of processes that share this number of rounds, summed over all runs."""
        if self.workers:
            return self.workers
        return 1 if self.device != "cpu" or rounds < FEW_ROUNDS else cores()


def _folder(variable: str, default: Path) -> Path:
    value = os.environ.get(variable, str(default))
    if not value.strip():
        raise ConfigError(f"{variable} is empty; name a folder, or unset it.")
    return Path(value)


def _number(variable: str, default: float) -> int:
    value = os.environ.get(variable, str(int(default)))
    if not value.isdecimal() or len(value) > 9:
        raise ConfigError(f"{variable} is {value!r}; it must be a whole number.")
    return int(value)


def _device() -> str:
    value = os.environ.get("FEDLIB_DEVICE", "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise ConfigError(f"FEDLIB_DEVICE is {value!r}; it must be cpu or cuda.")
    return value


def cores() -> int:
    """Number of cores that this process may use; a batch system or container may allow fewer than the machine has."""
    from joblib import cpu_count

    return cpu_count()


def address(run: Run, place: Place) -> str:
    """A run's address, with the dataset that this place holds."""
    from fedlib.settings.code import NUMERICS

    return run.address(NUMERICS, datasets.digest(run.dataset, place.datasets))


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
