"""The store: whole files or none, plain data only, damage named."""

from __future__ import annotations

import os
import pickle
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib.files import StoreError, write_whole
from fedlib.runs.store import Store

ADDRESS = "ab" * 10


def finished(store: Store) -> pd.DataFrame:
    rounds = pd.DataFrame({"round": [0, 1], "clients": [[], [3, 1]], "test_loss": [2.3, np.nan]})
    store.finish(ADDRESS, rounds, pd.DataFrame({"seconds": [0.0, 0.1]}), {"run": {"seed": 1}})
    return rounds


def test_a_finished_run_comes_back_as_it_went_in(tmp_path):
    store = Store(tmp_path)
    rounds = finished(store)
    table, record = store.read(ADDRESS)
    pd.testing.assert_frame_equal(table[["round", "test_loss"]], rounds[["round", "test_loss"]])
    assert [list(k) for k in table["clients"]] == [[], [3, 1]]
    assert table["seconds"].tolist() == [0.0, 0.1]
    assert record["run"] == {"seed": 1}


def test_finishing_drops_the_checkpoint(tmp_path):
    store = Store(tmp_path)
    store.save_checkpoint(ADDRESS, {"t": 1})
    finished(store)
    assert store.load_checkpoint(ADDRESS) is None
    assert store.finished(ADDRESS)


@pytest.mark.bad_input
def test_damage_to_a_finished_run_is_named(tmp_path):
    store = Store(tmp_path)
    finished(store)
    path = store.folder(ADDRESS) / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(StoreError, match="digest.*delete the folder"):
        store.read(ADDRESS)


def test_checkpoints_keep_arrays_numbers_and_text(tmp_path):
    store = Store(tmp_path)
    state = {
        "t": 7,
        "models": torch.arange(6.0).reshape(2, 3),
        "sampler": {
            "G": np.eye(3, dtype=np.float32),
            "seen": np.array([True, False]),
            "beta": np.float64(0.5),
        },
        "rows": [{"clients": [1, 2], "notes": None}],
    }
    store.save_checkpoint(ADDRESS, state)
    back = store.load_checkpoint(ADDRESS)
    assert back["t"] == 7
    assert torch.equal(back["models"], state["models"])
    assert back["sampler"]["G"].dtype == np.float32
    np.testing.assert_array_equal(back["sampler"]["seen"], [True, False])
    assert back["sampler"]["beta"] == 0.5
    assert back["rows"] == state["rows"]


@pytest.mark.parametrize(
    "value", [np.array(2.5), np.float32(0.1), np.int64(3), np.bool_(True), np.eye(3)[:, ::2], (1, [2])]
)
def test_checkpoints_keep_types_and_shapes(value, tmp_path):
    store = Store(tmp_path)
    store.save_checkpoint(ADDRESS, {"value": value})
    back = store.load_checkpoint(ADDRESS)["value"]
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.random.default_rng(0), "Generator cannot be kept"),
        (Counter("ab"), "Counter cannot"),
        (defaultdict(int), "defaultdict cannot"),
        (np.array(["a"]), "ndarray of <U1 cannot .* arrays of numbers"),
        (np.ma.array([1, 2], mask=[0, 1]), "MaskedArray"),
    ],
)
def test_what_cannot_be_kept_is_refused(value, message, tmp_path):
    with pytest.raises(StoreError, match=message):
        Store(tmp_path).save_checkpoint(ADDRESS, {"sampler": {"own": value}})


def test_checkpoints_of_before_are_read(tmp_path):
    """Arrays as they are now; numbers of numpy were plain ones."""
    path = Store(tmp_path).folder(ADDRESS) / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save({"G": {"__numpy__": torch.eye(2)}, "beta": 0.5}, path)
    back = Store(tmp_path).load_checkpoint(ADDRESS)
    np.testing.assert_array_equal(back["G"], np.eye(2))
    assert back["beta"] == 0.5


@pytest.mark.bad_input
def test_a_checkpoint_that_would_run_code_is_refused_unread(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    store = Store(tmp_path)
    path = store.folder(ADDRESS) / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save(Harm(), path)
    with pytest.raises(StoreError, match="cannot be read"):
        store.load_checkpoint(ADDRESS)
    path.write_bytes(pickle.dumps(Harm()))
    with pytest.raises(StoreError, match="cannot be read"):
        store.load_checkpoint(ADDRESS)
    assert not (tmp_path / "harm").exists()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "run.json"
    write_whole(path, b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"run.json.*No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_run_is_held_by_one_process_at_a_time(tmp_path):
    store = Store(tmp_path)
    with store.claim(ADDRESS) as first, store.claim(ADDRESS) as second:
        assert first
        assert not second
    with store.claim(ADDRESS) as again:
        assert again
