"""A plain implementation of federated averaging for given draws, which the engine must match to rounding.

It trains one client and one model at a time with torch's layers, autograd and optimiser in float64. It shares only the
random streams with the engine (the initial model, and the samples of each batch), none of its computation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.settings.schema import Run
from fedlib.streams import stream
from fedlib.training.contract import Job, draw_batches

NETWORKS = {  # model -> its layers, for n pixels and K classes
    "logistic": lambda n, K: [nn.Linear(n, K)],
    "mlp": lambda n, K: [nn.Linear(n, 50), nn.ReLU(), nn.Linear(50, K)],
}


def replay(
    run: Run, parts: Partition, data: Tensors, start: torch.Tensor, drawn: Sequence[Sequence[int]]
) -> np.ndarray:
    """(T + 1, 2) test loss (nats) and accuracy before and after each round of plain averaging over given draws.

    start: (d,) initial model. drawn: the clients of rounds 1 to T; a client drawn twice is listed twice.
    """
    x, x_test = data.x_train.double().flatten(1), data.x_test.double().flatten(1)
    K = int(data.y_train.max()) + 1
    net = nn.Sequential(*NETWORKS[run.model](x.shape[1], K)).double()
    model, measured = start.double(), []
    for t in range(len(drawn) + 1):
        if t:
            locals_, counts = [], dict.fromkeys(drawn[t - 1], 0)
            for client in drawn[t - 1]:
                rng = stream(run.seed, "local", t, int(client), counts[client])
                counts[client] += 1
                vector_to_parameters(model.clone(), net.parameters())
                _train(net, run, Job(0, parts.train[client], rng), x, data.y_train, run.local.lr_at(t))
                locals_.append(parameters_to_vector(net.parameters()).detach())
            model = torch.stack(locals_).mean(0)
        vector_to_parameters(model.clone(), net.parameters())
        with torch.no_grad():
            logits = net(x_test)
        right = (logits.argmax(1) == data.y_test).double().mean()
        measured.append((cross_entropy(logits, data.y_test).item(), right.item()))
    return np.array(measured)


def _train(net: nn.Module, run: Run, job: Job, x: torch.Tensor, y: torch.Tensor, lr: float) -> None:
    local = run.local
    optimiser = torch.optim.SGD(net.parameters(), lr, local.momentum, weight_decay=local.weight_decay)
    assert not callable(local.steps)
    batches = draw_batches([job], local.batch, local.steps, local.epochs)
    for index, count in zip(batches.index[:, 0], batches.count[:, 0], strict=True):
        rows = torch.as_tensor(index[:count])
        optimiser.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()
        optimiser.step()
