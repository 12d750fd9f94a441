"""`fedlib next`: train what decides most claims an hour (`analysis/planning.py`), for so long, and archive it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from fedlib.analysis import planning
from fedlib.analysis.planning import Unit
from fedlib.data.sources import DataError
from fedlib.files import Unfinished
from fedlib.runs.progress import duration
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, ConfigError, Run, Scale

Tell = Callable[[str], None]
UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float:
    """ "150m", "2.5h" or "90s" -> seconds.

    Raises:
        ConfigError: it is none of these, or no time at all.
    """
    found = re.fullmatch(r"([0-9.]+)\s*([smh])", text.strip())
    with suppress(ValueError):
        if found and (seconds := float(found[1]) * UNITS[found[2]]) > 0:
            return seconds
    raise ConfigError(f"--within {text}: write a time as 90s, 150m or 2.5h.")


def plan(settings: Experiments, scale: Scale, tell: Tell) -> list[Unit]:
    """All missing runs that could decide a claim, the most claims an hour first; tells what cannot be trained."""
    from fedlib.analysis.claims import claims
    from fedlib.analysis.judging import verdicts
    from fedlib.analysis.paper import papers
    from fedlib.runs import archive, cost, results
    from fedlib.runs.place import Place

    place = Place.from_environment()
    every = [claim for paper in papers() for claim in claims(paper)]
    needed = sorted({name for claim in every for name in claim.needs} & set(settings.names))
    tables, missing, cannot = {}, {}, {}
    for name in needed:
        planned = settings.runs(name, scale)
        known = results.Finished(
            name, scale, settings.archived(name), place, results.RESULTS, archive.ARCHIVE
        )
        lacking = [(one.setting, one.run) for one in planned if not known.has(one.run)]
        missing[name] = [(setting, run) for setting, run in lacking if run.dataset not in known.absent]
        cannot |= {
            run.dataset: known.absent[run.dataset] for _, run in lacking if run.dataset in known.absent
        }
        with suppress(Unfinished, DataError):
            results.simulate(name, scale, experiments=settings, tell=lambda line: None, only_finished=True)
            tables[name] = results.open_results(name, scale)[0]
    judged = verdicts(every, tables).set_index("id")
    open_ = {
        claim.id: claim.needs
        for claim in every
        if any(missing.get(name) for name in claim.needs) and _open(judged.loc[claim.id])
    }
    for reason in cannot.values():
        tell(f"Left out: {reason}")
    wanted = {name: runs for name, runs in missing.items() if any(name in of for of in open_.values())}
    return planning.units(_measurable(wanted, cost.seconds, tell), open_, cost.seconds)


def _open(verdict: object) -> bool:
    return (
        verdict["verdict"] == "not run" or verdict["strength"] != "settled" or "not run" in verdict["words"]
    )


def _measurable(
    missing: dict[str, list[tuple[str, Run]]], cost: Callable[[Run], float], tell: Tell
) -> dict[str, list[tuple[str, Run]]]:
    """Without the experiments whose cost cannot be measured: a model whose weights are not here."""
    out = {}
    for name, runs in missing.items():
        try:
            for _, run in runs:
                cost(run)
        except ConfigError as error:
            tell(f"Left out: {name}: {error}")
        else:
            out[name] = runs
    return out


def lines(chosen: list[Unit]) -> list[str]:
    """The plan in words, a line a unit."""
    return [
        f"{i}. {unit.experiment} {unit.setting} seed {unit.seed}: {len(unit.runs)} runs, "
        f"about {duration(unit.seconds)}{'' if unit.whole else ', begun and kept at its last checkpoint'}; "
        f"{unit.worth:.2g} claims an hour ({', '.join(unit.claims[:6])}{', ...' if len(unit.claims) > 6 else ''})"
        for i, unit in enumerate(chosen, start=1)
    ]


def train(chosen: list[Unit], scale: Scale, deadline: float, tell: Tell) -> None:
    """Train units one by one until `deadline` (monotonic seconds), and archive each experiment as soon as one ends.

    Where estimates were too low, what is left is not started, or is stopped at the deadline: `fedlib run` and
    `fedlib next` continue from its last checkpoint.
    """
    from fedlib.analysis.collect import pack

    for unit in chosen:
        left = deadline - time.monotonic()
        if left < planning.MARGIN and left < unit.seconds:
            tell(f"No time is left for {unit.experiment} {unit.setting} seed {unit.seed} and what follows.")
            return
        ended = _run(command(unit, scale), left)
        with suppress(Unfinished, DataError):
            pack(unit.experiment, scale, tell)
        how = "done" if ended else "stopped, goes on next time from its last checkpoint"
        tell(f"{unit.experiment} {unit.setting} seed {unit.seed}: {how}.")


def command(unit: Unit, scale: Scale) -> list[str]:
    setting = ["--setting", unit.setting] if unit.setting else []
    return ["run", unit.experiment, "--scale", scale, *setting, "--seeds", str(unit.seed)]


def _run(arguments: list[str], seconds: float) -> bool:
    """`fedlib` in a process of its own, for so long at most; whether it ended by itself."""
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
            f"fedlib {' '.join(arguments)} failed, see above; mend it, or leave it out of params.yaml."
        )
    return True
