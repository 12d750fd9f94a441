"""`fedlib next`: train for a given time what decides most core claims per hour (`analysis/worth.py`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import pandas as pd

from fedlib.errors import ConfigError, DataError, Unfinished
from fedlib.runs import cost
from fedlib.runs.cost import Spent
from fedlib.runs.experiment import pack, tidy
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place, cores
from fedlib.runs.progress import duration
from fedlib.runs.work import Plan, Work
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import worth
from workspace.analysis.experiments import plan as plan_of
from workspace.analysis.paper import papers
from workspace.analysis.worth import Unit

Tell = Callable[[str], None]
UNITS = {"s": 1, "m": 60, "h": 3600}
UNKNOWN = 600.0  # seconds of a measurement of a study: nothing says how long it takes


def seconds_of(text: str) -> float:
    """ "150m", "2.5h" or "90s" -> seconds.

    Raises:
        ConfigError: the text is none of these, or the time is zero.
    """
    match = re.fullmatch(r"([0-9.]+)\s*([smh])", text.strip())
    with suppress(ValueError):
        if match and (seconds := float(match[1]) * UNITS[match[2]]) > 0:
            return seconds
    raise ConfigError(f"--within {text}: write a time as 90s, 150m or 2.5h.")


def plan(settings: Experiments, scale: Scale, tell: Tell, without_data: bool = False) -> list[Unit]:
    """All missing runs and measurements that could decide a claim, most core claims per hour first.

    Reports what cannot be trained. without_data: also what lacks prepared data, for a plan that is only shown.
    """
    known = {*settings.names, *settings.studies}
    experiments = {paper: worth.experiments_of(paper) & known for paper in papers()}
    names = sorted(set().union(*experiments.values()))
    tell(f"looking for the runs of {len(names)} experiments and studies ...")
    place = Place.from_environment()
    missing: list[Work] = []
    plans: dict[str, Plan] = {}
    tables: dict[str, pd.DataFrame] = {}
    timed: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    for name in names:
        plans[name] = plan_of(name, scale, settings)
        finished = Finished(plans[name], place)
        table, records, _, _ = tidy(plans[name], Finished(plans[name], place, any_data=True))
        there = {labels(record) for record in records}
        possible, unprepared = finished.lacking(
            [work for work in plans[name].work if labels(work.columns) not in there]
        )
        missing += possible + unprepared * without_data
        if not without_data:
            absent |= {str(work.dataset): finished.why_not(work) for work in unprepared}
        tables |= {name: table} if len(table) else {}
        timed |= {name: taken_here(table, records, place.device)} if len(table) else {}
    for reason in absent.values():
        tell(f"Left out: {reason}")
    tell("judging what is not decided ...")
    parts: dict[str, tuple[bool, worth.Parts]] = {}
    for paper in experiments:
        parts |= worth.needed(paper, tables)
    lacks = {worth.Condition.of(work) for work in missing}
    open_claims = {
        claim: (core, {arms: chance for arms, chance in alternatives.items() if arms & lacks})
        for claim, (core, alternatives) in parts.items()
    }
    spent = Spent(((plans[name], table) for name, table in timed.items()), cost.steps)
    useful = {arm for _, alternatives in open_claims.values() for arms in alternatives for arm in arms}
    seconds = _costs([work for work in missing if worth.Condition.of(work) in useful], spent, tell)
    trainable = [work for work in missing if work in seconds]
    return worth.units(trainable, worth.shared(open_claims), seconds.__getitem__)


def labels(columns: Mapping[str, object]) -> tuple[str, ...]:
    """What tells a run or a measurement from the others of its plan."""
    return tuple(str(columns.get(key, "")) for key in ("setting", "method", "seed"))


GPUS = ("NVIDIA", "GeForce", "Tesla", "Radeon", "Instinct")


def taken_here(table: pd.DataFrame, records: list[dict], device: str) -> pd.DataFrame:
    """The rows of the runs that a device like this one trained: a GPU's seconds say nothing of a CPU's.

    records: what made the runs. device: "cpu" or "cuda".
    """
    alike = {
        labels(record)
        for record in records
        if any(name in str(record.get("device", "")) for name in GPUS) == (device != "cpu")
    }
    keys = zip(*(table[key].astype(str) for key in ("setting", "method", "seed")), strict=True)
    return table[[key in alike for key in keys]]


def _costs(missing: Iterable[Work], spent: Spent, tell: Tell) -> dict[Work, float]:
    """The seconds of every run, from finished runs or measured; without those whose model's weights are missing."""
    seconds: dict[Work, float] = {}
    for work in missing:
        duration_s = spent.seconds(work)
        if duration_s is None and work.run:
            try:
                duration_s = cost.seconds(work.run)
            except ConfigError as error:
                tell(f"Left out: {work.name}: {error}")
                continue
        seconds[work] = UNKNOWN if duration_s is None else duration_s
    return seconds


