"""The effects table: against plain loops over the archive, and against faults anywhere between table and headline."""

from __future__ import annotations

import io
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedlib import measure
from fedlib.runs.archive import ARCHIVE
from fedlib.settings.schema import ROOT
from workspace.analysis import effects, judge, words
from workspace.analysis.claim import BELOW, LEVEL, ROUNDS, Arms, Claim, Level, Rounds, claims_of, versus
from workspace.analysis.judge import Order, decided
from workspace.analysis.paper import papers
from workspace.analysis.readings import Reading, Where, readings
from workspace.analysis.sentences import said
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
    mean, low, high = (f(v) for v in interval(y))
    expected = [mean, f(-math.inf) if row["under"] else low, math.inf if row["open"] else high]
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
    claim_values: list[list[float]],
    kind: str = "core",
    test: str = "more",
    margin: float = 0.0,
    **more: object,
) -> list[dict]:
    """Rows of the effects table under the primary reading, from the values of each cell."""
    about = dict.fromkeys(effects.COLUMNS, "") | {
        "paper": "p",
        "claim": "p.1",
        "kind": kind,
        "over": "all",
        "reading": "r",
        "primary": True,
        "null": 0.0,
        "test": test,
        "margin": margin,
        "printed": math.nan,
        "open": False,
        "under": False,
        "finest": 0.0,
        "lost": 0,
        "late": 0,
        "estimator": LEVEL,
    }
    rows = []
    for k, y in enumerate(claim_values):
        row = (
            about
            | {"cell": f"c{k}", "n": len(y), "seeds": list(range(len(y))), "values": y, "runs": f"r{k}"}
            | more
        )
        effect = judge.effect_of(row)
        p = {"p": effect.p_shown, "p_reversed": effect.p_reversed}
        rows.append(row | p | {"estimate": effect.estimate, "outcome": effects_outcome(row)})
    return rows


def effects_outcome(row: dict) -> str:
    from workspace.analysis.estimators import cell_outcome

    return cell_outcome(judge.effect_of(row))


def claims_of_rows(rows: list[dict]) -> pd.DataFrame:
    return effects.claims(pd.DataFrame(rows, columns=effects.COLUMNS))


GOOD, BAD, UNCLEAR = [1.0, 1.1, 0.9, 1.0], [-1.0, -1.1, -0.9, -1.0], [1.0, -0.5, 0.9, 0.2]
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
    assert one["outcome"] == other["outcome"] or min(abs(one["p"] - 0.025), abs(other["p"] - 0.025)) < 1e-6
    assert one["estimate"] == pytest.approx(other["estimate"])


@given(several)
def test_no_claim_with_a_cell_that_does_not_show_it_holds(values):
    for cell in (UNCLEAR, [-0.01, -0.02, -0.01, -0.03], [0.0, 0.0, 0.0, 0.0]):
        assert effects.judged(cells([GOOD, *values, cell]))["outcome"] not in ("holds", "holds where run")


def test_the_words_of_order():
    def said(*values: list[float], **more: object) -> tuple[str, str]:
        row = effects.judged(cells(list(values), **more))
        return row["outcome"], row["said"]

    assert said(*[GOOD] * 5) == ("holds", "holds in all 5")
    assert said(GOOD) == ("holds", "holds")
    assert said(GOOD, GOOD, [1.0]) == ("holds where run", "holds in both that were run; 1 open")
    assert said(*[GOOD] * 5, BAD) == ("contradicted", "contradicted: reversed in at least 1 of 6 (c5)")
    assert said(BAD, BAD) == ("contradicted", "contradicted: reversed in both")
    assert said(BAD, BAD, [1.0]) == ("contradicted", "contradicted: reversed in both that were run; 1 open")
    assert said(BAD, [1.0]) == ("contradicted", "contradicted: reversed in the one that was run; 1 open")
    assert said(*[GOOD] * 5, UNCLEAR) == ("shown in part", "shown in at least 5 of 6")
    assert said(UNCLEAR, UNCLEAR) == ("not shown", "not shown in any of 2")
    assert said([1.0], [2.0])[0] == "one seed"
    assert said([], [])[0] == "not run"
    assert said(GOOD, kind="construction") == ("by construction", "by construction")
    assert {"holds", "holds where run", "contradicted", "shown in part", "not shown"} <= set(words.ORDER)


