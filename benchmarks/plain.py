"""The fair baseline: a lean PyTorch loop over runs and clients, with data in memory and nothing copied twice.

With `--usual` it does what most research code does: a deep copy of the model and a shuffling DataLoader over a Subset
for every client.
"""

from __future__ import annotations

import copy
from itertools import chain, islice, repeat

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

parser = arguments("W1", "W2", "W3", "W4")
parser.add_argument("--usual", action="store_true")
given = parser.parse_args()
options = Options.of(given)
work = options.workload
torch.set_num_threads(options.threads)
torch.manual_seed(options.seed)
rng = np.random.default_rng(options.seed)
X, Y, X_TEST, Y_TEST = torch_model.tensors(options.arrays)
net = torch_model.build(work)
models = [torch_model.build(work).state_dict() for _ in range(work.R)]


def lean(start: dict[str, torch.Tensor], client: int) -> dict[str, torch.Tensor]:
    net.load_state_dict(start)
    torch_model.train_client(net, X[client], Y[client], work)
    return net.state_dict()


def as_usual(start: dict[str, torch.Tensor], client: int) -> dict[str, torch.Tensor]:
    net.load_state_dict(start)
    local: nn.Module = copy.deepcopy(net).train()
    loader = DataLoader(TensorDataset(X[client], Y[client]), batch_size=work.batch, shuffle=True)
    optimizer = torch.optim.SGD(local.parameters(), lr=work.lr)
    for x, y in islice(chain.from_iterable(repeat(loader)), work.steps):
        optimizer.zero_grad()
        F.cross_entropy(local(x), y).backward()
        optimizer.step()
    return copy.deepcopy(local.state_dict())


def evaluate() -> tuple[float, float]:
    net.load_state_dict(models[0])
    return torch_model.evaluate(net, X_TEST, Y_TEST)


train = as_usual if given.usual else lean
for _ in measured_rounds(options, evaluate, ("torch",)):
    for r, start in enumerate(models):
        total = {name: torch.zeros_like(value) for name, value in start.items()}
        for client in rng.choice(work.N, work.m, replace=False):
            for name, value in train(start, client).items():
                total[name] += value / work.m
        models[r] = total
