"""Intervals cover what they name, and p-values, words and corrections follow `docs/judging.md`."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from workspace.analysis.estimators import (
    ALPHA,
    Effect,
    cell_outcome,
    holm,
    not_rejected,
    outcome,
    seeds_for,
    simes,
    trend,
)

values = st.lists(st.floats(-3, 3, allow_nan=False), min_size=2, max_size=10)
levels = st.lists(st.floats(0.0001, 1), min_size=1, max_size=6)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_interval_covers_the_true_effect_in_95_of_100_cases(n):
    y = np.random.default_rng(n).normal(0.3, 0.2, size=(20_000, n))
    covered = [effect.low <= 0.3 <= effect.high for effect in map(Effect.of, y)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)  # three standard errors


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize(("test", "truth"), [("more", 0.4), ("same", 0.4)])
def test_what_is_not_so_is_shown_no_more_often_than_the_level_says(n, test, truth):
    y = np.random.default_rng(n).normal(truth, 0.1, size=(4_000, n))
    wrong = np.mean([cell_outcome(Effect.of(one, 0.4, test)) == "shown" for one in y])
    assert wrong <= ALPHA + 3 * math.sqrt(ALPHA / 4_000)


def test_the_interval_is_that_of_scipy():
    y = [0.1, 0.5, 0.4, -0.2]
    effect = Effect.of(y)
    low, high = stats.ttest_1samp(y, 0).confidence_interval(0.95)
    assert (effect.low, effect.high) == pytest.approx((low, high))
    assert effect.p_shown == pytest.approx(stats.ttest_1samp(y, 0, alternative="greater").pvalue)
    assert effect.p_reversed == pytest.approx(stats.ttest_1samp(y, 0, alternative="less").pvalue)


@given(values, st.floats(-2, 2))
def test_a_cell_says_what_its_interval_says(y, bound):
    effect = Effect.of(y, bound)
    if effect.spread == 0 or min(abs(effect.low - bound), abs(effect.high - bound)) < 1e-9:
        return
    expected = "reversed" if effect.high < bound else "shown" if effect.low > bound else "unclear"
    assert cell_outcome(effect) == expected


def test_an_interval_below_its_bound_is_never_shown():
    """0.493 [0.399, 0.587] where at least 0.6 is claimed, from five seeds."""
    y = np.array([0.41, 0.45, 0.5, 0.53, 0.575])
    assert Effect.of(y, 0.6).high < 0.6
    assert cell_outcome(Effect.of(y, 0.6)) == "reversed"


@pytest.mark.parametrize(("open", "under"), list(itertools.product((False, True), repeat=2)))
def test_a_censored_side_bounds_the_effect_on_one_side_only(open, under):
    up, down = ([sign * v for v in (0.50, 0.52, 0.48, 0.51)] for sign in (1, -1))
    above, below = (Effect.of(y, 0.0, "more", open, under) for y in (up, down))
    assert cell_outcome(above) == ("unclear" if under else "shown")
    assert cell_outcome(below) == ("unclear" if open else "reversed")
    assert math.isinf(above.high) == open
    assert math.isinf(above.low) == under
    assert cell_outcome(Effect.of(up, 1.0, "more", open, under)) == ("unclear" if open else "reversed"), (
        "the bound stays what it is"
    )


def test_of_an_open_effect_sameness_is_not_shown_and_only_the_far_side_contradicts():
    near, below, above = ([c - 0.01, c, c + 0.01] for c in (0.0, -2.0, 2.0))
    said = [cell_outcome(Effect.of(y, 0.4, "same")) for y in (near, below, above)]
    assert said == ["shown", "reversed", "reversed"]
    opened = [cell_outcome(Effect.of(y, 0.4, "same", open=True)) for y in (near, below, above)]
    assert opened == ["unclear", "unclear", "reversed"]


def test_lost_seeds_show_nothing_and_are_not_not_run():
    y = [1.0, 1.1, 0.9]
    assert cell_outcome(Effect.of(y, lost=2)) == "lost seeds"
    assert (Effect.of(y, lost=2).p_shown, Effect.of(y, lost=2).p_reversed) == (1.0, 1.0)
    assert cell_outcome(Effect.of([], lost=5)) == "lost seeds"


def test_seeds_that_agree_exactly_are_not_certain_for_that():
    """Two rounds apart, one round is the resolution: not less than what rounding alone scatters."""
    same = Effect.of([2.0, 2.0, 2.0], finest=1 / math.sqrt(12))
    assert 0 < same.p_shown < ALPHA
    assert Effect.of([0.2, 0.2, 0.2], finest=1 / math.sqrt(12)).p_shown > ALPHA


@given(values, st.floats(0, 2), st.sampled_from(["more", "same"]))
def test_the_order_of_seeds_changes_nothing(y, bound, test):
    one, other = (Effect.of(order, bound, test) for order in (y, y[::-1]))
    assert one.estimate == pytest.approx(other.estimate)
    if min(abs(one.p_shown - ALPHA), abs(one.p_reversed - ALPHA)) > 1e-6 and one.spread > 1e-9:
        assert cell_outcome(one) == cell_outcome(other)


@given(values)
def test_exchanging_the_sides_of_a_claim_of_order_exchanges_shown_and_reversed(y):
    exchanged = {"shown": "reversed", "reversed": "shown", "unclear": "unclear"}
    one, other = Effect.of(y), Effect.of([-v for v in y])
    if abs(one.p_shown - ALPHA) > 1e-6 and abs(one.p_reversed - ALPHA) > 1e-6:
        assert cell_outcome(other) == exchanged[cell_outcome(one)]


@given(values, st.floats(0.01, 2))
def test_sameness_does_not_depend_on_the_direction(y, bound):
    one, other = (Effect.of(v, bound, "same") for v in (y, [-v for v in y]))
    if min(abs(one.p_shown - ALPHA), abs(one.p_reversed - ALPHA)) > 1e-6:
        assert cell_outcome(one) == cell_outcome(other)


def test_one_seed_and_no_seed_settle_nothing():
    assert cell_outcome(Effect.of([5.0])) == "one seed"
    assert cell_outcome(Effect.of([])) == "not run"
    assert math.isnan(Effect.of([5.0]).low)


def test_which_side_of_no_effect():
    up, down, both = [0.5, 0.52, 0.48], [-0.5, -0.52, -0.48], [0.5, -0.52, 0.1]
    assert [outcome(Effect.of(y)) for y in (up, down, both)] == ["higher", "lower", "unclear"]


def test_seeds_for_finds_the_effect_with_power_080():
    rng = np.random.default_rng(0)
    for effect in (0.5, 1.0, 2.0):
        n = seeds_for(effect)
        y = rng.normal(effect, 1.0, size=(4_000, n))
        t = y.mean(1) / (y.std(1, ddof=1) / math.sqrt(n))
        assert np.mean(t > stats.t.ppf(0.975, n - 1)) == pytest.approx(0.8, abs=0.12)
    assert seeds_for(0.0) == 1001
    assert seeds_for(1.0, ALPHA / 6) > seeds_for(1.0)


def test_holm_is_that_of_the_textbook():
    assert holm([0.01, 0.04, 0.03]).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]).tolist() == [1.0, 1.0]


@given(st.permutations([0.001, 0.012, 0.03, 0.2, 0.9]))
def test_holm_does_not_depend_on_order(p):
    adjusted = dict(zip(p, holm(p), strict=True))
    assert adjusted == dict(zip(sorted(p), holm(sorted(p)), strict=True))


def rejected_by_simes(p: tuple[float, ...]) -> bool:
    return any(q <= (j + 1) * ALPHA / len(p) for j, q in enumerate(sorted(p)))


@settings(max_examples=60)
@given(levels)
def test_at_least_k_is_closed_testing_over_all_subsets(p):
    """h is the size of the largest subset that Simes' test does not reject, found here by trying all of them."""
    subsets = (part for k in range(1, len(p) + 1) for part in itertools.combinations(p, k))
    largest = max((len(part) for part in subsets if not rejected_by_simes(part)), default=0)
    assert int(not_rejected(np.array(p))) == largest
    assert (simes(np.array(p)) <= ALPHA) == rejected_by_simes(tuple(p))
    assert (largest == 0) == (max(p) <= ALPHA), "all of m, exactly if every one by itself"


def test_trend_weighs_as_least_squares_do():
    x, y = np.array([5.0, 6, 8, 10]), np.array([1.0, 4, 2, 7])
    assert trend(x) @ y == pytest.approx(np.polyfit(x, y, 1)[0])


@pytest.mark.parametrize("bound", [0.3, 1.0])
def test_sameness_needs_as_many_seeds_on_either_side_of_no_deviation(bound: float) -> None:
    values = np.array([0.05, 0.2, 0.1, 0.17])
    above, below = (Effect.of(sign * values, bound, "same") for sign in (1, -1))
    assert above.needed == below.needed > 0
    nearer = Effect.of(values - 0.1, bound, "same")
    assert nearer.needed <= above.needed
    assert (
        Effect.of(values + bound, bound, "same").needed
        == Effect.of(-values - bound, bound, "same").needed
        == 0
    )
