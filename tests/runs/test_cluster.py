"""A real Dask scheduler with two workers, each a process and a "machine" of its own: the numbers are the local ones."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from system import until
from test_faults import finished, place, process, quiet
from test_faults import runs as runs  # the fixture

from fedlib.errors import ConfigError, StoreError
from fedlib.runs.cluster import check_returned, is_over
from fedlib.runs.place import Place, address
from fedlib.runs.store import Store, to_parquet
from fedlib.runs.train import train
from fedlib.settings.schema import Until


def dask(log: Path, command: list[str], settings: dict[str, str]) -> None:
    """What `dask scheduler` and `dask worker` do, in this process."""
    import torch
    from distributed.cli import dask_scheduler, dask_worker

    os.environ.update(settings)
    torch.set_num_threads(1)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    {"scheduler": dask_scheduler, "worker": dask_worker}[command[0]].main(command[1:])


@dataclass
class Cluster:
    """Dask processes on this machine; `folder` holds what they write."""

    folder: Path
    address: str
    processes: list[multiprocessing.Process] = field(default_factory=list)
    workers: dict[str, multiprocessing.Process] = field(default_factory=dict)

    def scheduler(self) -> None:
        """Start a scheduler, and wait until it can be connected to: on a busy machine that takes long."""
        port = self.address.rpartition(":")[2]
        self.start("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
        until(lambda: listens(int(port)))

    def worker(self, name: str) -> None:
        """A worker with a store and datasets of its own, as on another machine."""
        own = self.folder / name
        settings = {"FEDLIB_RUNS": own / "runs", "FEDLIB_DATASETS": own / "datasets"}
        settings |= {"FEDLIB_CHECKPOINT_SECONDS": 0}
        where = ["--local-directory", str(own), "--no-dashboard"]
        self.workers[name] = self.start(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--name", name, *where, **settings
        )

    def start(self, *command: str, **settings: object) -> multiprocessing.Process:
        environment = {name: str(value) for name, value in settings.items()}
        self.processes.append(process(dask, self.folder / "log", list(command), environment))
        return self.processes[-1]

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.join()
        self.processes.clear()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def started(folder: Path) -> Iterator[Cluster]:
    """A scheduler, and no worker yet."""
    made = Cluster(folder, free_address())
    made.scheduler()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster")) as made:
        made.worker("a")
        made.worker("b")
        yield made


@pytest.fixture(scope="module")
def straight(runs, tmp_path_factory) -> dict[str, bytes]:
    """The files of an undisturbed training in this process."""
    where = place(tmp_path_factory.mktemp("straight"))
    train(runs, where, quiet)
    return finished(runs, where)


def test_two_workers_give_the_numbers_of_one_process(runs, straight, cluster, tmp_path, record_property):
    record_property("results identical", len(runs))
    where = place(tmp_path, scheduler=cluster.address)
    told: list[str] = []
    train(runs, where, told.append)
    assert finished(runs, where) == straight
    assert any("back from the cluster" in line for line in told)

    nobody = place(tmp_path, scheduler=free_address())
    train(runs, nobody, quiet)  # nothing is left to do: no cluster is asked


def test_a_killed_workers_runs_are_trained_by_another(runs, cluster, tmp_path, record_property):
    record_property("kills survived", 1)
    longer = [run.model_copy(update={"T": 150}) for run in runs[:4]]
    where = place(tmp_path, scheduler=cluster.address)
    with ThreadPoolExecutor(1) as aside:
        training = aside.submit(train, longer, where, quiet)
        until(lambda: list(cluster.folder.rglob("checkpoint.pt")))
        name = next(cluster.folder.rglob("checkpoint.pt")).relative_to(cluster.folder).parts[0]
        cluster.workers[name].kill()
        training.result(timeout=300)
    lost = {path.parent.name for path in (cluster.folder / name).rglob("checkpoint.pt")}
    other = cluster.folder / ("b" if name == "a" else "a")
    assert lost
    assert lost <= {path.parent.name for path in other.rglob("run.json")}
    addresses = {address(run, where) for run in longer}
    assert {path.parent.name for path in where.runs.rglob("run.json")} == addresses

    undisturbed = place(tmp_path / "undisturbed")
    train(longer, undisturbed, quiet)
    record_property("results identical", len(longer))
    assert finished(longer, where) == finished(longer, undisturbed)


def test_a_scheduler_killed_in_mid_run(runs, straight, tmp_path, record_property):
    record_property("kills survived", 1)
    with started(tmp_path) as cluster:
        cluster.worker("a")
        where = place(tmp_path, scheduler=cluster.address)
        store = Store(where.runs)

        def kill_after_the_first_group(line: str) -> None:
            if line.startswith("1 of"):
                cluster.processes[0].kill()

        with pytest.raises(StoreError, match=r"does not answer; start it.*finished runs are kept\.$"):
            train(runs, where, kill_after_the_first_group)
        kept = {a: (store.folder(a) / "run.json").stat().st_mtime_ns for a in straight if store.finished(a)}
        assert 0 < len(kept) < len(runs)

        cluster.close()
        cluster.scheduler()
        cluster.worker("a")
        train(runs, where, quiet)
    record_property("results identical", len(runs))
    assert finished(runs, where) == straight
    assert all((store.folder(a) / "run.json").stat().st_mtime_ns == time for a, time in kept.items())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("scheduler", "error", "message"),
    [
        (free_address(), StoreError, "does not answer; start it, or unset FEDLIB_SCHEDULER"),
        ("nowhere", ConfigError, "FEDLIB_SCHEDULER is 'nowhere'; it must be an address"),
        (
            "carrier://pigeon:1",
            ConfigError,
            "FEDLIB_SCHEDULER is 'carrier://pigeon:1'; it must be an address",
        ),
    ],
    ids=["not there", "no address", "no such protocol"],
)
def test_no_scheduler(runs, tmp_path, monkeypatch, scheduler, error, message):
    monkeypatch.setattr("fedlib.runs.cluster.SCHEDULER_SECONDS", 0.5)
    with pytest.raises(error, match=message):
        train(runs, place(tmp_path, scheduler=scheduler), quiet)


class Failing:
    """A connection to a scheduler, or a task's future there, that fails with an error at a step."""

    def __init__(self, step: str, error: Exception) -> None:
        self.step, self.error = step, error

    def __enter__(self) -> Failing:
        return self

    def __exit__(self, *_: object) -> None:
        self.fail_at("close")

    def fail_at(self, step: str) -> None:
        if step == self.step:
            raise self.error

    def nthreads(self) -> dict[str, int]:
        self.fail_at("nthreads")
        return {"worker": 1}

    def map(self, *_: object, **options: object) -> list[Failing]:
        self.fail_at("map")
        return [self]

    def exception(self) -> Exception | None:
        return self.error if self.step == "work" else None

    def result(self) -> list:
        self.fail_at("result")
        return []


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "error", [OSError("gone"), TimeoutError(), ConnectionResetError(104, "reset"), CancelledError()]
)
@pytest.mark.parametrize("step", ["nthreads", "map", "result", "close"])
def test_a_scheduler_that_goes_away_at_any_step_is_one_sentence(runs, tmp_path, monkeypatch, step, error):
    monkeypatch.setattr("distributed.Client", lambda *_, **options: Failing(step, error))
    monkeypatch.setattr("distributed.as_completed", list)
    with pytest.raises(StoreError, match="does not answer; start it, or unset FEDLIB_SCHEDULER"):
        train(runs[:1], place(tmp_path, scheduler="tcp://host:1"), quiet)


