"""Programs of one's own give the numbers of a plain loop of torch, to rounding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedlib
from fedlib.streams import stream
from fedlib.training.contract import Job, draw_batches

N, n, m, T, BATCH = 6, 21, 3, 4, 8
RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=N * n)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(N * n, 6))).astype(np.float32)
OWNER = np.arange(N * n) // n
REAL = (X @ RNG.normal(size=6)).astype(np.float32)
TOKENS = RNG.integers(7, size=(N * n, 5))
WEIGHTS = torch.tensor([20.0, 1.0, 0.5, 3.0])


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.rnn, self.out = (
            nn.Embedding(7, 6),
            nn.GRU(6, 8, batch_first=True),
            nn.Linear(8, 7),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.embedding(x))[0]).transpose(1, 2)


class Hooked(nn.Sequential):
    """The first layer learns at half the rate, by a hook."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
        self[0].weight.register_hook(lambda g: g / 2)


def hooked() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    net[0].weight.register_hook(lambda g: g / 2)
    return net


def ignored() -> np.ndarray:
    y = Y.copy()
    y[::4] = -100
    return y


@dataclass
class Program:
    """model and loss; metric of the whole test set, if any; x and y."""

    model: Callable[[], nn.Module]
    loss: Callable = nn.CrossEntropyLoss()
    metric: Callable | None = None
    x: Any = field(default_factory=lambda: X)
    y: Any = field(default_factory=lambda: Y)
    reported: Callable = lambda loss, count: loss
    lr: float = 0.2


PROGRAMS = {
    "class weights": Program(lambda: nn.Linear(6, 4), nn.CrossEntropyLoss(weight=WEIGHTS)),
    "labels to ignore": Program(lambda: nn.Linear(6, 4), y=ignored()),
    "sum": Program(
        lambda: nn.Linear(6, 4),
        nn.CrossEntropyLoss(reduction="sum"),
        reported=lambda loss, count: loss / count,
        lr=0.02,
    ),
    "tokens to ignore": Program(
        Tagger, nn.CrossEntropyLoss(ignore_index=0), x=TOKENS, y=TOKENS[:, ::-1].copy()
    ),
    "hook of a gradient": Program(Hooked),
    "hook in a sequence": Program(hooked),
    "root of squares": Program(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 1), nn.Flatten(0)),
        nn.MSELoss(),
        lambda out, y: ((out - y) ** 2).mean().sqrt(),
        y=REAL,
        lr=0.02,
    ),
    "batch statistics": Program(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    ),
    "huber": Program(
        lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), nn.HuberLoss(), nn.L1Loss(), y=REAL
    ),
}


def plainly(program: Program, chosen: list[list[int]], seed: int = 0) -> dict[str, list[float]]:
    """Test loss, metric and mean local loss of every round, with clients and batches as the engine draws them."""
    x, y = torch.as_tensor(program.x), torch.as_tensor(program.y)
    init = int(stream(seed, "init", 0).integers(2**63))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init)
        net = program.model()
    out: dict[str, list[float]] = {"test_loss": [], "metric": [], "local_loss": []}

    def measure() -> None:
        net.eval()
        with torch.no_grad():
            predicted = net(x)
            out["test_loss"].append(float(program.reported(program.loss(predicted, y), len(y))))
            if program.metric:
                out["metric"].append(float(program.metric(predicted, y)))

    measure()
    for t, clients in enumerate(chosen, 1):
        states, told = [], []
        for k in clients:
            local = copy.deepcopy(net).train()
            for old, new in zip(net.parameters(), local.parameters(), strict=True):
                for hook in (old._backward_hooks or {}).values():
                    new.register_hook(hook)
            optimizer = torch.optim.SGD(local.parameters(), lr=program.lr)
            job = Job(0, np.flatnonzero(k == OWNER), stream(seed, "local", t, k, 0))
            batches = draw_batches([job], BATCH, epochs=1)
            losses, seen = 0.0, []
            for index, count in zip(batches.index[:, 0], batches.count[:, 0], strict=True):
                rows = torch.from_numpy(index[:count])
                seen.append(rows)
                optimizer.zero_grad()
                loss = program.loss(local(x[rows]), y[rows])
                loss.backward()
                optimizer.step()
                weight = sum_of_weights(program.loss, y[rows])
                losses += float(program.reported(loss.detach(), count)) * weight
            told.append(losses / sum_of_weights(program.loss, y[torch.cat(seen)]))
            states.append(local.state_dict())
        mean = {
            name: sum(state[name] for state in states) / len(states) if value.is_floating_point() else value
            for name, value in net.state_dict().items()
        }
        net.load_state_dict(mean)
        out["local_loss"].append(float(np.mean(told)))
        measure()
    return out


def sum_of_weights(loss: Callable, y: Tensor) -> float:
    each = torch.ones(y.shape)
    if getattr(loss, "weight", None) is not None:
        each = loss.weight[y]
    if isinstance(loss, nn.CrossEntropyLoss):
        each = torch.where(y == loss.ignore_index, 0.0, each)
    return float(each.sum())


@pytest.mark.outside("programs equal to a plain loop")
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_a_plain_loop(name: str) -> None:
    program = PROGRAMS[name]
    result = fedlib.simulate(
        program.x,
        program.y,
        OWNER,
        test=(program.x, program.y),
        model=program.model,
        loss=program.loss,
        metric=program.metric,
        methods={"Random": "uniform"},
        m=m,
        T=T,
        local=fedlib.Local(lr=program.lr, batch=BATCH, epochs=1),
        threads=1,
        tell=lambda text: None,
    )
    table = result.table
    chosen = [[int(k) for k in clients] for clients in table["clients"][1:]]
    wanted = plainly(program, chosen)
    assert np.isfinite(wanted["test_loss"]).all()
    np.testing.assert_allclose(table["test_loss"], wanted["test_loss"], rtol=2e-4)
    np.testing.assert_allclose(table["local_loss"][1:], wanted["local_loss"], rtol=2e-4)
    if program.metric:
        np.testing.assert_allclose(table["test_metric"], wanted["metric"], rtol=2e-4)
