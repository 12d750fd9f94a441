"""A claim as data: what a paper says, the cells in which it says it, and how a cell is measured.

A *cell* is one comparison: a data set, a partition, a participation, and arms with weights. Its effect is one number
per seed, y = sum_k weight_k f(x_k), of a measure x of each arm (`Rounds`, `Level`, `Measurement`); f is the logarithm
for ratios. Weights +1 and -1 compare two sides; those of `estimators.trend` are a slope. Weights are signed so that the
paper claims y > 0. `CLAIMS` in `workspace/papers/<paper>/claims.py` lists a paper's claims::

    Claim(
        "hcsfed.T1.k", "hcsfed/table_1", "HCSFed needs fewer rounds than Random.", "core", "log-ratio of rounds",
        Rounds(0.8), tuple(versus(where(c, "Random"), where(c, "HCSFed"), printed, ...) for c in COLUMNS),
    )
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypedDict, Unpack

import pandas as pd

from fedlib import measure
from workspace.analysis.arrivals import Arrivals, Censored
from workspace.analysis.paper import parts
from workspace.analysis.readings import Reading, Where, planned

Kind = Literal["core", "supporting", "construction", "control"]
Estimator = Literal[
    "log-ratio of rounds",
    "difference of a level",
    "equivalence",
    "trend",
    "agreement with print",
    "exact fact",
]
ROUNDS: Estimator = "log-ratio of rounds"
LEVEL: Estimator = "difference of a level"
SAME: Estimator = "equivalence"
TREND: Estimator = "trend"
PRINT: Estimator = "agreement with print"
FACT: Estimator = "exact fact"
TWO_SIDED = (SAME, PRINT)  # tested on both sides, against a margin
# Standard deviation over seeds of log rounds, where a paper prints none: the median of the twenty relative deviations
# that FedCor's Table 1 prints, the only ones printed in the four papers.
SPREAD = 0.22
BELOW = 1.645  # standard deviations below a printed effect: 95 % of what is printed so lies above
HALF = 0.5  # of the printed effect: what is smaller is not as large as printed, however uncertain print is


@dataclass(frozen=True)
class Rounds:
    """First round at a target accuracy, compared by its logarithm. T: rounds for which the paper follows a run.

    reference: the method that shows whether the target can be reached at all. A loss, or a deviation of one, reaches
    its target from above (`falls`).
    """

    target: float
    T: float = math.inf
    reference: str = "Full participation"
    log: bool = True
    unit: str = "times"

    @staticmethod
    def falls(column: str) -> bool:
        """Whether a column's target is a level to fall to."""
        return "loss" in column


@dataclass(frozen=True)
class Level:
    """A statistic of a run's curve, times `factor` (100: points). log: compared by its logarithm.

    until: the last round of the paper's figure; later rounds, which some runs have for its table, are left out.
    """

    statistic: Callable[..., float]
    unit: str
    factor: float = 1.0
    log: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    until: float = math.inf


@dataclass(frozen=True)
class Measurement:
    """A statistic of a study's rows by seed. An arm's method is the value of the column `by`.

    each: the column that numbers independent repetitions, if it is not the seed. of_column: the statistic also takes
    the name in the arm's column, which a reading may change. beside: a study whose rows it takes too. A value that is
    only a lower bound is a `Censored`. resolution: the least difference that it can show.
    """

    by: str
    statistic: Callable[..., float]
    unit: str = ""
    log: bool = False
    each: str = "seed"
    of_column: bool = False
    beside: str = ""
    resolution: float = 0.0


@dataclass(frozen=True)
class Computed:
    """An effect that a claim computes by itself: seed -> effect, from results by experiment (named in `Cell.needs`)."""

    effect: Callable[[Mapping[str, pd.DataFrame]], dict[int, float]]
    unit: str = ""
    log: bool = False
    resolution: float = 0.0


Measure = Rounds | Level | Measurement | Computed
Measured = Arrivals | dict[int, float]  # by seed


@dataclass(frozen=True)
class Arm:
    """One side of a cell. printed: what the paper prints of it; inf: that the target is not reached.

    spread: standard deviation over seeds of the printed value, on the scale of the effect.
    """

    where: Where
    weight: float = 1.0
    printed: float | None = None
    spread: float = SPREAD


