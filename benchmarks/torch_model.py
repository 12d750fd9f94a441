"""The workloads' models in ordinary PyTorch, for the candidates that train with plain PyTorch."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.protocol import Workload, load


def tensors(folder: Path, test: bool = True) -> tuple[Tensor, ...]:
    """x_train, y_train (by client), x_test, y_test of a workload, as `load` reads them."""
    arrays = load(folder, test)
    return tuple(map(torch.from_numpy, (arrays.x_train, arrays.y_train, arrays.x_test, arrays.y_test)))


def build(work: Workload) -> nn.Module:
    """Logistic regression (from zero), the MLP, or Clustered Sampling's CNN; torch's own initialisation otherwise."""
    if work.layers is None:
        return nn.Sequential(
            *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2)),
            *(nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2)),
            *(nn.Conv2d(64, 64, 3), nn.Dropout(0.2), nn.Flatten()),
            *(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
    linear = [nn.Linear(a, b) for a, b in pairwise(work.layers)]
    if len(linear) == 1:
        nn.init.zeros_(linear[0].weight)
        nn.init.zeros_(linear[0].bias)
    hidden = [layer for one in linear[:-1] for layer in (one, nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, linear[-1])


def train_client(net: nn.Module, x: Tensor, y: Tensor, work: Workload) -> float:
    """A round's SGD steps of one client on its own data, in place; returns the last batch's loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=work.lr)
    net.train()
    for _ in range(work.steps):
        batch = torch.randint(0, work.n, (work.batch,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.inference_mode()
def evaluate(net: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Mean loss and accuracy."""
    net.eval()
    logits = torch.cat([net(part) for part in x.split(500)])
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()
