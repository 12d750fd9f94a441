"""Any module: each kind of layer beside a plain loop, and what cannot be done."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlib.data.datasets import Tensors
from fedlib.errors import ConfigError
from fedlib.settings.schema import Local
from fedlib.streams import stream
from fedlib.training.compiled import CompiledExecutor
from fedlib.training.contract import Job, draw_batches
from fedlib.training.executors import ProgramModel, make_executor
from fedlib.training.looped import ClientLoop
from fedlib.training.modules import ModuleExecutor
from tests.reference import relative_error

CPU = torch.device("cpu")
SIZES = (9, 5, 12)


class Residual(nn.Module):
    """A block within a block, and a norm of one's choice."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1)
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), norm(4), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head((x + self.inner(x)).mean((2, 3)))


class Viewing(nn.Module):
    """Needs images whose channels lie first in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(100, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).view(len(x), -1))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embedding, self.rnn, self.out = nn.Embedding(7, 5), kind(5, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(self.embedding(x))[0][:, -1])


class Frozen(nn.Module):
    """Parameters that are not trained, tied ones, and a head in the middle of the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.gelu(self.second(torch.tanh(self.first(x)))))


class Noisy(nn.Module):
    """Draws from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(x, 0.5, self.training))


def normed_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1), nn.Flatten(0))


def squares(out: Tensor, y: Tensor) -> Tensor:
    return (out - y) ** 2


IMAGES, TOKENS, ROWS = (2, 5, 5), "tokens", (6,)
KINDS = {
    "group norm": (lambda: Residual(lambda C: nn.GroupNorm(2, C)), IMAGES, None),
    "batch norm": (lambda: Residual(nn.BatchNorm2d), IMAGES, None),
    "view": (Viewing, IMAGES, None),
    "layer norm": (normed_mlp, ROWS, None),
    "GRU": (lambda: Recurrent(nn.GRU), TOKENS, None),
    "LSTM": (lambda: Recurrent(nn.LSTM), TOKENS, None),
    "frozen and tied": (Frozen, ROWS, None),
    "regression, losses": (regression, ROWS, squares),
    "regression, mean": (regression, ROWS, nn.MSELoss()),
}
WORK = {
    "steps": Local(lr=0.1, batch=4, steps=3, weight_decay=0.01, mu=0.1),
    "epochs": Local(lr=0.1, batch=4, epochs=2, momentum=0.9),
    "adam": Local(lr=0.01, batch=5, steps=3, optimizer="adam"),
}


def data_of(shape: tuple[int, ...] | str, real: bool = False) -> Tensors:
    rng = np.random.default_rng(0)

    def part(n: int) -> tuple[Tensor, Tensor]:
        x = (
            rng.integers(7, size=(n, 8))
            if shape == TOKENS
            else rng.normal(size=(n, *shape)).astype(np.float32)
        )
        y = rng.normal(size=n).astype(np.float32) if real else np.arange(n) % 3
        return torch.from_numpy(x), torch.from_numpy(y)

    x, y = part(sum(SIZES))
    return Tensors(x, y, *part(11))


def jobs_of() -> list[Job]:
    ends = np.cumsum(SIZES)
    parts = zip(ends - SIZES, ends, strict=True)
    return [Job(0, np.arange(a, b), stream(0, "local", 1, k)) for k, (a, b) in enumerate(parts)]


def executor_of(kind: str, **options) -> tuple[ModuleExecutor, Tensors]:
    make, shape, loss = KINDS[kind]
    data = data_of(shape, real=loss is not None)
    return ModuleExecutor(make, data, CPU, 2, loss, **options), data


def plain_loop(
    net: nn.Module, data: Tensors, job: Job, local: Local, loss: Callable, linear: Tensor | None = None
) -> tuple[nn.Module, list[float], list[int]]:
    """Local training as one would write it first, in float64; the net is trained in place."""
    batches = draw_batches([job], local.batch, local.steps, local.epochs)
    weights, start = list(net.parameters()), [p.detach().clone() for p in net.parameters()]
    kind = torch.optim.Adam if local.optimizer == "adam" else torch.optim.SGD
    more = {} if local.optimizer == "adam" else {"momentum": local.momentum}
    optimizer = kind(weights, local.lr, weight_decay=local.weight_decay, **more)
    x = data.x_train.double() if data.x_train.is_floating_point() else data.x_train
    y = data.y_train.double() if data.y_train.is_floating_point() else data.y_train
    losses, counts = [], []
    for rows, count in zip(batches.index[:, 0], batches.count[:, 0], strict=True):
        now = torch.as_tensor(rows[:count])
        value = loss(net.train()(x[now]), y[now]).mean()
        losses.append(value.item())
        counts.append(int(count))
        pull = sum(((w - w0) ** 2).sum() for w, w0 in zip(weights, start, strict=True) if w.requires_grad)
        optimizer.zero_grad()
        (value + local.mu / 2 * pull).backward()
        optimizer.step()
    return net, losses, counts


def module_of(executor: ModuleExecutor, w: Tensor) -> nn.Module:
    net = copy.deepcopy(executor.net)
    state = {name: view.clone() for name, view in executor.layout.views(w).items()}
    net.load_state_dict(state, strict=False)
    return net.double()


def flat(executor: ModuleExecutor, net: nn.Module) -> Tensor:
    return torch.cat([net.state_dict()[name].flatten() for name in executor.layout.names])


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("kind", KINDS)
def test_training_equals_a_plain_loop(kind: str, work: str):
    executor, data = executor_of(kind)
    start, local, loss = executor.initial(stream(3, "init")), WORK[work], KINDS[kind][2] or F.cross_entropy
    trained = executor.train(jobs_of(), start[None], local, local.lr)
    for j, job in enumerate(jobs_of()):
        net, losses, counts = plain_loop(module_of(executor, start), data, job, local, loss)
        assert relative_error(trained.updates[j], flat(executor, net) - start.double()) < 2e-4
        last = len(losses) - len(losses) // (local.epochs or 1) if local.epochs else 0
        assert trained.losses[j] == pytest.approx(np.average(losses[last:], weights=counts[last:]), rel=1e-4)
        assert trained.steps[j] == len(losses)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "batch norm"])
@pytest.mark.parametrize("work", WORK)
def test_stacked_equals_one_after_the_other(kind: str, work: str):
    one, _ = executor_of(kind)
    many, _ = executor_of(kind, stacked=True)
    start = one.initial(stream(3, "init"))[None]
    shift = torch.full((len(SIZES), one.layout.d), 0.01)
    a, b = (e.train(jobs_of(), start, WORK[work], WORK[work].lr, linear=shift) for e in (one, many))
    assert relative_error(b.updates, a.updates.double()) < 1e-4
    assert b.losses == pytest.approx(a.losses, rel=1e-4)
    assert (a.steps == b.steps).all()


@pytest.mark.parametrize(
    ("make", "shape", "reason"),
    [
        (KINDS["batch norm"][0], IMAGES, "it keeps statistics of its batches"),
        (Noisy, ROWS, "its forward pass draws at random"),
        (lambda: nn.Sequential(nn.Dropout(0.1), nn.LayerNorm(6)), ROWS, "its forward pass draws at random"),
    ],
)
def test_what_cannot_be_stacked_is_said_once(make, shape, reason: str):
    said: list[str] = []
    assert not ModuleExecutor(make, data_of(shape), CPU, 1)._stackable(said.append)
    assert said == [f"this model is trained one client after another, not stacked: {reason}"]


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_and_gradients_equal_a_plain_loop(kind: str):
    executor, data = executor_of(kind)
    start, loss = executor.initial(stream(3, "init")), KINDS[kind][2] or F.cross_entropy
    rows = [np.array([4, 1, 1, 7])]
    losses, scores = executor.evaluate(start[None], "train", rows)
    net = module_of(executor, start).eval()
    x = data.x_train.double() if data.x_train.is_floating_point() else data.x_train
    for i, row in enumerate(rows[0]):
        out, y = net(x[row : row + 1]), data.y_train[row : row + 1]
        assert losses[0][i] == pytest.approx(loss(out, y).mean().item(), rel=1e-4)
        if executor.measures:
            assert scores[0][i] == (out.argmax(1) == y).item()
    gradient = executor.gradients(jobs_of()[:1], start[None], 4)[0]
    one = Local(lr=1.0, batch=4, steps=1)
    moved, _, _ = plain_loop(module_of(executor, start), data, jobs_of()[0], one, loss)
    n = executor.layout.n_trainable
    assert relative_error(-gradient[:n], (flat(executor, moved) - start.double())[:n]) < 1e-4


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "net", [Noisy, lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.4), nn.LayerNorm(9))]
)
def test_what_a_forward_pass_draws_belongs_to_the_job(net, threads: int):
    data, local = data_of(ROWS), WORK["steps"]
    executor = ModuleExecutor(net, data, CPU, threads)
    start = executor.initial(stream(0, "init"))[None]
    before = torch.get_rng_state()
    together = executor.train(jobs_of(), start, local, local.lr)
    again = executor.train(jobs_of(), start, local, local.lr)
    alone = [executor.train([job], start, local, local.lr).updates[0] for job in jobs_of()]
    other = [Job(0, job.samples, stream(1, "local", k)) for k, job in enumerate(jobs_of())]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(together.updates, again.updates)
    assert torch.equal(together.updates, torch.stack(alone))
    assert not torch.equal(together.updates, executor.train(other, start, local, local.lr).updates)


@pytest.mark.parametrize(("kind", "last"), [("group norm", True), ("view", False), ("layer norm", False)])
def test_channels_lie_last_in_memory_where_the_module_can_take_it(kind: str, last: bool):
    x = executor_of(kind)[0].x["train"]
    assert (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)) == last


def test_dropout_is_dropout():
    net = nn.Sequential(nn.Linear(6, 400), nn.Dropout(0.25), nn.Identity())
    executor = ModuleExecutor(lambda: copy.deepcopy(net), data_of(ROWS), CPU, 1)
    bench = executor.bench
    start = executor.initial(stream(0, "init"))
    x = data_of(ROWS).x_train
    with torch.no_grad(), bench.drawing(5):
        plain, dropped = bench.ready(start, False)(x), bench.ready(start, True)(x)
    kept = dropped != 0
    assert torch.allclose(dropped[kept], plain[kept] / 0.75)
    assert float(kept.float().mean()) == pytest.approx(0.75, abs=0.02)  # 10 400 draws: standard error 0.004


def test_initial_values_are_the_runs_own_in_nested_blocks_too():
    executor, _ = executor_of("group norm")
    first, again, other = (executor.initial(stream(seed, "init")) for seed in (0, 0, 1))
    inner = executor.layout.slices["inner.0.weight"]
    assert torch.equal(first, again)
    assert not torch.equal(first[inner], other[inner])


def test_statistics_travel_behind_what_is_trained():
    executor, _ = executor_of("batch norm")
    assert executor.layout.names[-2:] == ("inner.1.running_mean", "inner.1.running_var")
    assert executor.layout.d - executor.layout.n_trainable == 8
    frozen, _ = executor_of("frozen and tied")
    assert frozen.layout.names[-1] == "first.bias"
    assert frozen.layout.d == 6 * 6 + 6 + 6 + 6 * 3 + 3


def test_the_output_layer_is_found_or_named():
    for kind, name in (("group norm", "head"), ("GRU", "out"), ("frozen and tied", "head")):
        executor, _ = executor_of(kind)
        assert executor.layout.output == name
        assert executor.layout.output_bias == executor.layout.slices[f"{name}.bias"]

    class Hidden(nn.Module):
        def __init__(self, name: str | None) -> None:
            super().__init__()
            self.last = nn.Linear(6, 3)
            self.output_layer = name

        def forward(self, x: Tensor) -> Tensor:
            return 2 * self.last(x)

    def layout(name: str | None):
        return ModuleExecutor(lambda: Hidden(name), data_of(ROWS), CPU, 1).layout

    assert layout(None).output_bias is None
    assert layout("last").output_weight == slice(0, 18)
    with pytest.raises(
        ConfigError, match="output_layer is 'fc', which is not a linear layer with bias; there are last"
    ):
        layout("fc")


def test_layers_in_a_row_run_through_the_passes_written_by_hand():
    images = data_of((2, 8, 8))
    row = nn.Sequential(nn.Flatten(), nn.Linear(128, 5), nn.ReLU(), nn.Dropout(0.1), nn.Linear(5, 3))
    maps = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    odd = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(128, 5), nn.ReLU(), nn.Linear(5, 3))
    for net, kind in ((row, CompiledExecutor), (maps, ClientLoop), (odd, ClientLoop)):
        executor = make_executor(ProgramModel(lambda net=net: copy.deepcopy(net)), images, threads=1)
        assert type(executor) is kind
        mine = ModuleExecutor(lambda net=net: copy.deepcopy(net), images, CPU, 1)
        assert torch.equal(executor.initial(stream(0, "init")), mine.initial(stream(0, "init")))
        losses = [e.evaluate(e.initial(stream(0, "init"))[None], "test")[0][0] for e in (executor, mine)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    for net in (normed_mlp(), nn.Sequential(nn.Linear(6, 3, bias=False))):
        executor = make_executor(ProgramModel(lambda net=net: copy.deepcopy(net)), data_of(ROWS), threads=1)
        assert type(executor) is ModuleExecutor


def test_a_metric_of_ones_own():
    data = data_of(ROWS, real=True)
    for metric in (lambda out, y: (out - y).abs(), nn.L1Loss()):
        executor = ModuleExecutor(regression, data, CPU, 1, squares, metric)
        losses, scores = executor.evaluate(executor.initial(stream(0, "init"))[None], "test")
        assert executor.measures == "test_metric"
        assert scores[0] ** 2 == pytest.approx(losses[0], rel=1e-4)
    assert ModuleExecutor(regression, data, CPU, 1, squares).measures is None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "real", "options", "message"),
    [
        (lambda: 3, False, {}, "it must make a torch.nn.Module, but makes a int"),
        (lambda: nn.Linear(5, 3), False, {}, r"its forward pass fails on inputs float32 \(2, 6\)"),
        (regression, True, {}, "cross-entropy needs .* pass loss="),
        (regression, True, {"loss": lambda out, y: 3.0}, "it must return a tensor"),
        (regression, True, {"loss": lambda out, y: out.view(5, 5)}, "loss: it fails on outputs"),
    ],
)
def test_what_cannot_be_trained_is_one_sentence(make, real, options, message):
    with pytest.raises(ConfigError, match=message):
        ModuleExecutor(make, data_of(ROWS, real), CPU, 1, **options)


@pytest.mark.bad_input
def test_a_batch_that_is_too_small_is_named():
    net = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    executor = ModuleExecutor(lambda: copy.deepcopy(net), data_of(ROWS), CPU, 1)
    start = executor.initial(stream(0, "init"))[None]
    with pytest.raises(
        ConfigError, match="training fails on a batch of 1 samples: Expected more than 1 value"
    ):
        executor.train(jobs_of(), start, Local(lr=0.1, batch=4, epochs=1), 0.1)
