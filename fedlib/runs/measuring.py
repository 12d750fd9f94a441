"""Measure the units of a study one by one, with progress; a killed study resumes from its last saved state.

Each table is kept in the store like a training run. `follow` gives a study a training run round by round, with its
models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedlib.runs.group import describe
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place, runs_in_lockstep
from fedlib.runs.progress import duration, report
from fedlib.runs.store import Store
from fedlib.runs.work import Work
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live


class Halfway:
    """Reports the progress of a unit at intervals and saves its state, as training saves checkpoints.

    state: the last saved state; None for a new unit.
    """

    def __init__(self, address: str, place: Place, tell: Callable[[str], None], title: str) -> None:
        self.store, self.address = Store(place.runs), address
        self.seconds, self.tell, self.title = place.checkpoint_seconds, tell, title
        self.state: dict[str, Any] | None = self.store.load_checkpoint(address)
        self.first: int | None = None

    def reached(self, finished: int, total: int, state: dict[str, Any]) -> None:
        """Round `finished` of `total` is finished; state: arrays, numbers, text, lists and dicts to resume from."""
        moment = time.monotonic()
        if self.first is None:
            self.first, self.began, self.reported, self.saved = finished, moment, moment, moment
            return
        if moment - self.saved > self.seconds:
            self.store.save_checkpoint(self.address, state)
            self.saved = moment
        if moment - self.reported > min(60.0, max(5.0, (moment - self.began) / 20)):
            rate = (finished - self.first) / (moment - self.began)
            self.tell(report(self.title, finished, total, rate, (total - finished) / rate))
            self.reported = moment


def measure(missing: Sequence[Work], finished: Finished, tell: Callable[[str], None], title: str) -> None:
    """Measure units whose data is available, and report progress."""
    store, place = finished.store, finished.place
    began = time.monotonic()
    for k, work in enumerate(missing):
        started = time.monotonic()
        remaining = duration((started - began) / max(k, 1) * (len(missing) - k))
        tell(f"{title}: {k + 1} of {len(missing)}: {work.words}" + f", about {remaining} left" * bool(k))
        address = work.address(finished.digest(work))
        halfway = Halfway(address, place, tell, f"{title}: {work.words}")
        assert work.measure is not None
        table = work.measure(work.settings["unit"], place, halfway)
        seconds = pd.DataFrame({"seconds": [time.monotonic() - started]})
        store.finish(address, table, seconds, describe(work.settings, finished.data(work), place))


def start(run: dict[str, Any], place: Place) -> Lockstep:
    """The run before its first round, evaluated only at its end."""
    whole = Run(**run)
    evaluate = whole.evaluate.model_copy(update={"every": whole.T, "train": False})
    return runs_in_lockstep([whole.model_copy(update={"evaluate": evaluate})], place)


def follow(
    run: dict[str, Any], place: Place, halfway: Halfway, rounds: int, gathered: dict[str, Any]
) -> Iterator[Lockstep]:
    """Yield the run after each of at most `rounds` rounds; the run of a killed study resumes where it stopped.

    gathered: what the study keeps of the rounds so far, changed in place; arrays, numbers, text, lists and dicts.
    """
    lockstep = start(run, place)
    live = lockstep.live[0]
    if halfway.state is not None:
        live.load_state_dict(halfway.state["live"])
        gathered |= halfway.state["gathered"]
    while not live.ended and live.t < rounds:
        halfway.reached(live.t, rounds, {"live": live.state_dict(), "gathered": gathered})
        lockstep.advance()
        yield lockstep


def everyone(lockstep: Lockstep, live: Live) -> list[tuple[Live, int, int]]:
    """Jobs (run, client, draw) that train all clients from the run's current model."""
    return [(live, int(k), 0) for k in np.arange(live.fed.N)]
