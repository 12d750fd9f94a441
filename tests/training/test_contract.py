"""Local training: what jobs draw, and both executors beside the plain reference."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedlib.data.datasets import Dataset, Tensors, tensors
from fedlib.errors import ConfigError
from fedlib.settings.schema import Local
from fedlib.streams import stream
from fedlib.training import looped, stacked
from fedlib.training.chain import Chain, torch_default
from fedlib.training.compiled import CompiledExecutor
from fedlib.training.contract import Job, batches_of, draw_batches, dropout_bits, dropout_masks
from fedlib.training.executors import make_executor
from fedlib.training.looped import ClientLoop
from fedlib.training.loops import samples
from fedlib.training.models import build
from fedlib.training.serial import BLOCK
from fedlib.training.stacked import StackedExecutor
from tests.reference import Reference, relative_error

CPU = torch.device("cpu")
SHAPES = {
    "logistic": (1, 8, 8),
    "mlp": (1, 8, 8),
    "fedcor_mlp": (1, 8, 8),
    "cs_cnn": (3, 18, 18),
    "fedcor_cnn": (1, 18, 18),
    "hics_cifar10_cnn": (1, 18, 18),
    "hics_fmnist_cnn": (1, 16, 16),
}
DENSE = ["logistic", "mlp", "fedcor_mlp"]
CNNS = [model for model in SHAPES if model not in DENSE]
WORK = {
    "steps": Local(lr=0.05, batch=8, steps=4),
    "epochs": Local(lr=0.05, batch=8, epochs=2),
    "decay-prox": Local(lr=0.05, batch=8, epochs=2, weight_decay=0.02, mu=0.3),
    "momentum": Local(lr=0.05, batch=8, epochs=2, momentum=0.9, weight_decay=0.02, mu=0.3),
    "adam": Local(lr=0.001, batch=8, epochs=2, optimizer="adam", weight_decay=0.02, mu=0.3),
    "halved": Local(lr=0.1, batch=8, epochs=2, halve_every=3, weight_decay=0.02, mu=0.3),
    "adam-steps": Local(lr=0.001, batch=8, steps=3, optimizer="adam"),
}
SIZES = (20, 7, 33)  # a partial batch in each epoch; a client smaller than a batch; several steps more


def dataset(shape: tuple[int, ...], n: int = 60) -> Tensors:
    """Ten noisy prototypes."""
    rng = np.random.default_rng(7)
    y = np.arange(n) % 10
    x = 0.5 * (rng.normal(size=(10, *shape))[y] + rng.normal(size=(n, *shape)))
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    return Tensors(x, y, x[:23] + 0.1, y[:23])


def jobs_of(sizes: tuple[int, ...], n: int = 60) -> list[Job]:
    """Two runs in turn."""
    own = [np.random.default_rng(j).integers(n, size=size) for j, size in enumerate(sizes)]
    return [Job(j % 2, samples, stream(0, "local", 1, j)) for j, samples in enumerate(own)]


def start_of(executor, runs: int = 2, noise: float = 0.01, seed: int = 0) -> torch.Tensor:
    """Fresh models, moved a little so that nothing is zero."""
    w = torch.stack([executor.initial(stream(r, "init")).cpu() for r in range(runs)])
    w = w + noise * torch.randn(w.shape, generator=torch.Generator().manual_seed(seed))
    w[:, executor.layout.n_trainable :].abs_()  # variances
    return w.to(executor.device)


def check(
    executor,
    reference: Reference,
    local: Local,
    shifted: bool = False,
    moon: bool = False,
    tolerance: float = 5e-5,
) -> None:
    """The executor's jobs end as the reference's do."""
    start = start_of(executor)
    linear = (
        0.1 * torch.randn(3, executor.layout.d, generator=torch.Generator().manual_seed(1))
        if shifted
        else None
    )
    previous = start_of(executor, noise=0.05, seed=2)[[0, 1, 0]] if moon else None
    there = None if linear is None else linear.to(executor.device)
    trained = executor.train(jobs_of(SIZES), start, local, local.lr, there, previous)
    start, previous = start.cpu(), None if previous is None else previous.cpu()
    if local.optimizer == "adam":
        tolerance = 1e-3  # Adam magnifies the rounding of gradients near 0
    for j, job in enumerate(jobs_of(SIZES)):
        rows = [None if t is None else t[j] for t in (linear, previous)]
        update, loss, steps = reference.train(job, start[job.run], local, local.lr, *rows)
        assert relative_error(trained.updates[j], update) < tolerance
        assert trained.losses[j] == pytest.approx(loss, rel=1e-4)
        assert trained.steps[j] == steps


@pytest.mark.parametrize("kind", [StackedExecutor, CompiledExecutor])
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("model", DENSE)
def test_dense_models_train_as_the_reference(model, work, kind):
    data = dataset(SHAPES[model])
    net = build(model, SHAPES[model], 10)
    executor = kind(net, data, CPU, 2)
    check(executor, Reference(net, data), WORK[work])
    check(executor, Reference(net, data), WORK[work], shifted=True)


@pytest.mark.parametrize("model", DENSE)
@pytest.mark.parametrize("classes", [2, 7, 13])
def test_layers_of_any_size(model, classes):
    """The compiled products take outputs by fours and fives, inputs by whole registers, and what is left."""
    data = dataset((1, 3, 7))
    data = replace(data, y_train=data.y_train % classes, y_test=data.y_test % classes)
    net = build(model, (1, 3, 7), classes)
    check(CompiledExecutor(net, data, CPU, 2), Reference(net, data), WORK["epochs"])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("scaling", "channels"), [("unit", 1), ("mnist", 1), ("cifar", 3)])
def test_pixels_are_what_they_stand_for(scaling, channels, channels_last):
    rng = np.random.default_rng(3)
    x = rng.integers(256, size=(60, channels, 18, 19), dtype=np.uint8)
    y = np.arange(60) % 10
    data = tensors(Dataset("cifar10", x, y, x[:23], y[:23], (), "", ""), scaling)
    net = build("cs_cnn" if channels_last else "mlp", (channels, 18, 19), 10)
    stored, scale, shift = samples(data, channels_last)
    assert stored.dtype == np.uint8
    expected = data.x_train.permute(0, 2, 3, 1) if channels_last else data.x_train
    np.testing.assert_allclose(stored * scale + shift, expected.flatten(1), rtol=1e-5, atol=1e-6)
    executor = make_executor("cs_cnn" if channels_last else "mlp", data, threads=2)
    check(executor, Reference(net, data), WORK["epochs"])
    weights = start_of(executor, runs=1)
    everyone, some = executor.evaluate(weights, "train"), executor.evaluate(weights, "train", [np.arange(60)])
    np.testing.assert_array_equal(everyone[0][0], some[0][0])


def test_one_models_divergence_is_not_the_next_ones():
    """A model that is not finite leaves nothing behind in what the next one computes with, also in partial batches."""
    data = dataset(SHAPES["mlp"])
    executor = make_executor("mlp", data, threads=1)
    start = start_of(executor)
    alone = executor.train(jobs_of(SIZES), start, WORK["epochs"], 0.05).updates
    start[0] = torch.inf
    trained = executor.train(jobs_of(SIZES), start, WORK["epochs"], 0.05)
    assert not torch.isfinite(trained.updates[[0, 2]]).any(1).all()
    assert torch.equal(trained.updates[1], alone[1])
    assert np.isnan(trained.losses[[0, 2]]).all()


@pytest.mark.parametrize(
    ("model", "work"),
    [
        *itertools.product(CNNS, ["steps", "momentum", "adam", "halved"]),
        *itertools.product(["mlp", "fedcor_mlp"], WORK),
    ],
)
def test_loop_trains_as_the_reference(model, work):
    data = dataset(SHAPES[model])
    net = build(model, SHAPES[model], 10)
    check(ClientLoop(net, data, CPU, 2), Reference(net, data), WORK[work], shifted=work == "momentum")


@pytest.mark.parametrize("moon", [False, True])
def test_loop_trains_any_layers(moon):
    """Those that have no pass of their own, those that have one in another order, maps that squares do not tile."""
    layers = [
        *(nn.Conv2d(3, 5, 3, stride=2, padding=1), nn.Dropout(0.3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(5, 6, 3, padding="same"), nn.BatchNorm2d(6), nn.PReLU(6), nn.MaxPool2d(2, stride=1)),
        *(nn.Conv2d(6, 4, 2, padding=1), nn.PReLU(4), nn.BatchNorm2d(4), nn.AvgPool2d(2), nn.Sigmoid()),
        *(nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 10)),
    ]
    net = Chain(*layers, fill=torch_default)
    net.dropouts = [(0.3, (5, 11, 11)), (0.2, (4, 1, 1))]
    data = dataset((3, 22, 22))
    local = Local(lr=0.05, batch=8, epochs=2, mu=1.0) if moon else WORK["momentum"]
    check(ClientLoop(net, data, CPU, 2), Reference(net, data), local, moon=moon)


@pytest.mark.parametrize(
    ("model", "work"),
    [
        *itertools.product(CNNS, ["epochs", "adam"]),
        ("cs_cnn", "steps"),
        ("cs_cnn", "momentum"),
        ("cs_cnn", "halved"),
    ],
)
def test_stack_of_modules_trains_as_the_reference(model, work):
    data = dataset(SHAPES[model])
    net = build(model, SHAPES[model], 10)
    check(StackedExecutor(net, data, CPU, 2), Reference(net, data), WORK[work], shifted=work == "momentum")


@pytest.mark.parametrize("kind", [ClientLoop, StackedExecutor])
@pytest.mark.parametrize("model", ["fedcor_mlp", "cs_cnn", "hics_fmnist_cnn"])
def test_moon(model, kind):
    data = dataset(SHAPES[model])
    net = build(model, SHAPES[model], 10)
    check(kind(net, data, CPU, 2), Reference(net, data), Local(lr=0.05, batch=8, epochs=2, mu=1.0), moon=True)


@pytest.mark.parametrize(
    ("model", "kind"), [*itertools.product(SHAPES, [StackedExecutor]), *itertools.product(CNNS, [ClientLoop])]
)
def test_gradients_and_evaluation(model, kind):
    data = dataset(SHAPES[model])
    net = build(model, SHAPES[model], 10)
    check_measures(kind(net, data, CPU, 2), Reference(net, data))


def check_measures(executor, reference: Reference) -> None:
    """The executor's gradients, losses and hits are the reference's."""
    start = start_of(executor)
    gradients = executor.gradients(jobs_of(SIZES), start, 8)
    for mine, job in zip(gradients, jobs_of(SIZES), strict=True):
        assert relative_error(mine, reference.gradient(job, start[job.run].cpu(), 8)) < 1e-5
    for split, rows in (
        ("test", None),
        ("train", None),
        ("train", [np.array([4, 4, 0]), np.arange(50)[::-1]]),
        ("train", [np.array([7, 0, 3]), np.array([7, 0, 3])]),
        ("train", [np.array([], int), np.arange(60)]),
    ):
        losses, correct = executor.evaluate(start, split, rows)
        for r in range(2):
            loss, hit = reference.evaluate(start[r].cpu(), split, None if rows is None else rows[r].copy())
            assert losses[r].dtype == np.float32
            assert losses[r] == pytest.approx(loss, rel=1e-4, abs=1e-5)
            assert correct[r].tolist() == hit.tolist()


@pytest.mark.parametrize("model", CNNS)
@pytest.mark.parametrize("n", [0, 1, looped.PART, looped.PART + 1, 3 * looped.PART + 12, BLOCK + 3])
def test_samples_in_parts_are_measured_as_all_at_once(model, n, monkeypatch):
    """The parts that a CNN on a CPU measures join as one pass over the samples, in their order."""
    executor = ClientLoop(build(model, SHAPES[model], 10), dataset(SHAPES[model]), CPU, 2)
    start, rows = start_of(executor), [np.random.default_rng(r).integers(60, size=n) for r in range(2)]
    losses, correct = executor.evaluate(start, "train", rows)
    monkeypatch.setattr(looped, "PART", BLOCK)
    for mine, whole in zip(
        (*losses, *correct), sum(executor.evaluate(start, "train", rows), []), strict=True
    ):
        assert len(mine) == n
        np.testing.assert_allclose(mine, whole, rtol=1e-5, atol=1e-6)  # the same bits on some machines


@pytest.mark.parametrize("model", ["logistic", "mlp", "fedcor_mlp", "cs_cnn"])
@pytest.mark.parametrize("work", ["steps", "decay-prox"])
def test_a_job_does_not_depend_on_its_company(model, work, monkeypatch):
    """Bit for bit: other jobs, their order, chunks and threads leave no trace."""
    data, local = dataset(SHAPES[model]), WORK[work]
    sizes = (20, 7, 33, 20, 8, 50, 20, 20, 41, 3)
    runs = {}
    for threads, chunk, subset in (
        (2, 8, range(10)),
        (1, 3, range(9, -1, -1)),
        (3, 1, [5, 2, 9]),
        (1, 16, [4]),
    ):
        monkeypatch.setattr(stacked, "CHUNK", chunk)
        executor = make_executor(model, data, threads=threads)
        jobs = jobs_of(sizes)
        trained = executor.train([jobs[j] for j in subset], start_of(executor), local, local.lr)
        for j, update, loss in zip(subset, trained.updates, trained.losses, strict=True):
            runs.setdefault(j, (update, loss))
            assert torch.equal(update, runs[j][0])
            assert loss == runs[j][1]


@pytest.mark.parametrize("model", ["logistic", "mlp", "fedcor_mlp"])
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("shifted", [False, True])
def test_shared_batches_leave_no_trace(model, work, shifted, monkeypatch):
    """Bit for bit: a client that several runs train gives each of them what it gives it alone."""
    data, local = dataset(SHAPES[model]), WORK[work]
    sizes, runs = (20, 7, 33, 50, 3, 20, 41, 20, 9, 8), 4
    samples = [np.random.default_rng(k).integers(60, size=size) for k, size in enumerate(sizes)]
    trains = [(run, k) for run in range(runs) for k in range(len(sizes)) if k % runs <= run]
    jobs = [Job(run, samples[k], stream(0, "local", 1, k), draws=k) for run, k in trains]
    executor = make_executor(model, data, threads=2)
    start = start_of(executor, runs)
    linear = 0.1 * torch.randn(len(jobs), executor.layout.d, generator=torch.Generator().manual_seed(1))
    trained = executor.train(jobs, start, local, local.lr, linear if shifted else None)
    for j, (run, k) in enumerate(trains):
        job = Job(run, samples[k], stream(0, "local", 1, k))
        alone = executor.train([job], start, local, local.lr, linear[j : j + 1] if shifted else None)
        assert torch.equal(alone.updates[0], trained.updates[j])
        assert (alone.losses[0], alone.steps[0]) == (trained.losses[j], trained.steps[j])


def test_workers_leave_the_callers_threads_alone():
    before = torch.get_num_threads()
    executor = make_executor("mlp", dataset((1, 8, 8)), threads=3)
    executor.train(jobs_of(SIZES), start_of(executor), WORK["steps"], 0.05)
    assert torch.get_num_threads() == before


def test_divergence_is_a_result():
    executor = make_executor("mlp", dataset((1, 8, 8)), threads=1)
    trained = executor.train(jobs_of(SIZES), start_of(executor), Local(lr=1e29, batch=8, steps=9), 1e29)
    assert not torch.isfinite(trained.updates).all()


# What a job draws


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    batch=st.integers(1, 25),
    steps=st.integers(1, 5),
)
def test_steps_draw_distinct_samples(sizes, batch, steps):
    jobs = [Job(0, 1000 * j + np.arange(n), stream(0, "local", j)) for j, n in enumerate(sizes)]
    drawn = draw_batches(jobs, batch, steps=steps)
    assert drawn.index.shape == (steps, len(jobs), batch)
    assert drawn.steps.tolist() == [steps] * len(jobs)
    for j, n in enumerate(sizes):
        for s in range(steps):
            own = drawn.index[s, j, : drawn.count[s, j]]
            assert len(own) == min(batch, n)
            assert len(set(own)) == len(own)
            assert set(drawn.index[s, j]) <= set(jobs[j].samples)  # what fills up is the client's too
    alone = draw_batches([Job(0, jobs[-1].samples, stream(0, "local", len(sizes) - 1))], batch, steps=steps)
    assert (alone.index[:, 0] == drawn.index[:, -1]).all()


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    batch=st.integers(1, 25),
    epochs=st.integers(1, 3),
)
def test_epochs_pass_over_every_sample(sizes, batch, epochs):
    jobs = [Job(0, 1000 * j + np.arange(n), stream(0, "local", j)) for j, n in enumerate(sizes)]
    drawn = draw_batches(jobs, batch, epochs=epochs)
    for j, n in enumerate(sizes):
        length = -(-n // batch)
        assert drawn.steps[j] == epochs * length
        assert not drawn.count[drawn.steps[j] :, j].any()
        for e in range(epochs):
            own = range(e * length, (e + 1) * length)
            seen = np.concatenate([drawn.index[s, j, : drawn.count[s, j]] for s in own])
            assert sorted(seen) == jobs[j].samples.tolist()
            assert drawn.count[own, j].tolist()[:-1] == [batch] * (length - 1)


@given(n=st.integers(1, 60), batch=st.integers(1, 25), amount=st.integers(1, 4))
def test_the_stated_work_is_what_is_drawn(n, batch, amount):
    """Steps and samples of all batches, for every way of stating an amount of work."""
    ways = (
        {"steps": amount},
        {"steps": lambda n: 1 + n // 7},
        {"epochs": amount},
        {"epochs": amount, "drop_last": True},
    )
    for way in ways:
        local = Local(lr=0.1, batch=batch, **way)
        drawn = batches_of([Job(0, np.arange(n), stream(0, "local"))], local)
        assert local.work(n) == (drawn.steps[0], drawn.count.sum())


@pytest.mark.parametrize(
    ("way", "work"),
    [
        ({"steps": 3}, (3, 30)),
        ({"steps": lambda n: n // 5}, (5, 50)),
        ({"epochs": 2}, (6, 50)),
        ({"epochs": 2, "drop_last": True}, (4, 40)),
    ],
)
def test_the_work_of_25_samples_in_batches_of_10(way, work):
    assert Local(lr=0.1, batch=10, **way).work(25) == work


@pytest.mark.bad_input
@pytest.mark.parametrize("steps", [0, 2.5, None])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    local = Local(lr=0.1, batch=10, steps=lambda n: steps)
    with pytest.raises(
        ConfigError, match=r"local.steps returns .* for 25 samples; it must be a whole number"
    ):
        local.work(25)


@pytest.mark.bad_input
def test_a_device_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device, message in (("gpu", "it must be cpu or cuda"), ("cuda", "but torch finds no GPU")):
        with pytest.raises(ConfigError, match=f"device is '{device}'.*{message}"):
            make_executor("mlp", dataset((1, 8, 8)), device)


def test_batches_are_uniform_over_subsets():
    """All 10 pairs of 5 samples, each in a tenth of 4000 batches: chi-square with 9 degrees of freedom."""
    drawn = draw_batches([Job(0, np.arange(5), stream(0, "local"))], 2, steps=4000)
    pairs, counts = np.unique(np.sort(drawn.index[:, 0], axis=1), axis=0, return_counts=True)
    assert len(pairs) == 10
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # exceeded once in a thousand


def test_mean_loss_is_over_the_last_epoch():
    drawn = draw_batches([Job(0, np.arange(5), stream(0, "local"))], 3, epochs=2)
    loss = np.array([9.0, 9.0, 1.0, 2.0])  # two epochs of batches of 3 and 2
    assert drawn.mean_loss(0, loss, 2) == pytest.approx((3 * 1 + 2 * 2) / 5)
    assert drawn.mean_loss(0, loss, None) == pytest.approx((3 * 9 + 2 * 9 + 3 * 1 + 2 * 2) / 10)


def test_dropout_masks_keep_what_they_should():
    dropouts = [(0.2, (16, 9, 9)), (0.5, (50,))]
    bits = torch.from_numpy(dropout_bits(stream(0, "local"), dropouts, 8, 3))
    maps, units = dropout_masks(bits, dropouts, 8)
    assert maps.shape == (3, 8, 16, 9, 9)
    assert units.shape == (3, 8, 50)
    assert set(maps.unique().tolist()) == {0.0, 1.25}
    assert set(units.unique().tolist()) == {0.0, 2.0}
    assert float(maps.mean()) == pytest.approx(1, abs=0.01)  # 31 104 draws: standard error 0.003
    assert float(units.mean()) == pytest.approx(1, abs=0.1)  # 1 200 draws: standard error 0.03
    one_by_one = stream(0, "local")
    again = np.concatenate([dropout_bits(one_by_one, dropouts, 8, 1) for _ in range(3)])
    assert (again == bits.numpy()).all()
