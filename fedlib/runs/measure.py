"""Measure the units of a study one by one; each table is kept in the store like a training run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pandas as pd

from fedlib.runs.finished import Finished
from fedlib.runs.group import describe
from fedlib.runs.halfway import Halfway
from fedlib.runs.progress import duration
from fedlib.runs.work import Work


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
