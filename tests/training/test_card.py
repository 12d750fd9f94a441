"""The executor for plain CNNs on a GPU, on a CPU: equal to the loop over clients, and never waiting for the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedlib.settings.schema import Local
from fedlib.streams import stream
from fedlib.training import card, models
from fedlib.training.bits import kept_bits, packed_size
from fedlib.training.card import CardExecutor
from fedlib.training.chain import Chain, torch_default
from fedlib.training.contract import Job, dropout_bits, dropout_masks, split_bits
from fedlib.training.layout import Layout
from fedlib.training.looped import ClientLoop
from fedlib.training.maps import MapMeasure, MapStep, Pooling, takes
from fedlib.training.models import build
from fedlib.training.stacked import StackedExecutor
from tests.reference import Reference, relative_error
from tests.training import test_contract
from tests.training.test_contract import (
    CPU,
    SIZES,
    WORK,
    check,
    check_measures,
    dataset,
    jobs_of,
    start_of,
)

SHAPES = test_contract.SHAPES | {
    "hics_cifar_cnn": (3, 18, 18),
    "poc_mlp": (1, 8, 8),
    "resnet18_head": (8, 1, 1),
}
CNNS = ["cs_cnn", "fedcor_cnn", "hics_cifar10_cnn"]
HICS = Local(lr=0.001, batch=64, epochs=2, optimizer="adam", mu=0.1)


def executor_of(model: str) -> CardExecutor:
    return CardExecutor(build(model, SHAPES[model], 10), dataset(SHAPES[model]), CPU, 2)


def test_a_longer_job_makes_no_new_step_until_there_is_no_room_for_it() -> None:
    """On a card, a new step is compiled and captured again."""
    executor = executor_of("hics_cifar10_cnn")
    first = executor._step(HICS, 3, shifted=False)
    assert executor._step(HICS, card.ROOM, shifted=False) is first
    longer = executor._step(HICS, card.ROOM + 1, shifted=False)
    assert len(longer.rate) == 2 * card.ROOM
    assert executor._step(HICS, 3, shifted=False) is longer


@pytest.mark.parametrize(
    ("model", "work"),
    [
        ("cs_cnn", "momentum"),
        ("fedcor_cnn", "adam"),
        ("hics_cifar_cnn", "decay-prox"),
        ("hics_cifar10_cnn", "halved"),
    ],
)
def test_static_steps_train_as_the_reference(model: str, work: str):
    executor = executor_of(model)
    reference = Reference(executor.chain, dataset(SHAPES[model]))
    check(executor, reference, WORK[work], shifted=work == "momentum")
    check_measures(executor, reference)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("model", "work"), [*itertools.product(CNNS, WORK)])
def test_static_steps_train_as_the_loop(model: str, work: str, shifted: bool):
    executor, local = executor_of(model), WORK[work]
    loop, start = ClientLoop(executor.chain, dataset(SHAPES[model]), CPU, 2), start_of(executor)
    noise = 0.1 * torch.randn(3, executor.layout.d, generator=torch.Generator().manual_seed(1))
    results = [
        e.train(jobs_of(SIZES), start, local, local.lr, noise if shifted else None) for e in (executor, loop)
    ]
    static, plain = results
    for update, expected in zip(static.updates, plain.updates, strict=True):
        assert (
            relative_error(update, expected.double()) < 1e-3
        )  # a maximum that rounding moves to another cell
    assert static.losses == pytest.approx(plain.losses, rel=1e-4)
    assert static.steps.tolist() == plain.steps.tolist()


def padded_chain() -> Chain:
    """Oblong kernels, zeros around the maps, maps that squares do not tile, dropout of 7 values."""
    layers = [
        *(nn.Conv2d(3, 5, (3, 2), padding=(1, 2)), nn.Dropout(0.3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(5, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(4 * 2 * 3, 7), nn.Dropout(0.2), nn.ReLU(), nn.Linear(7, 10)),
    ]
    net = Chain(*layers, fill=torch_default)
    net.dropouts = [(0.3, (5, 9, 12)), (0.2, (7,))]
    return net


def test_static_steps_train_other_plain_layers():
    net, data = padded_chain(), dataset((3, 9, 9))
    assert takes(net)
    executor = CardExecutor(net, data, CPU, 2)
    check(executor, Reference(net, data), WORK["momentum"])
    check_measures(executor, Reference(net, data))


def test_what_static_steps_do_not_take_is_left_to_the_general_stack():
    assert set(SHAPES) == {file.stem for file in Path(models.__file__).parent.glob("[!_]*.py")}
    assert [model for model in SHAPES if takes(build(model, SHAPES[model], 10))] == [*CNNS, "hics_cifar_cnn"]
    executor = executor_of("cs_cnn")
    local = Local(lr=0.05, batch=8, epochs=2, mu=1.0)
    check(executor, Reference(executor.chain, dataset(SHAPES["cs_cnn"])), local, moon=True)


@pytest.mark.parametrize("model", ["fedcor_cnn", "cs_cnn"])
def test_a_job_does_not_depend_on_its_company(model: str, monkeypatch):
    """Bit for bit: jobs alone, in other chunks and orders, and on batches that they share with other runs."""
    executor, local = executor_of(model), WORK["decay-prox"]
    start = start_of(executor)

    def jobs() -> list[Job]:
        plain = jobs_of((20, 7, 33, 20, 8, 50, 20, 41, 3))
        shared = np.random.default_rng(9).integers(60, size=30)
        return [*plain, *(Job(run, shared, stream(0, "local", 1, 99), draws="k") for run in (0, 1))]

    together = executor.train(jobs(), start, local, local.lr)
    for chunk, subset in ((3, range(10, -1, -1)), (1, [5, 10]), (64, [9])):
        monkeypatch.setattr(card, "JOBS", chunk)
        other = CardExecutor(executor.chain, dataset(SHAPES[model]), CPU, 1)
        trained = other.train([jobs()[j] for j in subset], start, local, local.lr)
        assert torch.equal(trained.updates, together.updates[list(subset)])
        assert trained.losses.tolist() == together.losses[list(subset)].tolist()


@pytest.mark.parametrize(("model", "kind"), [("mlp", StackedExecutor), ("cs_cnn", CardExecutor)])
def test_a_client_with_more_samples_may_have_fewer_steps(model: str, kind: type[StackedExecutor]):
    executor = kind(build(model, SHAPES[model], 10), dataset(SHAPES[model]), CPU, 1)
    local, start = (
        Local(lr=0.01, batch=4, steps=lambda n: max(1, 60 // n), optimizer="adam"),
        start_of(executor),
    )
    together = executor.train(jobs_of((40, 7, 20)), start, local, 0.01)
    assert together.steps.tolist() == [1, 8, 3]
    for j in range(3):
        alone = executor.train([jobs_of((40, 7, 20))[j]], start, local, 0.01)
        assert torch.equal(alone.updates[0], together.updates[j])
        assert alone.losses[0] == together.losses[j]


@given(
    dropouts=st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.25, 0.5, 1 - 2**-16, 1.0]),
            st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=4,
    ),
    batch=st.integers(1, 6),
    clients=st.integers(1, 20),
    steps=st.integers(1, 3),
)
@settings(deadline=None)
def test_packed_bits_are_what_numpy_draws(dropouts, batch, clients, steps):
    """Layers that begin and end anywhere in a word or a byte; and the generators move on as NumPy's own do."""
    ours, theirs = ([stream(k, "local") for k in range(clients)] for _ in range(2))
    packed = np.full((steps, clients, packed_size(dropouts, batch)), 7, np.uint8)
    kept_bits(ours, dropouts, batch, packed)
    for k, rng in enumerate(theirs):
        place = 0
        layers = split_bits(dropout_bits(rng, dropouts, batch, steps), dropouts, batch)
        for (p, _), numbers in zip(dropouts, layers, strict=True):
            expected = np.packbits(numbers >= round(p * 2**16) - 2**15, axis=1, bitorder="little")
            np.testing.assert_array_equal(packed[:, k, place : place + expected.shape[1]], expected)
            place += expected.shape[1]
        assert place == packed.shape[2]
    assert [rng.integers(2**40) for rng in ours] == [rng.integers(2**40) for rng in theirs]