def test_what_is_shown_nowhere_is_not_shown_in_part():
    """A reversal that correction for other claims takes back is told, and is no part of what was claimed."""
    back = ", but not after correction for the paper's other main claims"
    told = {
        Order(
            2, 3, 0.9, 0.01, 0, 1, (), ("b",)
        ): f"not shown in any of 2; reversed in at least 1 of 2 (b){back}; 1 open",
        Order(1, 1, 0.9, 0.01, 0, 1, (), ("b",)): f"reversed{back}",
        Order(2, 2, 0.9, 0.9, 0, 0): "not shown in any of 2",
        Order(1, 1, 0.9, 0.9, 0, 0): "not shown",
    }
    for found, sentence in told.items():
        assert decided(found, 1.0, 0.06, "all") == "not shown"
        assert said(found, "not shown", "all") == sentence
    few = Order(6, 6, 0.9, 0.5, 0, 1, (), ("b",))  # of "at least five of six", which takes two to contradict
    assert (
        said(few, decided(few, 1.0, 1.0, "5"), "5")
        == "not shown in any of 6; reversed in at least 1 of 6 (b)"
    )
    assert said(few, decided(few, 1.0, 1.0, "average"), "average") == "not shown on average over all 6"
    one = Order(2, 2, 0.5, 0.01, 1, 1, ("a",), ("b",))
    assert said(one, decided(one, 1.0, 0.06, "all"), "all").startswith(
        "shown in at least 1 of 2, reversed in"
    )


def test_on_average_and_almost_all_are_claims_of_their_own_kind():
    rows = cells([GOOD, GOOD, UNCLEAR])
    assert effects.judged(rows)["outcome"] == "shown in part"
    on_average = effects.judged([row | {"over": "average"} for row in rows])
    assert (on_average["outcome"], on_average["said"]) == ("holds", "holds on average over all 3")
    labelled = [row | {"over": "2", "data": row["cell"]} for row in rows]
    almost = effects.judged(labelled)
    assert (almost["outcome"], almost["said"]) == ("holds", "holds in at least 2 of 3")
    same_setting = [row | {"over": "2", "data": "d" if row["cell"] != "c0" else "e"} for row in rows]
    assert effects.judged(same_setting)["outcome"] == "shown in part", (
        "a setting with two baselines needs both"
    )


@pytest.mark.parametrize(
    ("settings", "outcome", "said"),
    [
        ([(GOOD, BAD), (GOOD, BAD), (GOOD, GOOD)], "contradicted",
         "contradicted: reversed in at least 2 of 3 (d0; d1)"),
        ([(GOOD, BAD), (GOOD, GOOD), (GOOD, GOOD)], "holds", "holds in at least 2 of 3"),
        ([(GOOD, BAD), (GOOD, UNCLEAR), (GOOD, GOOD)], "shown in part",
         "shown in at least 1 of 3, reversed in at least 1 of 3 (d0)"),
        ([(GOOD, BAD), (UNCLEAR, UNCLEAR), (UNCLEAR, GOOD)], "not shown",
         "not shown in any of 3; reversed in at least 1 of 3 (d0)"),
    ],
)  # fmt: skip
def test_a_setting_speaks_against_almost_all_where_one_baseline_is_better(settings, outcome, said):
    """The claim, to be better than every baseline in at least two of three settings."""
    values = [cell for pair in settings for cell in pair]
    rows = [row | {"over": "2", "data": f"d{k // 2}"} for k, row in enumerate(cells(values))]
    row = effects.judged(rows)
    assert (row["outcome"], row["said"]) == (outcome, said)


