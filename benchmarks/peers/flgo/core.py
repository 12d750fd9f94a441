"""What FLGo asks of a benchmark: its data, and how to compute with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from flgo.benchmark.base import BasicTaskPipe
from flgo.benchmark.toolkits.cv.classification import GeneralCalculator
from torch import Tensor
from torch.utils.data import TensorDataset

from benchmarks import torch_model


class TaskPipe(BasicTaskPipe):
    def load_data(self, option: dict[str, Any]) -> dict[str, dict[str, TensorDataset]]:
        x, y, *_ = torch_model.tensors(option["arrays"], test=False)
        names = self.feddata["client_names"]
        return {name: {"train": TensorDataset(*data)} for name, *data in zip(names, x, y, strict=True)}


class TaskCalculator(GeneralCalculator):
    def get_dataloader(
        self, dataset: TensorDataset, batch_size: int, **options: Any
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Random batches without end instead of passes; a client takes as many as it does steps."""
        while True:
            yield dataset[torch.randint(0, len(dataset), (batch_size,))]
