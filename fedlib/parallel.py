"""Train many runs: in lockstep groups, over local processes or the workers of a cluster (`cluster.py`).

Whatever trains where, the numbers are the same. A killed process loses at most the rounds since its last checkpoint;
a killed worker's group is tried again; a run that another process is training is waited for, not trained twice.
"""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib import data
from fedlib.config import ConfigError, Run
from fedlib.files import StoreError, write_whole
from fedlib.store import RUNS, Store

CHECKPOINT_SECONDS = 60.0
HEARTBEAT_SECONDS = 1.0
LARGEST_GROUP = 25
FEW_ROUNDS = 3_000  # of all runs together: fewer than these are done before worker processes have started
TIMING = ["seconds", "server_seconds"]


@dataclass(frozen=True)
class Place:
    """Where and how runs are trained.

    workers: processes side by side (0: as many as the cores and the work suggest). threads: cores of each (0: an equal
    share of all). device: "cpu" or "cuda". scheduler: address of a Dask scheduler; its workers then take the place of
    local processes.
    """

    runs: Path = RUNS
    datasets: Path = data.DATASETS
    workers: int = 0
    threads: int = 0
    device: str = "cpu"
    scheduler: str | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @classmethod
    def from_environment(cls) -> Place:
        """As the variables FEDLIB_RUNS, _DATASETS, _WORKERS, _DEVICE, _SCHEDULER and _CHECKPOINT_SECONDS say."""
        return cls(
            runs=Path(os.environ.get("FEDLIB_RUNS", RUNS)),
            datasets=Path(os.environ.get("FEDLIB_DATASETS", data.DATASETS)),
            workers=_number("FEDLIB_WORKERS", 0),
            device=os.environ.get("FEDLIB_DEVICE", "cpu"),
            scheduler=os.environ.get("FEDLIB_SCHEDULER") or None,
            checkpoint_seconds=_number("FEDLIB_CHECKPOINT_SECONDS", CHECKPOINT_SECONDS),
        )

    def processes(self, rounds: int) -> int:
        """How many processes share that many rounds of all runs together."""
        if self.workers:
            return self.workers
        return 1 if self.device != "cpu" or rounds < FEW_ROUNDS else cores()


def _number(variable: str, default: float) -> int:
    given = os.environ.get(variable, str(int(default)))
    if not given.isdecimal():
        raise ConfigError(f"{variable} is {given!r}; it must be a whole number.")
    return int(given)


def cores() -> int:
    """Cores that this process may use: fewer than the machine has, where a batch system or a container says so."""
    from joblib import cpu_count

    return cpu_count()


def address(run: Run, place: Place) -> str:
    from fedlib.engine import NUMERICS

    return run.address(NUMERICS, data.digest(run.dataset, place.datasets))


