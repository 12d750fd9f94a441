"""A paper's headline table under its readings: paired seeds, distance to print, the effect of chance; its effects.

The distance of a table to print is the mean over its cells of |log2(ours / printed)| (`distance`). A run that does not
reach the target, ours or theirs, counts as one round more than it was followed. All tables use this measure. The
reading closest to print (`closest`) is found after the fact, and is evidence of nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedlib.measure import Missing
from workspace.analysis.arrivals import Arrivals
from workspace.analysis.claim import Arms, Rounds
from workspace.analysis.curves import Panel
from workspace.analysis.paper import parts
from workspace.analysis.readings import TESTED, Reading, Where, called, primary, readings, shown

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
    shown: Mapping[str, str]
    printed: Mapping[str, float]
    T: int

    @classmethod
    def of(cls, name: str, panel: Panel, shown: Mapping[str, str], printed: Mapping[str, float]) -> Row:
        """The row of a figure's panel."""
        name = f"{name}, {100 * panel.target:.0f} %"
        return cls(name, panel.experiment, panel.setting, panel.target, shown, printed, panel.T)


@dataclass(frozen=True)
class Headline:
    """A paper's headline table and effects.

    middle: the paper's statistic over seeds, "median" or "mean". effects: (claim, cell) of the effects table, of which
    the effect under every reading is drawn.
    """

    title: str
    words: str
    middle: str
    rows: tuple[Row, ...]
    effects: tuple[tuple[str, str], ...]


def headlines() -> dict[str, Headline]:
    """Paper -> `HEADLINE` of `workspace/papers/<paper>/printed.py`, for the papers that have one."""
    return {
        paper: module.HEADLINE for paper, module in parts("printed").items() if hasattr(module, "HEADLINE")
    }


def rounds(arms: Arms, reading: Reading, row: Row, method: str) -> tuple[pd.Series, int]:
    """First round at the target by seed (inf: never), and the last round of all runs; empty if not run."""
    arrived = arms.measured(reading.find(Where(row.experiment, row.setting, method)), Rounds(row.target))
    if not isinstance(arrived, Arrivals):
        return pd.Series(dtype=float), row.T
    return pd.Series(arrived.rounds, dtype=float), int(min(arrived.followed, row.T))


def cell(rounds: pd.Series, cap: int) -> str:
    """Rounds by seed as text: median and range, mean and deviation, "31 (26–44); 33.4 ± 6.9"; counts misses."""
    if rounds.empty:
        return NOT_RUN
    finite = np.sort(rounds[np.isfinite(rounds)].to_numpy())
    if len(finite) < len(rounds):
        arrived = f": {', '.join(f'{t:.0f}' for t in finite)}" if len(finite) else f" in {cap}"
        return f"{len(finite) or 'none'} of {len(rounds)} arrive{'s' * (len(finite) == 1)}{arrived}"
    if len(finite) == 1:
        return f"{finite[0]:.0f}"
    spread = f"{finite.mean():.1f} ± {finite.std(ddof=1):.1f}"
    return f"{np.median(finite):g} ({finite[0]:.0f}–{finite[-1]:.0f}); {spread}"


def paired(
    compared: Mapping[tuple[str, str], tuple[pd.Series, int]],
) -> dict[tuple[str, str], tuple[pd.Series, int]]:
    """The same, over the seeds that all entries with any seed share."""
    seeds = [set(series.index) for series, _ in compared.values() if len(series)]
    shared = sorted(set.intersection(*seeds)) if seeds else []
    return {key: (series[series.index.isin(shared)], cap) for key, (series, cap) in compared.items()}


def table(headline: Headline, readings: Sequence[Reading], arms: Arms) -> pd.DataFrame:
    """The printed row and one row per reading for each setting, on the same seeds; one column per method.

    The column "seeds" has the number of seeds. If a reading has more seeds than are shared, a row before it (its name
    followed by `ALL`) has all of them, with their number in each cell. A setting without runs has only the printed row.
    """
    lines = {}
    for row in headline.rows:
        lines[row.name, PRINTED] = {"seeds": ""} | dict(row.shown)
        compared = {
            (reading.name, m): rounds(arms, reading, row, m) for reading in readings for m in row.shown
        }
        shared = paired(compared)
        for reading in readings:
            mine = {m: shared[reading.name, m] for m in row.shown}
            whole = {m: compared[reading.name, m] for m in row.shown}
            counts, all_counts = (
                [len(series) for series, _ in group.values() if len(series)] for group in (mine, whole)
            )
            if sum(all_counts) > sum(counts):
                fewest, largest = min(all_counts), max(all_counts)
                lines[row.name, reading.name + ALL] = {
                    "seeds": f"{fewest} to {largest}" if fewest < largest else str(largest)
                } | {m: counted(*group) for m, group in whole.items()}
            if counts:
                lines[row.name, reading.name] = {"seeds": str(max(counts))} | {
                    m: cell(*group) for m, group in mine.items()
                }
    frame = pd.DataFrame.from_dict(lines, orient="index").fillna("")
    frame.index = pd.MultiIndex.from_tuples(frame.index, names=["setting", "reading"])
    return frame


def counted(rounds: pd.Series, cap: int) -> str:
    """`cell`, with the number of seeds if its text does not say it."""
    text = cell(rounds, cap)
    return f"{text}, n = {len(rounds)}" if len(rounds) and "arrive" not in text else text


def distance(ours: Sequence[float] | np.ndarray, printed: Sequence[float] | np.ndarray) -> float:
    """Mean of |log2(ours / printed)|: 1 means a factor of two, in either direction, in the typical cell."""
    return float(np.abs(np.log2(np.asarray(ours, float)) - np.log2(np.asarray(printed, float))).mean())


