"""Kills, company and repetition change nothing: the finished files are byte-identical."""

from __future__ import annotations

import io
import itertools
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
from system import disk, full, read_only, until

from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, address
from fedlib.runs.progress import Progress
from fedlib.runs.store import Store
from fedlib.runs.train import train
from fedlib.settings import params, schema

LOADED = ["fedlib.runs.train", "fedlib.simulation.engine", "fedlib.data.partition"]
LOADED += ["fedlib.training.compiled", "fedlib.kernels.products", "joblib", "sklearn.datasets"]
LOADED += ["distributed.cli.dask_scheduler", "distributed.cli.dask_worker"]
SPEC = {
    "experiments": {
        "tiny": {
            "dataset": "digits",
            "partition": {"scheme": "shards", "shards": 2},
            "model": "mlp",
            "N": 10,
            "m": 3,
            "T": 40,
            "seeds": 2,
            "local": {"lr": 0.05, "batch": 20, "steps": 5},
            "evaluate": {"every": 4, "train": True},
            "methods": {
                "MD": {"sampler": "md"},
                "Algorithm 2": {"sampler": "clustered_similarity"},
                "SCAFFOLD": {"sampler": "uniform", "algorithm": "scaffold"},
            },
        }
    }
}


@pytest.fixture(scope="module")
def runs():
    return [one.run for one in params.Experiments(SPEC).runs("tiny")]


def quiet(_: str) -> None:
    pass


