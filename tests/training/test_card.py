"""The executor for plain CNNs on a GPU, on a CPU: equal to the loop over clients, and never waiting for the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedlib.settings.schema import Local
from fedlib.streams import stream
from fedlib.training import card
from fedlib.training.card import CardExecutor
from fedlib.training.chain import Chain, torch_default
from fedlib.training.contract import Job, dropout_bits, dropout_masks
from fedlib.training.layout import Layout
from fedlib.training.looped import ClientLoop
from fedlib.training.maps import MapStep, Pooling, kept_bits, takes
from fedlib.training.models import build
from fedlib.training.stacked import StackedExecutor
from tests.reference import Reference, relative_error
from tests.training.test_contract import (
    CPU,
    SHAPES,
    SIZES,
    WORK,
    check,
    check_measures,
    dataset,
    jobs_of,
    start_of,
)

CNNS = ["cs_cnn", "fedcor_cnn", "hics_cifar10_cnn"]
HICS = Local(lr=0.001, batch=64, epochs=2, optimizer="adam", mu=0.1)


def executor_of(model: str) -> CardExecutor:
    return CardExecutor(build(model, SHAPES[model], 10), dataset(SHAPES[model]), CPU, 2)


@pytest.mark.parametrize(
    ("model", "work"), [("cs_cnn", "momentum"), ("fedcor_cnn", "adam"), ("cs_cnn", "halved")]
)
def test_static_steps_train_as_the_reference(model: str, work: str):
    executor = executor_of(model)
    reference = Reference(executor.chain, dataset(SHAPES[model]))
    check(executor, reference, WORK[work], shifted=work == "momentum")


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
    assert [model for model in SHAPES if takes(build(model, SHAPES[model], 10))] == CNNS
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


def test_packed_bits_are_the_masks_of_the_contract():
    dropouts = [(0.2, (5, 3, 3)), (0.5, (7,))]  # 3 * 45 and 3 * 7 values: neither fills its last byte
    packed = kept_bits(stream(0, "local"), dropouts, 3, 4)
    masks = dropout_masks(torch.from_numpy(dropout_bits(stream(0, "local"), dropouts, 3, 4)), dropouts, 3)
    assert packed.shape == (4, 17 + 3)
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    maps = bits[:, :135].reshape(4, 3, 3, 3, 5)
    np.testing.assert_array_equal(maps, masks[0].permute(0, 1, 3, 4, 2) > 0)
    np.testing.assert_array_equal(bits[:, 136:157].reshape(4, 3, 7), masks[1] > 0)


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


@pytest.fixture(scope="module")
def on_a_card() -> Operations:
    """One step of 64 clients of HiCS-FL's CIFAR-10 network, batch 64, on a GPU that only exists in shapes."""
    with FakeTensorMode(allow_non_fake_inputs=False):
        net = build("hics_cifar10_cnn", (3, 32, 32), 10)
        x = torch.zeros(50_000, 3072, device="cuda")
        y = torch.zeros(50_000, dtype=torch.int64, device="cuda")
        step = MapStep(net, Layout.of(net), (3, 32, 32), x, y, HICS, jobs=64, steps=8, bundle=4, shifted=True)
        with Operations() as operations:
            step.step(64)
        assert {t.device.type for t in vars(step).values() if isinstance(t, Tensor)} == {"cuda"}
    return operations


def test_a_step_asks_the_host_for_nothing(on_a_card: Operations):
    """Reading a value, or a size that depends on values, would stop the card; a copy would cross the bus."""
    waits = {
        "_local_scalar_dense",
        "item",
        "nonzero",
        "masked_select",
        "unique",
        "_to_copy_host",
        "is_nonzero",
    }
    assert not waits & set(on_a_card.counts)
    adds_atomically = {
        "max_pool2d_with_indices_backward",
        "scatter_add",
        "index_add",
        "index_put",
        "unfold_backward",
    }
    assert not adds_atomically & set(on_a_card.counts)


def test_a_step_stays_in_its_budget(on_a_card: Operations):
    """Before a compiler fuses them, which leaves the products alone with 5.6 GB."""
    assert on_a_card.counts.total() <= 190
    assert on_a_card.bytes < 28e9


@pytest.mark.slow
@pytest.mark.filterwarnings("error:steps are not compiled")
def test_a_compiled_step_equals_an_eager_one():
    """As a card runs it, but by the compiler's code for a CPU; fullgraph: nothing in a step falls back to Python."""
    eager = executor_of("cs_cnn")
    local, start = WORK["decay-prox"], start_of(eager)
    compiled = CardExecutor(eager.chain, dataset(SHAPES["cs_cnn"]), CPU, 1, compiled=True)
    results = [e.train(jobs_of(SIZES), start, local, local.lr).updates for e in (eager, compiled)]
    for update, expected in zip(results[1], results[0], strict=True):
        assert relative_error(update, expected.double()) < 5e-5