def test_packed_bits_are_the_masks_of_the_contract():
    dropouts = [(0.2, (5, 3, 3)), (0.5, (7,))]  # 3 * 45 and 3 * 7 values: neither fills its last byte
    packed = np.empty((4, 1, 17 + 3), np.uint8)
    kept_bits([stream(0, "local")], dropouts, 3, packed)
    masks = dropout_masks(torch.from_numpy(dropout_bits(stream(0, "local"), dropouts, 3, 4)), dropouts, 3)
    bits = np.unpackbits(packed[:, 0], axis=1, bitorder="little")
    maps = bits[:, :135].reshape(4, 3, 3, 3, 5)
    np.testing.assert_array_equal(maps, masks[0].permute(0, 1, 3, 4, 2) > 0)
    np.testing.assert_array_equal(bits[:, 136:157].reshape(4, 3, 7), masks[1] > 0)


def test_packed_bits_need_the_generator_whose_steps_they_take():
    with pytest.raises(ValueError, match="SFC64"):
        kept_bits([np.random.default_rng(0)], [(0.5, (8,))], 1, np.empty((1, 1, 1), np.uint8))


def test_pooling_passes_what_torch_passes():
    """Ties go to the first cell; a rim that no square covers gets no gradient; NaN passes."""
    x = torch.randint(3, (2, 3, 4, 7, 6), generator=torch.Generator().manual_seed(0)).float()
    y, seen = Pooling().forward({}, x, 1)
    g = torch.rand(y.shape)
    truth = x.flatten(0, 1).requires_grad_()
    expected = nn.functional.max_pool2d(truth, 2)
    expected.backward(g.flatten(0, 1))
    assert torch.equal(y.flatten(0, 1), expected)
    assert torch.equal(Pooling().backward({}, g, seen, {}).flatten(0, 1), truth.grad)
    x[0, 0, 0, 1, 1] = torch.nan
    assert Pooling().forward({}, x, 1)[0].isnan().sum() == 1