def groups_of(runs: Sequence[Run], processes: int) -> list[list[Run]]:
    """Runs of one shape together, those on the same clients in one group: they share many mini-batches.

    A shape's runs are cut into groups of about equally many rounds, so that the processes end together.
    """
    from fedlib.engine import shape_of

    shapes: dict[str, list[Run]] = {}
    for run in sorted(runs, key=_partition_key):
        shapes.setdefault(shape_of(run), []).append(run)
    out = []
    for same in shapes.values():
        for group in _cut(same, processes * -(-len(same) // (processes * LARGEST_GROUP))):
            out += _cut(group, -(-len(group) // LARGEST_GROUP))
    return out


def _cut(runs: Sequence[Run], parts: int) -> list[list[Run]]:
    """At most so many groups of neighbours, of about equally many rounds."""
    rounds = list(accumulate(run.T for run in runs))
    bounds = [bisect_right(rounds, rounds[-1] * i / parts) for i in range(parts + 1)]
    return [list(runs[first:last]) for first, last in pairwise(bounds) if first < last]


def train(runs: Sequence[Run], place: Place, tell: Callable[[str], None] = print, what: str = "") -> None:
    """Train every run that is not finished yet; returns when all are in the store."""
    store = Store(place.runs)
    wanted = {address(run, place): run for run in runs}
    attempts = 0
    while missing := {a: run for a, run in wanted.items() if not store.finished(a)}:
        rounds = sum(run.T for run in missing.values())
        if place.scheduler:
            from fedlib.cluster import train_on_cluster

            train_on_cluster(missing, place, tell)
            continue
        groups = groups_of(list(missing.values()), place.processes(rounds))
        about = "at most" if any(run.until for run in missing.values()) else "about"
        with Progress(place.runs, rounds, tell, what, about) as progress:
            killed = _train_groups(groups, place.processes(rounds), place, progress.folder, tell)
        attempts = attempts + 1 if killed else 0
        if attempts == 3:
            raise StoreError(
                f"{what}: the worker processes were killed three times in a row; is memory exhausted?"
            )
        if all(not store.finished(a) for a in missing):
            time.sleep(2.0)  # another process is training them


def _train_groups(
    groups: list[list[Run]], processes: int, place: Place, heartbeats: Path, tell: Callable[[str], None]
) -> bool:
    """Train all groups once; True if a worker was killed meanwhile."""
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    processes = min(processes, len(groups))
    threads = place.threads or max(1, cores() // processes)
    if processes == 1:
        for group in groups:
            train_group(group, place, threads, heartbeats)
        return False
    try:
        with joblib.parallel_config(
            "loky",
            n_jobs=processes,
            inner_max_num_threads=threads,
            initializer=end_with_parent,
            initargs=(os.getpid(),),
        ):
            joblib.Parallel(batch_size=1, pre_dispatch="all")(
                joblib.delayed(train_group)(group, place, threads, heartbeats) for group in groups
            )
    except TerminatedWorkerError:
        tell("a worker process was killed; its runs continue from their last checkpoints")
        return True
    finally:
        get_reusable_executor().shutdown()  # its idle processes would keep their memory for minutes
    return False


def end_with_parent(parent: int) -> None:
    """In a worker process: end as soon as the process that started it is gone, instead of training on for nobody."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(HEARTBEAT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train_group(runs: Sequence[Run], place: Place, threads: int, heartbeats: Path | None = None) -> list[str]:
    """Train runs of one shape in lockstep; returns the addresses of those that it finished.

    Runs that are finished, or that another process holds, are left alone.
    """
    import torch

    from fedlib import partition
    from fedlib.engine import Lockstep
    from fedlib.local import make_executor

    torch.set_num_threads(threads)
    store = Store(place.runs)
    with ExitStack() as held:
        mine = {a: run for run in runs if held.enter_context(store.claim(a := address(run, place)))}
        mine = {a: run for a, run in mine.items() if not store.finished(a)}
        if not mine:
            return []
        dataset = data.load(runs[0].dataset, place.datasets)
        tensors = data.tensors(dataset, runs[0].scaling)
        executor = make_executor(runs[0].model, tensors, place.device, threads)
        made: dict[str, partition.Partition] = {}
        for run in mine.values():
            key = _partition_key(run)
            if key not in made:
                made[key] = partition.make(run.partition, dataset, run.N, run.seed, run.holdout)
        lockstep = Lockstep(
            list(mine.values()), [made[_partition_key(run)] for run in mine.values()], executor
        )
        for a, live in zip(mine, lockstep.live, strict=True):
            if (state := store.load_checkpoint(a)) is not None:
                live.load_state_dict(state)
        done: list[str] = []
        saved = beat = time.monotonic()
        while True:
            for a, live in zip(mine, lockstep.live, strict=True):
                if live.done and a not in done:
                    frame = pd.DataFrame(live.rows)
                    record = describe(live.run, dataset, place)
                    store.finish(a, frame.drop(columns=TIMING), frame[TIMING], record)
                    done.append(a)
            now = time.monotonic()
            if heartbeats and (now - beat > HEARTBEAT_SECONDS or not lockstep.active):
                done_and_spared = [
                    sum(live.t for live in lockstep.live),
                    sum(live.run.T - live.t for live in lockstep.live if live.done),
                ]
                write_whole(
                    heartbeats / f"{os.getpid()}-{next(iter(mine))}.json",
                    json.dumps(done_and_spared).encode(),
                )
                beat = now
            if not lockstep.active:
                return done
            if now - saved > place.checkpoint_seconds:
                for a, live in zip(mine, lockstep.live, strict=True):
                    if not live.done:
                        store.save_checkpoint(a, live.state_dict())
                saved = time.monotonic()
            lockstep.advance()


def _partition_key(run: Run) -> str:
    return json.dumps(
        run.model_dump(mode="json", include={"partition", "N", "seed", "holdout"}), sort_keys=True
    )


def describe(run: Run, dataset: data.Dataset, place: Place) -> dict[str, Any]:
    """What made a run: its settings, its data, versions, device and date."""
    import torch

    from fedlib.engine import NUMERICS

    device = (
        torch.cuda.get_device_name() if place.device.startswith("cuda") else platform.processor() or "cpu"
    )
    return {
        "run": run.model_dump(mode="json"),
        "data": {"name": dataset.name, "provenance": dataset.provenance, "digest": dataset.digest},
        "numerics": NUMERICS,
        "device": device,
        "versions": {
            name: version(name) for name in ("fedlib", "torch", "numpy", "numba", "scipy", "scikit-learn")
        },
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


class Progress:
    """A line now and then, less often the longer it takes: how far all workers are together, how long is left.

    A worker's heartbeat is the rounds that its runs have done, and those that they were spared by an early end.
    """

    def __init__(
        self,
        root: Path,
        total: int,
        tell: Callable[[str], None],
        what: str,
        about: str = "about",
        every: float = 5.0,
    ) -> None:
        self.folder = root / ".progress" / f"{os.getpid()}-{time.monotonic_ns()}"
        self.total, self.tell, self.what, self.about, self.every = total, tell, what, about, every
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Progress:
        self.started = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        for file in self.folder.glob("*"):
            file.unlink()
        if self.folder.exists():
            self.folder.rmdir()

    def _watch(self) -> None:
        first = last = (0.0, 0)
        while not self.stop.wait(min(60.0, max(self.every, (time.monotonic() - self.started) / 20))):
            beats = [json.loads(file.read_text()) for file in self.folder.glob("[0-9]*.json")]
            done, total = sum(beat[0] for beat in beats), self.total - sum(beat[1] for beat in beats)
            now = time.monotonic()
            if done > last[1]:
                last = now, done
                first = first if first[1] else last
            if done > first[1]:
                rate = (last[1] - first[1]) / (last[0] - first[0])
                left = max(0.0, (total - done) / rate - (now - last[0]))
                self.tell(report(self.what, done, total, rate, left, self.about))


def report(what: str, done: int, total: int, rate: float, left: float, about: str = "about") -> str:
    """How far something is that goes by rounds; rate: rounds a second, left: seconds."""
    pace = f"{rate:.1f} rounds/s" if rate >= 0.5 else f"{duration(1 / rate)} a round"
    return f"{what}: {done:,} of {total:,} rounds ({done / total:.0%}), {pace}, {about} {duration(left)} left"


def duration(seconds: float) -> str:
    """A time span as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
