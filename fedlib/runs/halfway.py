"""A unit of a study during its measurement: its progress, and the state from which a killed study resumes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fedlib.runs.place import Place
from fedlib.runs.progress import report
from fedlib.runs.store import Store


class Halfway:
    """Reports the progress of a unit at intervals and saves its state, as training saves checkpoints.

    state: the last saved state; None for a new unit.
    """

    def __init__(self, address: str, place: Place, tell: Callable[[str], None], what: str) -> None:
        self.store, self.address = Store(place.runs), address
        self.seconds, self.tell, self.what = place.checkpoint_seconds, tell, what
        self.state: dict[str, Any] | None = self.store.load_checkpoint(address)
        self.first: int | None = None

    def reached(self, done: int, total: int, state: dict[str, Any]) -> None:
        """Round `done` of `total` is finished; state: arrays, numbers, text, lists and dicts to resume from."""
        now = time.monotonic()
        if self.first is None:
            self.first, self.began, self.told, self.saved = done, now, now, now
            return
        if now - self.saved > self.seconds:
            self.store.save_checkpoint(self.address, state)
            self.saved = now
        if now - self.told > min(60.0, max(5.0, (now - self.began) / 20)):
            rate = (done - self.first) / (now - self.began)
            self.tell(report(self.what, done, total, rate, (total - done) / rate))
            self.told = now
