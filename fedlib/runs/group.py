"""Groups of runs that one process trains in lockstep, with checkpoints: a kill loses at most the last minute."""

from __future__ import annotations

import json
import os
import platform
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedlib import __version__
from fedlib.files import write_whole
from fedlib.runs.place import Place, Prepared, Supply, partition_key, runs_in_lockstep
from fedlib.runs.progress import HEARTBEAT_SECONDS
from fedlib.runs.sealed import is_state
from fedlib.runs.store import Store, pack
from fedlib.runs.work import TIMES
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.schema import Run

if TYPE_CHECKING:
    from fedlib.simulation.live import Live

LARGEST_GROUP = 25


def groups_of(runs: Sequence[Run], processes: int) -> list[list[Run]]:
    """Put runs of one shape together, and those on the same clients in one group: they share many mini-batches.

    The runs of a shape are cut into groups with about equally many rounds, so that the processes end together.
    """
    from fedlib.simulation.engine import shape_of

    shapes: dict[str, list[Run]] = {}
    for run in sorted(runs, key=partition_key):
        shapes.setdefault(shape_of(run), []).append(run)
    groups = []
    for alike in shapes.values():
        for group in _cut(alike, processes * -(-len(alike) // (processes * LARGEST_GROUP))):
            groups += _cut(group, -(-len(group) // LARGEST_GROUP))
    return groups


def _cut(runs: Sequence[Run], parts: int) -> list[list[Run]]:
    """At most `parts` groups of neighbouring runs, with about equally many rounds."""
    rounds = list(accumulate(run.T for run in runs))
    bounds = [bisect_right(rounds, rounds[-1] * i / parts) for i in range(parts + 1)]
    return [list(runs[first:last]) for first, last in pairwise(bounds) if first < last]


def train_group(
    runs: Sequence[Run],
    place: Place,
    threads: int,
    heartbeats: Path | None = None,
    supply: Supply | None = None,
    watch: Callable[[str, Live], None] = lambda address, live: None,
) -> list[str]:
    """Train runs of one shape in lockstep; returns the addresses of the runs that it finished.

    Runs that are finished, or that another process holds, are skipped. If a run's methods fail, the store keeps the
    reason (`Store.failure`). supply: what runs are trained on, if it differs from what their settings name. watch:
    called with every run before its first and after each of its rounds; a run that it stops ends with a checkpoint.
    """
    import torch

    torch.set_num_threads(threads)
    store, supply = Store(place.runs), supply or Prepared(place)
    with ExitStack() as claims:
        mine = {a: run for run in runs if claims.enter_context(store.claim(a := supply.address(run)))}
        mine = {a: run for a, run in mine.items() if not store.finished(a)}
        if not mine:
            return []
        lockstep = runs_in_lockstep(list(mine.values()), place, supply, threads, strict=False)
        lives = dict(zip(mine, lockstep.live, strict=True))
        for a, live in lives.items():
            usable = partial(is_state, T=live.run.T)
            if not live.failed and (state := store.load_checkpoint(a, usable)) is not None:
                with live.trying("load_state_dict"):
                    live.load_state_dict(state)
                if live.failed:
                    store.drop_checkpoint(a)
        for a, live in lives.items():
            watch(a, live)
        finished: list[str] = []
        failed: set[str] = set()
        saved = beat = time.monotonic()
        while True:
            for a, live in lives.items():
                if live.failed and a not in failed:
                    store.fail(a, str(live.failed), live.failed.trace)
                    failed.add(a)
                elif live.stopped and a not in finished:
                    if (state := _state(live)) is not None:
                        store.save_checkpoint(a, state)
                    finished.append(a)
                elif live.ended and not live.failed and a not in finished:
                    frame = pd.DataFrame(live.rows)
                    settings = {"run": live.run.model_dump(mode="json")}
                    record = describe(settings, supply.data_record(live.run), place)
                    store.finish(a, frame.drop(columns=TIMES), frame[TIMES], record)
                    finished.append(a)
            moment = time.monotonic()
            if heartbeats and (moment - beat > HEARTBEAT_SECONDS or not lockstep.active):
                trained = sum(live.t for live in lives.values())
                spared = sum(live.run.T - live.t for live in lives.values() if live.ended)
                path = heartbeats / f"{os.getpid()}-{next(iter(mine))}.json"
                write_whole(path, json.dumps([trained, spared]).encode())
                beat = moment
            if not lockstep.active:
                return finished
            if moment - saved > place.checkpoint_seconds:
                for a, live in lives.items():
                    if not live.ended and (state := _state(live)) is not None:
                        store.save_checkpoint(a, state)
                saved = time.monotonic()
            advanced = [(a, live) for a, live in lives.items() if not live.ended]
            lockstep.advance()
            for a, live in advanced:
                watch(a, live)
            for live in lockstep.active:
                if live.t == 1:  # find out now, not at the first checkpoint, that a state cannot be kept
                    _state(live)


def _state(live: Live) -> Any:
    """The state that a checkpoint keeps of a run. None if its sampler's state cannot be kept, which ends the run."""
    with live.trying("state_dict"):
        return pack(live.state_dict())
    return None


def describe(settings: dict[str, Any], data: dict[str, str], place: Place) -> dict[str, Any]:
    """What made a run or measurement: its settings (`Work.settings`), data, versions, device and date."""
    import torch

    device = (
        torch.cuda.get_device_name() if place.device.startswith("cuda") else platform.processor() or "cpu"
    )
    return {
        **settings,
        "code": code_of(settings),
        "data": data,
        "numerics": NUMERICS,
        "device": device,
        "versions": dict(versions()),
        "python": platform.python_version(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def versions() -> dict[str, str]:
    """Of the libraries that decide a run's numbers."""
    packages = ("torch", "numpy", "numba", "scipy", "scikit-learn")
    return {"fedlib": __version__, **{name: version(name) for name in packages}}
