"""Programs of one's own give the numbers of a plain loop of torch, to rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
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
MAPS = (RNG.normal(size=(4, 2, 3, 3))[Y] + RNG.normal(size=(N * n, 2, 3, 3))).astype(np.float32)
MISSING = np.arange(5) > RNG.integers(1, 5, size=(N * n, 1))
EDGES = (RNG.random((N * n, 3, 3)) < 0.5).astype(np.float32)
FLAGS = (RNG.random((N * n, 3)) < 0.3).astype(np.float32)
TIMES = np.stack([RNG.exponential(size=N * n), RNG.random(N * n) < 0.7], 1).astype(np.float32)


class Last(nn.Module):
    """The output layer sees the last of a sequence's hidden states."""

    def __init__(self, rnn: nn.Module, out: nn.Module) -> None:
        super().__init__()
        self.rnn, self.out = rnn, out

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0][:, -1])


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


class Marked(nn.Module):
    """A transformer that takes tokens and where they are missing."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 8), nn.Linear(8, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, tokens: Tensor, missing: Tensor) -> Tensor:
        hidden = self.layer(self.embedding(tokens), src_key_padding_mask=missing)
        return self.out(hidden[:, 0])


class Beside(nn.Module):
    """A token's embedding beside real features."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.out = nn.Embedding(7, 3), nn.Linear(9, 4)

    def forward(self, x: Tensor, token: Tensor) -> Tensor:
        return self.out(torch.cat([x, self.embedding(token)], 1))


class Graphs(nn.Module):
    """Two rounds of messages over each sample's own graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 8), nn.Linear(8, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        hidden = torch.relu(self.first(edges @ nodes))
        return self.second(edges @ hidden).mean(1)


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Turned(nn.Module):
    """A constant complex buffer turns features."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 4)
        self.register_buffer("turn", torch.exp(1j * torch.arange(6.0)))

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x * self.turn).real)


class Tied(nn.Module):
    """One weight is used by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up, self.out = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.up.weight = self.down.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.up(torch.tanh(self.down(x)))))


class Strided(nn.Module):
    """Reads the memory of a convolution's output by strides of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(2, 3, 2), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.conv(x).as_strided((len(x), 8), (12, 1)))


def focal(output: Tensor, y: Tensor) -> Tensor:
    each = nn.functional.cross_entropy(output, y, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


def survival(output: Tensor, y: Tensor) -> Tensor:
    """Exponential times, some of them censored: y is (time, whether the event was seen)."""
    log_rate = output[:, 0]
    return (y[:, 0] * log_rate.exp() - y[:, 1] * log_rate).mean()


def pinball(output: Tensor, y: Tensor) -> Tensor:
    off = y - output
    return torch.maximum(0.9 * off, -0.1 * off)


def hooked() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))
    net[0].weight.register_hook(lambda g: g / 2)
    return net


def ignored() -> np.ndarray:
    y = Y.copy()
    y[::4] = -100
    return y


def mlp(norm: Callable[[], nn.Module] = nn.Identity) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(6, 8), norm(), nn.ReLU(), nn.Linear(8, 4))


def column() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))


def steps_by(name: str) -> Callable[[Any, Tensor], Tensor]:
    """The step of a server optimiser by its paper's formula, for a mean change; state holds m and v."""

    def step(state: Any, delta: Tensor) -> Tensor:
        if name == "fedavgm":
            state.m = 0.9 * state.m + delta
            return state.m
        state.m = 0.9 * state.m + 0.1 * delta
        square = delta**2
        grown = 0.99 * state.v + 0.01 * square
        state.v = grown if name == "fedadam" else state.v - 0.01 * square * torch.sign(state.v - square)
        return 0.01 * state.m / (state.v.sqrt() + 1e-3)

    return step


@dataclass
class Program:
    """model and loss; metric of the whole test set, if any; x and y.

    local: settings of the local work besides; optimizer: the same, made by torch. server: its name.
    """

    model: Callable[[], nn.Module]
    loss: Callable = nn.CrossEntropyLoss()
    metric: Callable | None = None
    x: Any = field(default_factory=lambda: X)
    y: Any = field(default_factory=lambda: Y)
    reported: Callable = lambda loss, count: loss
    lr: float = 0.2
    local: dict = field(default_factory=dict)
    optimizer: Callable = torch.optim.SGD
    server: str = "mean"


def made_by(optimizer: Callable, **keys: Any) -> Callable:
    return lambda parameters, lr: optimizer(parameters, lr=lr, **keys)


