"""The sentences of the pages over all papers, with numbers that can be counted by hand."""

from __future__ import annotations

import pandas as pd

from workspace.pages import findings
from workspace.pages.discrepancies import factor


def test_the_board_counts_every_core_claim_once():
    tallies = {"One": {"holds": 3, "contradicted": 1}, "Two": {"contradicted": 2, "not run": 4}}
    said = findings.of_board(tallies, experiments=5)
    assert (
        said
        == "10 core claims: 3 holds, 3 contradicted and 4 not run. 5 experiments and studies have results."
    )
    counted = findings.counted(tallies).set_index("paper")
    assert counted.loc["Two", ["holds", "contradicted", "not run"]].tolist() == [0, 2, 4]
    assert findings.of_board({}, experiments=5) == ""


def test_the_distance_to_print_is_listed_paper_by_paper():
    row = {"tested": "× 1.25", "closest": "× 1.10", "by luck": "× 1.20"}
    second = {"tested": factor(1.0), "closest": factor(0.0), "by luck": factor(0.5)}
    said = findings.of_discrepancies(pd.DataFrame.from_dict({"One": row, "Two": second}, orient="index"))
    assert "by a factor of 1.25 (One) and 2.00 (Two)." in said
    assert "the factor is 1.10 (One) and 1.00 (Two)." in said
    assert "luck alone would give 1.20 (One) and 1.41 (Two)." in said
    assert findings.of_discrepancies(pd.DataFrame()) == ""


def test_the_most_and_the_least_of_each_panel_are_named():
    panels = {"one": pd.Series({"A": 61.25, "B": 40.0, "C": 50.0}), "alone": pd.Series({"A": 1.0})}
    said = findings.extremes(panels, "accuracy", "%")
    assert said == "Highest and lowest accuracy: one: A (61.2 %), B (40 %)."
    assert findings.extremes({}, "accuracy", "%") == ""


def test_a_speed_up_is_named_with_its_seeds_and_the_printed_one():
    columns = pd.MultiIndex.from_product([["X", "Y", "Z"], ["speed-up", "seeds", "speed-up, paper"]])
    row = ["1.01", 3, 2.5, "8.68", 1, 7.3, "-", 0, 2.2]
    said = findings.of_speed(pd.DataFrame([row], index=["Ours"], columns=columns), "Ours")
    assert (
        "1.01 times as many on X (3 seeds; printed 2.5) and 8.68 times as many on Y (one seed; printed 7.3)"
        in said
    )
    assert "Z" not in said, "not run"
