"""What a program handed over, as the supply of a group of runs: its samples, its clients and its model."""

from __future__ import annotations

import dis
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedlib import samplers
from fedlib.data import schemes
from fedlib.data.partition import Partition
from fedlib.library.data import Clients, Samples
from fedlib.library.methods import REGISTRIES
from fedlib.library.model import Given
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.identity import digest_of_value, names_read
from fedlib.settings.schema import Run, address_of_run
from fedlib.simulation.evaluation import client_losses, segment_means, weights_of
from fedlib.simulation.live import Live
from fedlib.training.contract import Executor
from fedlib.training.executors import ProgramModel, make_executor
from fedlib.training.layout import with_values
from fedlib.training.randomness import made


class Handed:
    """A program's own samples, clients and model, as the supply of a group of runs.

    key: stands for what cannot be identified. skip: whether that is left out, because of the key, or because no run is
    kept.
    """

    def __init__(
        self, samples: Samples, clients: Clients, model: Given, device: str, key: Any, skip: bool
    ) -> None:
        self.data, self.clients, self.model, self.device = samples.data, clients, model, device
        self.key, self.skip = key, skip
        self._executor: Executor | None = None
        self._digests: dict[type | int, str] = {}

    def address(self, run: Run) -> str:
        return self._address(run.model_dump(mode="json"), run)

    def lineage(self, run: Run) -> str | None:
        """Where the state after round T is kept for runs with a larger T; None if its sampler knows T."""
        if knows_T(samplers.find(run.method.sampler)):
            return None
        return self._address(run.model_dump(mode="json") | {"T": None}, run)

    def _address(self, settings: dict[str, Any], run: Run) -> str:
        code, scheme = code_of(settings), run.partition.scheme
        for kind, registry in REGISTRIES.items():
            name = getattr(run.method, kind)
            if not registry.shipped(name):
                code |= {f"{kind} {name}": self._digest_of_class(kind, registry.find(name))}
        if not schemes.base.REGISTRY.shipped(scheme):
            code |= {f"scheme {scheme}": self._digest_of_clients(run.seed)}
        return address_of_run(settings, NUMERICS, self.data.digest, code)

    def _digest_of_class(self, kind: str, cls: type) -> str:
        """Identifies a sampler or algorithm that is not shipped."""
        if cls not in self._digests:
            values = [digest_of_value(cls, f"the {kind} {cls.__name__}", self.skip), self.key]
            self._digests[cls] = digest_of_value(values, "key")
        return self._digests[cls]

    def _digest_of_clients(self, seed: int) -> str:
        """Identifies what a scheme that is not shipped gave to the clients."""
        if seed not in self._digests:
            parts = self.clients.partition(seed)
            self._digests[seed] = digest_of_value([parts.train, parts.holdout, parts.test], "clients")
        return self._digests[seed]

    def executor(self, run: Run, threads: int) -> Executor:
        if self._executor is None:
            by_torch = run.local.by_torch
            use = self.model.use
            if by_torch and isinstance(use, str):
                use = ProgramModel(self.model.make)
            self._executor = make_executor(use, self.data.tensors(), self.device, threads, by_torch)
        return self._executor

    def partition(self, run: Run) -> Partition:
        return self.clients.partition(run.seed)

    def data_record(self, run: Run) -> dict[str, str]:
        return {"name": run.dataset, "provenance": "handed over by a program", "digest": self.data.digest}

    def module(self, flat: Tensor) -> nn.Module:
        """A module with these values, in evaluation mode."""
        return with_values(made(self.model.make, 0), flat.cpu()).eval()

    def measure(self, live: Live) -> dict[str, np.ndarray]:
        """Of the global model: each client's loss on its training part, and loss and score on its test part, (N,)."""
        if len(live.models) > 1:
            return {}
        executor, parts = live.executor, live.partition.test
        measures = {"train_loss": client_losses(executor, [live])[0][0]}
        if parts is None:
            return measures
        rows, sizes = np.concatenate(parts), [len(part) for part in parts]
        losses, scores = executor.evaluate(live.models, "test", [rows])
        measures["test_loss"] = segment_means(losses[0], sizes, weights_of(executor, "test", rows))
        objective = getattr(executor, "objective", None)
        if executor.measures and objective is not None and objective.metric_kind == "together":
            _, scores = executor.evaluate(live.models.expand(len(parts), -1), "test", parts)
            measures[executor.measures] = np.array([score[0] for score in scores])
        elif executor.measures:
            measures[executor.measures] = segment_means(scores[0], sizes)
        return measures


def knows_T(sampler: type) -> bool:
    """Whether a sampler may read the number of rounds, `fed.T`. Of code that is not ours, any attribute T counts."""
    methods = [
        part for base in sampler.__mro__ for part in vars(base).values() if isinstance(part, FunctionType)
    ]
    steps = [[step.argval for step in dis.get_instructions(method)] for method in methods]
    return "T" in names_read(sampler) or any(("fed", "T") in pairwise(names) for names in steps)
