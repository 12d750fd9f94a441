"""What runs are trained on: the data, executor and clients that their settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedlib.data import datasets
from fedlib.runs.place import Place, address
from fedlib.settings.schema import Run

if TYPE_CHECKING:
    from fedlib.data.partition import Partition
    from fedlib.training.contract import Executor


class Supply(Protocol):
    """What a group of runs of one shape needs for training."""

    def address(self, run: Run) -> str:
        """Address of the run in a store."""

    def executor(self, run: Run, threads: int) -> Executor:
        """The executor for all runs of the group that this run belongs to."""

    def partition(self, run: Run) -> Partition:
        """Partition of the data over the run's clients."""

    def about(self, run: Run) -> dict[str, str]:
        """Name, provenance and digest of the data."""


class Prepared:
    """The usual supply: a prepared dataset, a model of this library, and the clients that the settings describe."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.loaded: dict[str, datasets.Dataset] = {}

    def address(self, run: Run) -> str:
        return address(run, self.place)

    def executor(self, run: Run, threads: int) -> Executor:
        from fedlib.training.executors import make_executor

        tensors = datasets.tensors(self._dataset(run), run.scaling)
        return make_executor(run.model, tensors, self.place.device, threads)

    def partition(self, run: Run) -> Partition:
        from fedlib.data import partition

        return partition.make(run.partition, self._dataset(run), run.N, run.seed, run.holdout)

    def about(self, run: Run) -> dict[str, str]:
        dataset = self._dataset(run)
        return {"name": dataset.name, "provenance": dataset.provenance, "digest": dataset.digest}

    def _dataset(self, run: Run) -> datasets.Dataset:
        if run.dataset not in self.loaded:
            self.loaded[run.dataset] = datasets.load(run.dataset, self.place.datasets)
        return self.loaded[run.dataset]