@dataclass(frozen=True)
class Cell:
    """One comparison of a claim. shown: the printed value as text. measure: if it is not the claim's.

    fact: of an exact fact, whether it is true, given results by experiment; needs: those that it reads.
    """

    name: str
    arms: tuple[Arm, ...] = ()
    data: str = ""
    partition: str = ""
    participation: str = ""
    shown: str = ""
    fact: Callable[[Mapping[str, pd.DataFrame]], bool] | None = None
    needs: tuple[str, ...] = ()
    measure: Measure | None = None


class Labels(TypedDict, total=False):
    """What tells a cell's place (`Cell`)."""

    data: str
    partition: str
    participation: str


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    artifact: its page ("hcsfed/table_1"). kind: core (abstract, introduction, conclusion, tables), supporting, by
    construction (not tested), or a control: no claim of the paper, but an effect without which others cannot be read.
    margin: a stated bound: what counts as none (`TWO_SIDED`), what the claim promises at least, or, below no effect,
    by which a side is at most worse; None: no effect is the bound. over: "all" cells, their "average", or in how many
    settings at least, as the paper's own sentence says (`sentence`).
    """

    id: str
    artifact: str
    text: str
    kind: Kind
    estimator: Estimator
    measure: Measure | None
    cells: tuple[Cell, ...]
    margin: float | None = None
    version: int = 1
    over: Literal["all", "average"] | int = "all"

    @property
    def paper(self) -> str:
        return self.artifact.split("/")[0]

    @property
    def test(self) -> Literal["more", "same"]:
        return "same" if self.estimator in TWO_SIDED else "more"

    @property
    def log(self) -> bool:
        return self.measure is not None and self.measure.log

    def measured_by(self, cell: Cell) -> Measure | None:
        """The measure of a cell; one of its own has the unit and the scale of the claim's."""
        return cell.measure or self.measure

    def scaled(self, value: float) -> float:
        """A value on the additive scale of the effect; the logarithm of 0 is -inf."""
        if not self.log:
            return value
        return math.log(value) if value > 0 else -math.inf

    def natural(self, value: float) -> float:
        """A value of the additive scale as a ratio or a difference."""
        return math.exp(value) if self.log else value

    def expected(self, cell: Cell) -> float:
        """The printed effect on the additive scale; NaN if nothing is printed. What is never reached counts as T."""
        if not cell.arms or any(arm.printed is None for arm in cell.arms):
            return math.nan
        measure = self.measured_by(cell)
        cap = measure.T if isinstance(measure, Rounds) else math.inf
        return sum(arm.weight * self.scaled(min(arm.printed or 0.0, cap)) for arm in cell.arms)

    def spread(self, cell: Cell) -> float:
        """Standard deviation over seeds of a cell's effect, were its arms independent."""
        return math.sqrt(sum((arm.weight * arm.spread) ** 2 for arm in cell.arms))

    def bound(self, cell: Cell) -> float:
        """What a cell's effect is tested against, on the additive scale.

        Print that says "not reached in T rounds" is met by a run that does not arrive either, to one round.
        """
        if self.estimator == PRINT and unreached(cell):
            measure = self.measured_by(cell)
            T = measure.T if isinstance(measure, Rounds) else math.inf
            return math.log(1 - 1 / T) if self.log else -1.0
        return 0.0 if self.margin is None else self.scaled(self.margin)

    def test_of(self, cell: Cell) -> Literal["more", "same"]:
        """Whether a cell's effect is to exceed its bound, or to stay within it."""
        return "more" if self.estimator == PRINT and unreached(cell) else self.test

    def sized(self) -> bool:
        """Whether print says how large the effect is."""
        return self.test == "more" and self.margin is None


def unreached(cell: Cell) -> bool:
    """Whether print says of a cell's only arm that it does not reach the target."""
    return len(cell.arms) == 1 and cell.arms[0].printed == math.inf


def claim_on(
    prefix: str, paper: str, id: str, text: str, kind: Kind, measure: Measure | None, cells: Iterable[Cell],
    estimator: Estimator = LEVEL, margin: float | None = None, page: str = "", version: int = 1,
    over: Literal["all", "average"] | int = "all",
) -> Claim:  # fmt: skip
    """The claim `<prefix>.<id>` of a paper, if no page is named on the one of its id: "F4a.b" is on figure_4."""
    if not page:
        number = re.match(r"\d+", id[1:])
        assert number, f"{id} names no figure and no table"
        page = f"{'figure' if id[0] == 'F' else 'table'}_{number[0]}"
    cells = tuple(cells)
    return Claim(
        f"{prefix}.{id}", f"{paper}/{page}", text, kind, estimator, measure, cells, margin, version, over
    )


