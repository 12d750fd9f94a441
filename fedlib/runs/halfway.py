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
