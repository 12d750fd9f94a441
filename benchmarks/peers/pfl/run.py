"""pfl-research (Apple): FederatedAveraging on its SimulatedBackend, in one process, PyTorch models."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import torch_model
from benchmarks.protocol import Options, arguments, measured_rounds

logging.disable(logging.INFO)
options = Options.of(arguments("W1", "W2").parse_args())
work = options.workload
torch.set_num_threads(options.threads)
torch.manual_seed(options.seed)
X, Y, X_TEST, Y_TEST = torch_model.tensors(options.arrays)


class Net(nn.Module):
    """What pfl asks of a model: its own loss and metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch_model.build(work)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        self.train(not eval)
        return F.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Weighted]:
        return {"loss": Weighted(F.cross_entropy(self(x), y, reduction="sum").item(), len(y))}


class Batches(Dataset):
    """A client's data that yields the workload's number of random batches instead of passes."""

    def iter(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        x, y = self.raw_data
        for _ in range(work.steps):
            batch = torch.randint(0, work.n, (batch_size,))
            yield x[batch], y[batch]


class Clock(TrainingProcessCallback):
    """Ends the training when all rounds are measured."""

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        return next(rounds, "over") == "over", Metrics()


net = Net()
rounds = measured_rounds(options, lambda: torch_model.evaluate(net, X_TEST, Y_TEST), ("pfl", "torch"))
clients = FederatedDataset(
    lambda k: Batches(raw_data=(X[k], Y[k]), user_id=str(k)), get_user_sampler("random", list(range(work.N)))
)
next(rounds)
FederatedAveraging().run(
    algorithm_params=NNAlgorithmParams(
        central_num_iterations=10**9,
        evaluation_frequency=10**9,
        train_cohort_size=work.m,
        val_cohort_size=0,
    ),
    backend=SimulatedBackend(training_data=clients, val_data=clients),
    model=PyTorchModel(
        net, lambda weights, lr: torch.optim.SGD(weights, lr=lr), torch.optim.SGD(net.parameters(), lr=1.0)
    ),
    model_train_params=NNTrainHyperParams(
        local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch
    ),
    model_eval_params=NNEvalHyperParams(local_batch_size=None),
    callbacks=[Clock()],
    send_metrics_to_platform=False,
)
