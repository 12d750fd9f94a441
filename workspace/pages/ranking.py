"""The one rule that ranks samplers, on every page that does. `site/static/ranking.js` is the same for the chooser.

A sampler's *gain* is its accuracy when the budget is spent (the mean over the last tenth of it) minus that of Random,
with the same seed, partition, initial model and batches: the mean over settings of the mean over seeds, in points.
Samplers are ranked by their gains in the settings that all ranked ones have. A sampler that lacks some of these is not
ranked, but compared with the first in the settings that both have.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy import stats

from workspace.pages.front import listed

Kind = Literal["sampler", "reference", "server"]
Setting = Hashable
Reached = Mapping[
    tuple[Setting, str], Mapping[int, float]
]  # (setting, method) -> seed -> accuracy in percent

BASE = "Random"
MATTERS = 1.0  # points of accuracy: a smaller difference is none that matters
TAIL = 0.9  # from which share of the budget on accuracies are averaged
ONE_SEED, ABOVE, BELOW, CLOSE, UNCLEAR = VERDICTS = (
    "one seed",
    "above Random",
    "below Random",
    "within 1 point of Random",
    "not distinguishable from Random",
)


@dataclass(frozen=True)
class Gain:
    """A mean over settings of differences by seed, with its 95 % interval (NaN with one seed everywhere).

    settings: of which it is the mean. fewest, largest: numbers of seeds of a setting.
    """

    value: float
    low: float
    high: float
    settings: tuple[Setting, ...]
    fewest: int
    largest: int

    @property
    def apart(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> str:
        """The gain over Random in words (one of `VERDICTS`)."""
        if np.isnan(self.low):
            return ONE_SEED
        if self.apart and abs(self.value) >= MATTERS:
            return ABOVE if self.value > 0 else BELOW
        if self.apart or (self.low > -MATTERS and self.high < MATTERS):
            return CLOSE
        return UNCLEAR


@dataclass(frozen=True)
class Ranked:
    """A row of the ranking.

    rank: 1 for the first; None of what is not ranked. gain: over Random; of a ranked sampler in the settings that all
    ranked ones have. behind: its gain over the first in the settings that both have; None of the first. ran: all
    settings that it has.
    """

    method: str
    kind: Kind
    rank: int | None
    gain: Gain
    behind: Gain | None
    ran: frozenset[Setting]


@dataclass(frozen=True)
class Ranking:
    """settings: in which the ranked samplers are compared. rows: the ranked ones in order, then the others.

    first: the highest of the ranked that are above Random, or else the highest. exceptions: samplers that are not
    ranked, but above Random and above the first in the settings that both have.
    """

    settings: tuple[Setting, ...]
    rows: list[Ranked] = field(default_factory=list)
    first: Ranked | None = None
    exceptions: list[Ranked] = field(default_factory=list)

    @property
    def ranked(self) -> list[Ranked]:
        return [row for row in self.rows if row.rank is not None]


def reached(spent: np.ndarray, accuracy: np.ndarray, budget: float) -> float:
    """The mean accuracy over the last tenth of the budget; NaN if it affords no checkpoint.

    spent, accuracy: (checkpoints,) of one run.
    """
    affordable = spent <= budget * (1 + 1e-9)
    late = affordable & (spent > TAIL * budget)
    if late.any():
        return float(accuracy[late].mean())
    return float(accuracy[affordable][-1]) if affordable.any() else float("nan")


def at_budget(points: pd.DataFrame, cost: str = "round", amount: float = 1.0) -> dict[Any, dict[int, float]]:
    """What every run reaches: (setting, method) -> seed -> accuracy; a setting is (experiment, setting).

    points: `chooser.points`. amount: share of what Random spends with the same seed; of server seconds the seconds.
    """
    keys = ["experiment", "setting", "method", "seed"]
    runs = {
        key: (run[cost].to_numpy(), run["accuracy"].to_numpy())
        for key, run in points.groupby(keys, sort=False)
    }
    ends: dict[Any, dict[int, float]] = {}
    for (experiment, setting, method, seed), (spent, accuracy) in runs.items():  # ty: ignore[not-iterable]
        base = runs.get((experiment, setting, BASE, seed))
        if base is None:
            continue
        value = reached(spent, accuracy, amount if cost == "server_seconds" else amount * base[0][-1])
        if not np.isnan(value):
            ends.setdefault(((experiment, setting), method), {})[int(seed)] = value
    return ends


def gain(ends: Reached, method: str, base: str, settings: Collection[Setting]) -> Gain | None:
    """The gain of a method over another one; None where they share no seed of a setting."""
    parts: dict[Setting, np.ndarray] = {}
    for setting in settings:
        mine, theirs = ends.get((setting, method), {}), ends.get((setting, base), {})
        if seeds := [seed for seed in mine if seed in theirs]:
            parts[setting] = np.array([mine[seed] - theirs[seed] for seed in seeds])
    if not parts:
        return None
    counts = [len(part) for part in parts.values()]
    value, low, high = pooled(list(parts.values()))
    return Gain(value, low, high, tuple(parts), min(counts), max(counts))


def pooled(parts: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The mean over settings of the mean over seeds, with Student's 95 % interval (Satterthwaite's degrees of freedom).

    A setting with one seed takes the spread of the others; without any spread the bounds are NaN.
    """
    value = float(np.mean([part.mean() for part in parts]))
    repeated = [part for part in parts if len(part) > 1]
    if not repeated:
        return value, float("nan"), float("nan")
    degrees = sum(len(part) - 1 for part in repeated)
    common = sum(((part - part.mean()) ** 2).sum() for part in repeated) / degrees
    terms = [
        (part.var(ddof=1) / len(part), len(part) - 1) if len(part) > 1 else (common, degrees)
        for part in parts
    ]
    variance = sum(v for v, _ in terms)
    freedom = variance**2 / sum(v * v / df for v, df in terms) if variance else 30
    quantile = stats.t.ppf(0.975, min(30, max(1, int(freedom + 1e-9))))
    half = float(quantile * np.sqrt(variance)) / len(parts)
    return value, value - half, value + half


