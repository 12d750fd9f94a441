"""BlazeFL's FedAvg in a pool of as many threads as cores, each with one torch thread.

On two cores all its modes were within an eighth of each other (W1, W2: threads 6.6 and 4.5 rounds/s, single-threaded
with torch's own two threads 6.7 and 4.6, process pool 6.0 and 4.2).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from blazefl.contrib import FedAvgBaseServerHandler, FedAvgThreadPoolClientTrainer
from torch import Tensor, nn

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
torch.set_num_threads(1)
torch.manual_seed(options.seed)
X, Y, X_TEST, Y_TEST = torch_model.tensors(options.arrays)


class Models:
    """Where BlazeFL asks for a model."""

    def select_model(self, model_name: str) -> nn.Module:
        return torch_model.build(work)


class Clients:
    """Where BlazeFL asks for a client's data: the workload's number of random batches instead of passes."""

    def get_dataloader(
        self, type_: str, cid: int, batch_size: int, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = X[cid], Y[cid]
        for _ in range(work.steps):
            batch = torch.randint(0, work.n, (batch_size,), generator=generator)
            yield x[batch], y[batch]


common = {
    "model_selector": Models(),
    "model_name": "",
    "dataset": Clients(),
    "device": "cpu",
    "num_clients": work.N,
    "batch_size": work.batch,
    "seed": options.seed,
}
server = FedAvgBaseServerHandler(**common, global_round=10**9, sample_ratio=work.m / work.N)
trainer = FedAvgThreadPoolClientTrainer(**common, epochs=1, lr=work.lr, num_parallels=options.threads)
for _ in measured_rounds(
    options, lambda: torch_model.evaluate(server.model, X_TEST, Y_TEST), ("blazefl", "torch")
):
    chosen = server.sample_clients()
    trainer.local_process(server.downlink_package(), chosen)
    for package in trainer.uplink_package():
        server.load(package)
