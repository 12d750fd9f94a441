"""Claims as data: what a paper says, what it prints, and the rule that decides on our runs whether it held.

A paper's claims are collected in its `Book`. The docstring of a rule states the claim::

    book = Book("clustered_sampling")

    @book.claim("cs.F1.a", "figure_1", needs=["cs_mnist"], printed="lower")
    def _(runs: Runs) -> Verdict:
        '''Algorithm 1 has a lower training loss than MD sampling.'''
        loss = per_run(runs["cs_mnist"], "train_loss", area).loc[""]
        return positive(paired(loss, "MD", "Algorithm 1"), unit="nats")

    judging.verdicts(claims("clustered_sampling"), results)  # one row per claim, judged under the paper's readings

A rule asks `runs` for what it needs (`runs[experiment]`, `runs.pick(experiment, setting, methods)`) by the paper's
names; a reading maps these names to runs (`readings.py`). If runs are missing, the verdict is *not run*, with the
reason. A rule never sees runs of another scale. `combine` joins the verdicts of parts, over the parts that were run and
dataset by dataset (the name of a part contains its dataset). A diverged run counts as the worst possible
(`measure.curve`) and is named in the detail.

A verdict is *settled* if each of at least three seeds gives it by itself, otherwise *indicated*. For a rule on the
median of paired differences, up to eight seeds, this is equivalent to a 95 % bootstrap interval that excludes the
threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pandas as pd

from fedlib.analysis import effects, measure
from fedlib.analysis.claim import Arms
from fedlib.analysis.claim import Claim as Data
from fedlib.analysis.measure import Missing as Missing
from fedlib.analysis.paper import part as part_of
from fedlib.analysis.verdict import Status as Status
from fedlib.analysis.verdict import Verdict as Verdict
from fedlib.analysis.verdict import combine as combine
from fedlib.analysis.verdict import decide as decide
from fedlib.analysis.verdict import fraction
from fedlib.analysis.verdict import number as number
from fedlib.analysis.verdict import positive as positive
from fedlib.analysis.verdict import span as span

ONE_SEED = "on one seed."
SETTLED = 3  # seeds


class Runs(Mapping[str, pd.DataFrame]):
    """The results that a rule may use, by experiment; a lookup of missing results raises `Missing`.

    Lookups are cached, so that the rules of a book share them. What a rule received is recorded (`given`).
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

    def of_seed(self, seed: int) -> Runs:
        """The same results, of one seed only."""
        found = {}
        for name, table in self.results.items():
            key = "seed", seed, name
            if key not in self.kept:
                self.kept[key] = table[table["seed"] == seed] if "seed" in table else table
            found[name] = self.kept[key]
        return Runs(found, self.kept.setdefault(("kept", seed), {}))

    def seeds(self) -> list[int]:
        """The seeds that all runs given to a rule share; those of studies if it was given no training runs."""
        given = self.given()
        groups = [set(group) for _, group in given.groupby(["experiment", "setting", "method"])["seed"]]
        studies = [self.results[name] for name, _, _ in self.notes if "diverged" not in self.results[name]]
        groups = groups or [set(table["seed"]) for table in studies if "seed" in table]
        return sorted(set.intersection(*groups)) if groups else []

    def pick(
        self, experiment: str, setting: str | None = None, methods: Collection[str] = ()
    ) -> pd.DataFrame:
        """Rows of one setting (None: all settings), with all `methods` present (none named: every method available).

        Raises:
            Missing: the experiment, the setting or one of the methods has not been run.
        """
        table = self.need(experiment, setting, methods)
        return table[table["method"].isin(methods)] if methods else table

    def need(
        self, experiment: str, setting: str | None = None, methods: Collection[str] = ()
    ) -> pd.DataFrame:
        """As `pick`, with the rows of all methods."""
        table = self._rows(experiment, setting)
        absent = set(methods) - set(table["method"].unique()) if methods else ()
        if absent:
            where = f"{experiment} {setting}" if setting else experiment
            raise Missing(f"{', '.join(sorted(absent))} has not been run in {where}")
        self.notes.add((experiment, setting, tuple(methods)))
        return table

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
        """The training runs given to a rule: experiment, setting, method, seed, and whether the run diverged."""
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
        """The last round that all runs of an experiment have."""
        if ("end", experiment) not in self.kept:
            self.kept["end", experiment] = measure.common_end(self._rows(experiment))
        return self.kept["end", experiment]

    def last(self, experiment: str, setting: str) -> int:
        """T, the number of rounds of a setting."""
        key = "last", experiment, setting
        if key not in self.kept:
            self.kept[key] = int(self._rows(experiment, setting)["round"].max())
        return self.kept[key]

    def curves(self, experiment: str, setting: str, method: str, column: str) -> dict[int, pd.Series]:
        """seed -> curve (`measure.curve`) of a method in one setting.

        Raises:
            Missing: it has not been run, or the column has not been measured.
        """
        key = "curves", experiment, setting, method, column
        if key not in self.kept:
            table, last = self.pick(experiment, setting, [method]), self.last(experiment, setting)
            if column not in table:
                raise Missing(f"{column} has not been measured in {experiment}")
            of_runs = measure.curves(table, column, {setting: last})
            found = {int(seed): of_runs[setting, method, seed] for seed in sorted(table["seed"].unique())}
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


Rule = Callable[..., Verdict]


