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
    """Mine: 0, 0.5, 0.75, 2 without its lowest and its highest score."""
    table = profiles().table()
    assert list(table.index) == ["Target", "Mine", "Random"], "the highest score leads"
    assert_allclose(table["iqm"], [1.0, 0.625, 0.0], atol=1e-12)
    assert_allclose(table["mean"], [1.0, 0.8125, 0.0], atol=1e-12)
    assert_allclose(table.loc["Random", ["low", "high"]].to_numpy(float), 0, atol=1e-12)
    assert list(table["runs"]) == [4, 4, 4]


def test_an_interval_is_the_one_computed_by_hand() -> None:
    """All 16 resamples of two tasks with two seeds each; t with 2 degrees of freedom is 4.303 at 97.5 %."""
    of_a = {(0, 0): (0.5, 0.5), (1, 1): (0.75, 0.75), (0, 1): (0.5, 0.75), (1, 0): (0.75, 0.5)}
    of_b = {(0, 0): (0.0, 0.0), (1, 1): (4 / 3, 4 / 3), (0, 1): (0.0, 2.0), (1, 0): (2.0, 0.0)}
    middles = [sum(sorted(one + two)[1:3]) / 2 for one in of_a.values() for two in of_b.values()]
    half = 4.303 * np.sqrt(4 / 2) * np.std(middles)
    low, high = profiles().table().loc["Mine", ["low", "high"]].to_numpy(float)
    assert_allclose([low, high], [0.625 - half, 0.625 + half], rtol=0.05)


def test_intervals_cover_what_they_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two seeds in three tasks: a percentile bootstrap would hold the value of very many seeds in 7 of 10 samples."""
    monkeypatch.setattr("workspace.analysis.profiles.RESAMPLES", 100)
    rng = np.random.default_rng(5)

    def sample(seeds: int) -> pd.Series:
        start = rng.normal(0.5, 0.02, (3, seeds))
        values = {"Random": start, "Target": start + rng.normal(0.3, 0.03, (3, seeds))}
        values["Mine"] = start + rng.normal(np.array([[0.05], [0.1], [0.2]]), 0.03, (3, seeds))
        return pd.concat(
            {name: pd.DataFrame(v, ["a", "b", "c"]).stack() for name, v in values.items()}
        ).swaplevel(0, 1)

    def middle(values: pd.Series) -> Profiles:
        return Profiles.of(values.rename_axis(["setting", "method", "seed"]), "Random", "Target")

    truth = middle(sample(3000)).scores["Mine"].to_numpy()
    truth = interquartile_mean(truth)
    inside = 0
    for _ in range(60):
        found = middle(sample(2))
        low, high = found.interval(
            "Mine",
            interquartile_mean(found.scores["Mine"].to_numpy()),
            interquartile_mean(found.resampled["Mine"], axis=1),
        )
        inside += low <= truth <= high
    assert inside >= 54


def test_scores_are_defined_where_the_target_does_not_win() -> None:
    """In task b the target is below Random: a reach of 0.01 stands in for it, and task a is as before."""
    lost = EXAMPLE | {("b", "Target"): (0.05, 0.05), ("b", "Mine"): (0.1, 0.12)}
    found = Profiles.of(accuracies(lost), "Random", "Target", least=0.01)
    assert_allclose(found.scores["Mine"], [0.5, 0.75, 0.0, 2.0], atol=1e-12)
    assert_allclose(found.scores["Target"], [1.0, 1.0, -5.0, -5.0], atol=1e-12)
    assert np.isfinite(found.table().to_numpy(float)).all()


def test_the_profile_is_the_share_of_runs_above_each_level() -> None:
    profile = profiles().profile([0.0, 0.6]).set_index(["method", "level"])
    assert profile.loc[("Mine", 0.0), "share"] == 0.75, "a score of 0 is not above 0"
    assert profile.loc[("Mine", 0.6), "share"] == 0.5
    assert profile.loc[("Target", 0.6), "share"] == 0.75
    assert profile.loc[("Random", 0.0), "share"] == 0
    assert tuple(profile.loc[("Mine", 0.6), ["low", "high"]]) == (0.0, 1.0), "no share is below 0 or above 1"
    assert (profile["low"] <= profile["share"]).all()
    assert (profile["share"] <= profile["high"]).all()


def test_an_interquartile_mean_is_that_of_the_middle_half() -> None:
    scores = np.array([9.0, 1, 2, 3, 4, 5, 6, -100])
    assert interquartile_mean(scores) == (2 + 3 + 4 + 5) / 4
    assert interquartile_mean(np.array([1.0, 2, 6])) == 3, "a quarter of three is none"


def test_a_method_without_all_runs_is_left_out_and_named() -> None:
    for short in ((0.1,), (0.1, np.nan)):
        found = profiles(EXAMPLE | {("b", "Mine"): short})
        assert found.methods == ["Random", "Target"]
        assert found.left_out == {"Mine": "b, seed 1"}


def test_a_method_may_have_seeds_of_its_own() -> None:
    """Seeds 2 of both tasks are Mine's, and its scores alone depend on them; all or none of a seed's tasks count."""
    longer = {
        key: (*values, 0.3) if key[1] == "Mine" else (*values, 0.1 + 0.8 * (key[1] == "Target"))
        for key, values in EXAMPLE.items()
    } | {("a", "Other"): (0.4, 0.7), ("b", "Other"): (0.1, 0.5)}
    found = Profiles.of(accuracies(longer), "Random", "Target", seeds=[0, 1])
    assert_allclose(found.scores["Other"].dropna(), [0.5, 0.75, 0.0, 2.0], atol=1e-12)
    reach = (0.4 + 0.4 + 0.8) / 3
    assert_allclose(found.scores["Mine"].loc["a"], [0.2 / reach, 0.3 / reach, 0.2 / reach])
    assert list(found.table()["runs"].loc[["Mine", "Other", "Random"]]) == [6, 4, 6]
    cut = {key: values[:2] if key == ("b", "Mine") else values for key, values in longer.items()}
    assert Profiles.of(accuracies(cut), "Random", "Target", seeds=[0, 1]).left_out == {"Mine": "b, seed 2"}


def test_runs_without_random_and_target_are_left_out() -> None:
    short = {key: values[:1] if key == ("b", "Target") else values for key, values in EXAMPLE.items()}
    assert len(profiles(short).scores) == 3
    with pytest.raises(Missing, match="Target.*has not been run"):
        profiles({key: values for key, values in EXAMPLE.items() if key[1] != "Target"})
