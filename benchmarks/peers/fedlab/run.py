"""FedLab's standalone simulation: its FedAvg server and its serial trainer, client after client in one process."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline
from torch import Tensor

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
torch.set_num_threads(options.threads)
torch.manual_seed(options.seed)
X, Y, X_TEST, Y_TEST = torch_model.tensors(options.arrays)


class Clients(FedDataset):
    """A client's data are the workload's number of random batches instead of passes."""

    def get_dataloader(self, id: int, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        for _ in range(work.steps):
            batch = torch.randint(0, work.n, (batch_size,))
            yield X[id][batch], Y[id][batch]


class Measured(StandalonePipeline):
    """Ends the training when all rounds are measured."""

    def evaluate(self) -> None:
        if next(rounds, "over") == "over":
            self.handler.global_round = 0


net = torch_model.build(work)
server = FedAvgServerHandler(net, global_round=10**9, sample_ratio=work.m / work.N)
trainer = FedAvgSerialClientTrainer(net, work.N)
trainer.setup_dataset(Clients())
trainer.setup_optim(epochs=1, batch_size=work.batch, lr=work.lr)
rounds = measured_rounds(
    options, lambda: torch_model.evaluate(server.model, X_TEST, Y_TEST), ("fedlab", "torch")
)
next(rounds)
Measured(server, trainer).main()
