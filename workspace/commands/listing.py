"""The output of `fedlib list`, `data status` and `doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from rich import box
from rich.console import Group
from rich.table import Column, Table

from fedlib.errors import ConfigError, meant
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale

if TYPE_CHECKING:
    from fedlib.runs.place import Place
    from fedlib.runs.work import Plan, Work

LIBRARIES = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "scikit-learn",
    "gpytorch",
    "pandas",
    "dvc",
    "papermill",
    "sphinx",
)


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table whose first column, the names for commands, is never shortened."""
    names, *further = (Column(header, overflow="fold") for header in columns)
    names.no_wrap = True
    listing = Table(
        names, *further, title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for row in rows:
        listing.add_row(*map(str, row))
    return listing


def everything(settings: Experiments, scale: Scale, paper: str | None = None) -> Group:
    """Experiments, studies, artifacts, samplers and datasets, of all papers or of one.

    Raises:
        ConfigError: there is no such paper.
    """
    from fedlib.samplers import SAMPLERS
    from fedlib.samplers.registry import REGISTRY

    raw = {**settings.raw["experiments"], **settings.raw["studies"]}
    papers = {name: spec.get("paper", "") for name, spec in raw.items()}
    if paper and paper not in papers.values():
        raise ConfigError(f"there is no paper {paper!r}; {meant(paper, dict.fromkeys(papers.values()))}")
    runs = {name: settings.runs(name, scale) for name in settings.names if paper in (None, papers[name])}
    experiments: list[tuple[object, ...]] = []
    for name, labelled in runs.items():
        if not experiments or papers[experiments[-1][0]] != papers[name]:
            experiments.append((f"[bold]{papers[name] or 'all papers'}", "", ""))
        experiments.append((name, len(labelled), raw[name].get("title", "")))
    studies = [(n, raw[n].get("title", "")) for n in settings.studies if paper in (None, papers[n])]
    artifacts = [
        (name, ", ".join(sources))
        for name, sources in settings.artifacts.items()
        if paper is None or paper in name.split("-") or paper in map(papers.get, sources)
    ]
    problems = REGISTRY.problems
    used = [entry.run for labelled in runs.values() for entry in labelled]
    chosen = {run.method.sampler for run in used} if paper else SAMPLERS
    samplers = [(name, (SAMPLERS[name].__doc__ or name).strip().splitlines()[0]) for name in sorted(chosen)]
    return Group(
        table(f"Experiments at scale {scale} (fedlib run NAME)", ("name", "runs", ""), experiments),
        table("Studies (fedlib run NAME)", ("name", ""), studies),
        table("Artifacts (dvc repro NAME)", ("name", "made from"), artifacts),
        table("Samplers (params.yaml)", ("name", ""), samplers),
        *([table("Samplers that cannot be loaded", ("where", "why"), problems.items())] if problems else []),
        datasets({run.dataset for run in used} if paper else None),
    )


def datasets(names: Collection[str] | None = None) -> Table:
    """The state of all datasets, or of the named ones."""
    from fedlib.data import datasets

    statuses = [datasets.status(name) for name in datasets.KINDS if names is None or name in names]
    rows = [(status["name"], status["state"], status["provenance"]) for status in statuses]
    return table("Datasets (fedlib data prepare NAME)", ("name", "state", "provenance"), rows)


def environment() -> Group:
    """Libraries, machine, disk and data: everything that needs no measurement."""
    free = shutil.disk_usage(ROOT).free / 1e9
    rows = [
        ("python", f"{platform.python_version()} at {os.path.relpath(sys.prefix)}"),
        ("machine", f"{platform.machine()}, {os.cpu_count()} cores"),
        ("disk", f"{free:.1f} GB free" + (" - little: paper-scale results need some GB" if free < 5 else "")),
        *((name, version(name)) for name in LIBRARIES),
    ]
    return Group(table("Environment", ("what", ""), rows), datasets())


def costs(settings: Experiments, scale: Scale, show: Callable[[Table, str], None]) -> None:
    """Show the training time that a scale still needs on this machine, by experiment, while it is measured.

    show: takes the table so far, and what is measured now ("" at the end). Times are ranges, because a run that ends at
    a target may end early.
    """
    import torch

    from fedlib.runs import cost
    from fedlib.runs.place import Place
    from fedlib.runs.work import Plan

    place, counted = Place.from_environment(), set()
    rows, total = [], np.zeros(2)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    title = f"Training left at scale {scale}, on all cores of this machine (GPU: {gpu})"
    columns = ("experiment", "finished", "time left", "")
    of = len(settings.names)
    for k, name in enumerate(settings.names):
        so_far = (f"{k} of {of}", "", between(total), "measuring ...")
        show(table(title, columns, [*rows, so_far]), f"{k + 1} of {of}: {name}")
        plan = Plan.of_experiment(name, scale, settings)
        unfinished, share, needs = remaining(plan, place)
        new = {work.run.model_dump_json(): work.run for work in unfinished if work.run}
        try:
            unseen = [run for key, run in new.items() if key not in counted]
            seconds = np.array(
                [sum(map(cost.seconds, part)) for part in (map(cost.shortest, unseen), unseen)]
            )
        except ConfigError as error:  # a model whose weights are not here
            time_left, needs = "unknown", [*needs, str(error)]
        else:
            time_left, total = between(seconds), total + seconds
        counted |= new.keys()
        note = f"needs {'; '.join(needs)}" if needs else ""
        rows.append((name, share, time_left, note))
    show(table(title, columns, [*rows, ("all", "", between(total), "")]), "")


def measurements(settings: Experiments, scale: Scale) -> Table:
    """How much of each study is measured; times are not estimated, because they depend on more than training runs."""
    from fedlib.runs.place import Place
    from workspace.analysis.experiments import plan

    place, rows = Place.from_environment(), []
    for name in settings.studies:
        _, share, needs = remaining(plan(name, scale, settings), place)
        rows.append((name, share, f"needs {', '.join(needs)}" if needs else ""))
    return table(f"Studies at scale {scale} (time not estimated)", ("study", "measured", ""), rows)


def remaining(plan: Plan, place: Place) -> tuple[list[Work], str, list[str]]:
    """The unfinished work of a plan, how much is finished in words, and the datasets that are not available."""
    from fedlib.runs.lookup import Finished

    possible, without_data = Finished(plan, place).lacking(plan.work)
    total, unfinished = len(plan.work), [*possible, *without_data]
    needs = sorted({str(work.dataset) for work in without_data})
    return unfinished, f"{total - len(unfinished)} of {total}", needs


def between(seconds: np.ndarray) -> str:
    """A range of times (2,) as text."""
    from fedlib.runs.progress import duration

    return " to ".join(dict.fromkeys(map(duration, seconds)))


def cluster(settings: Experiments, scale: Scale, cores: int) -> Table:
    """The time of all runs of a scale on 1, 10 and 100 nodes: each run once, to its T, on one core."""
    from fedlib.runs import cost
    from fedlib.runs.progress import duration

    runs = {
        labelled.run.model_dump_json(): labelled.run
        for name in settings.names
        for labelled in settings.runs(name, scale)
    }
    seconds, absent = [], []
    for run in runs.values():
        try:
            seconds.append(cost.core_seconds(run))
        except ConfigError:  # a model whose weights are not here
            absent.append(run)
    rows = [(f"{n} x {cores} cores", duration(cost.makespan(seconds, n * cores))) for n in (1, 10, 100)]
    rows.append(("core time, all together", duration(sum(seconds))))
    rows.append(("core time of the longest run", duration(max(seconds, default=0.0))))
    if absent:
        models = ", ".join(sorted({run.model for run in absent}))
        rows.append(
            ("left out", f"{len(absent)} of {len(runs)} runs: {models} needs weights that are not here")
        )
    title = f"All {len(seconds)} runs of scale {scale}, to their T, by the speed of a core here ({platform.machine()})"
    return table(title, ("", "time"), rows)
