"""HCSFed's finding follows the numbers: the speed-up is the rule's where plain-mean Random is level with HCSFed."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from workspace.papers.hcsfed import findings
from workspace.papers.hcsfed.printed import COLUMNS, OWN_TEST


def runs(random: int, ours: int = 10, attrition: int = 60) -> pd.DataFrame:
    needed = {
        "HCSFed-R (GC-A)": ours,
        "HCSFed-R (GC-B)": ours,
        "Random": random,
        "Random, attrition": attrition,
    }
    rows = [
        {
            "setting": setting,
            "method": method,
            "seed": seed,
            "round": t,
            "client_accuracy": 0.5 + 0.4 * (t >= n + seed),
            "test_accuracy": 0.5,
        }
        for setting in (f"{column}, alpha = 0.1" for column in COLUMNS)
        for method, n in needed.items()
        for seed in (0, 1)
        for t in range(101)
    ]
    return pd.DataFrame(rows).assign(diverged=False)


@pytest.mark.parametrize(
    ("random", "words"),
    [(10, "is the rule's, not the selection's"), (40, "is in part the selection's")],
)
def test_the_sentence_follows_the_numbers(random: int, words: str):
    table = runs(random)
    y = [math.log((random + seed) / (10 + seed)) for seed in (0, 1)]
    ratio = math.exp(sum(y) / 2)
    assert f"the plain mean, {ratio:.2f} × [" in findings.in_words(table)
    assert words in findings.in_words(table)
    assert findings.rule_or_selection(table).loc["Random, plain mean"].tolist() == [random + 0.5] * len(
        COLUMNS
    )


def test_nothing_is_said_of_what_has_not_been_run():
    table = runs(11)
    assert findings.in_words(table[table["method"] != "Random"]) == ""


def test_reallocation_acts_only_with_fewer_clusters_than_places():
    assert findings.reallocated(10, 10) == 0
    assert findings.reallocated(10, 5) == 1


def test_the_arm_in_which_places_are_re_allocated_is_compared_on_the_same_seeds() -> None:
    arms = {"HCSFed-R (GC-B)": {0: 3, 1: 4, 2: 9}, "HCSFed-R (GC-B), H = 5": {0: 6, 1: 2}}
    rows = [
        {
            "setting": "s",
            "method": method,
            "seed": seed,
            "round": t,
            "test_accuracy": float(t >= start),
            "client_accuracy": float(t > start),
        }
        for method, seeds in arms.items()
        for seed, start in seeds.items()
        for t in range(8)
    ]
    table = pd.DataFrame(rows).assign(diverged=False)
    found = findings.fewer_clusters(table).set_index("accuracy")
    shown = ["seeds", "H = 10", "H = 5", "seeds later with H = 5"]
    assert found.loc["official test set", shown].tolist() == [2, 3.5, 4, 1]
    assert found.loc["clients' own", shown].tolist() == [2, 4.5, 5, 1]
    assert "In 2 of the 2 rows" in findings.places_said(found)
    alone = findings.fewer_clusters(table[table["method"] == "HCSFed-R (GC-B)"])
    assert alone.empty
    assert findings.places_said(alone).endswith("has not been run here.")


def test_the_program_of_the_earlier_paper_stands_beside_ours():
    """First rounds by hand: seeds 0 to 2 of random selection, by the clients' own accuracy and the official one."""
    table = runs(20).assign(setting=f"MNIST, q = 10 %, alpha = 0.1{OWN_TEST}")
    table = table[table["method"] == "Random, attrition"].drop_duplicates(["seed", "round"])
    shown = findings.earlier_program(table).loc["MNIST, q = 10 %, alpha = 0.1"]
    random = shown.loc["Random: absent clients keep the old model"]
    assert random.tolist() == ["57 (66), 82 (99), 64 (113)", "60 (100+), 61 (100+)"]
    assert shown.loc["their grouping by labels: plain mean"].tolist() == [
        "18 (25), 12 (17), 19 (19)",
        "not run",
    ]
