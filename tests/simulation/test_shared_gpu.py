"""Two groups of runs that use an executor in turns: the same numbers, and work beside each other."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from fedlib.samplers import SAMPLERS, Sampler, Selection, register
from fedlib.simulation import turns
from fedlib.simulation.engine import Lockstep
from fedlib.training.contract import Executor, Turns
from fedlib.training.executors import make_executor
from tests.simulation.lockstep import M, finish, go, run, same

WAIT = 60  # seconds, after which nobody comes any more


@pytest.fixture
def executor(tensors) -> Executor:
    executor = make_executor("logistic", tensors, threads=2)
    executor.turns = Turns(M, threading.Lock())
    return executor


@pytest.fixture
def sampler() -> Iterator[type[Sampler]]:
    """A registered sampler for a test to change."""

    class Changed(Sampler):
        def select(self, round):
            return Selection(np.arange(round.m))

    register("changed")(Changed)
    yield Changed
    SAMPLERS.pop("changed")


def test_numbers_do_not_depend_on_turns(partition, executor, tensors):
    """Of samplers that ask for updates, losses and gradients, and of algorithms with memories."""
    methods = {
        "uniform": {},
        "divfl": {},
        "power_of_choice": {"d": 5},
        "clustered_similarity": {},
        "hics_fl": {},
    }
    runs = [run(name, seed, method={"params": p}) for seed in (0, 1) for name, p in methods.items()]
    alone = make_executor("logistic", tensors)
    for group in (runs, [run(seed=seed, method={"algorithm": "scaffold"}) for seed in range(3)]):
        for together, each in zip(go(group, partition, executor), group, strict=True):
            same(together, go([each], partition, alone)[0])


def test_one_group_selects_while_the_other_trains(partition, executor, sampler):
    """The first group's training ends only after the second group has selected."""
    selected = threading.Event()
    train = executor.train

    def train_later(jobs, *arguments, **options):
        if jobs[0].draws[0] == 0:
            assert selected.wait(WAIT)
        return train(jobs, *arguments, **options)

    def select(self, round):
        if threading.current_thread() is not threading.main_thread():
            selected.set()
        return Selection(np.arange(round.m))

    executor.train, sampler.select = train_later, select
    Lockstep([run("changed", seed) for seed in (0, 1)], [partition] * 2, executor).advance()


def test_samplers_never_run_side_by_side(partition, executor, sampler):
    """Nor do calls of the executor."""
    selecting, training = threading.Lock(), threading.Lock()
    train = executor.train

    def train_alone(*arguments, **options):
        assert training.acquire(blocking=False)
        try:
            return train(*arguments, **options)
        finally:
            training.release()

    def select(self, round):
        assert selecting.acquire(blocking=False)
        threading.Event().wait(0.002)  # so that another thread could begin
        selecting.release()
        return Selection(np.arange(round.m))

    executor.train, sampler.select = train_alone, select
    lives = go([run("changed", seed, T=6) for seed in range(4)], partition, executor)
    assert [live.t for live in lives] == [6] * 4


def test_few_clients_are_one_group(partition, executor):
    """Two groups would not fill the device."""
    lockstep = Lockstep([run(seed=seed) for seed in range(3)], [partition] * 3, executor)
    assert turns.middle(lockstep.active, M) == 1
    assert turns.middle(lockstep.active, M + 1) is None  # the first would have one run
    assert turns.middle(lockstep.active[:1], 1) is None


@pytest.mark.parametrize("draw", [random.random, lambda: np.random.random(), lambda: torch.rand(1)])  # noqa: NPY002
def test_draws_from_global_generators_are_noticed_in_both_groups(draw, partition, executor, sampler):
    """The run whose sampler draws ends, whichever group it is in, and no other run does."""

    def select(self, round):
        draw()
        return Selection(np.arange(round.m))

    sampler.select = select
    runs = [run("changed", 0), run(seed=1), run(seed=2), run("changed", 3)]
    lockstep = Lockstep(runs, [partition] * 4, executor, strict=False)
    assert [live.failed is None for live in finish(lockstep)] == [False, True, True, False]
    assert all("global generator" in str(lockstep.live[i].failed) for i in (0, 3))


def test_an_error_of_the_executor_ends_the_round_of_both_groups(partition, executor):
    train = executor.train

    def broken(jobs, *arguments, **options):
        if jobs[0].draws[0] == 1:
            raise RuntimeError("out of memory")
        return train(jobs, *arguments, **options)

    executor.train = broken
    lockstep = Lockstep([run(seed=seed) for seed in (0, 1)], [partition] * 2, executor)
    with pytest.raises(RuntimeError, match="out of memory"):
        lockstep.advance()
    assert not executor.turns.host.locked()


class Stream:
    """Stands in for a CUDA stream, and writes down who waits for whom, and where work is done."""

    def __init__(self, log: list[tuple[str, ...]], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: Stream) -> None:
        self.log.append((self.name, "waits for", other.name))


class OnGPU:
    """An executor and its result, of which nothing but the streams is there."""

    device = torch.device("cuda")

    def __init__(self, log: list[tuple[str, ...]]) -> None:
        self.log, self.turns, self.updates = log, Turns(1, threading.Lock()), self

    def train(self) -> OnGPU:
        self.log.append(("train",))
        return self

    def record_stream(self, stream: Stream) -> None:
        self.log.append(("result is used by", stream.name))


def test_streams_wait_for_each_other(monkeypatch):
    """The GPU trains once the group's start is complete; the group reads the result once that is complete."""
    log: list[tuple[str, ...]] = []
    names = iter(["first", "second"])

    @contextmanager
    def inside(stream: Stream):
        log.append(("in", stream.name))
        yield
        log.append(("out of", stream.name))

    monkeypatch.setattr(torch.cuda, "Stream", lambda device, priority: Stream(log, next(names)))
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream(log, "default"))
    monkeypatch.setattr(torch.cuda, "stream", inside)
    shared = turns.SharedExecutor(OnGPU(log))  # ty: ignore[invalid-argument-type]
    shared.take_part(lambda group: shared.train(), [], shared.streams[1])
    assert log == [
        ("second", "waits for", "default"),
        ("in", "second"),
        ("default", "waits for", "second"),
        ("in", "default"),
        ("train",),
        ("result is used by", "second"),
        ("out of", "default"),
        ("second", "waits for", "default"),
        ("out of", "second"),
        ("default", "waits for", "second"),
    ]
    assert not shared.turns.host.locked()
