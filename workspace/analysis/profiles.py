"""Scores of the arena: normalised accuracies, interquartile means and performance profiles with intervals.

Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice, sections 4.1 to 4.3. Three
things differ. Seeds are paired: methods share partition, initial model and mini-batches, so a score compares two
methods on one seed. It is relative to two methods, not to constants:

    score(task, seed, method) = (x(method) - x(baseline)) / reach(task)

with x the accuracy in that task and seed, and reach(task) the mean of x(target) - x(baseline) over the method's seeds,
or `least`, if that is more. So the baseline has 0 in every run, and the target has mean 1 in every task in which it
reaches that far. And intervals are wider than those of a percentile bootstrap, which with five seeds covers 0.9 instead
of 0.95: the bootstrap's standard error is scaled for the number of seeds, and multiplied by a quantile of Student's t.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.measure import Missing

RESAMPLES = 2000
LEVEL = 0.95
CUT = 0.25  # of the scores at either end, which an interquartile mean leaves out


@dataclass(frozen=True)
class Profiles:
    """What every method reached in every task and seed.

    values: (runs, methods) accuracies; rows are indexed by (task, seed). NaN: the method has no run of that seed.
    baseline, target: the methods that have scores 0 and 1. least: reach of a task, at least. left_out: methods without
    scores, and the first run that each lacks.
    """

    values: pd.DataFrame
    baseline: str
    target: str
    least: float
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        accuracies: pd.Series,
        baseline: str,
        target: str,
        least: float = 0.01,
        seeds: Collection[int] | None = None,
    ) -> Profiles:
        """From accuracies by (setting, method, seed). Runs of seeds that the two have not run are left out.

        seeds: those that every method must have; None: all that the two have. A method that has further seeds has them
        in all tasks; one that lacks a run is left out.

        Raises:
            Missing: baseline and target share no run.
        """
        table = accuracies.unstack("method")
        for name in (baseline, target):
            if name not in table:
                raise Missing(f"{name}, which the scores are relative to, has not been run")
        table = table.dropna(subset=[baseline, target])
        if table.empty:
            raise Missing(f"{baseline} and {target} have not been run in the same task and seed")
        seed, left_out = table.index.get_level_values(1), {}
        needed = np.ones(len(table), bool) if seeds is None else np.isin(seed, list(seeds))
        for name in table:
            present = table[name].notna()
            own = set(seed[present])
            lacking = table.index[~present & (needed | np.isin(seed, list(own)))]
            if name not in (baseline, target) and len(lacking):
                left_out[str(name)] = ", ".join(filter(None, [lacking[0][0], f"seed {lacking[0][1]}"]))
        return cls(table.drop(columns=list(left_out)), baseline, target, least, left_out)

    @property
    def methods(self) -> list[str]:
        return list(self.values)

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(self.values.index.get_level_values(0)))

    def runs(self, method: str) -> list[pd.DataFrame]:
        """The accuracies of the baseline, the target and a method in the runs that it has, task by task."""
        columns = pd.DataFrame(
            {"start": self.values[self.baseline], "end": self.values[self.target], "own": self.values[method]}
        ).dropna()
        return [columns.loc[[task]] for task in self.tasks if task in columns.index.get_level_values(0)]

    @cached_property
    def scores(self) -> pd.DataFrame:
        """(runs, methods) the scores, indexed as `values`."""
        columns = {
            method: pd.concat(
                [pd.Series(self._scored(run.to_numpy()), run.index) for run in self.runs(method)]
            )
            for method in self.methods
        }
        return pd.DataFrame(columns).reindex(self.values.index)

    def _scored(self, runs: np.ndarray) -> np.ndarray:
        """(..., seeds, 3) accuracies of baseline, target and method in a task -> (..., seeds) scores."""
        start, end, own = np.moveaxis(runs, -1, 0)
        return (own - start) / np.maximum((end - start).mean(axis=-1, keepdims=True), self.least)

    @cached_property
    def resampled(self) -> dict[str, np.ndarray]:
        """Method -> (resamples, runs) scores of a stratified bootstrap: each task's seeds, with replacement."""
        found = {}
        for method in self.methods:
            rng, parts = np.random.default_rng(0), []
            for run in self.runs(method):
                picks = rng.integers(len(run), size=(RESAMPLES, len(run)))
                parts.append(self._scored(run.to_numpy()[picks]))
            found[method] = np.concatenate(parts, axis=1)
        return found

    def interval(
        self, method: str, value: np.ndarray, resampled: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The interval of a statistic of a method. resampled: (resamples, ...) its values in the resamples.

        Resampling n seeds of a task gives a variance that is too small by (n - 1) / n.
        """
        runs = self.runs(method)
        n, free = sum(map(len, runs)), sum(len(run) - 1 for run in runs)
        if not free:
            return np.full_like(value, -np.inf), np.full_like(value, np.inf)
        half = stats.t.ppf((1 + LEVEL) / 2, free) * math.sqrt(n / free) * resampled.std(axis=0)
        return value - half, value + half

    def table(self) -> pd.DataFrame:
        """Method -> interquartile mean (`iqm`) with its interval (`low`, `high`), highest first; mean; runs."""
        rows = {}
        for method in self.methods:
            scores = self.scores[method].dropna().to_numpy()
            iqm = interquartile_mean(scores)
            low, high = self.interval(method, iqm, interquartile_mean(self.resampled[method], axis=1))
            rows[method] = {"iqm": iqm, "low": low, "high": high, "mean": scores.mean(), "runs": len(scores)}
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        table = table.astype(float).astype({"runs": int})
        return table.sort_values("iqm", ascending=False, kind="stable")

    def profile(self, levels: Sequence[float] | np.ndarray) -> pd.DataFrame:
        """The share of runs with a score above each level (`share`), by (method, level), with its interval."""
        levels = np.asarray(levels, dtype=float)
        parts = []
        for method in self.methods:
            share = _share_above(self.scores[method].dropna().to_numpy(), levels)
            low, high = self.interval(method, share, _share_above(self.resampled[method], levels))
            columns = {
                "level": levels,
                "share": share,
                "low": np.clip(low, 0, 1),
                "high": np.clip(high, 0, 1),
            }
            parts.append(pd.DataFrame({"method": method, **columns}))
        return pd.concat(parts, ignore_index=True)


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half of the scores along an axis; a quarter, rounded down, is cut off at either end."""
    return stats.trim_mean(scores, CUT, axis=axis)


def _share_above(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(..., runs) scores, (L,) levels -> (..., L)."""
    return np.stack([(scores > level).mean(axis=-1) for level in levels], axis=-1)
