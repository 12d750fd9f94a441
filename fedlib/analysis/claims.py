"""Claims as data: what a paper says, what it prints, and the rule that decides over our runs whether it held.

A paper's claims stand in one file, gathered in its `Book`; the docstring of a rule is the claim's sentence::

    book = Book("clustered_sampling")

    @book.claim("cs.F1.a", "figure_1", needs=["cs_mnist"], printed="lower")
    def _(runs: Runs) -> Verdict:
        '''Algorithm 1 has a lower training loss than MD sampling.'''
        loss = per_run(runs["cs_mnist"], "train_loss", area).loc[""]
        return positive(paired(loss, "MD", "Algorithm 1"), unit="nats")

    verdicts(claims("clustered_sampling"), results)          # one row a claim

A rule asks `runs` for what it needs (`runs[experiment]`, `runs.pick(experiment, setting, methods)`); what is
not there makes the verdict *not run*, with the reason. A rule never sees runs of another scale. Verdicts of
parts are put together by `combine`. A diverged run counts as the worst there is (`measure.curve`) and is
named in the detail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.measure import Missing as Missing
from fedlib.analysis.paper import papers
from fedlib.analysis.paper import part as part_of

Status = Literal["held", "held in part", "not held", "not run"]
STATUSES: tuple[Status, ...] = ("held", "held in part", "not held", "not run")
ONE_SEED = "on one seed."


@dataclass(frozen=True)
class Verdict:
    """What became of a claim: its status, the replicated value and interval as text, how it came about."""

    status: Status
    value: str = ""
    interval: str = ""
    detail: str = ""


class Runs(Mapping[str, pd.DataFrame]):
    """The results that a rule may look at, by experiment; asking for what is not there raises `Missing`.

    What was looked up once is kept, so that the rules of a book share it; what a rule was given is noted (`given`).
    """

    def __init__(self, results: Mapping[str, pd.DataFrame], kept: dict[tuple, Any] | None = None) -> None:
        self.results = {name: table for name, table in results.items() if len(table)}
        self.kept: dict[tuple, Any] = {} if kept is None else kept
        self.notes: set[tuple[str, str | None, tuple[str, ...]]] = set()

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        return self.pick(experiment)

    def __contains__(self, experiment: object) -> bool:
        return experiment in self.results

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def only(self, experiments: Iterable[str]) -> Runs:
        """The same results, without those of other experiments."""
        return Runs({name: self.results[name] for name in experiments if name in self.results}, self.kept)

    def pick(self, experiment: str, setting: str | None = None, methods: Iterable[str] = ()) -> pd.DataFrame:
        """Rows of one setting (None: of all) with all `methods` present (none named: whatever is there).

        Raises:
            Missing: the experiment, the setting or one of the methods has not been run.
        """
        methods = tuple(methods)
        table = self._rows(experiment, setting)
        absent = set(methods) - set(table["method"].unique()) if methods else ()
        if absent:
            where = f"{experiment} {setting}" if setting else experiment
            raise Missing(f"{', '.join(sorted(absent))} has not been run in {where}")
        self.notes.add((experiment, setting, methods))
        return table[table["method"].isin(methods)] if methods else table

    def _rows(self, experiment: str, setting: str | None = None) -> pd.DataFrame:
        if experiment not in self.results:
            raise Missing(f"experiment {experiment} has not been run at this scale")
        table = self.results[experiment]
        if setting is None:
            return table
        if ("settings", experiment) not in self.kept:
            self.kept["settings", experiment] = dict(list(table.groupby("setting", sort=False)))
        table = self.kept["settings", experiment].get(setting)
        if table is None:
            raise Missing(f"setting {setting!r} of {experiment} has not been run at this scale")
        return table

    def given(self) -> pd.DataFrame:
        """The training runs that a rule was given: experiment, setting, method, seed, and whether it diverged."""
        found = []
        for experiment, setting, methods in self.notes:
            key, table = ("runs", experiment), self.results[experiment]
            if "diverged" not in table:  # a study's
                continue
            if key not in self.kept:
                by_run = table.groupby(["setting", "method", "seed"], sort=False)
                self.kept[key] = by_run["diverged"].any().reset_index().assign(experiment=experiment)
            runs = self.kept[key]
            runs = runs if setting is None else runs[runs["setting"] == setting]
            found.append(runs[runs["method"].isin(methods)] if methods else runs)
        if not found:
            return pd.DataFrame(columns=["experiment", "setting", "method", "seed", "diverged"])
        return pd.concat(found, ignore_index=True).drop_duplicates()

    def end(self, experiment: str) -> int:
        """Last round that all runs of an experiment have."""
        return measure.common_end(self._rows(experiment))

    def last(self, experiment: str, setting: str) -> int:
        """T, the number of rounds of a setting."""
        return int(self._rows(experiment, setting)["round"].max())

    def curves(self, experiment: str, setting: str, method: str, column: str) -> dict[int, pd.Series]:
        """seed -> curve (`measure.curve`) of a method in one setting.

        Raises:
            Missing: it has not been run, or the column has not been measured.
        """
        key = "curves", experiment, setting, method, column
        if key not in self.kept:
            table, last = self.pick(experiment, setting, [method]), self.last(experiment, setting)
            found = {int(seed): measure.curve(run, column, last) for seed, run in table.groupby("seed")}
            if any(curve.empty for curve in found.values()):
                raise Missing(f"{column} has not been measured in {experiment}")
            self.kept[key] = found
        self.notes.add((experiment, setting, (method,)))
        return self.kept[key]

    def statistic(
        self,
        experiment: str,
        setting: str,
        methods: Iterable[str],
        column: str,
        statistic: measure.Statistic,
        **options: Any,
    ) -> pd.Series:
        """A statistic of the curves of some methods in one setting -> Series by (method, seed)."""
        values = {
            (method, seed): statistic(curve, **options)
            for method in methods
            for seed, curve in self.curves(experiment, setting, method, column).items()
        }
        return pd.Series(values, dtype=float).rename_axis(["method", "seed"])


Rule = Callable[[Runs], Verdict]


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    artifact: the notebook that shows it ("clustered_sampling/figure_1"). needs: the experiments that its rule
    reads. printed: the paper's value, as text.
    """

    id: str
    paper: str
    artifact: str
    sentence: str
    printed: str
    needs: tuple[str, ...]
    rule: Rule

    def judge(self, results: Mapping[str, pd.DataFrame]) -> Verdict:
        """The verdict over `results` (experiment -> tidy table)."""
        runs = (results if isinstance(results, Runs) else Runs(results)).only(self.needs)
        try:
            verdict = self.rule(runs)
        except Missing as reason:
            return Verdict("not run", detail=f"{reason}.")
        except Exception as error:
            error.add_note(f"while deciding claim {self.id}")
            raise
        given = runs.given()
        notes = filter(None, [verdict.detail, one_seed(given), diverged(given)])
        return replace(verdict, detail=" ".join(notes))


