"""Claims as data: what a paper says, what it prints, and the rule that decides over our runs whether it held.

A paper's claims stand in one file, gathered in its `Book`; the docstring of a rule is the claim's sentence::

    book = Book("clustered_sampling")

    @book.claim("cs.F1.a", "figure_1", needs=["cs_mnist"], printed="lower")
    def _(runs: Runs) -> Verdict:
        '''Algorithm 1 has a lower training loss than MD sampling.'''
        loss = per_run(runs["cs_mnist"], "train_loss", area).loc[""]
        return positive(paired(loss, "MD", "Algorithm 1"), unit="nats")

    judging.verdicts(claims("clustered_sampling"), results)  # one row a claim, judged under the paper's readings

A rule asks `runs` for what it needs (`runs[experiment]`, `runs.pick(experiment, setting, methods)`), by the paper's
names: a reading says whose runs stand for them (`readings.py`). What is not there makes the verdict *not run*, with
the reason. A rule never sees runs of another scale. Verdicts of parts are put together by `combine`: over what was
run, and data set by data set (a part's name holds its data set). A diverged run counts as the worst there is
(`measure.curve`) and is named in the detail.

A verdict is *settled* where each of at least three seeds gives it by itself, else *indicated*. For a rule on the median
of paired differences that is the same as a 95 % bootstrap interval off the threshold, up to eight seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pandas as pd

from fedlib.analysis import measure
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

    def of_seed(self, seed: int) -> Runs:
        """The same results, of one seed alone."""
        found = {}
        for name, table in self.results.items():
            key = "seed", seed, name
            if key not in self.kept:
                self.kept[key] = table[table["seed"] == seed] if "seed" in table else table
            found[name] = self.kept[key]
        return Runs(found, self.kept.setdefault(("kept", seed), {}))

    def seeds(self) -> list[int]:
        """The seeds that all have of what a rule was given; of studies, where it was given no training runs."""
        given = self.given()
        groups = [set(group) for _, group in given.groupby(["experiment", "setting", "method"])["seed"]]
        studies = [self.results[name] for name, _, _ in self.notes if "diverged" not in self.results[name]]
        groups = groups or [set(table["seed"]) for table in studies if "seed" in table]
        return sorted(set.intersection(*groups)) if groups else []

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
            if column not in table:
                raise Missing(f"{column} has not been measured in {experiment}")
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
    reads. printed: the paper's value, as text. informative: it gives a fraction of its parts, no verdict.
    """

    id: str
    paper: str
    artifact: str
    sentence: str
    printed: str
    needs: tuple[str, ...]
    rule: Rule
    informative: bool = False

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
    """A paper's claims, in the order in which they are written down."""

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
    ) -> Callable[[Rule], Rule]:
        """Decorator: the function is the rule; its docstring the sentence unless one is given."""

        def add(rule: Rule) -> Rule:
            words = sentence or " ".join((rule.__doc__ or "").split())
            place = f"{self.paper}/{artifact}"
            self.claims.append(Claim(id, self.paper, place, words, printed, tuple(needs), rule, informative))
            return rule

        return add


def claims(paper: str) -> list[Claim]:
    """The claims of a paper (`fedlib/papers/<paper>/claims.py`)."""
    return part_of(paper, "claims").book.claims


def claims_of(artifact: str) -> list[Claim]:
    """The claims that an artifact ("hcsfed/table_1") shows."""
    return [claim for claim in claims(artifact.split("/")[0]) if claim.artifact == artifact]


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
