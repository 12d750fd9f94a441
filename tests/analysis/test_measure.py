"""What is read off a curve, on curves whose answers can be written down by hand."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedlib import measure


def table(
    curves: dict[tuple[str, int], list[float]], column: str = "test_accuracy", **more: object
) -> pd.DataFrame:
    """A tidy table with one row per round (from 0 on) of each (method, seed)."""
    rows = [
        {"experiment": "e", "setting": "", "method": m, "seed": s, "round": t, column: x, "diverged": False}
        | more
        for (m, s), values in curves.items()
        for t, x in enumerate(values)
    ]
    return pd.DataFrame(rows)


def series(*values: float) -> pd.Series:
    return pd.Series(values, range(len(values)), dtype=float)


def test_rounds_to_target_ignores_round_0_and_unmeasured_rounds():
    assert measure.rounds_to_target(series(0.9, 0.1, 0.5, 0.4, 0.6), 0.5) == 2
    assert measure.rounds_to_target(series(0.9, 0.1, 0.2), 0.5) == math.inf
    unmeasured = measure.curve(table({("A", 0): [0.0, math.nan, 0.7, math.nan, 0.8]}), "test_accuracy")
    assert measure.rounds_to_target(unmeasured, 0.5) == 2


def test_three_in_a_row_counts_from_the_first_of_the_three():
    lucky = series(0, 0.6, 0.1, 0.6, 0.6, 0.1, 0.6, 0.7, 0.8)
    assert measure.rounds_to_target(lucky, 0.5) == 1
    assert measure.rounds_to_target(lucky, 0.5, consecutive=3) == 6
    assert measure.rounds_to_target(lucky[:8], 0.5, consecutive=3) == math.inf


def test_rounds_below_and_to_best():
    assert measure.rounds_below(series(3, 2, 1, 0.5), 1.0) == 2
    assert measure.rounds_to_best(series(1.0, 0.2, 0.78, 0.8, 0.7)) == 3
    assert measure.rounds_to_best(series(1.0, 0.2, 0.78, 0.8, 0.7), share=0.95) == 2


def test_areas_and_ends_leave_out_round_0():
    x = series(100, *range(1, 11))
    assert measure.area(x) == 5.5
    assert measure.area(x, first=3, last=4) == 3.5
    assert measure.end_mean(x, share=0.2) == 9.5


def test_roughness_and_jitter_of_a_zigzag():
    zigzag = series(*[0, 1] * 10)
    assert measure.roughness(zigzag) == 1
    assert measure.jitter(zigzag) == pytest.approx(np.std([1, -1] * 7, ddof=1), rel=0.02)
    assert measure.roughness(series(*range(20))) == 1
    assert measure.jitter(series(*range(20))) == 0


def test_a_diverged_run_is_the_worst_from_there_to_the_end():
    good, gone = [1.0, 0.9, 0.8, 0.7, 0.6], [1.0, 0.5, math.nan]
    loss = table({("A", 0): good, ("B", 0): gone}, "train_loss")
    loss.loc[(loss["method"] == "B") & (loss["round"] == 2), "diverged"] = True
    ends = measure.per_run(loss, "train_loss", measure.end_mean).loc[""]
    assert ends["A", 0] == pytest.approx(0.6)
    assert ends["B", 0] == math.inf
    accuracy = loss.rename(columns={"train_loss": "test_accuracy"})
    areas = measure.per_run(accuracy, "test_accuracy", measure.area).loc[""]
    assert areas["B", 0] == pytest.approx(0.5 / 4)


def test_runs_are_compared_over_the_rounds_and_the_seeds_that_all_have_but_those_that_diverged():
    short = table({("A", 0): [0, 1, 2, 3], ("A", 1): [0, 1, 2, 3, 4, 5], ("B", 0): [0, 1, 2, 3, 4]})
    gone = table({("B", 1): [0, math.nan]})
    gone.loc[gone["round"] == 1, "diverged"] = True
    other = table({("A", 0): [0] * 7, ("A", 1): [0] * 9}, setting="other")
    alone = table({("A", 2): [0, 1]})
    apart = table({("A", 0): [0], ("B", 1): [0]}, setting="apart")
    results = pd.concat([short, gone, other])
    assert measure.common_end(results) == 3
    assert measure.common_end(gone) == 1
    alike = measure.comparable(pd.concat([results, alone, apart]))
    ends = alike.groupby(measure.RUN)["round"].max()
    assert ends.to_dict() == {
        ("", "A", 0): 3, ("", "A", 1): 3, ("", "B", 0): 3, ("", "B", 1): 1, ("other", "A", 0): 6, ("other", "A", 1): 6
    }  # fmt: skip
    assert measure.per_run(alike, "test_accuracy", measure.end_mean)["", "B", 1] == 0


def test_who_has_arrived_is_known_up_to_the_end_of_the_shortest_run_that_never_does():
    early, short, long = [0, 0.9], [0] * 5, [0] * 7 + [0.9]
    gone = table({("D", 0): [0, math.nan, math.nan]})
    gone.loc[gone["round"] > 0, "diverged"] = True

    def followed(curves: dict, others: pd.DataFrame = gone) -> int:
        results = pd.concat([table(curves), others])
        rounds = measure.per_run(results, "test_accuracy", measure.rounds_to_target, target=0.8)
        return measure.followed(results, rounds)

    assert followed({("A", 0): early, ("B", 0): long}) == 7
    assert followed({("A", 0): early, ("B", 0): long}, gone.head(0)) == 7
    assert followed({("A", 0): early, ("B", 0): short, ("C", 0): long}) == 4
    assert followed({("A", 0): short, ("B", 0): [0] * 4, ("C", 0): long}) == 3


def test_a_mean_over_rounds_is_one_over_measured_rounds():
    losses = [9.0, *[math.nan] * 3, 3.0, *[math.nan] * 3, 1.0, math.nan, 2.0]
    results = table({("A", 0): losses}, "train_loss")
    assert measure.per_run(results, "train_loss", measure.area)["", "A", 0] == 2.0
    assert measure.per_run(results, "train_loss", measure.end_mean)["", "A", 0] == 2.0


def test_rolling_is_a_mean_over_rounds_not_over_measurements():
    sparse = pd.Series([0.0, 10.0, 20.0, 60.0], index=[0, 10, 20, 60])
    assert measure.rolling(sparse, half=10).tolist() == [5.0, 10.0, 15.0, 60.0]


def test_savitzky_golay_keeps_a_cubic():
    cubic = pd.Series(np.arange(30.0) ** 3, range(30))
    assert np.allclose(measure.savitzky_golay(cubic), cubic)


def test_speed_up_of_hcsfeds_table():
    assert measure.speed_up([96], [9], cap=200) == (pytest.approx(10.67, abs=0.01), False)
    assert measure.speed_up([math.inf], [81], cap=200) == (pytest.approx(2.47, abs=0.01), True)
    assert math.isnan(measure.speed_up([50], [math.inf], cap=200)[0])
    assert measure.speed_up([200], [200], cap=200) == (1.0, False), "the last round is still in time"
    assert math.isnan(measure.speed_up([50], [201], cap=200)[0])


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30))
def test_gini_equals_the_mean_absolute_difference_form(counts):
    x = np.array(counts, dtype=float)
    expected = np.abs(x[:, None] - x[None, :]).mean() / (2 * x.mean()) if x.sum() else 0.0
    assert measure.gini(x) == pytest.approx(expected, abs=1e-9)


def test_counts_and_distinct():
    drawn = pd.DataFrame(
        {"round": [0, 1, 2], "clients": [[], [0, 0, 2], [2, 3, 1]], "setting": "", "seed": 0}
    )
    assert measure.selection_counts(drawn, N=5).tolist() == [2, 1, 2, 1, 0]
    assert measure.selection_counts(drawn, N=5, first=2).tolist() == [0, 1, 1, 1, 0]
    out = measure.add_distinct(drawn, {("", 0): np.array([0, 1, 0, 1, 1])})
    assert out["distinct_clients"].tolist()[1:] == [2, 3]
    assert out["distinct_classes"].tolist()[1:] == [1, 2]


def test_costs_add_up_in_order_of_rounds():
    t = table({("A", 0): [0.1, 0.6, 0.9], ("B", 0): [0.1, 0.2, 0.3]})
    t = t.assign(parameters_down=1_000_000, parameters_up=500_000, scalars_up=250_000, client_steps=7)
    t = measure.cumulative_cost(t.iloc[::-1])
    assert t.loc[(t["method"] == "A") & (t["round"] == 1), "megabytes"].item() == pytest.approx(2 * 7.0)
    assert t.loc[(t["method"] == "A") & (t["round"] == 1), "uplink_megabytes"].item() == pytest.approx(
        2 * 3.0
    )
    cost = measure.cost_to_target(t, 0.5, "work")
    assert cost["", "A", 0] == 14
    assert cost["", "B", 0] == math.inf


def test_cases_are_the_settings_in_which_all_samplers_have_run():
    def runs(**last: float) -> pd.DataFrame:
        return table(
            {(method, seed): [0.1, value + seed / 10] for method, value in last.items() for seed in (0, 1)}
        )

    tables = {"few": runs(A=0.5, B=0.2), "many": runs(A=0.6, B=0.3, extra=0.9), "part": runs(A=0.4)}
    found = measure.cases(tables, ["B", "A", "not run"], measure.end_mean, share=0.05)
    assert list(found.columns) == ["B", "A"]
    assert list(found.index) == [("few", ""), ("many", "")]
    assert found.to_numpy() == pytest.approx(np.array([[0.25, 0.55], [0.35, 0.65]]))


def test_ranks_and_nemenyi():
    scores = pd.DataFrame({"A": [3, 3, 3], "B": [2, 1, 2], "C": [1, 2, 1]})
    assert measure.mean_ranks(scores).to_dict() == pytest.approx({"A": 1, "B": 7 / 3, "C": 8 / 3})
    assert measure.friedman(scores) == pytest.approx(stats.friedmanchisquare(*scores.to_numpy().T).pvalue)
    assert measure.critical_difference(4, 14) == pytest.approx(
        1.25, abs=0.01
    )  # Demsar 2006: 2.569 sqrt(20/84)


def test_arrivals_of_all_runs_are_the_rounds_to_the_target_of_each():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        [
            {"setting": s, "method": m, "seed": seed, "round": t, "test_accuracy": rng.uniform(0, 1)}
            for s in ("a", "b")
            for m in ("A", "B")
            for seed in range(3)
            for t in range(12)
        ]
    )
    table["diverged"] = (table["method"] == "B") & (table["seed"] == 1) & (table["round"] >= 4)
    table.loc[table["round"] % 3 == 1, "test_accuracy"] = np.nan
    for target in (0.5, 0.9, 1.1):
        slow = measure.per_run(table, "test_accuracy", measure.rounds_to_target, target=target)
        pd.testing.assert_series_equal(measure.arrivals(table, target), slow, check_names=False)
