"""Headline tables: the distance to the print, paired seeds, cells, and how close luck comes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from fedlib.measure import Missing
from workspace.analysis import headline
from workspace.analysis.claim import Arms, claims_of
from workspace.analysis.headline import Headline, Row, cell, closest, distance
from workspace.analysis.readings import AS_WRITTEN, Primary, Reading, Swap

METHODS = ("A", "B")
ROW = Row("row", "e", "s", 0.5, {"A": "20", "B": "10"}, {"A": 20.0, "B": 10.0}, 50)
TABLE = Headline("a table", "", "median", (ROW,), ())
OTHER = Reading(
    "other", "", {"what": "other"}, swaps=(Swap("e", methods={m: f"{m}, other" for m in METHODS}),)
)
WRITTEN = Reading(AS_WRITTEN, "", {"what": "written"})


def runs(arrivals: dict[str, list[float]], T: int = 50) -> Arms:
    """method -> the round in which each seed arrives; inf: never."""
    t = np.arange(T + 1)
    parts = [
        pd.DataFrame(
            {"setting": "s", "method": m, "seed": seed, "round": t, "test_accuracy": (t >= at) * 1.0}
        )
        for m, rounds in arrivals.items()
        for seed, at in enumerate(rounds)
    ]
    return Arms({"e": pd.concat(parts).assign(diverged=False)})


def test_the_distance_to_print_is_the_mean_of_factors_of_two() -> None:
    assert distance([10, 20], [10, 20]) == 0
    assert distance([20, 10], [10, 20]) == pytest.approx(1), "twice and half are a factor of two each"
    assert distance([40, 10], [10, 10]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("rounds", "text"),
    [
        ([31], "31"),
        ([26, 31, 44], "31 (26\u201344); 33.7 \u00b1 9.3"),
        ([155, 74, math.inf, 193], "3 of 4 arrive: 74, 155, 193"),
        ([math.inf, 74], "1 of 2 arrives: 74"),
        ([math.inf, math.inf], "none of 2 arrive in 200"),
        ([], "not run"),
    ],
)
def test_a_cell_says_the_seeds_that_miss(rounds: list[float], text: str) -> None:
    assert cell(pd.Series(rounds, dtype=float), 200) == text


def test_readings_are_compared_on_the_seeds_that_all_of_them_have() -> None:
    found = runs({"A": [10, 20, 30], "B": [1, 2, 3], "A, other": [5, 6]})
    shown = headline.table(TABLE, [WRITTEN, OTHER], found)
    assert shown.loc[("row", "printed"), ["A", "B"]].tolist() == ["20", "10"]
    assert shown.loc[("row", "other")].tolist() == ["2", "5.5 (5\u20136); 5.5 \u00b1 0.7", "not run"]
    assert shown.loc[("row", AS_WRITTEN), "seeds"] == "2"
    whole = shown.loc[("row", AS_WRITTEN + headline.ALL)]
    assert whole.tolist() == [
        "3",
        "20 (10\u201330); 20.0 \u00b1 10.0, n = 3",
        "2 (1\u20133); 2.0 \u00b1 1.0, n = 3",
    ]
    assert ("row", "other" + headline.ALL) not in shown.index, "it has no more seeds than are shown"


def test_a_page_shows_the_papers_own_method_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = runs({"A": [10, 20, 30], "B": [1, 2, 3], "A, other": [5, 6]})
    monkeypatch.setattr(headline, "headlines", lambda: {"paper": TABLE})
    monkeypatch.setattr(headline, "shown", lambda paper: [WRITTEN])
    shown = headline.page("paper", found.results)
    assert list(shown.columns) == ["B", "A", "seeds"], "print has it last"
    assert shown.loc[("row", AS_WRITTEN), "B"] == "2 (1\u20133); 2.0 \u00b1 1.0"
    with pytest.raises(Missing, match="nothing of a table has been run"):
        headline.page("paper", runs({"C": [1]}).results)


def test_a_run_that_misses_counts_as_one_round_more_than_it_was_followed() -> None:
    found = runs({"A": [math.inf] * 3, "B": [10] * 3})
    assert headline.values(TABLE, WRITTEN, found).tolist() == [51, 10]


def test_the_closest_reading_is_found_among_those_that_have_every_cell() -> None:
    found = runs({"A": [40], "B": [40], "A, other": [20], "B, other": [11]})
    partly = Reading("partly", "", swaps=(Swap("e", methods={"A": "A, other", "B": "nothing"}),))
    one = closest(TABLE, [WRITTEN, OTHER, partly], AS_WRITTEN, found)
    assert (one.reading, one.looked_at, one.skipped, one.cells) == (OTHER, 2, 1, 2)
    assert one.distance == pytest.approx(distance([20, 11], [20, 10]))
    assert one.tested == pytest.approx(1.5)
    assert one == closest(TABLE, [WRITTEN, OTHER, partly], AS_WRITTEN, found), "luck is seeded"
    with pytest.raises(Missing, match="nothing of a table"):
        closest(TABLE, [WRITTEN], AS_WRITTEN, runs({"C": [1]}))


def test_luck_comes_as_close_as_readings_that_are_right_in_no_more_than_one_cell() -> None:
    rows = tuple(Row(str(k), "e", str(k), 0.5, {"A": "10"}, {"A": 10.0}, 50) for k in range(8))
    wide = Headline("wide", "", "median", rows, ())
    names = [AS_WRITTEN, *map(str, range(1, 8))]

    def search(right: dict[str, int]) -> headline.Closest:
        """Cell -> the reading that is right in it; all others are wrong by a factor of two."""
        table = [
            pd.DataFrame({"setting": row.setting, "method": f"A{k}", "seed": 0, "round": np.arange(51)}).assign(
                test_accuracy=(np.arange(51) >= (10 if right[row.setting] == k else 20)) * 1.0, diverged=False)
            for row in rows for k in range(len(names))
        ]  # fmt: skip
        mine = [Reading(n, "", swaps=(Swap("e", methods={"A": f"A{k}"}),)) for k, n in enumerate(names)]
        return closest(wide, mine, AS_WRITTEN, Arms({"e": pd.concat(table)}), draws=200)

    throughout = search(dict.fromkeys(map(str, range(8)), 3))
    assert (throughout.distance, throughout.p) == (0, 0)
    assert throughout.by_luck > 0.5
    by_chance = search({str(k): k for k in range(8)})
    assert by_chance.p > 0.5
    rows = tuple(Row(f"one {k}", "e", str(k), 0.5, {"A": "10"}, {"A": 10.0}, 50) for k in range(8))
    wide = Headline("of one data set", "", "median", rows, ())
    together = search(dict.fromkeys(map(str, range(8)), 3))
    assert (together.distance, together.p) == (0, 1), "a choice may shift all cells of a data set at once"


def test_effects_under_every_reading_are_sorted_and_equal_runs_count_once(monkeypatch) -> None:
    same = Reading("same", "", {"what": "the same"})
    monkeypatch.setattr(headline, "readings", lambda paper: [same, OTHER, WRITTEN])
    monkeypatch.setattr(headline, "primary", lambda paper: Primary(AS_WRITTEN, AS_WRITTEN, ("", "", ""), {}))
    monkeypatch.setattr(headline, "called", lambda paper: {AS_WRITTEN: "as written (tested)"})
    keys = ("reading", "runs", "estimate", "low", "high", "n")
    written, other = (3.0, 2.0, 4.0, 5), (1.0, math.nan, math.nan, 1)
    values = [("same", "x", *written), (AS_WRITTEN, "x", *written), ("other", "y", *other)]
    cells = [dict(zip(keys, row, strict=True)) | {"paper": "p"} for row in values]
    rows = headline.specifications(cells)
    assert rows[["called", "effect", "low", "high", "seeds", "what"]].to_numpy().tolist() == [
        ["", 1.0, 1.0, 1.0, 1, "other"], ["as written (tested)", 3.0, 2.0, 4.0, 5, "written"],
    ]  # fmt: skip
    with pytest.raises(Missing, match="not been run"):
        headline.specifications([cells[0] | {"n": 0}])


@pytest.mark.parametrize("paper", headline.headlines())
def test_the_headline_effects_are_cells_of_claims(paper: str) -> None:
    cells = {claim.id: {cell.name for cell in claim.cells} for claim in claims_of(paper)}
    for claim, name in headline.headlines()[paper].effects:
        assert name in cells[claim]


def test_every_paper_with_a_headline_is_found_by_looking() -> None:
    found = headline.headlines()
    assert set(found) == {"clustered_sampling", "hcsfed", "fedcor", "hics_fl"}
    for one in found.values():
        for row in one.rows:
            assert set(row.printed) == set(row.shown)


def test_print_that_does_not_reach_the_target_counts_one_round_more_than_it_was_followed() -> None:
    row = Row("row", "e", "s", 0.5, {"A": "20", "B": "50+"}, {"A": 20.0, "B": math.inf}, 50)
    never = Headline("a table", "", "median", (row,), ())
    assert headline.in_print(never).tolist() == [20, 51]
    ours = headline.values(never, WRITTEN, runs({"A": [20, 20, 20], "B": [math.inf] * 3}))
    assert ours.tolist() == [20, 51], "ours likewise"
