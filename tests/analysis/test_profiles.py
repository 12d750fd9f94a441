"""Scores of the arena, on an example small enough to be computed by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from fedlib.measure import Missing
from workspace.analysis.profiles import Profiles, interquartile_mean

# Task a: the target is 0.4 above Random in both seeds. Task b: 0.1 and 0.3, so 0.2 on average.
EXAMPLE = {
    ("a", "Random"): (0.2, 0.4),
    ("a", "Target"): (0.6, 0.8),
    ("a", "Mine"): (0.4, 0.7),
    ("b", "Random"): (0.1, 0.1),
    ("b", "Target"): (0.2, 0.4),
    ("b", "Mine"): (0.1, 0.5),
}


def accuracies(example: dict[tuple[str, str], tuple[float, ...]] = EXAMPLE) -> pd.Series:
    values = {(*key, seed): value for key, pair in example.items() for seed, value in enumerate(pair)}
    index = pd.MultiIndex.from_tuples(values, names=["setting", "method", "seed"])
    return pd.Series(list(values.values()), index)


def profiles(example: dict[tuple[str, str], tuple[float, ...]] = EXAMPLE) -> Profiles:
    return Profiles.of(accuracies(example), "Random", "Target")


def test_scores_are_those_computed_by_hand() -> None:
    scores = profiles().scores
    assert_allclose(scores["Mine"], [0.5, 0.75, 0.0, 2.0], atol=1e-12)
    assert_allclose(scores["Random"], 0, atol=1e-12)
    assert_allclose(scores["Target"], [1.0, 1.0, 0.5, 1.5], atol=1e-12)


def test_the_table_is_the_one_computed_by_hand_in_this_order() -> None:
    """Mine: 0, 0.5, 0.75, 2 without its lowest and its highest score. Its lowest resample has 0, 0, 0.5, 0.5 (chance
    1 in 16, so it is within 95 %), its highest 0.75, 0.75 and twice 0.4 / 0.3."""
    table = profiles().table()
    assert list(table.index) == ["Target", "Mine", "Random"], "the highest score leads"
    assert_allclose(table["iqm"], [1.0, 0.625, 0.0], atol=1e-12)
    assert_allclose(table["mean"], [1.0, 0.8125, 0.0], atol=1e-12)
    assert_allclose(table.loc["Mine", ["low", "high"]].to_numpy(float), [0.25, (0.75 + 4 / 3) / 2])
    assert_allclose(table.loc["Random", ["low", "high"]].to_numpy(float), 0, atol=1e-12)
    assert_allclose(table.loc["Target", ["low", "high"]].to_numpy(float), 1)


def test_an_order_reversed_is_refused() -> None:
    """With accuracies taken as losses, or with the two methods exchanged, the target is below Random."""
    with pytest.raises(Missing, match="Target is not above Random in a, seed 0"):
        Profiles.of(-accuracies(), "Random", "Target")
    with pytest.raises(Missing, match="Random is not above Target"):
        Profiles.of(accuracies(), "Target", "Random")


def test_the_profile_is_the_share_of_runs_above_each_level() -> None:
    profile = profiles().profile([0.0, 0.6]).set_index(["method", "level"])
    assert profile.loc[("Mine", 0.0), "share"] == 0.75, "a score of 0 is not above 0"
    assert profile.loc[("Mine", 0.6), "share"] == 0.5
    assert profile.loc[("Target", 0.6), "share"] == 0.75
    assert profile.loc[("Random", 0.0), "share"] == 0
    assert tuple(profile.loc[("Mine", 0.6), ["low", "high"]]) == (0.0, 1.0)
    assert (profile["low"] <= profile["share"]).all()
    assert (profile["share"] <= profile["high"]).all()


def test_an_interquartile_mean_is_that_of_the_middle_half() -> None:
    scores = np.array([9.0, 1, 2, 3, 4, 5, 6, -100])
    assert interquartile_mean(scores) == (2 + 3 + 4 + 5) / 4
    assert interquartile_mean(np.array([1.0, 2, 6])) == 3, "a quarter of three is none"


def test_a_method_without_all_runs_is_left_out() -> None:
    short = {key: values[:1] if key == ("b", "Mine") else values for key, values in EXAMPLE.items()}
    assert profiles(short).methods == ["Random", "Target"]


def test_runs_without_random_and_target_are_left_out() -> None:
    short = {key: values[:1] if key == ("b", "Target") else values for key, values in EXAMPLE.items()}
    assert len(profiles(short).scores) == 3
    with pytest.raises(Missing, match="Target.*has not been run"):
        profiles({key: values for key, values in EXAMPLE.items() if key[1] != "Target"})