def versus(
    name: str, larger: Where, smaller: Where, printed: tuple[float, float] | None = None,
    spread: float = SPREAD, shown: str = "", **labels: Unpack[Labels],
) -> Cell:  # fmt: skip
    """A cell in which the paper claims more (rounds, accuracy, ...) of one side than of the other."""
    a, b = printed or (None, None)
    return Cell(name, (Arm(larger, 1.0, a, spread), Arm(smaller, -1.0, b, spread)), shown=shown, **labels)


def asks(claim: Claim, readings: Iterable[Reading]) -> set[str]:
    """The experiments and studies that a claim asks for under some readings."""
    wheres = [reading.find(arm.where) for reading in readings for cell in claim.cells for arm in cell.arms]
    measures = [claim.measured_by(cell) for cell in claim.cells]
    beside = {m.beside for m in measures if isinstance(m, Measurement) and m.beside}
    return (
        beside
        | {where.experiment for where in wheres}
        | {name for cell in claim.cells for name in cell.needs}
    )


def claims_of(paper: str) -> tuple[Claim, ...]:
    """A paper's claims as data; none if they are not data yet."""
    modules = parts("claims")
    return getattr(modules[paper], "CLAIMS", ()) if paper in modules else ()


def sentence(id: str) -> tuple[str, str]:
    """The paper's own sentence of a claim, and where it stands; ("", "") if none is quoted (`sentences.py`)."""
    return next(
        (module.SENTENCES[id] for module in parts("sentences").values() if id in module.SENTENCES), ("", "")
    )


@dataclass
class Arms:
    """The runs that claims ask for, by experiment, setting and method; each is measured once."""

    results: Mapping[str, pd.DataFrame]
    _rows: dict[tuple[str, str], dict[Any, pd.DataFrame]] = field(default_factory=dict)
    _measured: dict[tuple[Where, Measure], Measured | None] = field(default_factory=dict)
    _ends: dict[Where, float] = field(default_factory=dict)

    def rows(self, where: Where, column: str = "method") -> pd.DataFrame | None:
        """The rows of one arm; None if it has not been run."""
        key = where.experiment, column
        if key not in self._rows:
            table = self.results.get(where.experiment)
            usable = table is not None and column in table and "setting" in table
            for plan in planned() if usable and column == "method" else ():
                table = plan.seen(table) if plan.experiment == where.experiment else table  # ty: ignore[invalid-argument-type]
            self._rows[key] = dict(list(table.groupby(["setting", column], sort=False))) if usable else {}  # ty: ignore[missing-union-attribute]
        return self._rows[key].get((where.setting, where.method))

    def common(self, places: Iterable[Where]) -> float:
        """The last round that all runs of some arms have, but for diverged ones: levels are compared up to it."""
        return min([self._end(where) for where in places] or [math.inf])

    def _end(self, where: Where) -> float:
        if where not in self._ends:
            rows = self.rows(where)
            runs = None if rows is None else rows.groupby("seed")
            ends = [] if runs is None else runs["round"].max()[~runs["diverged"].any()]
            self._ends[where] = min(ends, default=math.inf)
        return self._ends[where]

    def measured(self, where: Where, measure: Measure) -> Measured | None:
        """The measure of one arm by seed; None if it has not been run or its column has not been measured."""
        key = where, measure
        if key not in self._measured:
            self._measured[key] = self._measure(where, measure)
        return self._measured[key]

    def _measure(self, where: Where, how: Measure) -> Measured | None:
        rows = self.rows(where, how.by if isinstance(how, Measurement) else "method")
        if rows is None:
            return None
        if isinstance(how, Measurement):
            if how.beside and how.beside not in self.results:
                return None
            arguments = [where.column] * how.of_column + [self.results[how.beside] for _ in [0] if how.beside]
            values = {int(str(k)): how.statistic(group, *arguments) for k, group in rows.groupby(how.each)}
            return {k: value if isinstance(value, Censored) else float(value) for k, value in values.items()}
        if where.column not in rows or rows[where.column].isna().all():
            return None
        if isinstance(how, Rounds):
            return Arrivals.of(rows, where.column, how.target, how.falls(where.column))
        assert isinstance(how, Level)
        rows = rows[["round", "seed", "diverged", where.column]][rows["round"] <= how.until]
        last, curve = int(rows["round"].max()), partial(measure.curve, column=where.column)
        options = dict(how.options)
        return {
            int(str(seed)): how.factor * how.statistic(curve(run, last=last), **options)
            for seed, run in rows.groupby("seed")
        }
