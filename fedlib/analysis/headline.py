"""A paper's headline table and effects under its readings: paired seeds, distance to print, and the effect of chance.

The distance of a table to print is the mean over its cells of |log2(ours / printed)| (`distance`). A run that does not
reach the target, ours or theirs, counts as one round more than it was followed. All tables use this measure. The
reading closest to print is found after the fact; it never counts as held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.lookup import Runs
from fedlib.analysis.measure import Missing
from fedlib.analysis.paper import parts
from fedlib.analysis.readings import AS_WRITTEN, CLOSEST, Reading, Where, named, readings

NOT_RUN, PRINTED, ALL = "not run", "printed", ", all seeds, not paired"
ALL_SHORT = ", all seeds"  # on a page, which explains it
DRAWS = 1000  # of the simulation of chance


@dataclass(frozen=True)
class Row:
    """One row of a headline table: a setting, with the test accuracy whose first round is counted.

    shown: the printed cell of a method, as text. printed: its number of rounds; inf if it is printed as not reached.
    T: rounds for which the paper follows a run.
    """

    name: str
    experiment: str
    setting: str
    target: float
    methods: tuple[str, ...]
    shown: Mapping[str, str]
    printed: Mapping[str, float]
    T: int


Curves = Callable[[Where], dict[int, pd.Series]]


@dataclass(frozen=True)
class Effect:
    """The content of a headline claim as one number per seed.

    found: a function from `Where` to curves -> (n,) effects. null: the value that means no effect.
    """

    claim: str
    words: str
    found: Callable[[Curves], np.ndarray]
    printed: float | None = None
    null: float = 1.0


@dataclass(frozen=True)
class Headline:
    """A paper's headline table and effects. middle: the paper's statistic over seeds, "median" or "mean"."""

    title: str
    words: str
    middle: str
    rows: tuple[Row, ...]
    effects: tuple[Effect, ...]


def headlines() -> dict[str, Headline]:
    """Paper -> `HEADLINE` of `fedlib/papers/<paper>/headline.py`, for the papers that have one."""
    return {paper: module.HEADLINE for paper, module in parts("headline").items()}


def rounds(runs: Runs, reading: Reading, row: Row, method: str) -> tuple[pd.Series, int]:
    """First round at the target by seed (inf: never), and the last round of all runs; empty if not run."""
    try:
        where = reading.find(Where(row.experiment, row.setting, method))
        curves = runs.curves(*where)
    except Missing:
        return pd.Series(dtype=float), row.T
    key = "rounds", *where, row.target, row.T
    if key not in runs.kept:
        found = pd.Series(
            {s: measure.rounds_to_target(c, row.target) for s, c in curves.items()}, dtype=float
        )
        ends = [int(curves[s].index.max()) for s in found.index if np.isinf(found[s])]
        runs.kept[key] = found, min(ends, default=row.T)
    return runs.kept[key]


def cell(found: pd.Series, cap: int) -> str:
    """Rounds by seed as text: median and range, mean and deviation, "31 (26–44); 33.4 ± 6.9"; counts misses."""
    if found.empty:
        return NOT_RUN
    there = np.sort(found[np.isfinite(found)].to_numpy())
    if len(there) < len(found):
        arrived = f": {', '.join(f'{t:.0f}' for t in there)}" if len(there) else f" in {cap}"
        return f"{len(there) or 'none'} of {len(found)} arrive{'s' * (len(there) == 1)}{arrived}"
    if len(there) == 1:
        return f"{there[0]:.0f}"
    spread = f"{there.mean():.1f} ± {there.std(ddof=1):.1f}"
    return f"{np.median(there):g} ({there[0]:.0f}–{there[-1]:.0f}); {spread}"


def compare(
    row: Row, readings: Iterable[Reading], runs: Runs
) -> dict[tuple[str, str], tuple[pd.Series, int]]:
    """(reading, method) -> `rounds`, over the seeds that everything compared in this row shares."""
    return paired({(one.name, m): rounds(runs, one, row, m) for one in readings for m in row.methods})


def paired(
    found: Mapping[tuple[str, str], tuple[pd.Series, int]],
) -> dict[tuple[str, str], tuple[pd.Series, int]]:
    """The same, over the seeds that all entries with any seed share."""
    seeds = [set(series.index) for series, _ in found.values() if len(series)]
    shared = sorted(set.intersection(*seeds)) if seeds else []
    return {key: (series[series.index.isin(shared)], cap) for key, (series, cap) in found.items()}


def table(headline: Headline, readings: Sequence[Reading], runs: Runs) -> pd.DataFrame:
    """The printed row and one row per reading for each setting, on the same seeds; one column per method.

    The column "seeds" has the number of seeds. If a reading has more seeds than are shared, a second row (its name
    followed by `ALL`) has all of them, with their number in each cell. A setting without runs has only the printed row.
    """
    out = {}
    for row in headline.rows:
        out[row.name, PRINTED] = {"seeds": ""} | {m: row.shown.get(m, "") for m in row.methods}
        found = {(one.name, m): rounds(runs, one, row, m) for one in readings for m in row.methods}
        shared = paired(found)
        for one in readings:
            mine = {m: shared[one.name, m] for m in row.methods}
            whole = {m: found[one.name, m] for m in row.methods}
            counts, all_counts = (
                [len(series) for series, _ in those.values() if len(series)] for those in (mine, whole)
            )
            if counts:
                out[row.name, one.name] = {"seeds": str(max(counts))} | {
                    m: cell(*those) for m, those in mine.items()
                }
            if sum(all_counts) > sum(counts):
                least, most = min(all_counts), max(all_counts)
                out[row.name, one.name + ALL] = {
                    "seeds": f"{least} to {most}" if least < most else str(most)
                } | {m: counted(*those) for m, those in whole.items()}
    frame = pd.DataFrame.from_dict(out, orient="index").fillna("")
    frame.index = pd.MultiIndex.from_tuples(frame.index, names=["setting", "reading"])
    return frame


def counted(found: pd.Series, cap: int) -> str:
    """`cell`, with the number of seeds if its text does not say it."""
    text = cell(found, cap)
    return f"{text}, n = {len(found)}" if len(found) and "arrive" not in text else text


def distance(ours: Sequence[float], printed: Sequence[float]) -> float:
    """Mean of |log2(ours / printed)|: 1 means a factor of two, in either direction, in the typical cell."""
    return float(np.abs(np.log2(np.asarray(ours, float)) - np.log2(np.asarray(printed, float))).mean())


def values(headline: Headline, reading: Reading, runs: Runs) -> np.ndarray:
    """(cells,) the paper's statistic of each cell over our seeds; NaN if it has not been run."""
    middle = np.median if headline.middle == "median" else np.mean
    found = []
    for row in headline.rows:
        for method in row.printed:
            series, cap = rounds(runs, reading, row, method)
            found.append(middle(np.minimum(series.to_numpy(), cap + 1)) if len(series) else np.nan)
    return np.array(found)