def block(ran: Mapping[str, frozenset[Setting]], order: Sequence[Setting]) -> tuple[Setting, ...]:
    """The settings of the largest complete comparison: most samplers times settings; of equals, most settings.

    ran: sampler -> its settings.
    """
    shared = set(ran.values())
    while len(wider := shared | {a & b for a in shared for b in shared}) > len(shared):
        shared = wider
    place = {setting: k for k, setting in enumerate(order)}

    def size(settings: frozenset[Setting]) -> tuple[int, int, list[int]]:
        samplers = sum(settings <= mine for mine in ran.values())
        return samplers * len(settings), len(settings), [-k for k in sorted(place[s] for s in settings)]

    best = max(shared, key=size, default=frozenset())
    return tuple(sorted(best, key=place.__getitem__))


def ranking(ends: Reached, kinds: Mapping[str, Kind], settings: Sequence[Setting]) -> Ranking:
    """The ranking of samplers in some settings.

    kinds: of all methods that may be shown, in order; Random is not among them.
    """
    whole = {method: gain(ends, method, BASE, settings) for method in kinds}
    ran = {method: frozenset(total.settings) for method, total in whole.items() if total}
    samplers = {method: mine for method, mine in ran.items() if kinds[method] == "sampler"}
    common = block(samplers, settings)
    gains: dict[str, Gain] = {}
    for method, mine in ran.items():
        if total := gain(ends, method, BASE, [s for s in common if s in mine] or settings):
            gains[method] = total
    order = sorted((m for m in samplers if set(common) <= samplers[m]), key=lambda m: -gains[m].value)
    first = next((m for m in order if gains[m].verdict == ABOVE), order[0] if order else None)
    fewer = sorted(samplers.keys() - set(order), key=lambda m: (-len(samplers[m]), -gains[m].value))
    rows = []
    for method in [*order, *fewer, *(m for m in ran if kinds[m] != "sampler")]:
        behind = gain(ends, method, first, settings) if first and method != first else None
        rank = order.index(method) + 1 if method in order else None
        rows.append(Ranked(method, kinds[method], rank, gains[method], behind, ran[method]))
    exceptions = [
        row
        for row in rows
        if row.kind == "sampler"
        and row.rank is None
        and row.gain.verdict == ABOVE
        and (row.behind is None or row.behind.value > 0)
    ]
    leader = next((row for row in rows if row.method == first), None)
    return Ranking(common, rows, leader, exceptions)


def answer(ranking: Ranking) -> str:
    """The ranking in words."""
    first, ranked, n = ranking.first, ranking.ranked, len(ranking.settings)
    if first is None:
        return "No sampler that may be used here has run in these settings."
    alone = len(ranked) == 1
    where = (
        f"In {'the one setting' if n == 1 else f'the {n} settings'} that "
        f"{'it' if alone else f'all {len(ranked)} of these samplers'} ran in"
    )
    if first.gain.verdict == ABOVE:
        text = (
            f"{where}, {first.method} ends {signed(first.gain.value)} points of accuracy above Random "
            f"({interval(first.gain)}): "
        )
        place = ranked.index(first)
        higher = [row.method for row in ranked[:place]]
        if higher:
            verb = "are" if len(higher) > 1 else "is"
            text += f"the first that is surely above it; {listed(higher)} {verb} higher, but not surely."
        else:
            text += "no other one ran." if alone else "the first of them."
        tied = [row.method for row in ranked[place + 1 :] if row.behind and not row.behind.high < 0]
        if tied:
            text += f" Not distinguishable from it: {listed(tied)}."
    else:
        text = f"{where}, none {'' if alone else 'of them '}is surely above Random by a point of accuracy or more."
        if not ranking.exceptions:
            text += " Random is the simplest choice."
    for row in ranking.exceptions:
        against = (
            f"; against {first.method} it has {signed(row.behind.value)} there ({interval(row.behind)})"
            if row.behind
            else ""
        )
        text += (
            f" {row.method} ran in only {len(row.ran)} setting{'s' * (len(row.ran) != 1)}, with "
            f"{signed(row.gain.value)} points ({interval(row.gain)}){against}."
        )
    return text


def signed(value: float) -> str:
    """One digit with its sign: "+7.2"."""
    return f"{'−' if value < 0 else '+'}{abs(value):.1f}"


def interval(gain: Gain) -> str:
    return ONE_SEED if np.isnan(gain.low) else f"{signed(gain.low)} to {signed(gain.high)}"