def values(headline: Headline, reading: Reading, arms: Arms) -> np.ndarray:
    """(cells,) the paper's statistic of each cell over our seeds; NaN if it has not been run."""
    middle = np.median if headline.middle == "median" else np.mean
    middles = []
    for row in headline.rows:
        for method in row.printed:
            series, cap = rounds(arms, reading, row, method)
            middles.append(middle(np.minimum(series.to_numpy(), cap + 1)) if len(series) else np.nan)
    return np.array(middles)


def in_print(headline: Headline) -> np.ndarray:
    """(cells,) the printed rounds; T + 1 if the paper prints that the target is not reached."""
    return np.array([min(v, row.T + 1) for row in headline.rows for v in row.printed.values()])


def page(paper: str, results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`table` of a paper under the reading that is tested and under those beside it.

    The paper's own method, which every paper prints last, comes first; the number of seeds comes last.

    Raises:
        Missing: nothing of the table has been run.
    """
    headline = headlines()[paper]
    frame = table(headline, shown(paper), Arms(dict(results)))
    sizes = frame.index.get_level_values("setting").value_counts()
    if (sizes == 1).all():
        raise Missing(f"nothing of {headline.title} has been run")
    frame = frame[frame.index.get_level_values("setting").map(sizes) > 1]
    seeds, *methods, proposed = frame.columns
    return frame[[proposed, *methods, seeds]].rename(
        lambda name: name.replace(ALL, ALL_SHORT), level="reading"
    )


@dataclass(frozen=True)
class Closest:
    """The reading closest to print, and how it was found.

    distance: its distance to print. tested: that of the tested reading. looked_at: number of readings that have every
    cell of the tested one (`cells`); skipped: number of the others.
    by_luck: median distance of the best of as many readings if each data set's values are dealt at random to the
    readings; p: how often that is at least as close.
    """

    reading: Reading
    distance: float
    tested: float
    looked_at: int
    skipped: int
    cells: int
    by_luck: float
    p: float


def closest(
    headline: Headline, readings: Sequence[Reading], tested: str, arms: Arms, draws: int = DRAWS
) -> Closest:
    """Search the archived readings for the table closest to print.

    Chance: a correct reading is close on all data sets at once. A seeded permutation of each data set's values among
    the same readings breaks that and keeps everything else, also that a choice shifts all cells of a data set together.

    Raises:
        Missing: the tested reading has no cell of the table.
    """
    matrix = np.array([values(headline, reading, arms) for reading in readings])
    first = [reading.name for reading in readings].index(tested)
    cells = ~np.isnan(matrix[first])
    if not cells.any():
        raise Missing(f"nothing of {headline.title} has been run")
    whole = ~np.any(np.isnan(matrix[:, cells]), axis=1)
    errors = np.abs(np.log2(matrix[whole][:, cells]) - np.log2(in_print(headline)[cells]))
    means = errors.mean(axis=1)
    rng = np.random.default_rng(0)
    names = np.array([row.name.split()[0] for row in headline.rows for _ in row.printed])[cells]
    blocks = [errors[:, names == name] for name in dict.fromkeys(names)]
    dealt = (np.sum([rng.permutation(block).sum(axis=1) for block in blocks], axis=0) for _ in range(draws))
    best = np.array([sums.min() for sums in dealt]) / errors.shape[1]
    complete = [reading for reading, is_whole in zip(readings, whole, strict=True) if is_whole]
    return Closest(
        complete[int(means.argmin())],
        float(means.min()),
        distance(matrix[first, cells], in_print(headline)[cells]),
        int(whole.sum()),
        int((~whole).sum()),
        int(cells.sum()),
        float(np.median(best)),
        float((best <= means.min() + 1e-12).mean()),
    )


# -- effects


def specifications(cells: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The effect of a cell under every reading that has runs, sorted, and the choices of each.

    Columns: reading; called ("" but for the tested reading and those beside it); effect; low, high: the 95 % interval,
    the effect itself with one seed; seeds; a column a choice. cells: rows of `effects.table` of one cell. A reading
    takes what the tested one takes where it says nothing. Of readings that use the same runs there is the first of:
    the tested one, those beside it, the others.

    Raises:
        Missing: no reading has runs.
    """
    rows, digests, cells = [], set(), list(cells)
    paper = cells[0]["paper"]
    names, by_name = called(paper), {reading.name: reading.choices for reading in readings(paper)}
    order = list(names)
    for cell in sorted(cells, key=lambda cell: [*order, cell["reading"]].index(cell["reading"])):
        if not cell["n"] or cell["runs"] in digests:
            continue
        digests.add(cell["runs"])
        effect = cell["estimate"]
        low, high = (effect if math.isnan(cell[end]) else cell[end] for end in ("low", "high"))
        row = {"reading": cell["reading"], "called": names.get(cell["reading"], "")}
        row |= {"effect": effect, "low": low, "high": high, "seeds": cell["n"]}
        rows.append({**row, **by_name[primary(paper).reading], **by_name[cell["reading"]]})
    if not rows:
        raise Missing("it has not been run under any reading")
    return pd.DataFrame(rows).sort_values("effect", kind="stable", ignore_index=True)


def tested_first(rows: pd.DataFrame) -> pd.DataFrame:
    """`specifications`, with the tested reading before all others."""
    return rows.sort_values("called", key=lambda names: ~names.str.endswith(TESTED), kind="stable")