# A card that is not there: recorded operations stand in for a CUDA graph


class Graph(TorchDispatchMode):
    """Records operations with the tensors that they read and write. A replay repeats them on the same memory.

    As in a CUDA graph, what the host computed meanwhile is not computed again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, out))
        return out

    def replay(self) -> None:
        for function, args, kwargs, out in self.operations:
            if function.is_view:
                continue
            for to, value in zip(tree_leaves(out), tree_leaves(function(*args, **kwargs)), strict=True):
                if isinstance(to, Tensor) and to is not value:
                    to.copy_(value)


class Stream:
    def __init__(self, *where: object) -> None:
        pass

    def wait_stream(self, other: Stream) -> None:
        pass


@pytest.fixture
def graphs(monkeypatch) -> list[Graph]:
    """CUDA graphs on a CPU; returns those that were captured."""
    made: list[Graph] = []

    @contextmanager
    def capture(graph: Graph, capture_error_mode: str):
        made.append(graph)
        with graph:
            yield

    for name, stand_in in {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "CUDAGraph": Graph,
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return made


@pytest.mark.parametrize("work", ["adam", "momentum", "halved", "adam-steps"])
def test_graphs_train_as_steps_do(work: str, graphs: list[Graph]):
    """In every round, also the first step of a graph that is captured late, after other jobs trained."""
    local, eager = WORK[work], executor_of("cs_cnn")
    executor, start = executor_of("cs_cnn"), start_of(eager)
    executor.captures = True
    for sizes in (SIZES, (9, 30), (20, *[7] * 9), SIZES):
        result, expected = (e.train(jobs_of(sizes), start, local, local.lr) for e in (executor, eager))
        assert torch.equal(result.updates, expected.updates)
        assert result.losses.tolist() == expected.losses.tolist()
    assert len(graphs) == 2  # for up to 8 jobs, and for 10 of them


def test_graphs_measure_as_the_loop(graphs: list[Graph], monkeypatch):
    """Full blocks of models and images through a graph, the rest of the images as they are."""
    monkeypatch.setattr(card, "IMAGES", 32)
    executor = executor_of("fedcor_cnn")
    executor.captures = True
    loop = ClientLoop(executor.chain, dataset(SHAPES["fedcor_cnn"]), CPU, 2)
    weights = start_of(executor, runs=5, noise=0.05)
    for n, rows in ((5, None), (5, [np.arange(3, 25)] * 5), (1, None), (3, None), (5, None)):
        measures = [e.evaluate(weights[:n], "train", rows and rows[:n]) for e in (executor, loop)]
        (losses, hits), (true_losses, true_hits) = measures
        np.testing.assert_allclose(losses, true_losses, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(hits, true_hits)
    assert len(graphs) == 2  # for four models, and for one


# A card that is not there: operations on tensors without content


class Operations(TorchDispatchMode):
    """Counts operations that run a kernel, and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if function.is_view or name in ("prim::device", "scalar_tensor", "detach", "_unsafe_view", "alias"):
            return out
        self.counts[name] += 1
        self.bytes += sum(map(held, tree_leaves((args, kwargs, out))))
        return out