def test_almost_all_is_rarely_contradicted_where_nothing_differs():
    """Three settings of four baselines that share an arm: within the level, by simulation."""
    rng = np.random.default_rng(0)
    wrong, tables = 0, 600
    for _ in range(tables):
        values = rng.normal(size=(12, 5)) + rng.normal(size=(1, 5))
        rows = [
            row | {"over": "2", "data": f"d{k // 4}"}
            for k, row in enumerate(cells([list(v) for v in values]))
        ]
        wrong += effects.judged(rows)["outcome"] == "contradicted"
    assert wrong <= stats.binom.ppf(0.999, tables, 0.025)


def test_deviations_of_opposite_sign_do_not_make_two_cells_the_same():
    up, down = [0.5, 0.52, 0.49, 0.51], [-0.5, -0.52, -0.49, -0.51]
    assert effects.judged(cells([up, down], test="same", margin=0.2))["outcome"] == "contradicted"


def test_what_the_correction_blocks_is_no_success():
    """Twelve cells, of which one lies wholly below its bound: corrected over the cells that is no contradiction."""
    low = [0.42, 0.55, 0.48, 0.52, 0.45]
    high = [[0.9 + 0.01 * k, 1.0, 1.1, 0.95, 1.05] for k in range(11)]
    row = effects.judged(cells([low, *high], margin=0.6))
    assert row["reversed"] <= 1
    assert row["outcome"] in ("contradicted", "shown in part")
    assert row["p"] > 0.9


def test_a_censored_cell_keeps_its_margin():
    """1.12 [1.02, ...) where 2.5 is printed and the slower side did not arrive: as large as printed it is not."""
    about = {
        "null": 1.0,
        "margin": 1.0,
        "printed": 2.5,
        "arms": '{"a": [1.0, 0.22], "b": [-1.0, 0.22]}',
        "open": True,
    }
    (row,) = cells([[0.05, 0.1, 0.12, 0.15, 0.13]], **about)
    size = judge.size([row])
    assert size.margin == pytest.approx(
        max(math.log(2.5) / 2, math.log(2.5) - BELOW * math.hypot(0.22, 0.22))
    )
    assert size.outcome == "size open"
    (closed,) = cells([[0.05, 0.1, 0.12, 0.15, 0.13]], **(about | {"open": False}))
    assert judge.size([closed]).outcome == "smaller than printed"


def test_half_of_the_printed_effect_is_not_as_large():
    about = {"null": 1.0, "margin": 1.0, "printed": 1.63, "arms": '{"a": [1.0, 0.5], "b": [-1.0, 0.5]}'}
    (row,) = cells([[0.2, 0.22, 0.21, 0.2, 0.23]], **about)
    assert judge.size([row]).margin == pytest.approx(math.log(1.63) / 2)
    assert judge.size([row]).outcome == "smaller than printed"
    (row,) = cells([[0.3, 0.32, 0.31, 0.3, 0.33]], **about)
    assert judge.size([row]).outcome == "as large as printed"


def test_what_is_printed_is_of_the_cells_that_were_run():
    about = {"null": 1.0, "margin": 1.0, "arms": '{"a": [1.0, 0.2]}'}
    (ran,) = cells([[0.9, 1.0, 1.1]], **about, printed=2.0)
    (missing,) = cells([[]], **about, printed=8.0)
    row = effects.judged([ran, missing | {"cell": "c1"}])
    assert row["printed"] == pytest.approx(2.0)
    assert row["said"] == "holds in the one that was run; 1 open"


def test_an_arm_that_cells_share_is_one_printed_number():
    shared, apart = (
        [{"a": (1.0, 0.2), f"b{k}": (-1.0, 0.2)} for k in range(4)],
        [{f"a{k}": (1.0, 0.2), f"b{k}": (-1.0, 0.2)} for k in range(4)],
    )
    assert judge.spread_of_print(shared) == pytest.approx(math.sqrt(0.04 + 4 * 0.04 / 16))
    assert judge.spread_of_print(apart) == pytest.approx(math.sqrt(8 * 0.04 / 16))