@pytest.mark.bad_input
def test_a_workers_own_disk_is_named(runs, tmp_path, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("distributed.Client", lambda *_, **options: Failing("work", full))
    monkeypatch.setattr("distributed.as_completed", list)
    with pytest.raises(
        StoreError, match=r"a worker of the cluster cannot read or write there .*No space left"
    ):
        train(runs[:1], place(tmp_path, scheduler="tcp://host:1"), quiet)


@pytest.fixture(scope="module")
def returned(runs, tmp_path_factory) -> tuple:
    """(place, what a worker sends back of a run)"""
    where = place(tmp_path_factory.mktemp("worker"))
    train(runs[:1], where, quiet)
    a = address(runs[0], where)
    return where, (a, *Store(where.runs).files(a))


def another_run(a, rounds, timing, record):
    return "0" * 20, rounds, timing, record


def damaged_rounds(a, rounds, timing, record):
    return a, rounds[:-9], timing, record


def other_settings(a, rounds, timing, record):
    return a, rounds, timing, record | {"run": record["run"] | {"T": 41}}


def fewer_rounds(a, rounds, timing, record):
    fewer = to_parquet(pd.read_parquet(io.BytesIO(rounds)).iloc[:-1])
    return a, fewer, timing, record | {"rounds_sha256": hashlib.sha256(fewer).hexdigest()}


def no_times(a, rounds, timing, record):
    return a, rounds, b"", record


def no_record(a, rounds, timing, record):
    return a, rounds, timing, {}


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_run, "which was not asked for: its fedlib or its dataset differs"),
        (damaged_rounds, "contents do not match their digest"),
        (other_settings, "other settings"),
        (fewer_rounds, "rounds are missing"),
        (no_times, "in a state that cannot be used"),
        (no_record, "in a state that cannot be used"),
    ],
)
def test_what_comes_back_is_checked(runs, returned, change: Callable, message: str):
    where, files = returned
    wanted = {address(runs[0], where): runs[0]}
    check_returned(files, wanted)
    with pytest.raises(StoreError, match=message):
        check_returned(change(*files), wanted)


def test_a_run_may_come_back_ended_early_for_a_reason(runs, returned):
    rounds = pd.read_parquet(io.BytesIO(returned[1][1]))
    reached = float(rounds["test_accuracy"][1:].max())
    cut = rounds[: 1 + int(rounds["test_accuracy"][1:].idxmax())]
    goal = runs[0].model_copy(update={"until": Until(test_accuracy=reached)})
    assert is_over(runs[0], rounds)
    assert is_over(goal, rounds) or len(cut) < len(rounds)
    assert is_over(goal, cut)
    assert not is_over(goal, cut[:-1])
    assert is_over(runs[0], cut.assign(diverged=cut["round"] == cut["round"].max()))


def test_a_place_is_what_the_environment_says(monkeypatch):
    monkeypatch.setenv("FEDLIB_SCHEDULER", "tcp://host:8786")
    monkeypatch.setenv("FEDLIB_CHECKPOINT_SECONDS", "5")
    assert (Place.from_environment().scheduler, Place.from_environment().checkpoint_seconds) == (
        "tcp://host:8786",
        5,
    )
    for name in ("FEDLIB_WORKERS", "FEDLIB_CHECKPOINT_SECONDS"):
        with monkeypatch.context() as wrong:
            wrong.setenv(name, "-1")
            with pytest.raises(ConfigError, match=f"{name} is '-1'; it must be a whole number"):
                Place.from_environment()
