"""The variants of Power-of-Choice: whom they ask, whom they take, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlib.data import datasets, partition
from fedlib.data.schemes import find
from fedlib.samplers import Report, Sampler
from fedlib.samplers.power_of_choice import AdaPowD, CPowD, RPowD
from fedlib.settings.params import build, merge, split_method
from fedlib.simulation.engine import Lockstep
from fedlib.streams import stream
from fedlib.training.executors import make_executor

from .contract import SamplerContract, federation

SETTING: dict[str, Any] = {
    "dataset": "synthetic_1_1",
    "partition": {"scheme": "owners"},
    "model": "logistic",
    "N": 30,
    "m": 3,
    "T": 4,
    "local": {"lr": 0.05, "batch": 50, "steps": 5},
    "evaluate": {"every": 4},
}


class TestRPowD(SamplerContract):
    def make(self) -> Sampler:
        return RPowD(d=12)


class TestAdaPowD(SamplerContract):
    def make(self) -> Sampler:
        return AdaPowD()


def lockstep(sampler: dict[str, Any], **changes: Any) -> Lockstep:
    run = build(merge(SETTING, split_method(sampler) | changes), 0, "run")
    data = datasets.load(run.dataset)
    parts = partition.make(run.partition, data, run.N, run.seed)
    return Lockstep([run], [parts], make_executor(run.model, datasets.tensors(data), "cpu"))


def rows(sampler: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    made = lockstep(sampler, **changes)
    while made.active:
        made.advance()
    return made.live[0].rows[1:]


def test_a_batch_as_large_as_the_clients_data_is_their_loss() -> None:
    whole = rows({"sampler": "power_of_choice", "d": 9})
    same = rows({"sampler": "cpow_d", "d": 9, "batch": 10_000})
    assert [row["clients"] for row in same] == [row["clients"] for row in whole]
    assert [row["samples_evaluated"] for row in same] == [row["samples_evaluated"] for row in whole]


def test_cpow_d_computes_on_a_batch_only_and_a_batch_is_the_seeds() -> None:
    few, again = (rows({"sampler": "cpow_d", "d": 9, "batch": 5}) for _ in range(2))
    assert [row["samples_evaluated"] for row in few] == [9 * 5] * 4
    assert [row["scalars_up"] for row in few] == [9] * 4
    assert [row["clients"] for row in few] == [row["clients"] for row in again]


def test_rpow_d_asks_nobody_and_takes_those_that_never_trained_first() -> None:
    told = rows({"sampler": "rpow_d", "d": 30}, T=11)
    assert all(row["scalars_up"] == 0 == row["samples_evaluated"] for row in told)
    seen = [k for row in told[:10] for k in row["clients"]]
    assert sorted(seen) == list(range(30)), "each of 30 clients once, three a round"


def test_rpow_d_takes_the_highest_of_what_was_reported() -> None:
    fed, sampler = federation(), RPowD(d=12)
    sampler.setup(fed, stream(0, "setup"))
    reported = np.random.default_rng(0).permutation(12).astype(float)
    round = fed.round(1, stream(0, "select", 1))
    sampler.observe(round, Report(fed.everyone, np.zeros((12, fed.d)), reported))
    assert sampler.select(round).clients.tolist() == np.argsort(-reported)[:4].tolist()
    diverged = np.where(fed.everyone == 5, np.nan, reported)
    sampler.observe(round, Report(fed.everyone, np.zeros((12, fed.d)), diverged))
    assert sampler.select(round).clients[0] == 5, "a loss that is not finite counts as the highest"


def test_adapow_d_asks_everyone_for_half_of_the_rounds() -> None:
    told = rows({"sampler": "adapow_d"})
    assert [row["scalars_up"] for row in told] == [30, 30, 0, 0]


@pytest.mark.parametrize("cls", [CPowD, RPowD])
@pytest.mark.parametrize("d", [1, 99])
def test_d_lies_between_m_and_N(cls: type[Sampler], d: int) -> None:
    with pytest.raises(ValueError, match=f"d = {d} must lie between"):
        cls(d=d).setup(federation(), stream(0, "setup"))


def test_owners_are_the_clients_of_the_data() -> None:
    data = datasets.load("synthetic_1_1")
    parts = find("owners")().split(data, 30, stream(0, "partition"))
    assert all((data.owner_train[part] == k).all() for k, part in enumerate(parts.train))
    assert sum(map(len, parts.train)) == len(data.y_train)
