"""Gather the finished runs of an experiment or study into its table, and pack them into the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.analysis.studies import run_study
from fedlib.errors import Unfinished
from fedlib.runs import archive as archives
from fedlib.runs.results import Failed, open_results, path_of, simulate
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale


def collect(
    name: str,
    scale: Scale,
    tell: Callable[[str], None] = print,
    settings: Experiments | None = None,
    root: Path = ROOT,
) -> Path:
    """Write the table of what is finished or archived of an experiment or study, training nothing; returns its path.

    root: of the project.

    Raises:
        ConfigError: no such experiment or study. Unfinished: nothing of it is finished or archived.
    """
    settings = settings or params.load(root / params.PARAMS.name)
    make = run_study if name in settings.studies else simulate
    folders = {"results": root / "data" / "results", "archive": root / "data" / "archive"}
    return make(name, scale, experiments=settings, tell=tell, only_finished=True, **folders)


def opened(
    name: str, scale: Scale, settings: Experiments, root: Path = ROOT
) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    """The table of an experiment or study and what made it; collected first where it is not there; None: nothing is.

    Raises:
        StoreError: the table or an archive is damaged.
    """
    results = root / "data" / "results"
    if not path_of(name, scale, results).exists():
        try:
            collect(name, scale, lambda line: None, settings, root)
        except (Failed, Unfinished):
            return None
    return open_results(name, scale, results)


def pack(
    name: str, scale: Scale, tell: Callable[[str], None] = print, settings: Experiments | None = None
) -> Path:
    """Archive what is finished of an experiment or study; returns the archive's path.

    Raises:
        As `collect`. Unfinished: also if other archives already contain all its finished runs.
    """
    settings = settings or params.load()
    collect(name, scale, tell, settings)
    table, info = open_results(name, scale)
    kept = settings.archived(name)
    if archives.elsewhere(name, scale, kept, info["runs"]):
        raise Unfinished(
            f"all that is finished of {name} at scale {scale} is in other archives already; nothing to pack."
        )
    return archives.write(name, scale, kept, table, info["runs"])
