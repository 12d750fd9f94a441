"""Stored runs are trained again, in part or whole, and compared: what no digest sees may have changed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError
from fedlib.library.callbacks import Running
from fedlib.library.metric import QUALITY
from fedlib.runs.group import groups_of, train_group
from fedlib.runs.place import Place, Supply
from fedlib.runs.store import Store
from fedlib.settings.schema import Run
from fedlib.simulation.live import Live

SECONDS = 1.0  # that a call spends on this unless it is told how many runs to train again
CLOSE = 1e-3  # relative difference of two losses that another processor explains


def recheck(
    stored: Mapping[str, tuple[Running, Run]],
    runs: int | None,
    place: Place,
    supply: Supply,
    threads: int,
    tell: Callable[[str], None],
) -> None:
    """Train stored runs again and compare their losses.

    stored: address -> a run that the store has. runs: how many of them; None for the first rounds of one, as far as a
    second goes.

    Raises:
        ConfigError: a run has other numbers now than in the store.
    """
    store, tables = Store(place.runs), {}
    chosen = dict(list(stored.items())[: 1 if runs is None else runs])
    for a in chosen:
        tables[a] = store.read(a)[0]
        if runs is None and (cost := float(tables[a]["seconds"].median())) > SECONDS:
            tell(
                f"store: nothing of {len(stored)} stored runs was checked: a round takes {cost:.0f} s (recheck=1)"
            )
            return
    if not chosen:
        return
    rounds = 0
    for a, table in trained_again(
        chosen, SECONDS if runs is None else np.inf, place, supply, threads
    ).items():
        rounds += len(table) - 1
        if clause := difference(tables[a], table):
            running = chosen[a][0]
            raise ConfigError(
                f"store: method {running.method!r}, seed {running.seed}, has other numbers now than in the store "
                f"({clause}): something changed that no digest sees, such as an installed package; another key= "
                "or store= begins anew."
            )
    tell(
        f"store: {len(stored)} runs were there; {rounds} rounds of {len(chosen)} trained again, with equal losses"
    )


def trained_again(
    chosen: Mapping[str, tuple[Running, Run]], seconds: float, place: Place, supply: Supply, threads: int
) -> dict[str, pd.DataFrame]:
    """The rounds of runs that are trained for so many seconds, one round at least."""
    rows: dict[str, list] = {}
    end = time.monotonic() + seconds

    def watch(address: str, live: Live) -> None:
        rows[address] = list(live.rows)
        if live.rows and time.monotonic() > end:
            live.stopped = live.t < live.run.T

    with tempfile.TemporaryDirectory() as folder:
        for group in groups_of([run for _, run in chosen.values()], 1):
            train_group(group, replace(place, runs=Path(folder)), threads, None, supply, watch)
    return {address: pd.DataFrame(trained) for address, trained in rows.items() if trained}


def difference(stored: pd.DataFrame, repeated: pd.DataFrame) -> str:
    """The first difference between the losses of the same rounds, as a clause; empty if there is none."""
    for column in (*QUALITY, "local_loss"):
        if column not in stored or column not in repeated or column == "test_accuracy":
            continue
        old, new = (
            stored[column].to_numpy(float)[: len(repeated)],
            repeated[column].to_numpy(float)[: len(stored)],
        )
        finite = np.isfinite(old) & np.isfinite(new)  # a run that was cut measures its last round in addition
        wrong = finite & (np.abs(old - new) > CLOSE * np.maximum(np.abs(old), 1e-6))
        if wrong.any():
            t = int(wrong.argmax())
            return f"{column} of round {t}: {new[t]:.6g}, stored {old[t]:.6g}"
    return ""
