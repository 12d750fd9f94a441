"""Partitions as given: what is kept comes back, trains as any other, and is addressed by what it holds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fedlib.data import datasets, partition
from fedlib.data.schemes import given
from fedlib.data.schemes.given import GivenPartition
from fedlib.digests import address_of
from fedlib.errors import ConfigError
from fedlib.settings.schema import Local, Method, Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor

DIGITS = SimpleNamespace(y_train=np.arange(40) % 4, y_test=np.arange(8) % 4)
CLIENTS = [[3, 1, 2], [7, 11], [5]]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(given, "PARTITIONS", tmp_path)


def test_what_is_kept_comes_back_for_every_seed() -> None:
    spec = given.keep(CLIENTS, test=[[0], [1], [2, 3]])
    for seed in (0, 1):
        part = partition.make(spec, DIGITS, 3, seed)
        assert [list(one) for one in part.train] == [[1, 2, 3], [7, 11], [5]]
        assert [list(one) for one in part.test] == [[0], [1], [2, 3]]
        assert part.holdout is None
        assert part.sizes.tolist() == [3, 2, 1]


def test_a_given_holdout_counts_and_a_drawn_one_may_be_asked_for() -> None:
    part = partition.make(given.keep(CLIENTS, holdout=[[0], [4], [8]]), DIGITS, 3, 0)
    assert part.sizes.tolist() == [4, 3, 2]
    assert [list(one) for one in part.asked] == [[0], [4], [8]]
    drawn = partition.make(given.keep([range(10), range(10, 20), range(20, 40)]), DIGITS, 3, 0, holdout=0.2)
    assert list(map(len, drawn.train)) == [8, 8, 16]


def test_the_digest_is_of_the_clients_alone() -> None:
    spec = given.keep(CLIENTS)
    assert given.keep([np.array(part)[::-1] for part in CLIENTS]) == spec, "the order within a client is none"
    assert given.keep(CLIENTS[::-1]) != spec
    assert given.keep(CLIENTS, test=CLIENTS) != spec


def test_a_run_trains_as_with_the_scheme_that_made_the_partition() -> None:
    dataset = datasets.load("digits")
    shared = {"dataset": "digits", "model": "logistic", "N": 5, "m": 2, "T": 3, "seed": 0}
    shared |= {"local": Local(lr=0.1, batch=10, steps=2), "method": Method(sampler="md")}
    made = Run(**shared, partition={"scheme": "iid"})
    parts = partition.make(made.partition, dataset, 5, 0)
    same = Run(**shared, partition=given.keep(parts.train, test=parts.test))
    rows = []
    for run in (made, same):
        part = partition.make(run.partition, dataset, run.N, run.seed)
        lockstep = Lockstep([run], [part], make_executor(run.model, datasets.tensors(dataset), threads=1))
        while lockstep.active:
            lockstep.advance()
        rows.append([(row["test_loss"], list(row["clients"])) for row in lockstep.live[0].rows])
    assert rows[0] == rows[1]
    assert Run(**same.model_dump(mode="json")) == same
    assert made.address(1, "") != same.address(1, "")


def _write(tmp_path, content: object, name: str = "") -> GivenPartition:
    name = name or address_of(content)
    (tmp_path / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return GivenPartition(scheme="given", digest=name)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("not JSON", "a", "not JSON"),
        ({"train": CLIENTS}, "b", "does not match the digest in its name"),
        ({"test": CLIENTS}, "", "must hold train"),
        ({"train": CLIENTS, "more": []}, "", "must hold train"),
        ({"train": CLIENTS[:2]}, "", "2 clients, but N is 3"),
        ({"train": [*CLIENTS[:2], []]}, "", "client 2 is empty"),
        ({"train": [*CLIENTS[:2], [40]]}, "", "sample 40, but the dataset has 0 to 39"),
        ({"train": [*CLIENTS[:2], [-1]]}, "", "client 2"),
        ({"train": CLIENTS, "test": [[0], [1], [8]]}, "", "test of client 2"),
    ],
)
def test_a_bad_file_is_refused_in_words(content, name, says, tmp_path) -> None:
    with pytest.raises(ConfigError, match=says):
        partition.make(_write(tmp_path, content, name), DIGITS, 3, 0)


@pytest.mark.bad_input
def test_a_missing_file_and_two_holdouts_are_refused() -> None:
    with pytest.raises(ConfigError, match="copy it there"):
        partition.make(GivenPartition(scheme="given", digest="0" * 20), DIGITS, 3, 0)
    with pytest.raises(ConfigError, match="leave it out"):
        partition.make(given.keep(CLIENTS, holdout=[[0], [4], [8]]), DIGITS, 3, 0, holdout=0.2)
