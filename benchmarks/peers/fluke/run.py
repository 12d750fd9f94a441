"""fluke's FedAvg, client after client in one process, all in memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from fluke import FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.client import Client
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.server import EarlyStopping, Server
from fluke.utils import FederationObserver
from torch import Tensor, nn

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
torch.set_num_threads(options.threads)
X, Y, X_TEST, Y_TEST = torch_model.tensors(options.arrays)
environment = FlukeENV()
environment.set_seed(options.seed)
environment.set_inmemory(True)
environment.set_eval_cfg(server=False, locals=False, pre_fit=False, post_fit=False)


class Batches(FastDataLoader):
    """A client's data that yield the workload's number of random batches instead of passes."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.tensors
        for _ in range(work.steps):
            batch = torch.randint(0, work.n, (work.batch,))
            yield x[batch], y[batch]

    def __len__(self) -> int:
        return work.steps


class Clock(FederationObserver):
    """Ends the training when all rounds are measured."""

    def start_round(self, round: int, global_model: nn.Module) -> None:
        if next(rounds, "over") == "over":
            raise EarlyStopping(round)


net = torch_model.build(work)
rounds = measured_rounds(options, lambda: torch_model.evaluate(net, X_TEST, Y_TEST), ("fluke-fl", "torch"))
sgd = OptimizerConfigurator({"name": "SGD", "lr": work.lr})
clients = [
    Client(k, Batches(x, y, num_labels=10, batch_size=work.batch), None, sgd, nn.CrossEntropyLoss(), 1)
    for k, (x, y) in enumerate(zip(X, Y, strict=True))
]
algorithm = FedAVG(work.N, None, {}, clients=clients, server=Server(net, None, clients))
algorithm.set_callbacks(Clock())
algorithm.run(10**6, work.m / work.N)
