"""The store: whole files or none, plain data only, damage named."""

from __future__ import annotations

import os
import pickle
import re
import shutil
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.runs import sealed
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
    with pytest.raises(StoreError, match="digest that it holds.*delete the folder"):
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


@pytest.mark.bad_input
def test_a_checkpoint_that_is_not_as_it_was_written_is_said_and_not_taken(tmp_path, capsys):
    """Changed, of another run, or of before there were digests; its run begins anew."""
    store, another = Store(tmp_path), "cd" * 10
    path = store.folder(ADDRESS) / "checkpoint.pt"
    store.save_checkpoint(ADDRESS, {"t": 1})
    store.save_checkpoint(another, {"t": 2})
    whole = path.read_bytes()
    torch.save({"t": 1}, path.with_name("plain.pt"))
    plain = path.with_name("plain.pt").read_bytes()
    other = (store.folder(another) / "checkpoint.pt").read_bytes()
    for content in (other, whole[:-1], whole + b"x", whole.replace(b"fedlib", b"fedlab", 1), b"", plain):
        path.write_bytes(content)
        assert store.load_checkpoint(ADDRESS) is None
        said = capsys.readouterr().err
        assert re.fullmatch(
            r".*checkpoint\.pt: this file cannot be used \(.*\); its run starts again\.\n", said
        )


@pytest.mark.bad_input
def test_a_checkpoint_that_would_run_code_is_refused_unread(tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    store = Store(tmp_path)
    path = store.folder(ADDRESS) / "checkpoint.pt"
    path.parent.mkdir(parents=True)
    torch.save(Harm(), path)
    for content in (path.read_bytes(), pickle.dumps(Harm())):
        path.write_bytes(sealed.to_checkpoint(content, ADDRESS))
        with pytest.raises(StoreError, match="cannot be used"):
            store.checkpoint(ADDRESS)
    assert not (tmp_path / "harm").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [],
        {"t": 10**9},
        {"t": -1},
        {"t": True},
        {"t": 2.0},
        {"rows": []},
        {"rows": [{"round": 1}]},
        {"rows": None},
    ],
)
def test_a_state_that_cannot_be_a_runs_is_none(wrong):
    rows = [{"round": t} for t in range(3)]
    state = {"t": 2, "models": 0, "algorithm": {}, "sampler": {}, "rows": rows, "diverged": False}
    assert sealed.is_state(state, 5)
    assert sealed.is_state(state | {"t": 0, "rows": []}, 5)
    assert not sealed.is_state(state | wrong if wrong else wrong, 5)
    assert sealed.is_state(state, 2), "a run that has done all of its rounds"
    assert not sealed.is_state(state, 1)


@pytest.mark.bad_input
def test_a_folder_with_another_runs_files_is_no_finished_run(tmp_path, capsys):
    store, another = Store(tmp_path), "cd" * 10
    finished(store)
    shutil.copytree(store.folder(ADDRESS), store.folder(another))
    assert not store.finished(another)
    assert f"it belongs to run {ADDRESS}" in capsys.readouterr().err
    assert store.finished(ADDRESS)


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