def test_holm_takes_back_a_core_claim_that_many_others_outweigh():
    weak = [0.42, 0.10, 0.30, 0.21, 0.05]
    rows = [row | {"claim": f"p.{k}"} for k in range(8) for row in cells([weak])]
    assert list(claims_of_rows(rows[:1])["outcome"]) == ["holds"]
    many = claims_of_rows(rows)
    assert set(many["outcome"]) == {"not after correction"}
    assert set(many["said"]) == {"shown, but not after correction for the paper's other main claims"}
    assert (many["needed"] > 5).all()
    facts = [{**row, "claim": f"p.{k}", "estimator": "exact fact"} for k in range(8) for row in cells([weak])]
    assert claims_of_rows([*cells([weak]), *facts])["outcome"].iloc[0] == "holds", "facts are not tested"
    for kind in ("supporting", "control"):
        assert set(claims_of_rows([row | {"kind": kind} for row in rows])["outcome"]) == {"holds"}


def test_a_claim_that_was_tested_in_vain_counts_in_the_correction_of_the_others():
    fair, strong = [0.42, 0.10, 0.30, 0.21, 0.35], [1.0, 1.1, 0.9, 1.0, 1.05]
    split = [strong, [-0.1, 0.2, -0.3, 0.1, -0.2]]

    def outcome(other: list[list[float]], times: int, kind: str = "core") -> str:
        rows = [row | {"claim": f"p.{k}", "kind": kind} for k in range(times) for row in cells(other)]
        rows += [row | {"claim": "p.x"} for row in cells([fair])]
        return claims_of_rows(rows).set_index("claim").loc["p.x", "outcome"]

    assert outcome([strong], 3) == "holds"
    assert outcome(split, 1) == "holds"
    assert outcome(split, 9) == "not after correction"
    assert outcome(split, 9, "construction") == "holds", "what holds by construction is in no family"
    assert outcome([[1.0]], 9) == "holds", "what was not tested takes nothing"


def test_only_the_primary_reading_is_tested():
    rows = cells([GOOD]) + [
        row | {"reading": f"r{k}", "primary": False, "runs": f"x{k}"}
        for k in range(30)
        for row in cells([BAD])
    ]
    found = claims_of_rows(rows)
    told = effects.summary(found)
    assert (told["outcome"].iloc[0], told["readings"].iloc[0]) == ("holds", 31)
    assert set(found.loc[~found["primary"], "outcome"]) == {""}
    assert found.loc[found["primary"], "adjusted"].iloc[0] == found.loc[found["primary"], "p"].iloc[0]


def row_of_claim(runs: str, outcome: str) -> dict:
    return dict.fromkeys(effects.CLAIM_COLUMNS, math.nan) | {
        "paper": "hcsfed", "claim": "x", "artifact": "a", "kind": "core", "cells": 2, "runs": runs, "outcome": outcome,
        "reading": readings("hcsfed")[0].name, "n": 0, "primary": False,
    }  # fmt: skip


def test_readings_that_compare_nothing_of_their_own_are_not_repeated():
    """By reading, the runs of cells 0 and 1, and the seeds of each; "" is not run."""

    def rows(reading: str, first: str, second: str, n: int = 4, primary: bool = False) -> list[dict]:
        values = [GOOD if first else [], GOOD[:n] if second else []]
        named = zip(
            cells(values, kind="supporting"),
            (first or "absent", second or f"absent in {reading}"),
            strict=True,
        )
        return [row | {"reading": reading, "runs": runs, "primary": primary} for row, runs in named]

    table = [*rows("a", "x", "y"), *rows("same", "x", "y", primary=True), *rows("part", "x", ""),
             *rows("other", "x", "z"), *rows("one seed of its own", "x", "w", 1)]  # fmt: skip
    assert list(claims_of_rows(table)["reading"]) == ["same", "other"]
    assert set(claims_of_rows(table[::-1])["reading"]) == {"same", "other"}


