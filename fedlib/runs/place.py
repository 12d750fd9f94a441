"""Where and how runs are trained: the processes, the device, the folders; and a run's address there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fedlib.data import datasets
from fedlib.errors import ConfigError
from fedlib.runs.store import RUNS
from fedlib.settings.schema import Run

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
