"""Scores of the arena: normalised accuracies, interquartile means and performance profiles with bootstrap intervals.

Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice, sections 4.1 to 4.3. Two
things differ. Seeds are paired: methods share partition, initial model and mini-batches, so a resample takes the same
seeds of a task for all methods. And a score is relative to two methods, not to constants:

    score(task, seed, method) = (x(method) - x(baseline)) / mean over the task's seeds of (x(target) - x(baseline))

with x the accuracy in that task and seed. So the baseline has 0 in every run, and the target has mean 1 in every task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

    values: (runs, methods) accuracies; rows are indexed by (task, seed). baseline, target: the methods that
    have scores 0 and 1.
    """

    values: pd.DataFrame
    baseline: str
    target: str

    @classmethod
    def of(cls, accuracies: pd.Series, baseline: str, target: str) -> Profiles:
        """From accuracies by (setting, method, seed). A method that lacks a run of the two is left out.

        Raises:
            Missing: baseline and target share no run, or the target is not above the baseline in a task and seed.
        """
        table = accuracies.unstack("method")
        for name in (baseline, target):
            if name not in table:
                raise Missing(f"{name}, which the scores are relative to, has not been run")
        table = table.dropna(subset=[baseline, target])
        if table.empty:
            raise Missing(f"{baseline} and {target} have not been run in the same task and seed")
        low = table.index[table[target] <= table[baseline]]
        if len(low):
            task, seed = low[0]
            raise Missing(
                f"{target} is not above {baseline} in {task or 'the task'}, seed {seed}, so nothing has a score"
            )
        return cls(table.dropna(axis="columns"), baseline, target)

    @property
    def methods(self) -> list[str]:
        return list(self.values)

    @cached_property
    def tasks(self) -> list[np.ndarray]:
        """The rows of each task."""
        return list(self.values.groupby(level=0, sort=False).indices.values())

    @cached_property
    def scores(self) -> pd.DataFrame:
        """(runs, methods) the scores, indexed as `values`."""
        rows = [self._scored(self.values.to_numpy()[task]) for task in self.tasks]
        return pd.DataFrame(np.concatenate(rows), self.values.index[np.concatenate(self.tasks)], self.methods)

    def _scored(self, values: np.ndarray) -> np.ndarray:
        """(..., seeds, methods) accuracies in a task as scores."""
        start = values[..., [self.methods.index(self.baseline)]]
        reach = values[..., [self.methods.index(self.target)]] - start
        return (values - start) / reach.mean(axis=-2, keepdims=True)

    @cached_property
    def resampled(self) -> np.ndarray:
        """(resamples, runs, methods) scores of a stratified bootstrap: each task's seeds, drawn with replacement."""
        rng, values = np.random.default_rng(0), self.values.to_numpy()
        picks = [task[rng.integers(len(task), size=(RESAMPLES, len(task)))] for task in self.tasks]
        return np.concatenate([self._scored(values[rows]) for rows in picks], axis=1)

    def table(self) -> pd.DataFrame:
        """Method -> interquartile mean (`iqm`) with its interval (`low`, `high`), highest first; mean; runs."""
        means = interquartile_mean(self.scores.to_numpy(), axis=0)
        low, high = _interval(interquartile_mean(self.resampled, axis=1))
        columns = {"iqm": means, "low": low, "high": high, "mean": self.scores.mean().to_numpy()}
        table = pd.DataFrame(columns, pd.Index(self.methods, name="method")).assign(runs=len(self.scores))
        return table.sort_values("iqm", ascending=False, kind="stable")

    def profile(self, levels: Sequence[float] | np.ndarray) -> pd.DataFrame:
        """The share of runs with a score above each level (`share`), by (method, level), with its interval."""
        levels = np.asarray(levels, dtype=float)
        parts = []
        for k, method in enumerate(self.methods):
            share = _share_above(self.scores.to_numpy()[:, k], levels)
            low, high = _interval(_share_above(self.resampled[:, :, k], levels))
            parts.append(
                pd.DataFrame({"method": method, "level": levels, "share": share, "low": low, "high": high})
            )
        return pd.concat(parts, ignore_index=True)


def interquartile_mean(scores: np.ndarray, axis: int = 0) -> np.ndarray:
    """The mean of the middle half of the scores along an axis; a quarter, rounded down, is cut off at either end."""
    return stats.trim_mean(scores, CUT, axis=axis)


def _share_above(scores: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """(..., runs) scores, (L,) levels -> (..., L)."""
    return np.stack([(scores > level).mean(axis=-1) for level in levels], axis=-1)


def _interval(resampled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval over the first axis."""
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high
