"""What to train next: the runs that decide most claims per hour first, as many as fit into the time.

A claim is open if a run could still decide it: it is *not run*, not settled, or not run on one of its datasets, and
runs of the experiments that it needs are missing. A claim whose missing runs take h hours is worth 1 / h per hour of
these runs. A unit is the missing runs of one setting of an experiment with one seed, and a fixed time to start them.
Its worth is the sum over the open claims that need it. Among units of equal worth, the lower seed comes first, then the
cheaper unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fedlib.settings.schema import Run

START = 20.0  # seconds to start a process, read its data and archive its results
MARGIN = 120.0  # seconds that a start and the first checkpoint take


@dataclass(frozen=True)
class Unit:
    """The missing runs of one setting of an experiment with one seed.

    seconds: estimated time, `START` included. claims: open claims that need the experiment. worth: claims per hour.
    whole: whether it is expected to finish in time; otherwise it is begun, and its last checkpoint is kept.
    """

    experiment: str
    setting: str
    seed: int
    runs: tuple[Run, ...]
    seconds: float
    claims: tuple[str, ...] = ()
    worth: float = 0.0
    whole: bool = True


def units(
    missing: Mapping[str, Iterable[tuple[str, Run]]],
    needs: Mapping[str, Iterable[str]],
    cost: Callable[[Run], float],
) -> list[Unit]:
    """The missing runs as units, in the order in which they should be trained.

    missing: experiment -> (setting, run) of each missing run. needs: open claim -> experiments. cost: seconds of a run.
    """
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for experiment, runs in missing.items():
        for setting, run in runs:
            groups.setdefault((experiment, setting, run.seed), []).append(run)
    plain = [Unit(*key, tuple(runs), START + sum(map(cost, runs))) for key, runs in groups.items()]
    left: dict[str, float] = {}  # experiment -> seconds
    for unit in plain:
        left[unit.experiment] = left.get(unit.experiment, 0.0) + unit.seconds
    hours = {claim: sum(left.get(name, 0.0) for name in of) / 3600 for claim, of in needs.items()}
    found = []
    for unit in plain:
        claims = tuple(claim for claim, of in needs.items() if unit.experiment in of)
        worth = sum(1 / max(hours[claim], 1e-9) for claim in claims)
        if claims:
            found.append(replace(unit, claims=claims, worth=worth))
    return sorted(found, key=lambda unit: (-unit.worth, unit.seed, unit.seconds))


def fitting(ordered: Iterable[Unit], within: float) -> list[Unit]:
    """The units to train within `within` seconds: those that fit, in order, then the first that does not, to be begun.

    A unit is begun only if the remaining time is enough for a checkpoint and one round.
    """
    chosen, begun, left = [], None, within
    for unit in ordered:
        if unit.seconds <= left:
            chosen.append(unit)
            left -= unit.seconds
        elif begun is None:
            begun = unit
    if begun and left > MARGIN + begun.seconds / min(run.T for run in begun.runs):
        chosen.append(replace(begun, whole=False))
    return chosen
