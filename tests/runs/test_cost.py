"""Estimates of time: work is counted exactly, and shared among workers as a cluster shares it."""

from __future__ import annotations

import pytest
from test_faults import runs as runs  # the fixture

from fedlib.data.schemes import DirichletClients, OneClass
from fedlib.runs import cost
from fedlib.samplers import SAMPLERS
from fedlib.settings import params
from fedlib.settings.schema import Method, Until


@pytest.mark.parametrize(
    ("seconds", "workers", "expected"),
    [([3, 1, 2], 1, 6), ([3, 1, 2], 2, 3), ([5, 4, 3, 3, 3], 2, 10), ([3, 1, 2], 9, 3), ([], 4, 0)],
)
def test_jobs_are_dealt_to_whoever_is_free_the_longest_first(seconds, workers, expected) -> None:
    assert cost.makespan(seconds, workers) == expected


def test_twice_the_rounds_take_twice_the_time(runs) -> None:
    twice = runs[0].model_copy(update={"T": 2 * runs[0].T})
    assert cost.core_seconds(runs[0]) > 0
    assert cost.core_seconds(twice) == pytest.approx(2 * cost.core_seconds(runs[0]))


def test_early_ends_and_seldom_losses_are_known(runs, monkeypatch) -> None:
    monkeypatch.setattr(cost, "measured", lambda *_, **__: cost.Speed(step=0.0, sample=1.0))
    run = runs[0].model_copy(
        update={"T": 80}
    )  # measured every 4 rounds: 1,437 images that train and 360 that test
    assert cost.seconds(run) == 20 * (1437 + 360)
    seldom = run.evaluate.model_copy(update={"train_every": 16})
    assert cost.seconds(run.model_copy(update={"evaluate": seldom})) == 5 * 1437 + 20 * 360
    until = run.model_copy(update={"until": Until(test_accuracy=0.5, least=20)})
    assert cost.seconds(until) == cost.seconds(run)
    assert cost.seconds(cost.shortest(until)) == cost.seconds(run) / 4
    assert cost.shortest(run) is run


@pytest.mark.parametrize(
    ("sampler", "single", "whole"),
    [("md", 0, 3), ("importance_mean", 0, 10), ("divfl", 10, 3), ("full", 0, 10)],
)
def test_who_is_asked_is_counted(runs, sampler, single, whole) -> None:
    method = runs[0].method.model_copy(update={"sampler": sampler})
    assert cost.asking(method.model_dump_json(), runs[0].N, runs[0].m) == (single, whole)


def test_the_cost_of_every_algorithm_is_known() -> None:
    methods = {one.run.method.algorithm: one.run.method for one in params.load().runs("arena_common", "demo")}
    assert len(methods) > 3
    for method in methods.values():
        assert sum(cost.asking(method.model_dump_json(), 20, 4)) >= 4, method


@pytest.mark.parametrize(("holdout", "steps"), [(0.0, 30), (0.2, 24)])
def test_what_is_held_out_is_not_trained_on(runs, holdout, steps) -> None:
    """Of 600 samples, 480 are left."""
    partition = OneClass(scheme="one_class", n=600, n_test=10)
    local = runs[0].local.model_copy(update={"steps": None, "epochs": 1, "batch": 20})
    run = runs[0].model_copy(update={"partition": partition, "local": local, "holdout": holdout})
    assert cost.local_steps(run) == steps


def test_a_dropped_batch_is_no_step(runs) -> None:
    """Of 25 samples in batches of 10, two full batches are left; of 5 samples, their only one."""
    partition = DirichletClients(alpha=1.0, sizes=[(2, 5), (2, 25)])
    local = runs[0].local.model_copy(update={"steps": None, "epochs": 2, "batch": 10, "drop_last": True})
    run = runs[0].model_copy(update={"partition": partition, "local": local, "N": 4})
    assert cost.local_steps(run) == 2 * (2 * 1 + 2 * 2) / 4


def test_clients_of_unequal_sizes_do_their_own_numbers_of_steps(runs) -> None:
    partition = DirichletClients(alpha=1.0, sizes=[(2, 5), (2, 25)])
    local = runs[0].local.model_copy(update={"steps": None, "epochs": 2, "batch": 10})
    run = runs[0].model_copy(update={"partition": partition, "local": local, "N": 4})
    assert cost.local_steps(run) == 2 * (2 * 1 + 2 * 3) / 4


@pytest.mark.parametrize("sampler", sorted(SAMPLERS))
def test_the_cost_of_every_sampler_is_known(sampler: str) -> None:
    """Also of one that asks for losses on samples that only the server has."""
    single, whole = cost.asking(Method(sampler=sampler).model_dump_json(), 30, 10)
    assert single >= 0
    assert whole >= 1
