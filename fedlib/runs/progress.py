"""Progress of training: heartbeats of the workers, and a progress line from time to time."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

HEARTBEAT_SECONDS = 1.0


class Progress:
    """Prints a progress line for all workers together, with the remaining time; less often the longer it takes.

    A worker's heartbeat counts the rounds that its runs have done, and those saved by an early end.

    more: what else the line says.
    """

    def __init__(
        self,
        root: Path,
        total: int,
        tell: Callable[[str], None],
        title: str,
        bound: str = "about",
        interval: float = 5.0,
        more: Callable[[], str] = str,
    ) -> None:
        self.folder = root / ".progress" / f"{os.getpid()}-{time.monotonic_ns()}"
        self.total, self.tell, self.title, self.bound, self.interval = total, tell, title, bound, interval
        self.more = more
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
        while not self.stop.wait(min(60.0, max(self.interval, (time.monotonic() - self.started) / 20))):
            beats = [json.loads(file.read_text(encoding="utf-8")) for file in self.folder.glob("[0-9]*.json")]
            finished, total = sum(beat[0] for beat in beats), self.total - sum(beat[1] for beat in beats)
            moment = time.monotonic()
            if finished > last[1]:
                last = moment, finished
                first = first if first[1] else last
            if finished > first[1]:
                rate = (last[1] - first[1]) / (last[0] - first[0])
                remaining = max(0.0, (total - finished) / rate - (moment - last[0]))
                self.tell(report(self.title, finished, total, rate, remaining, self.bound) + self.more())


def report(title: str, finished: int, total: int, rate: float, remaining: float, bound: str = "about") -> str:
    """A progress line for work counted in rounds. rate: rounds per second. remaining: seconds."""
    pace = f"{rate:.1f} rounds/s" if rate >= 0.5 else f"{duration(1 / rate)} a round"
    share = f"{finished:,} of {total:,} rounds ({finished / total:.0%})"
    return f"{title}: {share}, {pace}, {bound} {duration(remaining)} left"


def duration(seconds: float) -> str:
    """A time span in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 72 else f"{hours / 24:,.0f} days"
