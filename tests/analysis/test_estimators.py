"""Intervals cover what they name, and outcomes follow from intervals as `docs/judging.md` says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workspace.analysis.estimators import Effect, holm, outcome, seeds_for, trend

values = st.lists(st.floats(-3, 3, allow_nan=False), min_size=2, max_size=10)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_covers_the_true_effect_in_95_of_100_cases(n):
    y = np.random.default_rng(n).normal(0.3, 0.2, size=(20_000, n))
    covered = [effect.low <= 0.3 <= effect.high for effect in map(Effect.of, y)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)  # three standard errors


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize(("test", "truth", "rate"), [("more", 0.0, 0.025), ("same", 0.4, 0.05)])
def test_what_is_not_so_is_replicated_no_more_often_than_the_level_says(n, test, truth, rate):
    y = np.random.default_rng(n).normal(truth, 0.1, size=(4_000, n))
    wrong = np.mean(
        [outcome(Effect.of(one, 0.4 if test == "same" else 0.0, test)) == "replicated" for one in y]
    )
    assert wrong <= rate + 3 * math.sqrt(rate / 4_000)


def test_the_interval_is_that_of_scipy():
    y = [0.1, 0.5, 0.4, -0.2]
    effect = Effect.of(y)
    low, high = stats.ttest_1samp(y, 0).confidence_interval(0.95)
    assert (effect.low, effect.high) == pytest.approx((low, high))
    assert effect.p_replicated == pytest.approx(stats.ttest_1samp(y, 0).pvalue)


@given(values, st.floats(0, 2), st.booleans())
def test_the_outcome_is_what_the_interval_says(y, margin, open):
    effect = Effect.of(y, margin, "more", open)
    bound = 0.0 if open else margin
    if effect.spread == 0 or min(abs(effect.low), abs(effect.high - bound)) < 1e-9:
        return
    expected = "refuted" if effect.high < bound else "replicated" if effect.low > 0 else "undecided"
    assert outcome(effect) == expected


@given(values, st.floats(0, 2), st.sampled_from(["more", "same"]))
def test_the_order_of_seeds_changes_nothing(y, margin, test):
    one, other = (Effect.of(order, margin, test) for order in (y, y[::-1]))
    assert one.estimate == pytest.approx(other.estimate)
    if min(abs(one.p_replicated - 0.05), abs(one.p_refuted - 0.05)) > 1e-6:
        assert outcome(one) == outcome(other)


@given(values)
def test_exchanging_the_sides_of_a_claim_of_order_exchanges_replicated_and_refuted(y):
    exchanged = {"replicated": "refuted", "refuted": "replicated", "undecided": "undecided"}
    one, other = Effect.of(y), Effect.of([-v for v in y])
    if abs(one.p_replicated - 0.05) > 1e-6 and abs(one.p_refuted - 0.05) > 1e-6:
        assert outcome(other) == exchanged[outcome(one)]


@given(values, st.floats(0.01, 2))
def test_sameness_does_not_depend_on_the_direction(y, margin):
    one, other = (Effect.of(v, margin, "same") for v in (y, [-v for v in y]))
    if min(abs(one.p_replicated - 0.05), abs(one.p_refuted - 0.05)) > 1e-6:
        assert outcome(one) == outcome(other)


def test_one_seed_and_no_seed_settle_nothing():
    assert outcome(Effect.of([5.0])) == "one seed"
    assert outcome(Effect.of([])) == "not run"
    assert math.isnan(Effect.of([5.0]).low)


def test_a_size_is_refuted_though_the_direction_holds_unless_the_larger_side_is_censored():
    y = [0.50, 0.52, 0.48, 0.51]
    assert outcome(Effect.of(y, margin=1.0)) == "refuted"
    assert outcome(Effect.of(y, margin=1.0, open=True)) == "replicated"
    assert outcome(Effect.of([-v for v in y], margin=1.0, open=True)) == "refuted"


def test_seeds_for_finds_the_effect_with_power_080():
    rng = np.random.default_rng(0)
    for effect in (0.5, 1.0, 2.0):
        n = seeds_for(effect)
        y = rng.normal(effect, 1.0, size=(4_000, n))
        t = y.mean(1) / (y.std(1, ddof=1) / math.sqrt(n))
        assert np.mean(t > stats.t.ppf(0.975, n - 1)) == pytest.approx(0.8, abs=0.12)
    assert seeds_for(0.0) == 1001


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]


@given(st.permutations([0.001, 0.012, 0.03, 0.2, 0.9]))
def test_holm_does_not_depend_on_order(p):
    adjusted = dict(zip(p, holm(p), strict=True))
    assert adjusted == dict(zip(sorted(p), holm(sorted(p)), strict=True))


def test_trend_weighs_as_least_squares_do():
    x, y = np.array([5.0, 6, 8, 10]), np.array([1.0, 4, 2, 7])
    assert trend(x) @ y == pytest.approx(np.polyfit(x, y, 1)[0])


def test_of_an_open_effect_sameness_is_not_shown_and_only_the_far_side_refutes():
    near, below, above = ([c - 0.01, c, c + 0.01] for c in (0.0, -2.0, 2.0))
    assert [outcome(Effect.of(y, 0.4, "same")) for y in (near, below, above)] == [
        "replicated",
        "refuted",
        "refuted",
    ]
    opened = [outcome(Effect.of(y, 0.4, "same", open=True)) for y in (near, below, above)]
    assert opened == ["undecided", "undecided", "refuted"]
