"""Tidy tables of results, looked up by experiment, setting and method, as tables and figures ask for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.measure import Missing


class Runs(Mapping[str, pd.DataFrame]):
    """Results by experiment; a lookup of missing ones raises `Missing`. Lookups are cached."""

    def __init__(self, results: Mapping[str, pd.DataFrame], cache: dict[tuple, Any] | None = None) -> None:
        self.results = {name: table for name, table in results.items() if len(table)}
        self.cache: dict[tuple, Any] = {} if cache is None else cache

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        return self.pick(experiment)

    def __contains__(self, experiment: object) -> bool:
        return experiment in self.results

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

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
        return table

    def _rows(self, experiment: str, setting: str | None = None) -> pd.DataFrame:
        if experiment not in self.results:
            raise Missing(f"experiment {experiment} has not been run at this scale")
        table = self.results[experiment]
        if setting is None:
            return table
        if ("settings", experiment) not in self.cache:
            self.cache["settings", experiment] = dict(list(table.groupby("setting", sort=False)))
        table = self.cache["settings", experiment].get(setting)
        if table is None:
            raise Missing(f"setting {setting!r} of {experiment} has not been run at this scale")
        return table

    def end(self, experiment: str) -> int:
        """The last round that all runs of an experiment have."""
        if ("end", experiment) not in self.cache:
            self.cache["end", experiment] = measure.common_end(self._rows(experiment))
        return self.cache["end", experiment]

    def last(self, experiment: str, setting: str) -> int:
        """T, the number of rounds of a setting."""
        key = "last", experiment, setting
        if key not in self.cache:
            self.cache[key] = int(self._rows(experiment, setting)["round"].max())
        return self.cache[key]

    def curves(self, experiment: str, setting: str, method: str, column: str) -> dict[int, pd.Series]:
        """seed -> curve (`measure.curve`) of a method in one setting.

        Raises:
            Missing: it has not been run, or the column has not been measured.
        """
        key = "curves", experiment, setting, method, column
        if key not in self.cache:
            table, last = self.pick(experiment, setting, [method]), self.last(experiment, setting)
            if column not in table:
                raise Missing(f"{column} has not been measured in {experiment}")
            of_runs = measure.curves(table, column, {setting: last})
            by_seed = {int(seed): of_runs[setting, method, seed] for seed in sorted(table["seed"].unique())}
            if any(curve.empty for curve in by_seed.values()):
                raise Missing(f"{column} has not been measured in {experiment}")
            self.cache[key] = by_seed
        return self.cache[key]