def held(value: object) -> int:
    """The bytes of a tensor; an expanded axis counts once."""
    if not isinstance(value, Tensor):
        return 0
    return value.element_size() * math.prod(
        size for size, stride in zip(value.shape, value.stride(), strict=True) if stride
    )


@contextmanager
def fake_card():
    """HiCS-FL's CIFAR-10 network, its layout and the training set, on a GPU that only exists in shapes."""
    with FakeTensorMode(allow_non_fake_inputs=False):
        net = build("hics_cifar10_cnn", (3, 32, 32), 10)
        x = torch.zeros(50_000, 3072, device="cuda")
        yield net, Layout.of(net), x, torch.zeros(50_000, dtype=torch.int64, device="cuda")


def devices(static: MapStep | MapMeasure) -> set[str]:
    return {t.device.type for t in vars(static).values() if isinstance(t, Tensor)}


@pytest.fixture(scope="module")
def training() -> Operations:
    """One step of 64 clients of HiCS-FL's CIFAR-10 network, batch 64."""
    with fake_card() as (net, layout, x, y):
        step = MapStep(net, layout, (3, 32, 32), x, y, HICS, jobs=64, steps=8, bundle=4, shifted=True)
        index, count = (torch.zeros(5, 40, *size, dtype=torch.int64, device="cuda") for size in ((64,), ()))
        start, shift = (torch.zeros(40, layout.d, device="cuda") for _ in range(2))
        step.load(start, index, count, 0.001, shift)
        with Operations() as operations:
            step.step(64)
        assert devices(step) == {"cuda"}
    return operations


@pytest.fixture(scope="module")
def measuring() -> Operations:
    """As many images under as many models as are measured at a time."""
    with fake_card() as (net, layout, x, y):
        n = card.IMAGES // card.MODELS
        static = MapMeasure(net, layout, (3, 32, 32), card.MODELS, n, x.device)
        static.load(torch.zeros(2, layout.d, device="cuda"), x[:n], y[:n])
        with Operations() as operations:
            static.measure()
        assert devices(static) == {"cuda"}
    return operations


@pytest.mark.parametrize("phase", ["training", "measuring"])
def test_a_card_asks_the_host_for_nothing(phase: str, request: pytest.FixtureRequest):
    """Reading a value, or a size that depends on values, would stop the card; a copy would cross the bus."""
    counts = set(request.getfixturevalue(phase).counts)
    waits = {"_local_scalar_dense", "item", "nonzero", "masked_select", "unique", "is_nonzero"}
    assert not waits & counts
    adds_atomically = {
        *("max_pool2d_with_indices_backward", "unfold_backward"),
        *("scatter_add", "index_add", "index_put"),
    }
    assert not adds_atomically & counts


def test_a_card_stays_in_its_budget(training: Operations, measuring: Operations):
    """Before a compiler fuses them, which leaves the products of a step alone with 5.6 GB."""
    assert training.counts.total() <= 190
    assert training.bytes < 28e9
    assert measuring.counts.total() <= 70
    assert measuring.bytes < 9e9


@pytest.mark.slow
@pytest.mark.filterwarnings("error:steps are not compiled")
def test_what_is_compiled_equals_what_is_not(monkeypatch):
    """As a card runs it, but by the compiler's code for a CPU; fullgraph: nothing in a step falls back to Python."""
    monkeypatch.setattr(card, "IMAGES", 32)
    eager = executor_of("cs_cnn")
    local, start = WORK["decay-prox"], start_of(eager)
    compiled = CardExecutor(eager.chain, dataset(SHAPES["cs_cnn"]), CPU, 1, compiled=True)
    results = [e.train(jobs_of(SIZES), start, local, local.lr).updates for e in (eager, compiled)]
    for update, expected in zip(results[1], results[0], strict=True):
        assert relative_error(update, expected.double()) < 5e-5
    (losses, hits), (true_losses, true_hits) = (e.evaluate(start, "train") for e in (compiled, eager))
    np.testing.assert_allclose(losses, true_losses, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(hits, true_hits)
    assert compiled.compiled