def fades(t: int) -> float:
    return 0.3 / t


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
    "squares": Program(column, nn.MSELoss(), y=REAL, lr=0.02),
    "pinball, one value a sample": Program(
        column, pinball, y=REAL, reported=lambda loss, count: float(loss.mean())
    ),
    "transformer of named inputs": Program(Marked, x={"tokens": TOKENS, "missing": MISSING}),
    "two inputs of two types": Program(Beside, x=(X, TOKENS[:, 0])),
    "graphs": Program(Graphs, x={"nodes": X.reshape(-1, 3, 2), "edges": EDGES}),
    "several labels": Program(lambda: nn.Linear(6, 3), nn.BCEWithLogitsLoss(), y=FLAGS),
    "several labels, weighed": Program(
        lambda: nn.Linear(6, 3), nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 4.0, 9.0])), y=FLAGS
    ),
    "survival": Program(lambda: nn.Linear(6, 1), survival, y=TIMES, lr=0.05),
    "class weights, smoothed": Program(
        lambda: nn.Linear(6, 4), nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2)
    ),
    "focal": Program(mlp(), focal),
    "negative log-likelihood": Program(
        lambda: nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(1)), nn.NLLLoss()
    ),
    "texts of unequal lengths": Program(
        Tagger, nn.CrossEntropyLoss(ignore_index=-100), x=TOKENS, y=np.where(MISSING, -100, TOKENS[:, ::-1])
    ),
    "batch statistics of maps": Program(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4)
        ),
        x=X.reshape(-1, 1, 2, 3),
    ),
    "batch statistics, all averaged": Program(mlp(lambda: nn.BatchNorm1d(8, momentum=None))),
    "statistics of groups": Program(mlp(lambda: nn.GroupNorm(2, 8))),
    "frozen body": Program(Frozen),
    "constant complex buffer": Program(Turned),
    "tied parameter": Program(Tied),
    "what comes in goes out": Program(
        lambda: nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6)), nn.MSELoss(), y=X
    ),
    "strides of its own": Program(Strided, x=MAPS),
    "rnn": Program(lambda: Last(nn.LSTM(2, 8, batch_first=True), nn.Linear(8, 4)), x=X.reshape(-1, 3, 2)),
    "momentum": Program(
        mlp(), local={"momentum": 0.9}, optimizer=made_by(torch.optim.SGD, momentum=0.9), lr=0.05
    ),
    "weight decay": Program(
        mlp(), local={"weight_decay": 0.1}, optimizer=made_by(torch.optim.SGD, weight_decay=0.1)
    ),
    "adam": Program(mlp(), local={"optimizer": "adam"}, optimizer=torch.optim.Adam, lr=0.01),
    "an optimiser of its own": Program(
        mlp(),
        local={"optimizer": made_by(torch.optim.RMSprop, alpha=0.9)},
        optimizer=made_by(torch.optim.RMSprop, alpha=0.9),
        lr=0.005,
    ),
    "clipped": Program(mlp(), local={"clip": 0.1}),
    "a rate that fades": Program(mlp(), local={"lr": fades}),
    "server with momentum": Program(mlp(lambda: nn.BatchNorm1d(8)), server="fedavgm", lr=0.05),
    "server adam": Program(mlp(), server="fedadam"),
    "server yogi": Program(mlp(), server="fedyogi"),
}


def parts(x: Any, rows: Any = slice(None)) -> dict | tuple | list:
    """The arguments of a model's forward pass, of some samples."""
    if isinstance(x, dict):
        return {name: torch.as_tensor(part)[rows] for name, part in x.items()}
    return [torch.as_tensor(part)[rows] for part in (x if isinstance(x, tuple) else (x,))]


def call(net: nn.Module, given: dict | tuple | list) -> Tensor:
    return net(**given) if isinstance(given, dict) else net(*given)


def plainly(program: Program, chosen: list[list[int]], seed: int = 0) -> dict[str, list[float]]:
    """Test loss, metric and mean local loss of every round, with clients and batches as the engine draws them."""
    x, y = program.x, torch.as_tensor(program.y)
    init = int(stream(seed, "init", 0).integers(2**63))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(init)
        net = program.model()
    out: dict[str, list[float]] = {"test_loss": [], "metric": [], "local_loss": []}
    trained = {name for name, p in net.named_parameters(remove_duplicate=False) if p.requires_grad}
    tau = 1e-3 if program.server in ("fedadam", "fedyogi") else 0.0
    moments = {name: SimpleNamespace(m=0.0, v=torch.tensor(tau**2)) for name in trained}
    server = steps_by(program.server)

    def measure() -> None:
        net.eval()
        with torch.no_grad():
            predicted = call(net, parts(x))
            out["test_loss"].append(float(program.reported(program.loss(predicted, y), len(y))))
            if program.metric:
                out["metric"].append(float(program.metric(predicted, y)))

    measure()
    for t, clients in enumerate(chosen, 1):
        states, told = [], []
        for k in clients:
            local = program.model().train()  # no deep copy, which leaves out hooks and unties shared memory
            local.load_state_dict(net.state_dict())
            rate = program.local["lr"](t) if "lr" in program.local else program.lr
            optimizer = program.optimizer([p for p in local.parameters() if p.requires_grad], lr=rate)
            job = Job(0, np.flatnonzero(k == OWNER), stream(seed, "local", t, k, 0))
            batches = draw_batches([job], BATCH, epochs=1)
            losses, seen = 0.0, []
            for index, count in zip(batches.index[:, 0], batches.count[:, 0], strict=True):
                rows = torch.from_numpy(index[:count])
                seen.append(rows)
                optimizer.zero_grad()
                loss = program.loss(call(local, parts(x, rows)), y[rows])
                loss.mean().backward()
                if "clip" in program.local:
                    nn.utils.clip_grad_norm_(local.parameters(), program.local["clip"])
                optimizer.step()
                weight = sum_of_weights(program.loss, y[rows])
                losses += float(program.reported(loss.detach(), count)) * weight
            told.append(losses / sum_of_weights(program.loss, y[torch.cat(seen)]))
            states.append(local.state_dict())
        new = {}
        for name, value in net.state_dict().items():
            mean = sum(state[name] for state in states) / len(states) if value.is_floating_point() else value
            served = name in trained and program.server != "mean"
            new[name] = value + server(moments[name], mean - value) if served else mean
        net.load_state_dict(new)
        out["local_loss"].append(float(np.mean(told)))
        measure()
    return out


def sum_of_weights(loss: Callable, y: Tensor) -> float:
    each = torch.ones(y.shape if isinstance(loss, nn.CrossEntropyLoss) else len(y))
    if isinstance(loss, nn.CrossEntropyLoss) and loss.weight is not None:
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
        methods={"Random": fedlib.Method("uniform", server=program.server)},
        m=m,
        T=T,
        local=fedlib.Local(**{"lr": program.lr, "batch": BATCH, "epochs": 1} | program.local),
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