def test_a_reading_with_runs_for_fewer_cells_is_none_of_the_multiverse():
    whole, part = row_of_claim("r0", ""), row_of_claim("r1", "") | {"cells": 1}
    assert list(effects.counted(pd.DataFrame([part, whole]))["runs"]) == ["r0"]


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
    found = pd.DataFrame([row_of_claim(f"r{k}", "") for k in range(5)]).assign(
        estimate=[0.0, 2.0, 4.0, 10.0, 99.0], null=0.0, n=5, reading=[*options, "r4"]
    )
    found.loc[4, "outcome"] = "infeasible"
    shares = effects.sensitivity(found)
    assert shares[["choice", "options", "readings"]].values.tolist() == [["a + c", 2, 4], ["b", 2, 4]]
    assert shares["share"].tolist() == pytest.approx([9 / 14, 4 / 14])
    figure = summary.choice_shares(shares)
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([900 / 14, 400 / 14])
    assert "a + c" in [text.get_text() for text in figure.axes[0].texts]


def test_levels_are_means_over_readings_seed_by_seed(monkeypatch):
    """Eight readings in two groups: 4 with 0.0 to 0.3 in every seed but for the seed's own part, 4 with 1 more."""
    seeds = np.array([-0.1, 0.05, 0.0, 0.02, 0.03, -0.02])
    named_readings = [Reading(f"r{k}", "", {"rule": "ab"[k // 4], "other": str(k % 4)}) for k in range(8)]
    monkeypatch.setattr(effects, "readings", lambda paper: named_readings)
    values = [(k // 4) + 0.1 * (k % 4) + seeds * (1 + k % 2) for k in range(8)]
    found = pd.DataFrame([row_of_claim(f"r{k}", "") for k in range(8)]).assign(
        estimate=[y.mean() for y in values], null=0.0, n=6, reading=[one.name for one in named_readings],
        seeds=[list(range(6))] * 8, values=[list(y) for y in values],
    )  # fmt: skip
    levels = effects.levels(found)
    assert levels[["choice", "option", "readings", "n"]].values.tolist() == [
        ["rule", "a", 4, 6],
        ["rule", "b", 4, 6],
    ]
    for option, row in enumerate(levels.to_dict("records")):
        y = np.mean(values[4 * option : 4 * option + 4], axis=0)
        half = 2.570582 * y.std(ddof=1) / math.sqrt(6)
        assert [row["estimate"], row["low"], row["high"]] == pytest.approx(
            [y.mean(), y.mean() - half, y.mean() + half]
        )
        assert (row["lowest"], row["highest"]) == pytest.approx(
            (min(v.mean() for v in values[4 * option :][:4]), max(v.mean() for v in values[4 * option :][:4]))
        )
    assert levels["p"].iloc[1] == pytest.approx(1 / 64), "all six seeds are on one side"
    short = effects.levels(
        found.assign(n=5, values=[y[:5] for y in found["values"]], seeds=[list(range(5))] * 8)
    )
    assert short["p"].isna().all(), "five seeds cannot find 2.5 % by flipping signs"


def test_a_data_set_has_effects_and_no_outcome_of_its_own():
    rows = [row | {"data": data} for data in ("MNIST", "CIFAR-10") for row in cells([GOOD, UNCLEAR])]
    found = effects.by_data(pd.DataFrame(rows, columns=effects.COLUMNS), ["p.1"])
    assert found[["data", "outcome", "size"]].values.tolist() == [["MNIST", "", ""], ["CIFAR-10", "", ""]]
    assert found["estimate"].tolist() == pytest.approx([np.mean([GOOD, UNCLEAR])] * 2)


def curves_to(setting_rates: dict[str, dict[str, float]], lost: int = 0) -> pd.DataFrame:
    """Losses 3 exp(-rate t); in setting b the first `lost` seeds of New diverge after round 10."""
    t = np.arange(101)
    parts = []
    for setting, rates in setting_rates.items():
        for method, rate in rates.items():
            for seed in range(5):
                loss = 3 * np.exp(-(rate + 0.0005 * seed * (rate > 0)) * t)
                gone = (t > 10) & (setting == "b" and method == "New" and seed < lost)
                about = {
                    "round": t,
                    "train_loss": np.where(gone, np.nan, loss),
                    "test_accuracy": 1 - loss / 3,
                }
                run = pd.DataFrame(
                    about | {"seed": seed, "setting": setting, "method": method, "diverged": gone}
                )
                parts.append(run[run["round"] <= 11] if gone.any() else run)
    return pd.concat(parts, ignore_index=True)


def of_two_settings(how: Rounds | Level, column: str, table: pd.DataFrame) -> pd.DataFrame:
    """New needs less than Random in settings a and b: its rows of the effects table under the primary reading."""
    pair = lambda s: (Where("fedcor_fmnist", s, m, column) for m in ("Random", "New"))  # noqa: E731
    claim = Claim(
        "fedcor.F9.z", "fedcor/figure_9", "New is faster.", "core", ROUNDS if isinstance(how, Rounds) else LEVEL, how,
        tuple(versus(s, *pair(s), data="d") for s in "ab"),
    )  # fmt: skip
    rows = pd.DataFrame(effects.rows(claim, Arms({"fedcor_fmnist": table})), columns=effects.COLUMNS)
    return rows[rows["primary"]]


@pytest.mark.parametrize("lost", [1, 4, 5])
def test_lost_seeds_are_never_in_favour_of_the_claim(lost):
    table = curves_to({s: {"Random": 0.02, "New": 0.06} for s in "ab"}, lost)
    rows = of_two_settings(Level(measure.area, "times", log=True), "train_loss", table)
    assert list(rows["outcome"]) == ["shown", "lost seeds"]
    assert rows["words"].iloc[1].startswith("no finite value in seeds 0")
    row = effects.claims(rows).iloc[0]
    assert (row["outcome"], row["said"]) == ("shown in part", "shown in at least 1 of 2")


@pytest.mark.parametrize(
    ("how", "column"),
    [
        (Rounds(0.5), "test_accuracy"),
        (Rounds(1.5), "train_loss"),
        (Level(measure.rounds_below, "times", log=True, options=(("level", 1.5),)), "train_loss"),
    ],
)
def test_a_side_that_never_arrives_is_censored_however_it_is_measured(how, column):
    """In setting b the method that is claimed to be faster never arrives."""
    table = curves_to({"a": {"Random": 0.02, "New": 0.06}, "b": {"Random": 0.02, "New": 0.0}})
    rows = of_two_settings(how, column, table)
    assert rows["outcome"].iloc[0] == "shown"
    assert rows["outcome"].iloc[1] in ("reversed", "lost seeds")
    assert rows["under"].iloc[1] or rows["lost"].iloc[1], "what is known of it is that it may be smaller"
    assert effects.claims(rows).iloc[0]["outcome"] in ("contradicted", "shown in part")


def test_a_target_of_a_loss_is_reached_from_above():
    table = curves_to({s: {"Random": 0.02, "New": 0.06} for s in "ab"})
    by_loss, by_accuracy = (
        of_two_settings(Rounds(target), column, table)["values"].iloc[0]
        for target, column in ((1.5, "train_loss"), (0.5, "test_accuracy"))
    )
    assert by_loss == pytest.approx(by_accuracy)
    assert min(by_loss) > 0.9


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
    (row,) = (row for row in effects.rows(claim, Arms({"e": without})) if row["primary"])
    assert row["outcome"] == "shown"
    assert row["estimate"] == pytest.approx(8 / 3)


def test_every_claim_is_whole():
    for paper in papers():
        claims = claims_of(paper)
        assert len({claim.id for claim in claims}) == len(claims)
        for claim in claims:
            assert claim.text.endswith("."), claim.id
            assert claim.cells, claim.id
            assert len({cell.name for cell in claim.cells}) == len(claim.cells), claim.id
            assert all(claim.bound(cell) > 0 for cell in claim.cells if claim.test_of(cell) == "same"), (
                claim.id
            )


def test_the_seeds_that_would_decide_count_the_correction():
    """Alone and among five other core claims of the paper: the correction asks for more."""
    weak = [1.0, -0.2, 0.9, 0.3]
    alone = claims_of_rows(cells([weak])).iloc[0]["needed"]
    others = [row | {"claim": f"p.{k}"} for k in range(2, 7) for row in cells([UNCLEAR])]
    among = claims_of_rows([*cells([weak]), *others])
    assert 4 < alone < among[among["claim"] == "p.1"].iloc[0]["needed"]


def test_more_seeds_than_are_counted_are_one_more():
    """An effect, or a distance to the margin of a size, that a thousand seeds would not show."""
    values = [1.0, -1.0, 1.0, -1.0, 0.001]
    assert claims_of_rows(cells([values])).iloc[0]["needed"] == judge.MOST + 1
    mean = judge.Effect.of(values)
    assert judge._seeds_for_size(mean, margin=0.0) == judge.MOST + 1
    assert judge._seeds_for_size(mean, margin=-5.0) < 10


def test_two_readings_are_enough_for_shares_of_variance(monkeypatch):
    pair = [Reading("as written", "", {"a": "1"}), Reading("r2", "", {"a": "2"})]
    monkeypatch.setattr(effects, "readings", lambda paper: pair)
    found = pd.DataFrame([row_of_claim(f"r{k}", "") for k in range(2)]).assign(
        estimate=[0.0, 2.0], null=0.0, n=5, reading=["as written", "r2"]
    )
    shares = effects.sensitivity(found)
    assert shares[["choice", "share", "readings"]].values.tolist() == [["a", 1.0, 2]]


def test_an_average_has_no_weakest_cell():
    rows = cells([[0.1, 0.2, 0.3, 0.1], [0.9, 1.0, 1.1, 0.8]])
    mean = judge.Effect.of([0.1, -0.1, 0.2, 0.1])
    assert judge.seeds_to_hold(rows, 0.025, "average", mean)[1] == ""
    assert judge.seeds_to_hold(rows, 0.025, "all", mean)[1] == rows[0]["cell"]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A project with one archived study, whose claims are the only ones with runs."""
    for name in ("params.yaml", "data/archive/paper/fedcor_centralised.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    monkeypatch.setattr(effects, "needed", lambda: frozenset({"fedcor_centralised"}))
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "data" / "runs"))
    return tmp_path


def test_while_no_file_changes_the_effects_are_read_and_nothing_else(clone, monkeypatch):
    effects.load("paper", clone)  # collects the table of the study
    table, judged = effects.load_judged("paper", clone)
    assert table["claim"].nunique() > 100
    assert table.loc[table["n"] > 0, "claim"].unique().tolist() == ["fedcor.S5.a"]
    pd.testing.assert_frame_equal(judged, as_kept(effects.claims(table)))
    with monkeypatch.context() as forbidden:
        for name in ("table_file", "read_table", "claims"):
            forbidden.setattr(effects, name, None)
        again = effects.load_judged("paper", clone)
    for first, second in zip((table, judged), again, strict=True):
        pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize("changed", ["params.yaml", "archive", "results", "runs", "kept", "claims"])
def test_a_file_that_changes_is_looked_at(clone, monkeypatch, changed):
    for _ in range(2):
        effects.load("paper", clone)
    file = {
        "params.yaml": clone / "params.yaml",
        "archive": clone / "data/archive/paper/fedcor_centralised.parquet",
        "results": clone / "data/results/paper/fedcor_centralised.parquet",
        # of a run whose training ended before its table was written
        "runs": clone / "data/runs/00/0000/run.json",
        "kept": clone / "data/effects/paper.parquet",
        "claims": clone / "data/effects/paper-claims.parquet",
    }[changed]
    file.parent.mkdir(parents=True, exist_ok=True)
    if changed in ("kept", "claims"):
        file.write_bytes(b"damaged")
    else:
        file.touch()
    looked, lookup = [], effects.table_file
    monkeypatch.setattr(effects, "table_file", lambda *given: looked.append(given[0]) or lookup(*given))
    found = effects.load("paper", clone)
    assert looked == ["fedcor_centralised"]
    assert set(found.loc[found["n"] > 0, "claim"]) == {"fedcor.S5.a"}


def as_kept(table: pd.DataFrame) -> pd.DataFrame:
    """A table as it is read from a file."""
    content = io.BytesIO()
    table.to_parquet(content, index=False)
    return pd.read_parquet(content)
