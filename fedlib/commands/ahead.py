"""Small experiments, trained while DVC goes through its stages one by one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import IO

from fedlib.commands.pipeline import INPUTS
from fedlib.data.sources import DataError
from fedlib.files import StoreError
from fedlib.settings import params
from fedlib.settings.schema import ROOT, ConfigError


@contextmanager
def working_ahead(log: IO[str]) -> Iterator[None]:
    """A process that trains small experiments, the last one first, while DVC runs its stages one by one.

    Pages and small models keep one core busy; this process uses another. If both come to the same run, the second finds
    it finished or waits for it. An experiment that cannot be trained is reported by its own stage.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "fedlib.commands.ahead"],
        cwd=ROOT,
        stdout=log,
        stderr=log,
        process_group=0,  # Ctrl-C stops `fedlib repro`, which stops this
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def train_ahead() -> None:
    """Train every experiment that a stage would train without workers."""
    from fedlib.runs import archive, results
    from fedlib.runs.place import FEW_ROUNDS, Place
    from fedlib.runs.train import train

    place = replace(Place.from_environment(), workers=1)
    if place.scheduler or place.device != "cpu":
        return
    settings = params.load()
    scale = settings.scale
    for name in reversed(settings.names):
        while not (INPUTS / scale / f"{name}.json").exists():  # the data is not prepared yet
            time.sleep(0.5)
        with suppress(ConfigError, DataError, StoreError):
            runs = [one.run for one in settings.runs(name, scale)]
            kept = settings.archived(name)
            known = results.Finished(name, scale, kept, place, results.RESULTS, archive.ARCHIVE)
            lacking = [run for run in runs if known.digest(run.dataset) and not known.has(run)]
            if sum(run.T for run in lacking) < FEW_ROUNDS:
                train(lacking, place, tell=lambda line: None)


def main() -> None:
    """What the process of `working_ahead` does."""
    from fedlib.runs.place import cores
    from fedlib.runs.train import end_with_parent

    end_with_parent(os.getppid())
    if cores() > 1:
        train_ahead()


if __name__ == "__main__":
    main()
