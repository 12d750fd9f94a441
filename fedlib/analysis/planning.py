"""What to train next: the runs that decide most claims an hour first, and no more than fits into the time.

A claim is open while a run could still decide it: it is *not run* or not settled, or a data set of it is not run, and
runs of the experiments that it needs are missing. It is decided once these are there, which takes so many hours: each
of them earns it at 1 / hours. What is trained together is the missing runs of one setting of an experiment with one
seed; it is worth the sum over the open claims that need it. Equal worth: the lower seed first, then the cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from fedlib.settings.schema import Run

MARGIN = 120.0  # seconds that a start and the first checkpoint take


@dataclass(frozen=True)
class Unit:
    """The missing runs of one setting of an experiment with one seed.

    seconds: estimated training time. claims: open claims that need the experiment. worth: claims an hour. whole:
    whether it is expected to be finished in the time; else it is begun, and its last checkpoint is kept.
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

    missing: experiment -> (setting, run) of each run that is not there. needs: open claim -> experiments. cost: of a
    run, in seconds.
    """
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for experiment, runs in missing.items():
        for setting, run in runs:
            groups.setdefault((experiment, setting, run.seed), []).append(run)
    plain = [Unit(*key, tuple(runs), sum(map(cost, runs))) for key, runs in groups.items()]
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
    """What is trained within so many seconds: each unit that fits, in order; last the first one that does not, begun.

    One is begun only where a checkpoint is sure to be written, and one round to be done, in what is left.
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
