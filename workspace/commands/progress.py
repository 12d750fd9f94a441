"""Stages and pages side by side, each after those that it needs, and how far they are, with a time left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

from fedlib.files import write_whole
from fedlib.runs.progress import duration
from fedlib.settings.schema import Scale

# Seconds of a stage at scale demo on two quiet cores, two stages at once, until the last time that it ran is known.
USUAL = {"data": 9.0, "notebooks": 9.0, "simulate": 8.0, "study": 1.7, "report": 10.0, "page": 1.8}
WHOLE = {"data", "notebooks"}  # a change of what these made says nothing of most stages that need it
TRUST = 30.0  # seconds after which this machine's own pace counts as much as what is usual


class StageProgress:
    """What has been done of a plan of stages, told as it goes on, and how long it took, kept for the next time.

    at_once, alone: as in `dvc.Loop`. usual: kind of stage -> seconds, until its last time is known (default: those of
    `USUAL` at scale demo).
    """

    def __init__(
        self,
        path: Path,
        scale: Scale,
        at_once: int,
        alone: Callable[[str], bool],
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        usual: Mapping[str, float] | None = None,
    ) -> None:
        self.kinds = usual or (USUAL if scale == "demo" else {})
        self.path, self.scale, self.tell, self.clock = path, scale, tell, clock
        self.at_once, self.alone = at_once, alone
        self.needs: Mapping[str, set[str]] = {}
        self.earlier: set[str] = set()
        self.ran: dict[str, float] = {}  # seconds
        self.looked: set[str] = set()
        self.running: dict[str, float] = {}  # when each began
        self.last_times: dict[str, float] = self._read().get(scale, {})

    def planned(self, needs: Mapping[str, set[str]], earlier: set[str]) -> None:
        """All stages in order, each with those that it needs; earlier: those that ran before."""
        self.needs, self.earlier = needs, earlier

    def begins(self, name: str) -> None:
        """A stage's command starts."""
        self.running[name] = self.clock()
        remaining = self.remaining()
        estimate = "" if remaining is None else f" (about {duration(remaining)} left)"
        self.tell(f"{len(self.looked) + len(self.running)} of {len(self.needs)}: {name}{estimate}")

    def ended(self, name: str, well: bool = True) -> None:
        """A stage has been looked at; if its command ran, it is done. The time of one cut short is not kept."""
        self.looked.add(name)
        began = self.running.pop(name, None)
        if began is not None and well:
            self.ran[name] = self.clock() - began

    def remaining(self) -> float | None:
        """Seconds until all stages are done; None if how long one takes that surely runs is not known."""
        looked_up = {name: self.usual(name) for name in self.needs}
        usual = {name: seconds for name, seconds in looked_up.items() if seconds is not None}
        share = (len(self.ran) + 1) / (len(self.looked) + 1)  # of stages that had to run, as they went so far
        stale, seconds = set(self.ran) - WHOLE, {}
        for name in self.needs:
            if name in self.looked:
                continue
            surely = name not in self.earlier or bool(self.needs[name] & stale) or name in self.running
            if surely:
                stale.add(name)
            if name not in usual:
                if surely:
                    return None
                continue
            seconds[name] = usual[name] * (1.0 if surely else share)
        timed = [name for name in self.ran if name in usual]
        pace = (sum(self.ran[name] for name in timed) + TRUST) / (sum(usual[name] for name in timed) + TRUST)
        spent = {name: (self.clock() - began) / pace for name, began in self.running.items()}
        seconds = {
            name: max(0.0, usual_seconds - spent.get(name, 0.0)) for name, usual_seconds in seconds.items()
        }
        last = list(self.needs)[-1]  # it waits for all others
        one_by_one = sum(
            stage_seconds for name, stage_seconds in seconds.items() if self.alone(name) or name == last
        )
        return pace * (one_by_one + (sum(seconds.values()) - one_by_one) / self.at_once)

    def usual(self, name: str) -> float | None:
        """Seconds of a stage: the last time, else those of its kind."""
        kind = self.kinds.get(name.split("@")[0], self.kinds.get("page"))
        return self.last_times.get(name, kind)

    def keep(self) -> None:
        """Write how long the stages took, for the next time."""
        if self.ran:
            other_scales = {scale: stages for scale, stages in self._read().items() if scale != self.scale}
            times = {name: round(seconds, 2) for name, seconds in {**self.last_times, **self.ran}.items()}
            write_whole(self.path, json.dumps({**other_scales, self.scale: times}, indent=1).encode() + b"\n")

    def _read(self) -> dict[str, dict[str, float]]:
        try:
            read = json.loads(self.path.read_bytes())
            return {scale: {name: float(s) for name, s in stages.items()} for scale, stages in read.items()}
        except (OSError, ValueError, AttributeError, TypeError):  # none, or damaged: only estimates need it
            return {}


T = TypeVar("T")
R = TypeVar("R")


def in_turn(
    waiting: list[T],
    needs: Mapping[T, Collection[T]],
    work: Callable[[T], R],
    stop: Callable[[], None],
    at_once: int,
    room: Callable[[T, Iterable[T]], bool] = lambda item, running: True,
) -> Generator[tuple[T, Future[R]]]:
    """Call `work(item)` in threads; yields each item with what came of it.

    waiting: the items in order; whoever takes one out leaves it out. room: whether an item may begin beside others. If
    this is interrupted or closed, `stop` makes all work end.
    """
    running: dict[Future[R], T] = {}
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while waiting or running:
                unfinished = {*waiting, *running.values()}
                for item in [item for item in waiting if unfinished.isdisjoint(needs[item])]:
                    if len(running) >= at_once or not room(item, running.values()):
                        break
                    waiting.remove(item)
                    running[pool.submit(work, item)] = item
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future
        except BaseException:
            stop()
            raise