def in_print(headline: Headline) -> np.ndarray:
    """(cells,) the printed rounds; T + 1 if the paper prints that the target is not reached."""
    return np.array([min(v, row.T + 1) for row in headline.rows for v in row.printed.values()])


def page(paper: str, results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`table` of a paper under its named readings, and under the one closest to print if that is another one.

    The paper's own method, which every paper prints last, comes first; the number of seeds comes last.

    Raises:
        Missing: nothing of the table has been run.
    """
    headline, runs, shown = headlines()[paper], Runs(results), list(named(paper))
    near = closest(headline, readings(paper), runs).reading
    if near.name not in [one.name for one in shown]:
        shown.append(replace(near, name=CLOSEST))
    found = table(headline, shown, runs)
    there = found.index.get_level_values("setting").value_counts()
    found = found[found.index.get_level_values("setting").map(there) > 1]
    seeds, *methods, own = found.columns
    return found[[own, *methods, seeds]].rename(lambda name: name.replace(ALL, ALL_SHORT), level="reading")


@dataclass(frozen=True)
class Closest:
    """The reading closest to print, and how it was found.

    distance: its distance to print. written: that of the reading as written; NaN if the paper has none. looked_at:
    number of readings that have every cell of the reading as written (`cells`); skipped: number of the others.
    by_luck: median distance of the best of as many readings if each cell's values are dealt at random to the
    readings; p: how often that is at least as close.
    """

    reading: Reading
    distance: float
    written: float
    looked_at: int
    skipped: int
    cells: int
    by_luck: float
    p: float


def closest(headline: Headline, readings: Sequence[Reading], results: Runs, draws: int = DRAWS) -> Closest:
    """Search the archived readings for the table closest to print.

    Chance: a correct reading is close in all cells at once. A seeded permutation of each cell's values among the same
    readings breaks that and keeps everything else.

    Raises:
        Missing: the reading as written has no cell of the table (where there is none: no reading has).
    """
    matrix = np.array([values(headline, one, results) for one in readings])
    written = next((k for k, one in enumerate(readings) if one.name == AS_WRITTEN), None)
    cells = ~np.isnan(matrix if written is None else matrix[[written]]).all(axis=0)
    if not cells.any():
        raise Missing(f"nothing of {headline.title} has been run")
    whole = ~np.any(np.isnan(matrix[:, cells]), axis=1)
    errors = np.abs(np.log2(matrix[whole][:, cells]) - np.log2(in_print(headline)[cells]))
    means = errors.mean(axis=1)
    rng = np.random.default_rng(0)
    best = np.array([rng.permuted(errors, axis=0).mean(axis=1).min() for _ in range(draws)])
    there = [one for one, is_whole in zip(readings, whole, strict=True) if is_whole]
    return Closest(
        there[int(means.argmin())],
        float(means.min()),
        math.nan
        if written is None
        else float(np.abs(np.log2(matrix[written, cells] / in_print(headline)[cells])).mean()),
        int(whole.sum()),
        int((~whole).sum()),
        int(cells.sum()),
        float(np.median(best)),
        float((best <= means.min() + 1e-12).mean()),
    )


# -- effects


def speed_up(row: Row, base: str, method: str) -> Callable[[Curves], np.ndarray]:
    """Rounds of `base` over those of `method`, by seed; a run that does not arrive counts as its last round + 1."""

    def found(curves: Curves) -> np.ndarray:
        a, b = (curves(Where(row.experiment, row.setting, m)) for m in (base, method))

        def arrived(curve: pd.Series) -> float:
            return min(measure.rounds_to_target(curve, row.target), curve.index.max() + 1)

        return np.array([arrived(a[s]) / arrived(b[s]) for s in a if s in b])

    return found


def difference(
    asked: Where, base: str, method: str, statistic: measure.Statistic, last: int
) -> Callable[[Curves], np.ndarray]:
    """A statistic of `base` minus that of `method` over the rounds up to `last`, by seed."""

    def found(curves: Curves) -> np.ndarray:
        a, b = (curves(asked._replace(method=m)) for m in (base, method))
        return np.array([statistic(a[s][:last]) - statistic(b[s][:last]) for s in a if s in b])

    return found


def middle(effect: Effect, reading: Reading, runs: Runs) -> tuple[float, int]:
    """The effect under a reading, median over seeds, and over how many; (nan, 0) where it has not been run."""
    try:
        found = effect.found(partial(_looked_up, runs, reading, []))
    except Missing:
        found = np.array([])
    return (float(np.median(found)) if len(found) else np.nan), len(found)


def fewer(ratio: float, base: str) -> str:
    """A ratio of rounds, of `base` over a method's, in words: "2.5 times fewer rounds than random selection"."""
    if f"{ratio:.2f}" == "1.00":
        return f"as many rounds as {base}"
    if ratio > 1:
        return f"{ratio:.2f} times fewer rounds than {base}"
    return f"{1 / ratio:.2f} times as many rounds as {base}"


def specifications(effect: Effect, readings: Iterable[Reading], runs: Runs) -> pd.DataFrame:
    """The effect under every reading that has runs, sorted: reading, effect, low, high, seeds, and its choices.

    effect: median over seeds. low, high: its 95 % bootstrap interval. A reading takes as written what it says nothing
    of. Readings that use the same runs give one row, under the name of the first.

    Raises:
        Missing: no reading has runs.
    """
    rows, seen, readings = [], set(), list(readings)
    written = next((one.choices for one in readings if one.name == AS_WRITTEN), {})
    for reading in readings:
        asked: list[Where] = []
        try:
            found = effect.found(partial(_looked_up, runs, reading, asked))
        except Missing:
            continue
        if len(found) and tuple(asked) not in seen:
            seen.add(tuple(asked))
            low, high = measure.interval(found)
            middle = float(np.median(found))
            bounds = {"low": middle if np.isnan(low) else low, "high": middle if np.isnan(high) else high}
            taken = {**written, **reading.choices}
            rows.append({"reading": reading.name, "effect": middle, **bounds, "seeds": len(found), **taken})
    if not rows:
        raise Missing(f"nothing that decides {effect.claim} has been run")
    return pd.DataFrame(rows).sort_values("effect", kind="stable", ignore_index=True)


def _looked_up(runs: Runs, reading: Reading, asked: list[Where], where: Where) -> dict[int, pd.Series]:
    there = reading.find(where)
    asked.append(there)
    return runs.curves(*there)
