"""What FedCor's and HiCS-FL's claims share: their readings of an accuracy curve, and their decision rules.

fin: mean accuracy of the last 5 % of the rounds. auc: mean accuracy over all rounds. rough: standard deviation of the
accuracy's change from round to round after a quarter of the run. Rbar: mean first round at a target, where a run that
has not arrived by the cap counts as the cap + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, number, span
from fedlib.analysis.measure import (
    Statistic,
    area,
    capped_mean,
    common_end,
    end_mean,
    followed,
    interval,
    jitter,
    paired,
    per_run,
    sign_rule,
)


@dataclass(frozen=True)
class Panel:
    """One panel of a figure: a setting of an experiment, and the target accuracy that its table asks for.

    T: rounds for which the paper follows a run to the target.
    """

    experiment: str
    setting: str
    target: float = 0.0
    T: int = 0

    def until(self, runs: Runs) -> int:
        """Last round that all runs of the experiment have: some are followed further, for its table."""
        return runs.end(self.experiment)

    def within(self, runs: Runs, methods: list[str]) -> pd.DataFrame:
        """Rows of the methods in the rounds that the figures show, of the seeds that all of them have."""
        table = runs.pick(self.experiment, self.setting, methods)
        seeds = self._shared({m: set(rows) for m, rows in table.groupby("method")["seed"]})
        return table[(table["round"] <= self.until(runs)) & table["seed"].isin(seeds)]

    def _shared(self, seeds: Mapping[str, set[int]]) -> set[int]:
        found = set.intersection(*seeds.values())
        if not found:
            raise Missing(f"no seed of {self.experiment} {self.setting} has all of {', '.join(seeds)}")
        return found

    def read(self, runs: Runs, methods: list[str], statistic: Statistic, **options: object) -> pd.Series:
        """A statistic of the shown test accuracy by (method, seed)."""
        return per_run(self.within(runs, methods), "test_accuracy", statistic, **options).droplevel("setting")

    def fin(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, end_mean, share=0.05)

    def auc(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, area)

    def rough(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, jitter)

    def rounds(self, runs: Runs, methods: list[str]) -> pd.Series:
        """First round at the target by (method, seed), of the seeds that all have; inf where it is never reached."""
        runs.pick(self.experiment, self.setting, methods)
        found = self._arrivals(runs)[0]
        found = found[found.index.get_level_values("method").isin(methods)]
        seeds = self._shared(
            {m: set(one.index.get_level_values("seed")) for m, one in found.groupby("method")}
        )
        return found[found.index.get_level_values("seed").isin(seeds)]

    def cap(self, runs: Runs) -> int:
        """Last round of which it is known who has arrived (`measure.followed`)."""
        runs.pick(self.experiment, self.setting)
        return self._arrivals(runs)[1]

    def _arrivals(self, runs: Runs) -> tuple[pd.Series, int]:
        key = "arrivals", self.experiment, self.setting, self.target
        if key not in runs.kept:
            table = runs._rows(self.experiment, self.setting)
            rounds = measure.arrivals(table, self.target)
            runs.kept[key] = rounds.droplevel("setting"), followed(table, rounds)
        return runs.kept[key]

    def arrived(self, runs: Runs, methods: list[str], enough: int | None = None) -> pd.Series:
        """`rounds`, where they can decide who is first.

        enough: rounds after which never to have arrived decides (None: T).

        Raises:
            Missing: nobody arrives, and the runs are shorter than that.
        """
        rounds, cap = self.rounds(runs, methods), self.cap(runs)
        if np.isinf(rounds).all() and cap < (enough or self.T):
            raise Missing(
                f"nobody reaches {100 * self.target:.0f} % in {cap} rounds; the paper follows a run for {self.T}"
            )
        return rounds

    def rbar(self, runs: Runs, methods: list[str]) -> pd.Series:
        """Rbar by method, where `arrived` can tell."""
        arrived = self.arrived(runs, methods)
        return arrived.groupby("method").agg(capped_mean, cap=self.cap(runs)).reindex(methods)


def means(values: pd.Series) -> pd.Series:
    """Mean over seeds of a statistic by (method, seed)."""
    return values.groupby("method", sort=False).mean()


def by_sign(values: pd.Series, a: str, b: str, unit: str = "", cap: float = np.inf) -> Verdict:
    """The sign rule on values[a] - values[b], claimed positive; values above `cap` count as cap + 1."""
    differences = paired(values.clip(upper=cap + 1), a, b)
    if len(differences) == 0:
        raise Missing(f"no seed has both {a} and {b}")
    outcome, wins = sign_rule(differences), int((differences > 0).sum())
    mean = number(float(differences.mean()), unit)
    detail = f"{outcome}, {wins} of {len(differences)} seeds positive"
    return decide(outcome == "supported", mean, span(interval(differences, np.mean)), detail)


def every(verdicts: Mapping[str, Verdict]) -> Verdict:
    """Held if all of some verdicts held; the value and the interval are those of the weakest."""
    for name, v in verdicts.items():
        if v.status != "held":
            return Verdict("not held", f"{v.value} against {name}", v.interval, v.detail)
    name, v = min(verdicts.items(), key=lambda item: float(item[1].value.split()[0]))
    return Verdict("held", f"{v.value} against {name}", v.interval, v.detail)


def count(
    parts: Mapping[str, Callable[[], Verdict]], need: int | None = None, partial: int | None = None
) -> Verdict:
    """Held if `need` parts (default: all) held, held in part from `partial` on, else not held; None: no middle."""
    return combine(parts, need, partial or need or len(parts))


def shown(results: Mapping[str, pd.DataFrame], experiments: Mapping[str, str]) -> pd.DataFrame:
    """Rows for a figure over several experiments: label -> experiment becomes the setting "label setting".

    Experiments without results are left out; if none has any, asking for the first one says so. The rounds are those
    that all runs of the experiment have: some are followed further, for its table.
    """
    names = {label: name for label, name in experiments.items() if name in results}
    tables = []
    for label, name in (names or dict(list(experiments.items())[:1])).items():
        table = results[name]
        table = table[table["round"] <= common_end(table)]
        tables.append(table.assign(setting=[f"{label} {s}".strip() for s in table["setting"]]))
    return pd.concat(tables, ignore_index=True)


def arrivals(
    results: Mapping[str, pd.DataFrame], panels: Mapping[str, Panel], methods: list[str]
) -> pd.Series:
    """First round at each panel's target by (setting, method, seed), inf if never, of what has been run."""
    runs, found = Runs(dict(results)), {}
    for name, panel in panels.items():
        try:
            there = [m for m in methods if m in set(runs.pick(panel.experiment, panel.setting)["method"])]
            found[name] = panel.rounds(runs, there)
        except Missing:
            continue
    if not found:
        first = next(iter(panels.values()))
        Runs(dict(results)).pick(first.experiment, first.setting)
        raise Missing(f"none of {', '.join(methods)} has been run in {first.experiment}")
    return pd.concat(found, names=["setting", "method", "seed"])
