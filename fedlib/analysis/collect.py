"""Gather what is finished of an experiment or a study into its table, and pack it into the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fedlib.analysis.studies import run_study
from fedlib.files import Unfinished
from fedlib.runs import archive as archives
from fedlib.runs.results import open_results, simulate
from fedlib.settings import params
from fedlib.settings.schema import Scale


def collect(name: str, scale: Scale, tell: Callable[[str], None] = print) -> Path:
    """Write the table of what is finished of an experiment or study, training nothing; returns its path.

    Raises:
        ConfigError: no such experiment or study. DataError, Unfinished: nothing of it is finished.
    """
    make = run_study if name in params.load().studies else simulate
    return make(name, scale, tell=tell, only_finished=True)


def pack(name: str, scale: Scale, tell: Callable[[str], None] = print) -> Path:
    """Archive what is finished of an experiment or study; returns the archive's path.

    Raises:
        As `collect` does. Unfinished: also where other archives hold all that is finished of it.
    """
    collect(name, scale, tell)
    table, info = open_results(name, scale)
    kept = params.load().archived(name)
    if archives.elsewhere(name, scale, kept, info["runs"]):
        raise Unfinished(
            f"all that is finished of {name} at scale {scale} is in other archives already; nothing to pack."
        )
    return archives.write(name, scale, kept, table, info["runs"])
