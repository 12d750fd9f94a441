"""What one Ray actor keeps between the clients that it trains: a module, so that it is loaded once a process."""

from __future__ import annotations

import functools

import torch
from torch import Tensor, nn

from benchmarks import torch_model
from benchmarks.protocol import Options


@functools.cache
def data_and_net(options: Options) -> tuple[Tensor, Tensor, nn.Module]:
    """x: (N, n, C, H, W), y: (N, n), and a model to train in."""
    torch.set_num_threads(1)
    torch.seed()  # no two actors draw the same batches
    x, y, *_ = torch_model.tensors(options.arrays, test=False)
    return x, y, torch_model.build(options.workload)