def process(work: Callable[..., None], *arguments) -> multiprocessing.Process:
    """A process of its own, forked from a server that has loaded the library and Dask but started no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    child = context.Process(target=work, args=arguments)
    child.start()
    return child


def trainer(*arguments) -> multiprocessing.Process:
    return process(*arguments, quiet)


def place(folder: Path, **changes) -> Place:
    return Place(runs=folder / "runs", datasets=folder / "datasets", **({"workers": 1} | changes))


def finished(runs, where: Place) -> dict[str, bytes]:
    store = Store(where.runs)
    return {
        a: (store.folder(a) / "rounds.parquet").read_bytes() for a in (address(run, where) for run in runs)
    }


@pytest.fixture(scope="module")
def straight(runs, tmp_path_factory):
    """The files of an undisturbed training in one process."""
    where = place(tmp_path_factory.mktemp("straight"))
    train(runs, where, quiet)
    return finished(runs, where)


def test_repeated_training_is_byte_identical(runs, straight, tmp_path, record_property):
    record_property("results identical", len(runs))
    train(runs, place(tmp_path), quiet)
    assert finished(runs, place(tmp_path)) == straight


def test_alone_or_in_lockstep_is_byte_identical(runs, straight, tmp_path, record_property):
    record_property("results identical", len(runs))
    where = place(tmp_path)
    for run in runs:
        train([run], where, quiet)
    assert finished(runs, where) == straight


def test_one_or_two_workers_are_byte_identical(runs, straight, tmp_path, record_property):
    record_property("results identical", len(runs))
    where = place(tmp_path, workers=2)
    train(runs, where, quiet)
    assert finished(runs, where) == straight


def test_what_is_finished_is_not_trained_again(runs, tmp_path):
    where = place(tmp_path)
    train(runs[:2], where, quiet)
    files = [Store(where.runs).folder(address(run, where)) / "run.json" for run in runs[:2]]
    before = [file.stat().st_mtime_ns for file in files]
    train(runs[:3], where, quiet)
    assert [file.stat().st_mtime_ns for file in files] == before


def train_until_write(count: int, *runs_and_place, by: signal.Signals = signal.SIGKILL) -> None:
    """Train, and be killed just before a finished file is moved to its place, the `count`th of all."""
    replace, writes = os.replace, itertools.count(1)

    def last(*paths) -> None:
        if next(writes) == count:
            os.kill(os.getpid(), by)
        replace(*paths)

    os.replace = last
    train(*runs_and_place)


@pytest.mark.slow
def test_killed_at_twenty_random_moments(runs, straight, tmp_path, record_property):
    """kill -9 at ten random moments and in the middle of ten random writes; checkpoints after every round."""
    record_property("kills survived", 20)
    rng = np.random.default_rng(0)
    kills, trainings = 0, 0
    while kills < 20:
        where = place(tmp_path / str(trainings), checkpoint_seconds=0.0)
        if kills % 2:
            child = trainer(train_until_write, int(rng.integers(1, 100)), runs, where)
            child.join()
        else:
            child = trainer(train, runs, where)
            child.join(timeout=rng.uniform(0.02, 0.5))
            child.kill()
            child.join()
        kills += child.exitcode == -signal.SIGKILL
        if kills == 20:
            train(runs, where, quiet)
        if kills == 20 or child.exitcode == 0:  # done: compare, and start another training
            record_property("results identical", len(runs))
            assert finished(runs, where) == straight
            assert not list(where.runs.glob("??/*/checkpoint.pt"))
            assert not list(where.runs.glob("??/*/.*.part"))
            trainings += 1


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(runs, tmp_path, record_property):
    """kill -9 of the parent of two workers: they are gone soon, and one process continues where they were."""
    record_property("kills survived", 1)
    longer = [run.model_copy(update={"T": 150}) for run in runs[:4]]
    where = place(tmp_path, workers=2, checkpoint_seconds=0.0)
    parent = trainer(train, longer, where)
    until(lambda: len(list(where.runs.rglob("checkpoint.pt"))) == len(longer))
    workers = psutil.Process(parent.pid).children(recursive=True)
    assert len(workers) >= 2
    parent.kill()
    parent.join()
    until(lambda: not any(map(lives, workers)))

    train(longer, replace(where, workers=1), quiet)
    undisturbed = place(tmp_path / "undisturbed")
    train(longer, undisturbed, quiet)
    record_property("results identical", len(longer))
    assert finished(longer, where) == finished(longer, undisturbed)


def lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def test_two_at_once_share_the_work(runs, straight, tmp_path, record_property):
    record_property("results identical", len(runs))
    where = place(tmp_path, checkpoint_seconds=0.0)
    children = [trainer(train, part, where) for part in (runs[:4], runs[2:])]
    for child in children:
        child.join(timeout=300)
    assert [child.exitcode for child in children] == [0, 0]
    assert finished(runs, where) == straight


def test_a_run_that_another_process_holds_is_left_alone(runs, tmp_path):
    where = place(tmp_path)
    with Store(where.runs).claim(address(runs[0], where)) as mine:
        assert mine
        assert train_group(runs[:1], where, 1) == []


def test_who_waits_for_a_run_is_told_who_holds_it(runs, straight, tmp_path):
    """The first one stops itself in a round, and goes on when the second one has said whom it waits for."""
    where, said = place(tmp_path, checkpoint_seconds=0.0), []
    first = trainer(partial(train_until_write, by=signal.SIGSTOP), 5, runs[:1], where)

    def tell(line: str) -> None:
        said.append(line)
        os.kill(first.pid, signal.SIGCONT)

    with ThreadPoolExecutor(1) as aside:
        try:
            until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED)
            aside.submit(train, runs[:1], where, tell, "tiny").result(timeout=300)
        finally:
            first.kill()
            first.join()
    assert re.match(rf"tiny: waiting for runs that are held by process {first.pid} \(fedlib", said[0])
    assert finished(runs[:1], where).items() <= straight.items()


@pytest.mark.bad_input
def test_a_damaged_checkpoint_is_named_and_its_run_begins_anew(
    runs, straight, tmp_path, capsys, record_property
):
    record_property("results identical", 1)
    where = place(tmp_path)
    folder = Store(where.runs).folder(address(runs[0], where))
    folder.mkdir(parents=True)
    (folder / "checkpoint.pt").write_bytes(b"not a checkpoint")
    train(runs[:1], where, quiet)
    assert "checkpoint.pt: this file cannot be used" in capsys.readouterr().err
    assert finished(runs[:1], where).items() <= straight.items()


@pytest.mark.bad_input
def test_a_damaged_finished_run_is_named_and_trained_again(runs, straight, tmp_path, capsys, record_property):
    record_property("results identical", 1)
    where = place(tmp_path)
    train(runs[:1], where, quiet)
    path = Store(where.runs).folder(address(runs[0], where)) / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:-9] + b"x" + path.read_bytes()[-8:])
    train(runs[:1], where, quiet)
    assert "rounds.parquet does not match the digest" in capsys.readouterr().err
    assert finished(runs[:1], where).items() <= straight.items()


@pytest.mark.parametrize("prepare", [full, read_only])
@pytest.mark.parametrize("begun", [False, True], ids=["new runs", "runs with checkpoints"])
def test_a_disk_that_takes_nothing_more(runs, straight, tmp_path, prepare, begun, record_property):
    """A real one, of 2 MB: one sentence, what was finished is intact, and with space the same command ends well."""
    with disk(tmp_path / "disk", "2m") as folder:
        where = replace(place(tmp_path, checkpoint_seconds=0.0), runs=folder / "runs")
        train(runs[:2], where, quiet)
        if begun:
            child = trainer(train_until_write, 40, runs, where)
            child.join()
            assert list(folder.rglob("checkpoint.pt"))
        before = contents(folder)
        with prepare(folder):
            with pytest.raises(StoreError) as raised:
                train(runs, where, quiet)
            with pytest.raises(StoreError, match="cannot be written"):
                write_whole(folder / "table.parquet", bytes(8192))
        assert re.search(
            r"cannot be written \((No space left on device|Read-only file system)\)", str(raised.value)
        )
        assert "repeat the command: what was finished is kept" in str(raised.value)
        after = contents(folder)
        assert {path: after.get(path) for path in before} == before
        assert not list(where.runs.rglob(f".*.{os.getpid()}.part"))

        train(runs, where, quiet)
        record_property("results identical", len(runs))
        assert finished(runs, where) == straight


def contents(disk: Path) -> dict[Path, bytes]:
    """Everything but locks; of checkpoints just that they are there: a later one may take their place."""
    files = [path for path in disk.glob("runs/??/*/*") if path.name != ".lock" and path.suffix != ".part"]
    return {path: b"" if path.suffix == ".pt" else path.read_bytes() for path in files}


def test_progress_counts_what_is_done_and_leaves_out_what_is_not_needed_any_more(tmp_path):
    told: list[str] = []
    with Progress(tmp_path, 300, told.append, "x", "at most", interval=0.01) as progress:
        for done, spared in ((10, 0), (20, 0), (50, 190)):
            before = len(told)
            write_whole(progress.folder / "1-a.json", json.dumps([done, spared]).encode())
            until(lambda: done == 10 or len(told) > before)  # noqa: B023
            time.sleep(0.1)
    assert re.match(r"x: 20 of 300 rounds \(7%\), .* at most .* left$", told[0])
    assert told[-1].startswith("x: 50 of 110 rounds (45%)")


def test_runs_with_a_target_share_a_training_and_a_restart(runs, straight, tmp_path):
    """Of a group, one run ends early; killed after its end, the others go on to the numbers that they have alone."""
    reached = pd.read_parquet(io.BytesIO(straight[address(runs[0], place(tmp_path))]))
    ends = schema.Until(test_accuracy=float(reached["test_accuracy"].max()), least=20)
    mixed = [runs[0].model_copy(update={"until": ends}), *runs[1:]]
    where = place(tmp_path, checkpoint_seconds=0.0)
    child = trainer(train_until_write, 60, mixed, where)
    child.join()
    train(mixed, where, quiet)
    files = finished(mixed, where)
    (early,) = files.keys() - straight.keys()
    cut = pd.read_parquet(io.BytesIO(files.pop(early)))
    assert 20 <= cut["round"].max() <= 40
    pd.testing.assert_frame_equal(cut, reached[: len(cut)])
    assert files.items() <= straight.items()


def test_groups_have_about_equally_many_rounds(runs):
    first = runs[0].model_copy(update={"T": 60})
    short, long = (
        [first.model_copy(update={"T": T, "seed": seed}) for seed in range(n)]
        for T, n in ((20, 30), (60, 20))
    )
    groups = groups_of([*short, *long], 2)
    assert max(map(len, groups)) <= 25
    halves = [sum(run.T for run in group) for group in groups]
    assert sum(halves) == 20 * 30 + 60 * 20
    assert any(abs(sum(halves[:i]) - sum(halves) / 2) <= 60 for i in range(len(groups)))


def test_groups_hold_every_run_once_and_are_even(runs):
    groups = groups_of(runs, 2)
    assert sorted(len(group) for group in groups) == [
        1,
        1,
        2,
        2,
    ]  # SCAFFOLD apart: another kind of local work
    assert sorted(run.model_dump_json() for group in groups for run in group) == sorted(
        run.model_dump_json() for run in runs
    )