@dataclass(frozen=True)
class Tolerance:
    """By how much a rule lets results miss what is printed, since seeds scatter: no number of the paper's.

    It is not chosen: value is the first of `steps`, from the strictest on, with which the paper's own printed numbers
    pass the rule (`fedlib/analysis/fairness.py`), which `tests/analysis/test_fairness.py` demands.
    """

    value: float
    steps: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.value:g}"


def factor(value: float) -> Tolerance:
    """A factor that is tolerated: the least tenth."""
    return Tolerance(value, tuple(round(1 + k / 10, 1) for k in range(11)))


def misses(value: int) -> Tolerance:
    """How many parts may miss."""
    return Tolerance(value, (0, 1, 2, 3))


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    artifact: the notebook that shows it ("clustered_sampling/figure_1"). needs: the experiments that its rule
    reads. printed: the paper's value, as text. informative: the claim gives a fraction of its parts and no verdict.
    tolerance: of a rule that takes one.
    """

    id: str
    paper: str
    artifact: str
    sentence: str
    printed: str
    needs: tuple[str, ...]
    rule: Rule
    informative: bool = False
    tolerance: Tolerance | None = None

    def within(self, tolerance: float) -> Claim:
        """The claim as it would be judged with another tolerance."""
        return replace(self, rule=partial(self.rule, tolerance=tolerance))

    def judge(self, results: Mapping[str, pd.DataFrame]) -> Verdict:
        """The verdict over `results` (experiment -> tidy table) under the names of one reading (`Reading.of`)."""
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
        verdict = replace(verdict, detail=" ".join(notes))
        if self.informative:
            told = f": {verdict.value}" if verdict.value else ""
            return replace(verdict, status="informative", value=f"{fraction(verdict.parts)} parts{told}")
        return replace(verdict, strength=self._strength(verdict, runs))

    def _strength(self, verdict: Verdict, runs: Runs) -> Literal["settled", "indicated", ""]:
        if not runs.notes:
            return ""
        seeds = runs.seeds()
        alike = len(seeds) >= SETTLED and all(self._alone(runs.of_seed(s)) == verdict.status for s in seeds)
        return "settled" if alike else "indicated"

    def _alone(self, runs: Runs) -> Status:
        try:
            return self.rule(runs).status
        except Missing:
            return "not run"


@dataclass
class Book:
    """A paper's claims, in the order of their definition."""

    paper: str
    claims: list[Claim] = field(default_factory=list)

    def claim(
        self,
        id: str,
        artifact: str,
        needs: Sequence[str],
        printed: str = "",
        sentence: str = "",
        informative: bool = False,
        tolerance: Tolerance | None = None,
    ) -> Callable[[Rule], Rule]:
        """Decorator that makes a function a rule; its docstring states the claim unless a sentence is given.

        A rule with a tolerance takes the value as its argument `tolerance`; the sentence shows it as "{tolerance}".
        """

        def add(rule: Rule) -> Rule:
            words = sentence or " ".join((rule.__doc__ or "").split())
            words = words.replace("{tolerance}", str(tolerance))
            judge = partial(rule, tolerance=tolerance.value) if tolerance else rule
            place = f"{self.paper}/{artifact}"
            self.claims.append(
                Claim(id, self.paper, place, words, printed, tuple(needs), judge, informative, tolerance)
            )
            return rule

        return add


def claims(paper: str) -> list[Claim]:
    """The claims of a paper (`fedlib/papers/<paper>/claims.py`)."""
    module = part_of(paper, "claims")
    return module.book.claims if hasattr(module, "book") else [as_rule(claim) for claim in module.CLAIMS]


def as_rule(claim: Data) -> Claim:
    """A claim that is data, for pages that show verdicts of rules: its outcome under all readings."""
    needs = {arm.where.experiment for cell in claim.cells for arm in cell.arms}.union(
        *(c.needs for c in claim.cells)
    )

    def rule(runs: Runs) -> Verdict:
        cells = effects.rows(claim, Arms(runs.results))
        told = effects.summary(effects.claims(pd.DataFrame(cells, columns=effects.COLUMNS)))["outcome"].iloc[
            0
        ]
        if told in ("not run", "one seed", "infeasible"):
            raise Missing(told)
        status = "held" if told.startswith("replicated") and "," not in told else "held in part"
        status = "not held" if told.startswith("refuted") and "," not in told else status
        return Verdict(status, told)

    shown = "; ".join(dict.fromkeys(cell.shown for cell in claim.cells if cell.shown)) or "not printed"
    return Claim(claim.id, claim.paper, claim.artifact, claim.text, shown, tuple(sorted(needs)), rule)


def claims_of(artifact: str) -> list[Claim]:
    """The claims that an artifact ("hcsfed/table_1") shows."""
    return [claim for claim in claims(artifact.split("/")[0]) if claim.artifact == artifact]


def one_seed(given: pd.DataFrame) -> str:
    """A sentence if a method has only one seed in a setting (`Runs.given`): no verdict on it is settled."""
    alone = given.groupby(["experiment", "setting", "method"])["seed"].nunique() == 1
    return f"Rests {'' if alone.all() else 'in part '}{ONE_SEED}" if alone.any() else ""


def diverged(given: pd.DataFrame) -> str:
    """A sentence that lists the runs (`Runs.given`) that diverged; empty if none did."""
    gone = given.loc[given["diverged"].astype(bool), ["setting", "method", "seed"]]
    names = sorted({" ".join(str(v) for v in row if v != "") for row in gone.to_numpy()})
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Diverged (method, seed): {listed}." if names else ""