@dataclass
class Book:
    """A paper's claims, in the order in which they are written down."""

    paper: str
    claims: list[Claim] = field(default_factory=list)

    def claim(
        self, id: str, artifact: str, needs: Sequence[str], printed: str = "", sentence: str = ""
    ) -> Callable[[Rule], Rule]:
        """Decorator: the function is the rule; its docstring the sentence unless one is given."""

        def add(rule: Rule) -> Rule:
            words = sentence or " ".join((rule.__doc__ or "").split())
            place = f"{self.paper}/{artifact}"
            self.claims.append(Claim(id, self.paper, place, words, printed, tuple(needs), rule))
            return rule

        return add


def claims(paper: str) -> list[Claim]:
    """The claims of a paper (`fedlib/papers/<paper>/claims.py`)."""
    return part_of(paper, "claims").book.claims


def claims_of(artifact: str) -> list[Claim]:
    """The claims that an artifact ("hcsfed/table_1") shows."""
    return [claim for claim in claims(artifact.split("/")[0]) if claim.artifact == artifact]


def verdicts(claims: Iterable[Claim], results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a claim: paper, id, artifact, claim, printed, replicated, interval, verdict, detail."""
    rows, runs = [], Runs(results)
    for claim in claims:
        v = claim.judge(runs)
        row = [claim.paper, claim.id, claim.artifact, claim.sentence, claim.printed]
        rows.append([*row, v.value, v.interval, v.status, v.detail])
    columns = ["paper", "id", "artifact", "claim", "printed", "replicated", "interval", "verdict", "detail"]
    return pd.DataFrame(rows, columns=columns)


def totals(verdicts: pd.DataFrame) -> pd.DataFrame:
    """How many claims held, by paper: one row a paper and one for all, one column a status."""
    counts = pd.crosstab(verdicts["paper"], verdicts["verdict"]).reindex(columns=STATUSES, fill_value=0)
    counts = counts.reindex([paper for paper in papers() if paper in counts.index])
    counts.loc["all papers"] = counts.sum()
    return counts.assign(claims=counts.sum(axis=1)).rename_axis(columns=None)


def one_seed(given: pd.DataFrame) -> str:
    """A sentence where a method has one seed alone in a setting (`Runs.given`): no verdict on it is settled."""
    alone = given.groupby(["experiment", "setting", "method"])["seed"].nunique() == 1
    return f"Rests {'' if alone.all() else 'in part '}{ONE_SEED}" if alone.any() else ""


def diverged(given: pd.DataFrame) -> str:
    """A sentence that names those of the runs (`Runs.given`) that diverged; empty where none did."""
    gone = given.loc[given["diverged"].astype(bool), ["setting", "method", "seed"]]
    names = sorted({" ".join(str(v) for v in row if v != "") for row in gone.to_numpy()})
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Diverged (method, seed): {listed}." if names else ""


# -- building blocks of rules
# -----------------------------------------------------------------------------------


def number(value: float, unit: str = "", digits: int = 3) -> str:
    """A value as text: three significant digits; "-" for nan; infinitely many rounds are "never"."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if unit == "rounds" else "infinite" if value > 0 else "-infinite"
    text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return f"{text} {unit}".strip()


def span(bounds: tuple[float, float]) -> str:
    """An interval as text; empty where there is none."""
    return "" if math.isnan(bounds[0]) else f"[{number(bounds[0])}, {number(bounds[1])}]"


def positive(differences: np.ndarray, unit: str = "", at_least: float = 0.0, detail: str = "") -> Verdict:
    """Held if the median of (n,) paired differences is above `at_least` (above 0: strictly).

    Raises:
        Missing: no seed has both methods.
    """
    if len(differences) == 0:
        raise Missing("no seed has finite results of both methods")
    middle = float(np.median(differences))
    wins = f"{int((differences > 0).sum())} of {len(differences)} seeds positive."
    return Verdict(
        "held" if middle > at_least else "not held",
        number(middle, unit),
        span(measure.interval(differences)),
        f"{detail} {wins}".strip(),
    )


def decide(holds: bool, value: str = "", interval: str = "", detail: str = "") -> Verdict:
    return Verdict("held" if holds else "not held", value, interval, detail)


def combine(
    parts: Mapping[str, Callable[[], Verdict]], all_of: int | None = None, some_of: int = 1
) -> Verdict:
    """One verdict from named parts, each judged on its own.

    Held if `all_of` parts (default: every one) held, held in part if at least `some_of` did, else not held. A
    part that has not been run never counts as held. While those could still make the claim hold, it is held in part,
    or *not run* where nothing has held yet; so is a claim of which no part has been run.
    """
    judged: dict[str, Verdict] = {}
    for name, part in parts.items():
        try:
            judged[name] = part()
        except Missing as reason:
            judged[name] = Verdict("not run", detail=str(reason))
    done = {name: v for name, v in judged.items() if v.status != "not run"}
    if not done:
        raise Missing(next(iter(judged.values())).detail.rstrip("."))
    good = sum(v.status == "held" for v in done.values())
    partly = any(v.status == "held in part" for v in done.values())
    needed = all_of or len(judged)
    still_open = good + len(judged) - len(done) >= needed
    if still_open and not (good or partly):
        raise Missing(f"{len(done)} of {len(judged)} parts have been run, which decides nothing")
    if good >= needed:
        status: Status = "held"
    else:
        status = "held in part" if good >= some_of or partly or still_open else "not held"
    value = "; ".join(f"{name}: {v.value}" for name, v in done.items() if v.value)
    bounds = "; ".join(f"{name}: {v.interval}" for name, v in done.items() if v.interval)
    failed = [name for name, v in done.items() if v.status != "held"]
    detail = [f"{good} of {len(judged)} parts held."] if len(judged) > 1 else []
    detail += [f"Not held: {'; '.join(failed)}."] if failed and len(judged) > 1 else []
    absent = {name: v for name, v in judged.items() if name not in done}
    detail += [f"No verdict on {names}: {reason}." for reason, names in by_detail(absent).items()]
    detail += [f"{names}: {how}." for how, names in by_detail(done).items()]
    return Verdict(status, value, bounds, " ".join(detail))


def by_detail(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """What verdicts have to say -> the names of those that say it, in one text."""
    names: dict[str, list[str]] = {}
    for name, v in verdicts.items():
        if v.detail:
            names.setdefault(v.detail.rstrip("."), []).append(name)
    return {detail: "; ".join(those) for detail, those in names.items()}
