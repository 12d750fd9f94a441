"""How studies follow a training run: a single run, round by round, with access to its models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedlib.runs.halfway import Halfway
from fedlib.runs.place import Place
from fedlib.runs.supply import runs_in_lockstep
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live


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
