"""Train many runs: in lockstep groups, on local processes or on the workers of a cluster (`cluster.py`).

The numbers do not depend on what is trained where. A killed process loses at most the rounds since its last checkpoint.
The group of a killed worker is tried again. A run that another process is training is waited for, not trained twice.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedlib.data import datasets
from fedlib.errors import ConfigError, StoreError
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, address, cores
from fedlib.runs.progress import HEARTBEAT_SECONDS, Progress
from fedlib.runs.store import Store
from fedlib.samplers import find
from fedlib.settings.schema import Run


def train(runs: Sequence[Run], place: Place, tell: Callable[[str], None] = print, title: str = "") -> None:
    """Train every unfinished run; returns when all runs are in the store or have failed.

    Runs that failed before are tried again. If they fail now, the store says why (`Store.failure`).
    """
    store = Store(place.runs)
    planned = {address(run, place): run for run in runs}
    for a in planned:
        store.try_again(a)
    attempts, waiting = 0, False
    while missing := {a: r for a, r in planned.items() if not store.finished(a) and not store.failure(a)}:
        rounds = sum(run.T for run in missing.values())
        if place.scheduler:
            from fedlib.runs.cluster import train_on_cluster

            if unseen := {run.method.sampler for run in missing.values() if not _importable(run)}:
                raise ConfigError(
                    f"the sampler {min(unseen)} is defined in a notebook, where a cluster's workers cannot find it; "
                    "write it to a file, or unset FEDLIB_SCHEDULER."
                )
            train_on_cluster(missing, place, tell, train_elsewhere)
            continue
        groups = groups_of(list(missing.values()), place.processes(rounds))
        bound = "at most" if any(run.until for run in missing.values()) else "about"
        with Progress(place.runs, rounds, tell, title, bound) as progress:
            killed = _train_groups(groups, place.processes(rounds), place, progress.folder, tell)
        attempts = attempts + 1 if killed else 0
        if attempts == 3:
            raise StoreError(
                f"{title}: the worker processes were killed three times in a row; is memory exhausted?"
            )
        if not any(store.finished(a) or store.failure(a) for a in missing):
            if not waiting:
                holders = sorted({store.holder(a) for a in missing})
                tell(f"{title}: waiting for runs that are held by {' and '.join(holders)}")
            waiting = True
            time.sleep(2.0)


def _train_groups(
    groups: list[list[Run]], processes: int, place: Place, heartbeats: Path, tell: Callable[[str], None]
) -> bool:
    """Train all groups once; returns True if a worker was killed in the meantime."""
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    processes = min(processes, len(groups))
    threads = place.threads or max(1, cores() // processes)
    if processes == 1 or not all(_importable(run) for group in groups for run in group):
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
        get_reusable_executor().shutdown()  # otherwise its idle processes keep their memory for minutes
    return False


def _importable(run: Run) -> bool:
    """Whether other processes can import the run's sampler. One defined in a notebook exists only in this process."""
    return find(run.method.sampler).__module__ != "__main__"


def end_with_parent(parent: int) -> None:
    """In a worker process: exit when the parent process is gone, instead of training for nobody."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(HEARTBEAT_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train_elsewhere(settings: list[dict[str, Any]]) -> list[tuple[str, bytes, bytes, dict[str, Any]]]:
    """On a worker of a cluster: train a group in that machine's store, and return the finished files.

    A run that failed returns no files; its record describes the failure.
    """
    import torch

    runs = [Run(**values) for values in settings]
    threads = torch.get_num_threads()  # from OMP_NUM_THREADS, which Dask sets to 1
    place = replace(Place.from_environment(), workers=1, threads=threads, scheduler=None)
    for name in {run.dataset for run in runs}:
        datasets.prepare(name, root=place.datasets)
    train(runs, place, title="cluster worker")
    store = Store(place.runs)
    addresses = [address(run, place) for run in runs]
    return [
        (a, b"", b"", failed) if (failed := store.failure(a)) else (a, *store.files(a)) for a in addresses
    ]
