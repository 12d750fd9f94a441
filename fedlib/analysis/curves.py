"""What FedCor's and HiCS-FL's tables and figures share: panels, and statistics of an accuracy curve.

fin: mean accuracy over the last 5 % of the rounds. auc: mean accuracy over all rounds. rough: standard deviation of the
round-to-round change of accuracy after the first quarter of the run. Rbar: mean of the first round at a target; a run
that has not reached it by the cap counts as cap + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.lookup import Runs
from fedlib.analysis.measure import (
    Missing,
    Statistic,
    area,
    common_end,
    end_mean,
    followed,
    jitter,
    per_run,
)


@dataclass(frozen=True)
class Panel:
    """One panel of a figure: a setting of an experiment, and the target accuracy of the paper's table.

    T: rounds for which the paper follows a run to the target.
    """

    experiment: str
    setting: str
    target: float = 0.0
    T: int = 0

    def until(self, runs: Runs) -> int:
        """The last round that all runs of the experiment have; some runs are longer, for its table."""
        return runs.end(self.experiment)

    def within(self, runs: Runs, methods: list[str]) -> pd.DataFrame:
        """Rows of the methods in the rounds that the figures show, on the seeds that all methods have."""
        table = runs.pick(self.experiment, self.setting, methods)
        counts = table.groupby("seed")["method"].nunique()
        seeds = self._shared(counts.index[counts == len(set(methods))], methods)
        return table[(table["round"] <= self.until(runs)) & table["seed"].isin(seeds)]

    def _shared(self, seeds: pd.Index, methods: list[str]) -> pd.Index:
        if seeds.empty:
            raise Missing(f"no seed of {self.experiment} {self.setting} has all of {', '.join(methods)}")
        return seeds

    def read(self, runs: Runs, methods: list[str], statistic: Statistic, **options: object) -> pd.Series:
        """A statistic of the shown test accuracy by (method, seed)."""
        runs.need(self.experiment, self.setting, methods)
        key = "read", self, tuple(methods), statistic, *options.items()
        if key not in runs.cache:
            values = per_run(self.within(runs, methods), "test_accuracy", statistic, **options)
            runs.cache[key] = values.droplevel("setting")
        return runs.cache[key]

    def fin(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, end_mean, share=0.05)

    def auc(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, area)

    def rough(self, runs: Runs, methods: list[str]) -> pd.Series:
        return self.read(runs, methods, jitter)

    def rounds(self, runs: Runs, methods: list[str]) -> pd.Series:
        """First round at the target by (method, seed), on the seeds that all methods have; inf if never reached."""
        runs.need(self.experiment, self.setting, methods)
        key = "rounds", self.experiment, self.setting, self.target, tuple(methods)
        if key not in runs.cache:
            arrivals = self._arrivals(runs)[0]
            names, seeds = (arrivals.index.get_level_values(level).to_numpy() for level in ("method", "seed"))
            by_method = {name: set(seeds[names == name]) for name in dict.fromkeys(names) if name in methods}
            shared = self._shared(
                pd.Index(sorted(set.intersection(*by_method.values()) if by_method else ())), methods
            )
            runs.cache[key] = arrivals[np.isin(names, list(by_method)) & np.isin(seeds, shared)]
        return runs.cache[key]

    def cap(self, runs: Runs) -> int:
        """The last round for which it is known which runs have reached the target (`measure.followed`)."""
        runs.need(self.experiment, self.setting)
        return self._arrivals(runs)[1]

    def _arrivals(self, runs: Runs) -> tuple[pd.Series, int]:
        key = "arrivals", self.experiment, self.setting, self.target
        if key not in runs.cache:
            table = runs._rows(self.experiment, self.setting)
            rounds = measure.arrivals(table, self.target)
            runs.cache[key] = rounds.droplevel("setting"), followed(table, rounds)
        return runs.cache[key]

    def arrived(self, runs: Runs, methods: list[str], enough: int | None = None) -> pd.Series:
        """`rounds`, if they can decide which method is first.

        enough: number of rounds after which not having reached the target decides (None: T).

        Raises:
            Missing: no run reaches the target, and the runs are shorter than `enough`.
        """
        rounds, cap = self.rounds(runs, methods), self.cap(runs)
        if np.isinf(rounds).all() and cap < (enough or self.T):
            raise Missing(
                f"no run reaches {100 * self.target:.0f} % in {cap} rounds; the paper follows a run for {self.T}"
            )
        return rounds

    def rbar(self, runs: Runs, methods: list[str]) -> pd.Series:
        """Rbar by method, if `arrived` can decide."""
        rounds, key = (
            self.arrived(runs, methods),
            ("rbar", self.experiment, self.setting, self.target, tuple(methods)),
        )
        if key not in runs.cache:
            capped = pd.Series(np.minimum(rounds, self.cap(runs) + 1))  # faster than clip
            runs.cache[key] = capped.groupby("method").mean().reindex(methods)
        return runs.cache[key]


def means(values: pd.Series) -> pd.Series:
    """Mean over seeds of a statistic by (method, seed)."""
    return values.groupby("method", sort=False).mean()


def shown(results: Mapping[str, pd.DataFrame], experiments: Mapping[str, str]) -> pd.DataFrame:
    """Rows for a figure over several experiments: label -> experiment becomes the setting "label setting".

    Experiments without results are left out; if none has any, the lookup of the first one raises. The rounds are those
    that all runs of the experiment have; some runs are longer, for its table.
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
    """First round at each panel's target by (setting, method, seed) of the existing runs; inf if never."""
    runs, chosen = Runs(dict(results)), {}
    for name, panel in panels.items():
        try:
            available = [m for m in methods if m in set(runs.pick(panel.experiment, panel.setting)["method"])]
            chosen[name] = panel.rounds(runs, available)
        except Missing:
            continue
    if not chosen:
        first = next(iter(panels.values()))
        Runs(dict(results)).pick(first.experiment, first.setting)
        raise Missing(f"none of {', '.join(methods)} has been run in {first.experiment}")
    return pd.concat(chosen, names=["setting", "method", "seed"])
