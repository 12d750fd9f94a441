"""The effects table: against plain loops over the archive, and against faults anywhere between table and headline."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlib.runs.archive import ARCHIVE
from workspace.analysis import effects
from workspace.analysis.claim import Arms, Claim, Rounds, claims_of, versus
from workspace.analysis.paper import papers
from workspace.analysis.readings import Reading, Where, readings
from workspace.figures import summary

T975 = {3: 4.302653, 5: 2.776445}  # Student's, by number of seeds


@pytest.fixture(scope="module")
def archive() -> dict[str, pd.DataFrame]:
    """The archived rows of the experiments whose effects are recomputed."""
    names = ("hcsfed_table_1", "hcsfed_ablation", "hcsfed_sweep_mnist", "hcsfed_updates")
    return {name: pd.read_parquet(ARCHIVE / "paper" / f"{name}.parquet") for name in names}


def first_round(rows: pd.DataFrame, column: str, target: float) -> float:
    for t, value in zip(rows["round"], rows[column], strict=True):
        if t >= 1 and value >= target:
            return float(t)
    return 200.0  # none of these runs diverged, and all have 200 rounds


def by_seed(table: pd.DataFrame, setting: str, method: str) -> dict[int, pd.DataFrame]:
    there = table[(table["setting"] == setting) & (table["method"] == method)]
    return {seed: there[there["seed"] == seed].sort_values("round") for seed in sorted(set(there["seed"]))}


def interval(y: list[float]) -> tuple[float, float, float]:
    mean, half = np.mean(y), T975[len(y)] * np.std(y, ddof=1) / math.sqrt(len(y))
    return float(mean), float(mean - half), float(mean + half)


ON_OFFICIAL = "0.1; 0.01; {absent}; official test set; repaired (R), H = 10; {gc}"


def row_of(archive: dict[str, pd.DataFrame], claim: str, reading: str, cell: str) -> pd.Series:
    wanted = next(one for one in claims_of("hcsfed") if one.id == claim)
    rows = pd.DataFrame(effects.rows(wanted, Arms(archive)))
    return rows[(rows["reading"] == reading) & (rows["cell"] == cell)].iloc[0]


def check(row: pd.Series, y: list[float]) -> None:
    f = math.exp if row["null"] == 1 else float
    expected = [f(v) for v in interval(y)]
    assert [row["estimate"], row["low"], row["high"]] == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert row["n"] == len(y)


@pytest.mark.parametrize(
    ("q", "gc", "absent"), [("10 %", "GC-A", "not counted"), ("30 %", "GC-B", "keep the old model")]
)
def test_log_ratios_of_rounds_by_a_plain_loop(archive, q, gc, absent):
    setting = f"MNIST, q = {q}, alpha = 0.1"
    random = "Random, attrition" if absent.startswith("keep") else "Random"
    a, b = (by_seed(archive["hcsfed_table_1"], setting, m) for m in (random, f"HCSFed-R ({gc})"))
    y = [
        math.log(first_round(a[s], "test_accuracy", 0.8) / first_round(b[s], "test_accuracy", 0.8)) for s in a
    ]
    check(
        row_of(
            archive,
            "hcsfed.T1.b",
            ON_OFFICIAL.format(absent=absent, gc=gc),
            f"MNIST, q = {q}, Random over HCSFed",
        ),
        y,
    )


@pytest.mark.parametrize("other", ["FedAvg", "SCAFFOLD"])
def test_differences_of_levels_by_a_plain_loop(archive, other):
    last = {
        m: {s: 100 * rows.loc[rows["round"] > 190, "test_accuracy"].mean() for s, rows in found.items()}
        for m in (other, "HCSFed-R (GC-B)")
        for found in (by_seed(archive["hcsfed_ablation"], "alpha = 0.1", m),)
    }
    claim = "hcsfed.F7a.a" if other == "FedAvg" else "hcsfed.F7b.d"
    y = [last["HCSFed-R (GC-B)"][s] - last[other][s] for s in last[other]]
    check(row_of(archive, claim, ON_OFFICIAL.format(absent="not counted", gc="GC-B"), f"HCSFed - {other}"), y)


@pytest.mark.parametrize("H", [5, 8])
def test_equivalences_by_a_plain_loop(archive, H):
    tops = [
        {s: 100 * rows["test_accuracy"][1:].max() for s, rows in found.items()}
        for name in (f"GC-A, H = {H}", "GC-A, H = 10")
        for found in (by_seed(archive["hcsfed_sweep_mnist"], "alpha = 0.1", name),)
    ]
    row = row_of(archive, "hcsfed.F4a.a", ON_OFFICIAL.format(absent="not counted", gc="GC-A"), f"H = {H}")
    check(row, [tops[0][s] - tops[1][s] for s in tops[0]])
    assert (row["test"], row["margin"]) == ("same", 1.5)


@pytest.mark.parametrize("gc", ["GC-A", "GC-B"])
def test_trends_by_a_plain_loop(archive, gc):
    y = []
    for s in range(5):
        logs = []
        for q in (50, 30, 10):
            setting = f"MNIST, q = {q} %, alpha = 0.1"
            a, b = (by_seed(archive["hcsfed_table_1"], setting, m)[s] for m in ("Random", f"HCSFed-R ({gc})"))
            logs.append(math.log(first_round(a, "test_accuracy", 0.8) / first_round(b, "test_accuracy", 0.8)))
        y.append(float(np.polyfit([0, 0.5, 1], logs, 1)[0]))
    check(row_of(archive, "hcsfed.T1.d", ON_OFFICIAL.format(absent="not counted", gc=gc), "MNIST"), y)


@pytest.mark.parametrize(("method", "printed"), [("Random", 96), ("SCAFFOLD", 74)])
def test_agreement_with_print_by_a_plain_loop(archive, method, printed):
    found = by_seed(archive["hcsfed_table_1"], "MNIST, q = 10 %, alpha = 0.1", f"{method}, attrition")
    y = [math.log(first_round(rows, "test_accuracy", 0.8) / printed) for rows in found.values()]
    row = row_of(
        archive,
        "hcsfed.T1.j",
        ON_OFFICIAL.format(absent="keep the old model", gc="GC-A"),
        f"MNIST, q = 10 %, {method}",
    )
    check(row, y)


def test_a_reading_whose_target_full_participation_misses_is_infeasible(archive):
    claim = next(one for one in claims_of("hcsfed") if one.id == "hcsfed.T1.b")
    found = effects.claims(pd.DataFrame(effects.rows(claim, Arms(archive)), columns=effects.COLUMNS))
    outcomes = found.set_index("reading")["outcome"]
    assert outcomes["0.01; 0.01; not counted; official test set; repaired (R), H = 10; GC-A"] == "infeasible"


# -- faults between table and headline


def cells(
    claim_values: list[list[float]], kind: str = "core", test: str = "more", margin: float = 0.0
) -> list[dict]:
    about = dict.fromkeys(effects.COLUMNS, "") | {
        "paper": "p",
        "claim": "p.1",
        "kind": kind,
        "null": 0.0,
        "test": test,
    }
    return [
        about
        | {"cell": f"c{k}", "n": len(y), "seeds": list(range(len(y))), "values": y, "margin": margin, "open": False,
           "runs": f"r{k}", "estimator": "difference of a level", "outcome": "replicated"}
        for k, y in enumerate(claim_values)
    ]  # fmt: skip


several = st.lists(st.lists(st.floats(-2, 2), min_size=4, max_size=4), min_size=1, max_size=5)


@given(several, st.randoms())
def test_the_order_of_cells_and_of_seeds_changes_no_claim(values, random):
    rows = cells(values)
    order = list(range(4))
    random.shuffle(order)
    mixed = [
        row | {"seeds": [row["seeds"][k] for k in order], "values": [row["values"][k] for k in order]}
        for row in rows
    ]
    random.shuffle(mixed)
    one, other = effects.judged(rows), effects.judged(mixed)
    assert one["outcome"] == other["outcome"] or min(abs(one["p"] - 0.05), abs(other["p"] - 0.05)) < 1e-6
    assert one["estimate"] == pytest.approx(other["estimate"])


@given(several)
def test_no_claim_with_a_reversed_cell_is_replicated(values):
    rows = cells([*values, [-0.01, -0.02, -0.01, -0.03]])
    assert effects.judged(rows)["outcome"] != "replicated"


def test_a_refuted_cell_refutes_and_an_undecided_one_does_not():
    good, bad, unclear = [1.0, 1.1, 0.9, 1.0], [-1.0, -1.1, -0.9, -1.0], [1.0, -0.5, 0.9, 0.2]
    assert effects.judged(cells([good] * 5))["outcome"] == "replicated"
    mixed = effects.judged(
        [
            row | {"outcome": "refuted" if row["cell"] == "c5" else "replicated"}
            for row in cells([good] * 5 + [bad])
        ]
    )
    assert [mixed[name] for name in ("outcome", "replicated", "refuted", "undecided", "reversed")] == [
        "refuted", 5, 1, 0, 1,
    ]  # fmt: skip
    assert effects.judged(cells([good] * 5 + [unclear]))["outcome"] == "replicated"
    assert effects.judged(cells([good, [1.0]]))["badge"] == "1 of 2 cells: c0"
    assert effects.judged(cells([[1.0], [2.0]]))["outcome"] == "one seed"


def test_deviations_of_opposite_sign_do_not_make_two_cells_the_same():
    up, down = [0.5, 0.52, 0.49, 0.51], [-0.5, -0.52, -0.49, -0.51]
    assert effects.judged(cells([up, down], test="same", margin=0.2))["outcome"] == "refuted"


@settings(max_examples=20)
@given(st.permutations(["replicated", "refuted", "undecided", "one seed", "not run", "infeasible"]))
def test_the_summary_counts_each_outcome_under_its_own_name(order):
    found = pd.DataFrame([row_of_claim(f"r{k}", name) for k, name in enumerate(order)])
    told = effects.summary(found).iloc[0]
    assert all(told[name] == 1 for name in order)
    assert told["readings"] == 4
    words = effects.in_words(
        {"replicated": 3, "refuted": 1, "undecided": 2, "one seed": 0, "not run": 0, "infeasible": 5}
    )
    assert words == "replicated under 3, refuted under 1, undecided under 2 of 6 readings"


def row_of_claim(runs: str, outcome: str) -> dict:
    return dict.fromkeys(effects.CLAIM_COLUMNS, math.nan) | {
        "paper": "hcsfed", "claim": "x", "artifact": "a", "kind": "core", "cells": 2, "runs": runs, "outcome": outcome,
        "reading": readings("hcsfed")[0].name, "n": 0,
    }  # fmt: skip


def test_holm_takes_back_a_core_claim_that_many_others_outweigh():
    weak = [0.42, 0.10, 0.30, 0.21, 0.05]
    rows = [row | {"claim": f"p.{k}", "reading": "r"} for k in range(8) for row in cells([weak])]
    alone = effects.claims(pd.DataFrame(rows[:1], columns=effects.COLUMNS))
    many = effects.claims(pd.DataFrame(rows, columns=effects.COLUMNS))
    assert list(alone["outcome"]) == ["replicated"]
    assert set(many["outcome"]) == {"undecided"}
    supporting = effects.claims(pd.DataFrame(rows, columns=effects.COLUMNS).assign(kind="supporting"))
    assert set(supporting["outcome"]) == {"replicated"}


def test_a_claim_that_was_tested_in_vain_counts_in_the_correction_of_the_others():
    """Two claims with p = 0.04: each stands alone and not beside the other, nor beside one with a reversed cell."""
    fair, strong = [0.42, 0.10, 0.30, 0.21, 0.35], [1.0, 1.1, 0.9, 1.0, 1.05]
    p = effects.judged(cells([fair]))["p"]
    assert 0.005 < p < 0.025
    split = [strong, [-0.1, 0.2, -0.3, 0.1, -0.2]]

    def outcome(other: list[list[float]], times: int) -> str:
        rows = [row | {"claim": f"p.{k}", "reading": "r"} for k in range(times) for row in cells(other)]
        rows += [row | {"claim": "p.x", "reading": "r"} for row in cells([fair])]
        found = effects.claims(pd.DataFrame(rows, columns=effects.COLUMNS))
        return found.set_index("claim").loc["p.x", "outcome"]

    assert outcome([strong], 3) == "replicated"
    assert outcome(split, 1) == "replicated"
    assert outcome(split, 9) == "undecided"
    assert outcome([[1.0]], 9) == "replicated", "what was not tested takes nothing"


def test_readings_that_judge_nothing_of_their_own_are_not_repeated():
    """By reading, the runs of cells 0 and 1, and the seeds of each; "" is not run."""
    strong = [1.0, 1.1, 0.9, 1.0]

    def rows(reading: str, first: str, second: str, n: int = 4) -> list[dict]:
        values = [strong if first else [], strong[:n] if second else []]
        named = zip(
            cells(values, kind="supporting"),
            (first or "absent", second or f"absent in {reading}"),
            strict=True,
        )
        return [row | {"reading": reading, "runs": runs} for row, runs in named]

    table = [*rows("a", "x", "y"), *rows("same", "x", "y"), *rows("part", "x", ""), *rows("other", "x", "z"),
             *rows("one seed of its own", "x", "w", 1)]  # fmt: skip
    found = effects.claims(pd.DataFrame(table, columns=effects.COLUMNS))
    assert list(found["reading"]) == ["a", "other"]
    reordered = effects.claims(pd.DataFrame(table[::-1], columns=effects.COLUMNS))
    assert set(reordered["reading"]) == {"same", "other"}
    alone = [*rows("b", "", ""), *rows("c", "", "v", 1)]
    assert list(effects.claims(pd.DataFrame(alone, columns=effects.COLUMNS))["reading"]) == ["c"]


def test_a_reading_with_runs_for_fewer_cells_is_shown_and_does_not_count():
    whole, part = row_of_claim("r0", "replicated"), row_of_claim("r1", "refuted") | {"cells": 1}
    assert list(effects.counted(pd.DataFrame([part, whole]))["runs"]) == ["r0"]
    assert effects.summary(pd.DataFrame([part, whole])).iloc[0]["outcome"] == "replicated"


def test_shares_of_variance_are_those_by_hand(monkeypatch):
    """Effects 0, 2, 4, 10 over a 2 x 2 grid: means of a are 1 and 7, of b 2 and 6; their variances 9 and 4 of 14.

    c changes with a, and is taken as written where a reading does not say it; d never changes.
    """
    options = {"as written": ("1", "1"), "r2": ("1", "2"), "r3": ("2", "1"), "r4": ("2", "2")}
    names = [
        Reading(name, "", {"a": a, "b": b} | ({} if name == "r2" else {"c": a}))
        for name, (a, b) in options.items()
    ]
    names[0].choices["d"] = "never"
    monkeypatch.setattr(effects, "readings", lambda paper: names)
    found = pd.DataFrame([row_of_claim(f"r{k}", "undecided") for k in range(5)]).assign(
        estimate=[0.0, 2.0, 4.0, 10.0, 99.0], null=0.0, n=5, reading=[*options, "r4"]
    )
    found.loc[4, "outcome"] = "infeasible"
    shares = effects.sensitivity(found)
    assert shares[["choice", "options", "readings"]].values.tolist() == [["a + c", 2, 4], ["b", 2, 4]]
    assert shares["share"].tolist() == pytest.approx([9 / 14, 4 / 14])
    figure = summary.choice_shares(shares)
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([900 / 14, 400 / 14])
    assert "a + c" in [text.get_text() for text in figure.axes[0].texts]


def test_a_data_set_is_corrected_together_with_the_papers_other_core_claims():
    fair = [0.42, 0.10, 0.30, 0.21, 0.35]
    rows = [row | {"claim": "p.main", "reading": "r", "data": "MNIST"} for row in cells([fair])]
    assert list(effects.by_data(pd.DataFrame(rows, columns=effects.COLUMNS), ["p.main"])["outcome"]) == [
        "replicated"
    ]
    rows += [
        row | {"claim": f"p.{k}", "reading": "r"} for k in range(6) for row in cells([[0.1, -0.2, 0.1, -0.1]])
    ]
    found = effects.by_data(pd.DataFrame(rows, columns=effects.COLUMNS), ["p.main"])
    assert found[["claim", "data", "outcome"]].values.tolist() == [["p.main", "MNIST", "undecided"]]


def test_a_target_out_of_reach_makes_a_reading_infeasible():
    rows = [
        {"experiment": "e", "setting": "s", "method": m, "seed": s, "round": t, "diverged": False,
         "test_accuracy": 0.9 if t >= at else 0.1}
        for m, at in (("A", 8), ("B", 3), ("Full participation", 99))
        for s in range(3)
        for t in range(11)
    ]  # fmt: skip
    claim = Claim(
        "hcsfed.x", "hcsfed/x", "B is faster.", "core", "log-ratio of rounds", Rounds(0.8),
        (versus("c", Where("e", "s", "A"), Where("e", "s", "B")),),
    )  # fmt: skip
    table = pd.DataFrame(rows)
    assert {row["outcome"] for row in effects.rows(claim, Arms({"e": table}))} == {"infeasible"}
    without = table[table["method"] != "Full participation"]
    (row, *_) = effects.rows(claim, Arms({"e": without}))
    assert row["outcome"] == "replicated"
    assert row["estimate"] == pytest.approx(8 / 3)


def test_every_claim_is_whole():
    for paper in papers():
        claims = claims_of(paper)
        assert len({claim.id for claim in claims}) == len(claims)
        for claim in claims:
            assert claim.text.endswith("."), claim.id
            assert claim.cells, claim.id
            assert len({cell.name for cell in claim.cells}) == len(claim.cells), claim.id
            assert all(claim.bound(cell) > 0 for cell in claim.cells if claim.test == "same"), claim.id
            assert all(claim.expected(cell) > 0 for cell in claim.cells if claim.margin == "printed"), (
                claim.id
            )
