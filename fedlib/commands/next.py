"""`fedlib next`: train for a given time what decides most claims per hour (`analysis/planning.py`), and archive it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from fedlib.analysis import planning
from fedlib.analysis.planning import Unit
from fedlib.errors import ConfigError, DataError, Unfinished
from fedlib.runs.progress import duration
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Run, Scale

if TYPE_CHECKING:
    import pandas as pd

    from fedlib.analysis.claims import Claim

Tell = Callable[[str], None]
UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """ "150m", "2.5h" or "90s" -> seconds.

    Raises:
        ConfigError: the text is none of these, or the time is zero.
    """
    found = re.fullmatch(r"([0-9.]+)\s*([smh])", text.strip())
    with suppress(ValueError):
        if found and (seconds := float(found[1]) * UNITS[found[2]]) > 0:
            return seconds
    raise ConfigError(f"--within {text}: write a time as 90s, 150m or 2.5h.")


def plan(settings: Experiments, scale: Scale, tell: Tell) -> list[Unit]:
    """All missing runs that could decide a claim, most claims per hour first; reports those that cannot be trained.

    Only claims that lack runs are judged.
    """
    from fedlib.analysis.claims import claims
    from fedlib.analysis.paper import papers
    from fedlib.runs import cost

    every = [claim for paper in papers() for claim in claims(paper) if not claim.informative]
    needed = sorted({name for claim in every for name in claim.needs} & set(settings.names))
    tell(f"looking for the runs of {len(needed)} experiments ...")
    missing: dict[str, list[tuple[str, Run]]] = {}
    cannot: dict[str, str] = {}
    for name in needed:
        lacking, absent = _lacking(settings, name, scale)
        missing[name] = [(setting, run) for setting, run in lacking if run.dataset not in absent]
        cannot |= {run.dataset: absent[run.dataset] for _, run in lacking if run.dataset in absent}
    for reason in cannot.values():
        tell(f"Left out: {reason}")
    lack = [claim for claim in every if any(missing.get(name) for name in claim.needs)]
    tell(f"judging the {len(lack)} claims that lack runs ...")
    there = _tables(settings, scale, {name for claim in lack for name in claim.needs} & set(needed))
    open_ = {claim.id: claim.needs for claim in _open(lack, there)}
    wanted = {
        name: runs for name, runs in missing.items() if runs and any(name in of for of in open_.values())
    }
    return planning.units(_measurable(wanted, cost.seconds, tell), open_, cost.seconds)


def _lacking(settings: Experiments, name: str, scale: Scale) -> tuple[list[tuple[str, Run]], dict[str, str]]:
    """The runs of an experiment that are nowhere, and the datasets that are not at hand, with the reason."""
    from fedlib.runs.finished import Finished
    from fedlib.runs.place import Place
    from fedlib.runs.work import Plan

    plan = Plan.of_experiment(name, scale, settings)
    known = Finished(plan, Place.from_environment())
    lacking = [work for work in plan.work if not known.has(work)]
    return [(work.labels["setting"], work.run) for work in lacking if work.run], known.absent


def _tables(settings: Experiments, scale: Scale, names: Collection[str]) -> dict[str, pd.DataFrame]:
    """What is finished of these experiments."""
    from fedlib.runs.finished import Finished
    from fedlib.runs.place import Place
    from fedlib.runs.simulate import tidy
    from fedlib.runs.work import Plan

    found = {}
    for name in sorted(names):
        plan = Plan.of_experiment(name, scale, settings)
        found[name] = tidy(plan, Finished(plan, Place.from_environment(), any_data=True))[0]
    return {name: table for name, table in found.items() if len(table)}


def _open(claims: Iterable[Claim], results: dict[str, pd.DataFrame]) -> list[Claim]:
    """The claims that are not settled as written on all their data sets."""
    from fedlib.analysis.claims import Missing, Runs
    from fedlib.analysis.readings import AS_WRITTEN, named

    runs: dict[str, Runs] = {}

    def undecided(claim: Claim) -> bool:
        if claim.paper not in runs:
            written = [one for one in named(claim.paper) if one.name == AS_WRITTEN]
            runs[claim.paper] = Runs(written[0].of(results) if written else results)
        mine = runs[claim.paper].only(claim.needs)
        try:
            if "not run" in claim.rule(mine).words:
                return True
        except Missing:
            return True
        return claim.judge(mine).strength != "settled"  # takes the rule once more for each seed

    return [claim for claim in claims if undecided(claim)]


def _measurable(
    missing: dict[str, list[tuple[str, Run]]], cost: Callable[[Run], float], tell: Tell
) -> dict[str, list[tuple[str, Run]]]:
    """The runs without those whose cost cannot be measured because a model's weights are missing."""
    out, told = {}, set()
    for name, runs in missing.items():
        try:
            for _, run in runs:
                what = f"{run.model} on {run.dataset}, batches of {run.local.batch}"
                if what not in told:
                    tell(f"measuring the speed of {what} ...")
                    told.add(what)
                cost(run)
        except ConfigError as error:
            tell(f"Left out: {name}: {error}")
        else:
            out[name] = runs
    return out


def lines(chosen: list[Unit]) -> list[str]:
    """The plan in words, one line per unit."""
    return [
        f"{i}. {unit.experiment} {unit.setting} seed {unit.seed}: {len(unit.runs)} runs, "
        f"about {duration(unit.seconds)}{'' if unit.whole else ', begun and kept at its last checkpoint'}; "
        f"{unit.worth:.2g} claims per hour ({', '.join(unit.claims[:6])}{', ...' if len(unit.claims) > 6 else ''})"
        for i, unit in enumerate(chosen, start=1)
    ]


def train(chosen: list[Unit], scale: Scale, deadline: float, tell: Tell) -> None:
    """Train units one by one until `deadline` (monotonic seconds), and archive each experiment as soon as one ends.

    If estimates were too low, the remaining units are not started, or are stopped at the deadline; `fedlib run` and
    `fedlib next` continue from their last checkpoints.
    """
    from fedlib.runs.simulate import pack
    from fedlib.runs.work import Plan
    from fedlib.settings import params

    for unit in chosen:
        left = deadline - time.monotonic()
        if left < planning.MARGIN and left < unit.seconds:
            tell(f"No time is left for {unit.experiment} {unit.setting} seed {unit.seed} and what follows.")
            return
        ended = _run(command(unit, scale), left)
        with suppress(Unfinished, DataError):
            pack(Plan.of_experiment(unit.experiment, scale, params.load()), tell)
        how = "done" if ended else "stopped; the next command continues from its last checkpoint"
        tell(f"{unit.experiment} {unit.setting} seed {unit.seed}: {how}.")


def command(unit: Unit, scale: Scale) -> list[str]:
    setting = ["--setting", unit.setting] if unit.setting else []
    return ["run", unit.experiment, "--scale", scale, *setting, "--seeds", str(unit.seed)]


def _run(arguments: list[str], seconds: float) -> bool:
    """Run `fedlib` in a separate process for at most `seconds`; True if it ended by itself."""
    process = subprocess.Popen([sys.executable, "-P", "-m", "fedlib", *arguments], cwd=ROOT)
    try:
        process.wait(timeout=max(1.0, seconds))
    except subprocess.TimeoutExpired:
        return False
    finally:
        process.terminate()
        process.wait()
    if process.returncode:
        raise ConfigError(
            f"fedlib {' '.join(arguments)} failed, see above; fix it, or remove it from params.yaml."
        )
    return True
