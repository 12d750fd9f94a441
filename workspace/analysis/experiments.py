"""Plans of experiments and studies by name; the module that measures a study is found among the papers' folders."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedlib.errors import ConfigError, Unfinished
from fedlib.runs.work import Plan, measurement
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale
from fedlib.settings.sections import Study, valid
from workspace.analysis.paper import papers

if TYPE_CHECKING:
    import pandas as pd


def plan(name: str, scale: Scale | None = None, settings: Experiments | None = None) -> Plan:
    """The runs of an experiment, or the measurements of a study, at a scale.

    Raises:
        ConfigError: there is no such experiment or study, or its settings are invalid.
    """
    settings = settings or params.load()
    scale = scale or settings.scale
    if name not in settings.studies:
        return Plan.of_experiment(name, scale, settings)
    study, module = settings.study(name, scale), study_module(name)
    keys = next((cls for cls in Study.__subclasses__() if cls.__module__ == module.__name__), Study)
    valid(keys, study, f"{settings.source}: studies.{name}")
    units = module.units(study, settings, scale)
    return Plan(name, scale, tuple(measurement(name, unit, module.measure) for unit in units))


def study_module(name: str) -> ModuleType:
    """The module that measures a study, named by the part after the paper ("fedcor_toy": `study_toy`).

    Raises:
        ConfigError: there is none.
    """
    kind = name.partition("_")[2]
    places = [f"workspace.papers.{paper}.study_{kind}" for paper in papers()]
    for place in [*places, f"workspace.analysis.study_{kind}"]:
        if importlib.util.find_spec(place):
            return importlib.import_module(place)
    raise ConfigError(
        f"studies.{name}: there is no workspace/papers/<paper>/study_{kind}.py that could measure it."
    )


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
    from fedlib.runs.experiment import simulate

    settings = settings or params.load(root / params.PARAMS.name)
    return simulate(
        plan(name, scale, settings),
        results=root / "data" / "results",
        archive=root / "data" / "archive",
        tell=tell,
        only_finished=True,
    )


def table_file(name: str, scale: Scale, settings: Experiments, root: Path = ROOT) -> Path | None:
    """The file of an experiment's or study's table; None: nothing is finished.

    It is collected first where it is not there, and where its archive is newer, as after `git pull`.

    Raises:
        StoreError: an archive is damaged.
    """
    from fedlib.runs.archive import path_of
    from fedlib.runs.experiment import Failed

    path, archived = (path_of(name, scale, root / "data" / kind) for kind in ("results", "archive"))
    if not path.exists() or (archived.exists() and archived.stat().st_mtime > path.stat().st_mtime):
        try:
            collect(name, scale, lambda line: None, settings, root)
        except (Failed, Unfinished):
            return path if path.exists() else None
    return path


def opened(
    name: str, scale: Scale, settings: Experiments, root: Path = ROOT
) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    """The table of an experiment or study and what made it; collected first where it is not there; None: nothing is.

    Raises:
        StoreError: the table or an archive is damaged.
    """
    from fedlib.runs.results import read_table

    path = table_file(name, scale, settings, root)
    return read_table(path) if path else None