def busy() -> str:
    """A sentence if this machine is busy; empty otherwise."""
    load, n_cores = os.getloadavg()[0], cores()
    if load < n_cores / 2:
        return ""
    return (
        f"This machine is busy (load {load:.1f} on {n_cores} cores): training will take longer than the times below, "
        "which are those of finished runs, and what is measured now is too long."
    )


def lines(chosen: list[Unit]) -> list[str]:
    """The plan in words, one line per unit."""
    return [
        f"{i}. {named(unit)}: {', '.join(unit.methods) or 'the whole study'}; "
        f"about {duration(unit.seconds)}{'' if unit.whole else ', begun and kept at its last checkpoint'}; "
        f"{unit.worth[0]:.2g} core claims per hour, {unit.worth[1]:.2g} others; chance that one seed more shows it: "
        f"{unit.chance:.0%} "
        f"({', '.join(unit.claims[:6])}{', ...' if len(unit.claims) > 6 else ''})"
        for i, unit in enumerate(chosen, start=1)
    ]


def named(unit: Unit) -> str:
    return f"{unit.experiment} {unit.setting} seed {unit.seed}" if unit.methods else unit.experiment


def train(chosen: list[Unit], scale: Scale, deadline: float, tell: Tell) -> None:
    """Train units one by one until `deadline` (monotonic seconds), and archive each experiment as soon as one ends.

    If estimates were too low, the remaining units are not started, or are stopped at the deadline; `fedlib run` and
    `fedlib next` continue from their last checkpoints.
    """
    for unit in chosen:
        remaining = deadline - time.monotonic()
        if remaining < worth.MARGIN and remaining < unit.seconds:
            tell(f"No time is left for {unit.experiment} {unit.setting} seed {unit.seed} and what follows.")
            return
        ended = _run(command(unit, scale), remaining)
        with suppress(Unfinished, DataError):
            pack(plan_of(unit.experiment, scale, params.load()), tell)
        how = "done" if ended else "stopped; the next command continues from its last checkpoint"
        tell(f"{unit.experiment} {unit.setting} seed {unit.seed}: {how}.")


def command(unit: Unit, scale: Scale) -> list[str]:
    setting = ["--setting", unit.setting] if unit.setting else []
    methods = [option for method in unit.methods for option in ("--methods", method)]
    seeds = ["--seeds", str(unit.seed)] if unit.methods else []
    return ["run", unit.experiment, "--scale", scale, *setting, *methods, *seeds]


def start(*command: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen:
    """Start a program of the project, named by its module, as a process of its own."""
    return subprocess.Popen([sys.executable, "-P", "-m", *command], cwd=ROOT, env=environment)


def status_of(process: subprocess.Popen, seconds: float) -> int | None:
    """The exit status of a process; None if it was stopped after `seconds`."""
    try:
        return process.wait(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.terminate()
        process.wait()


def _run(arguments: list[str], seconds: float) -> bool:
    """Run `fedlib` in a separate process for at most `seconds`; True if it ended by itself."""
    status = status_of(start("workspace", *arguments), seconds)
    if status:
        raise ConfigError(
            f"fedlib {' '.join(arguments)} failed, see above; fix it, or remove it from params.yaml."
        )
    return status is not None
