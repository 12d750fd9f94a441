"""Tests whether runs of the authors' program and our runs have the same distribution: ranks and permutations.

If the seeds of both are draws from one distribution, an authors' value lies outside the range of n values of ours with
probability 2 / (n + 1). The rounds of one run are dependent, so for a count over checkpoints only the expectation is
known. One number per run (its mean over the rounds that all have) has an exact test: relabelling the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fedlib.measure import curve

GROUP = ["experiment", "setting", "method"]
Pair = tuple[np.ndarray, np.ndarray]  # values of the authors' seeds, values of ours


def outside(theirs: np.ndarray, ours: np.ndarray) -> int:
    """Number of their values outside the range of ours."""
    return int(((theirs < ours.min()) | (theirs > ours.max())).sum())


def expected_outside(theirs: np.ndarray, ours: np.ndarray) -> float:
    """Expected number outside if both are draws from one distribution without ties."""
    return len(theirs) * 2 / (len(ours) + 1)


def relabelled(pairs: Sequence[Pair], times: int = 10_000, seed: int = 0) -> float:
    """Share of random relabellings within each pair that have at least as many values outside."""
    rng = np.random.default_rng(seed)
    count, totals = sum(outside(*pair) for pair in pairs), np.zeros(times, dtype=int)
    for theirs, ours in pairs:
        shuffled = rng.permuted(np.tile(np.concatenate([theirs, ours]), (times, 1)), axis=1)
        a, b = np.split(shuffled, [len(theirs)], axis=1)
        low, high = b.min(axis=1, keepdims=True), b.max(axis=1, keepdims=True)
        totals += ((a < low) | (a > high)).sum(axis=1)
    return float((1 + (totals >= count).sum()) / (1 + times))


def mean_difference(theirs: np.ndarray, ours: np.ndarray) -> tuple[float, float]:
    """Mean of theirs minus mean of ours, and the two-sided p of its exact permutation test."""
    values = np.concatenate([theirs, ours])
    subsets = np.array(list(combinations(range(len(values)), len(theirs))))
    total, sums = values.sum(), values[subsets].sum(axis=1)
    differences = sums / len(theirs) - (total - sums) / len(
        ours
    )  # the first is the actual labelling, because combinations keep order
    as_far = np.abs(differences) >= abs(differences[0]) - 1e-12
    return float(differences[0]), float(as_far.mean())


def curves_of(
    authors: pd.DataFrame, results: Mapping[str, pd.DataFrame], column: str
) -> dict[tuple[str, ...], tuple[pd.DataFrame, pd.DataFrame]]:
    """(experiment, setting, method) -> theirs and ours, each (rounds, seeds), in the rounds that all runs have.

    Curves that one side has not run or not measured are left out, and so is round 0.
    """
    columns = {}
    groups: list[tuple[Any, pd.DataFrame]] = list(authors.groupby(GROUP, sort=False))
    for key, theirs in groups:
        experiment, setting, method = key
        table = results.get(experiment, pd.DataFrame(columns=["setting", "method"]))
        ours = table[(table["setting"] == setting) & (table["method"] == method)]
        if ours.empty or column not in theirs:
            continue
        tables = [
            pd.concat({seed: curve(run, column) for seed, run in runs.groupby("seed")}, axis=1)
            for runs in (theirs.assign(diverged=False), ours)
        ]
        tables = [curves.dropna().loc[1:] for curves in tables]
        shared = tables[0].index.intersection(tables[1].index)
        if len(shared):
            columns[key] = tables[0].loc[shared], tables[1].loc[shared]
    return columns


def compare(
    pairs: Mapping[tuple[str, ...], tuple[pd.DataFrame, pd.DataFrame]], every: int = 10, unit: float = 1.0
) -> pd.DataFrame:
    """One row per (experiment, setting, method): seeds, checkpoints outside and expected, mean over rounds, its test.

    every: checkpoints are the shared rounds that it divides. unit: factor of the values shown.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for key, (theirs, ours) in pairs.items():
        rounds = theirs.index[theirs.index % every == 0]
        points = [(theirs.loc[t].to_numpy(), ours.loc[t].to_numpy()) for t in rounds]
        a, b = theirs.mean().to_numpy() * unit, ours.mean().to_numpy() * unit
        difference, p = mean_difference(a, b)
        rows[key[1:]] = {
            "seeds, theirs and ours": f"{len(a)}, {len(b)}",
            "rounds": int(theirs.index.max()),
            "checkpoints outside": sum(outside(*point) for point in points),
            "of": sum(len(point[0]) for point in points),
            "expected": round(sum(expected_outside(*point) for point in points), 1),
            "mean over rounds, theirs": ", ".join(f"{value:.3g}" for value in np.sort(a)),
            "range of ours": f"{b.min():.3g} to {b.max():.3g}",
            "difference": difference,
            "p": p,
        }
    return pd.DataFrame(rows).T.rename_axis(["setting", "method"])


def together(pairs: Mapping[tuple[str, ...], tuple[pd.DataFrame, pd.DataFrame]]) -> dict[str, float]:
    """All runs of several pairs by their mean over rounds: number outside, number of runs, expected number, and p."""
    means = [(theirs.mean().to_numpy(), ours.mean().to_numpy()) for theirs, ours in pairs.values()]
    return {
        "outside": sum(outside(*pair) for pair in means),
        "of": sum(len(theirs) for theirs, _ in means),
        "expected": round(sum(expected_outside(*pair) for pair in means), 1),
        "p": relabelled(means),
    }
