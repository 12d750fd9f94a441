"""The test of overlap: exact where it can be counted, quiet on one law, loud on two."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from workspace.analysis import overlap


def test_values_outside_are_counted_and_expected() -> None:
    ours = np.array([1.0, 2, 3, 4, 5])
    assert overlap.outside(np.array([0.5, 1, 3, 6]), ours) == 2
    assert overlap.expected_outside(np.zeros(3), ours) == 1


def test_the_permutation_of_means_is_exact() -> None:
    difference, p = overlap.mean_difference(np.array([9.0, 10]), np.arange(5.0))
    assert (difference, p) == (7.5, pytest.approx(1 / 21))  # no other of 21 subsets is as far from the rest
    assert overlap.mean_difference(np.array([2.0]), np.array([1.0, 3]))[1] == 1


def test_one_law_is_not_rejected_and_two_are() -> None:
    rng = np.random.default_rng(0)
    same = [(rng.normal(size=2), rng.normal(size=5)) for _ in range(30)]
    other = [(rng.normal(5, 1, size=2), rng.normal(size=5)) for _ in range(30)]
    assert overlap.relabelled(same, 2000) > 0.05
    assert overlap.relabelled(other, 2000) < 0.01
    share = np.mean([overlap.outside(rng.normal(size=1), rng.normal(size=5)) for _ in range(4000)])
    assert share == pytest.approx(2 / 6, abs=0.03)


def test_groups_are_compared_in_the_rounds_that_both_have() -> None:
    def runs(value: float, rounds: range, seeds: range) -> pd.DataFrame:
        rows = [(s, t, value + s, False) for s in seeds for t in rounds]
        table = pd.DataFrame(rows, columns=["seed", "round", "test_accuracy", "diverged"])
        return table.assign(experiment="e", setting="", method="MD")

    authors = pd.concat(
        [runs(0.0, range(31), range(2)), runs(0.0, range(9), range(1)).assign(method="absent")]
    )
    pairs = overlap.curves_of(authors, {"e": runs(0.5, range(0, 25, 2), range(5))}, "test_accuracy")
    assert list(pairs) == [("e", "", "MD")]
    row = overlap.compare(pairs).loc["", "MD"]
    assert (row["rounds"], row["of"], row["checkpoints outside"], row["expected"]) == (24, 4, 2, 1.3)
    assert overlap.together(pairs)["outside"] == 1
