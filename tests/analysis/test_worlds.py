"""Claims in each world, recomputed by plain loops."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedlib.runs import archive
from fedlib.settings.schema import ROOT
from workspace.analysis.worlds import (
    across_servers,
    ahead_of_all,
    at_equal_cost,
    behind,
    beside,
    best,
    changes,
    claims,
    costs,
    finding,
    mean_of,
    measured,
    numbers,
    rates,
    rivals,
    servers,
    survival,
    tally,
)
from workspace.figures import summary

KEYS = ["setting", "method", "seed"]


def made() -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), []
    for setting, lift in (("calm", 0.1), ("rough", -0.1)):
        for seed in range(5):
            level = rng.normal(0.5, 0.2)
            for method in ("Random", "Other", "Same"):
                for t in range(11):
                    value = level + (lift if method == "Other" else 0) + rng.normal(0, 0.01)
                    rows.append((setting, method, seed, t, value if t % 5 == 0 else np.nan, t and 4 + seed))
    table = pd.DataFrame(rows, columns=["setting", "method", "seed", "round", "test_accuracy", "arrived"])
    sent = table["arrived"] * np.where(table["method"] == "Other", 2, 1)
    return table.assign(parameters_down=1e6 * sent, parameters_up=5e5 * sent, scalars_up=sent, diverged=False)


def judged() -> pd.DataFrame:
    return claims(measured(made(), mean_of("test_accuracy")), "Random", unit=100)


def test_differences_are_paired_over_seeds() -> None:
    table, effects = made(), judged().set_index(["setting", "method"])
    assert effects["outcome"].unstack().to_dict("index") == {
        "calm": {"Other": "holds", "Same": "not shown"},
        "rough": {"Other": "contradicted", "Same": "not shown"},
    }
    differences = []
    for seed in range(5):
        level = {}
        for method in ("Other", "Random"):
            of = table[(table["setting"] == "calm") & (table["seed"] == seed) & (table["method"] == method)]
            level[method] = of["test_accuracy"].iloc[[5, 10]].mean()
        differences.append(100 * (level["Other"] - level["Random"]))
    row = effects.loc["calm", "Other"]
    assert row["difference"] == pytest.approx(np.mean(differences))
    half = stats.t.ppf(0.975, 4) * np.std(differences, ddof=1) / np.sqrt(5)
    assert (row["low"], row["high"]) == pytest.approx(
        (np.mean(differences) - half, np.mean(differences) + half)
    )
    assert row["seeds"] == 5
    shown = numbers(effects.reset_index()).set_index(["world", "method"]).loc["calm", "Other"]
    assert shown["95 % interval"] == f"{row['low']:+.1f} to {row['high']:+.1f}"
    assert shown.drop("95 % interval").tolist() == [f"{row['difference']:+.1f}", 5, "holds"]


def test_a_world_that_reverses_a_claim_is_named() -> None:
    effects = judged()
    assert finding(effects, "calm", "better than Random") == (
        "Of 2 methods, 1 is better than Random in “calm”; none of these is so in “rough” as well. "
        "Contradicted elsewhere: Other (rough)."
    )
    assert finding(effects, "rough", "better than Random") == (
        "In “rough”, no method is shown to be better than Random. Only elsewhere: Other (calm)."
    )
    table = survival(effects, "calm")
    assert table.columns.tolist() == ["in 'calm'", "contradicted", "not shown"]
    assert table.loc["Other"].tolist() == ["holds", "rough", ""]
    assert table.loc["Same"].tolist() == ["not shown", "", "rough"]


def test_a_claim_that_is_lost_in_several_ways_is_told_by_the_worst() -> None:
    rows = [
        (name, "Lost", word)
        for name, word in zip("abcd", ("holds", "contradicted", "equal", "holds"), strict=True)
    ]
    rows += [
        (name, "Weak", word)
        for name, word in zip("abc", ("holds", "not after correction", "holds"), strict=True)
    ]
    rows += [("d", "Weak", "not shown"), *((name, "Firm", "holds") for name in "abcd")]
    effects = pd.DataFrame(rows, columns=["setting", "method", "outcome"])
    assert finding(effects, "a", "better") == (
        "Of 3 methods, 3 are better in “a”; 1 of these is so in all 3 others as well (Firm). "
        "Contradicted elsewhere: Lost (b). Not shown elsewhere: Weak (b, d)."
    )


def test_runs_of_equal_value_and_too_few_seeds_decide_nothing() -> None:
    table = made()
    twin = table[table["method"] == "Random"].assign(method="Twin")
    effects = claims(measured(pd.concat([table, twin]), mean_of("test_accuracy")), "Random")
    assert set(effects.loc[effects["method"] == "Twin", "outcome"]) == {"equal"}
    assert finding(effects, "calm", "better").endswith("Contradicted elsewhere: Other (rough).")
    one = claims(measured(table[table["seed"] == 0], mean_of("test_accuracy")), "Random")
    assert set(one["outcome"]) == {"one seed"}


@given(st.integers(0, 100))
def test_claims_of_a_world_are_corrected_together(seed: int) -> None:
    """Holm's correction over twenty methods, against scipy's t-tests."""
    values = np.random.default_rng(seed).normal(size=(21, 5))
    index = pd.MultiIndex.from_product([["world"], [f"{k}" for k in range(21)], range(5)], names=KEYS)
    effects = claims(pd.Series(values.ravel(), index), "0")
    p = np.array([stats.ttest_1samp(values[k] - values[0], 0).pvalue for k in range(1, 21)])
    adjusted = holm_by_hand(p)
    assert (effects["outcome"].isin(["holds", "contradicted"]).to_numpy() == (adjusted < 0.05)).all()
    assert (
        (effects["outcome"] == "not after correction").to_numpy() == ((p < 0.05) & (adjusted >= 0.05))
    ).all()


def holm_by_hand(p: np.ndarray) -> np.ndarray:
    adjusted, worst = np.empty(len(p)), 0.0
    for rank, k in enumerate(np.argsort(p)):
        worst = max(worst, min(1, (len(p) - rank) * p[k]))
        adjusted[k] = worst
    return adjusted


def test_changes_are_differences_of_differences() -> None:
    values = measured(made(), mean_of("test_accuracy"))
    (row,) = changes(values, "Random", "calm").query("method == 'Other'").to_dict("records")
    expected = []
    for seed in range(5):
        gain = {s: values[s, "Other", seed] - values[s, "Random", seed] for s in ("calm", "rough")}
        expected.append(gain["rough"] - gain["calm"])
    assert row["setting"] == "rough"
    assert row["difference"] == pytest.approx(np.mean(expected))
    assert row["outcome"] == "contradicted", "the gain is smaller than in the calm"


def test_the_last_rounds_alone() -> None:
    run = made().query("setting == 'calm' and seed == 0 and method == 'Random'")
    assert mean_of("test_accuracy", last=0.5)(run) == run["test_accuracy"].iloc[10]


def test_accuracy_at_equal_cost_against_areas_by_hand() -> None:
    """Base spends 10 a round for four rounds; the other 30, so of it only the first round and a third count."""
    rows = [("w", "base", 0, t, 10.0 * (t > 0), 0.0, 0.1 * t) for t in range(5)]
    rows += [("w", "dear", 0, t, 20.0 * (t > 0), 10.0 * (t > 0), 0.3 * t) for t in range(5)]
    rows += [("w", "short", 0, t, 5.0 * (t > 0), 0.0, 0.2 * t) for t in range(5)]
    table = pd.DataFrame(rows, columns=[*KEYS, "round", "down", "up", "accuracy"])
    values = at_equal_cost(table, "base", ["down", "up"], "accuracy")
    assert values["w", "base", 0] == pytest.approx(0.2)
    assert values["w", "dear", 0] == pytest.approx(0.2), "0 to 0.4, linearly"
    assert values["w", "short", 0] == pytest.approx((0.4 * 20 + 0.8 * 20) / 40), "the last accuracy stays"


def test_accuracy_with_several_servers_up_to_what_one_of_them_spends_by_hand() -> None:
    """Base waits 10 s a round, four rounds, till 40 s. The other server needs 5 s a round."""
    rows = []
    for seed, gain in ((0, 0.1), (1, 0.12)):
        rows += [("waits, x", "base", seed, t, 10.0 * (t > 0), gain * t) for t in range(5)]
        rows += [("waits, x", "a, b", seed, t, 20.0 * (t > 0), gain * t) for t in range(5)]
        rows += [("fast, x", "base", seed, t, 5.0 * (t > 0), gain * t) for t in range(9)]
        rows += [("fast, x", "a, b", seed, t, 5.0 * (t > 0), 0.5 * gain * t) for t in range(13)]
    table = pd.DataFrame(rows, columns=[*KEYS, "round", "length", "accuracy"])
    values = across_servers(table, "base", "waits", ["length"], "accuracy")
    assert values.xs(0, level="seed").to_dict() == pytest.approx(
        {
            ("waits, x", "base"): 0.2,
            ("waits, x", "a, b"): 0.1,
            ("fast, x", "base"): 0.4,
            ("fast, x", "a, b"): 0.2,
        }
    )
    effects = servers(values, "waits", unit=100).set_index("method")
    assert effects["difference"].to_dict() == pytest.approx({"base, fast": 22.0, "a, b, fast": 11.0})
    assert set(effects["setting"]) == {"x"}


def test_the_best_of_each_group_in_each_setting() -> None:
    values = measured(made(), mean_of("test_accuracy"))
    groups = {"plain": ["Random", "Same"], "new": ["Other"]}
    spent = costs(made())
    table = best(values, groups, spent, unit=100)
    means = 100 * values.groupby(["setting", "method"]).mean()
    assert table.loc["calm", "new"] == f"Other: {means['calm', 'Other']:.1f} (6.0 updates, 72.00 MB a round)"
    top = max("Random", "Same", key=lambda name: means["calm", name])
    assert table.loc["calm", "plain"] == f"{top}: {means['calm', top]:.1f} (6.0 updates, 36.00 MB a round)"
    ahead = rivals(values, groups, spent, "new", unit=100).set_index("setting")
    assert ahead["method"].tolist() == ["the best of plain"] * 2
    assert ahead["outcome"].to_dict() == {"calm": "holds", "rough": "contradicted"}
    assert ahead["megabytes"].round().tolist() == [36, 36]
    assert ahead["megabytes_base"].round().tolist() == [72, 72], "of the best of the other group"
    level = 100 * values["calm"]
    assert ahead.loc["calm", "difference"] == pytest.approx((level["Other"] - level[top]).mean())


def test_a_tally_of_one_claim() -> None:
    effects = judged().query("method == 'Other'")
    assert tally(effects, "Other is better") == (
        "Other is better: holds in 1 of 2 (calm); contradicted in 1 of 2 (rough)."
    )
    assert (
        tally(judged().query("method == 'Same'"), "Same is better") == "Same is better: not shown in 2 of 2."
    )


def test_what_a_round_costs_stands_beside_every_effect() -> None:
    """Seeds 0 to 4 have 4 to 8 arrivals a round; a float32 has four bytes; nothing is sent in round 0."""
    spent = costs(made())
    assert spent["arrived"].eq(6).all()
    assert spent.loc[("calm", "Random"), "megabytes"] == pytest.approx(6 * (1e6 + 5e5 + 1) * 4 / 1e6)
    row = beside(judged(), spent, "Random").set_index(["setting", "method"]).loc["calm", "Other"]
    assert (row["megabytes"], row["megabytes_base"]) == pytest.approx((72.000048, 36.000024))
    shown = numbers(beside(judged(), spent, "Random"), "Random").query("method == 'Other'").iloc[0]
    assert shown["updates a round (Random)"] == "6.0 (6.0)"
    assert shown["MB a round (Random)"] == "72.00 (36.00)"


def test_who_is_behind_and_by_how_much() -> None:
    rows = [("a", "X", -2.0, "contradicted"), ("b", "X", 3.0, "holds"), ("a", "Y", -1.0, "contradicted")]
    rows += [("b", "Y", -4.0, "contradicted"), ("a", "Z", -9.0, "not shown"), ("b", "Z", 0.0, "equal")]
    effects = pd.DataFrame(rows, columns=["setting", "method", "difference", "outcome"])
    assert behind(effects) == (
        "Y in 2 of 2 settings (by up to 4.0 points), X in 1 of 2 settings (by up to 2.0 points)"
    )
    assert behind(effects[effects["method"] == "Z"]) == "no method in any setting"


def test_a_setting_counts_by_its_strongest_rival() -> None:
    rows = [
        ("a", 1.0, 0.5),
        ("a", 2.0, -0.1),
        ("b", 3.0, 0.1),
        ("b", 4.0, 2.0),
        ("c", -1.0, -3.0),
        ("c", 5.0, 4.0),
    ]
    effects = pd.DataFrame(rows, columns=["setting", "difference", "low"])
    assert ahead_of_all(effects) == (
        "in 2 of 3 worlds (by 1.0 to 3.0 points); the 95 % intervals exclude 0 in 1 of these"
    )
    assert ahead_of_all(effects[effects["setting"] == "c"]) == (
        "in 0 of 1 worlds; the 95 % intervals exclude 0 in 0 of these"
    )


def test_rates_stand_beside_the_one_that_is_used() -> None:
    found = {("calm", "0.1"): 0.5, ("calm", "0.02"): 0.4, ("rough", "0.1"): 0.3, ("rough", "0.02"): 0.9}
    rows = [(f"{world}, lr = {rate}", "Random", 0, t, a, (world, rate, t) == ("rough", "0.02", 2))
            for (world, rate), a in found.items() for t in range(3)]  # fmt: skip
    search = pd.DataFrame(rows, columns=[*KEYS, "round", "test_accuracy", "diverged"])
    runs = [{"setting": "calm", "method": "Random", "run": {"local": {"lr": 0.1}}}]
    table = rates(search, runs).set_index("world")
    assert table.columns.tolist() == ["method", "lr = 0.02", "lr = 0.1", "used"]
    assert table.loc["calm"].tolist() == ["Random", 40.0, 50.0, 0.1]
    assert np.isnan(table.loc["rough", "lr = 0.02"]), "it diverged"


def test_every_claim_is_drawn_at_its_effect_and_by_its_outcome() -> None:
    rows = [
        ("a", "X", 2.0, 1.0, 3.0, "holds"),
        ("a", "Y", -2.0, -3.0, -1.0, "contradicted"),
        ("b", "X", 0.0, 0.0, 0.0, "equal"),
        ("b", "Y", 0.5, -1.0, 2.0, "not shown"),
    ]
    table = pd.DataFrame(rows, columns=["setting", "method", "difference", "low", "high", "outcome"])
    figure = summary.claims_in_worlds(table, "points")
    drawn = [
        (ax.get_title("left"), x, y, line.get_label())
        for ax in figure.axes
        for line in ax.lines
        if line.get_label() in summary.MARKS
        for x, y in line.get_xydata()
    ]
    assert sorted(drawn) == [
        ("a", -2.0, 1.0, "contradicted"),
        ("a", 2.0, 0.0, "holds"),
        ("b", 0.0, 0.0, "equal"),
        ("b", 0.5, 1.0, "not shown"),
    ]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["X", "Y"]
    turned = summary.claims_in_worlds(table, "points", rows="setting")
    assert [ax.get_title("left") for ax in turned.axes] == ["X", "Y"]
    assert [tick.get_text() for tick in turned.axes[0].get_yticklabels()] == ["a", "b"]
    spent = {"arrived": [9.0, 8.0, 7.0, 6.0], "megabytes": 0.5}
    base = {"arrived_base": 10.0, "megabytes_base": [0.6, 0.6, 0.6, 0.7]}
    first, second = summary.claims_in_worlds(table.assign(**spent, **base), "points", base="Random").axes
    assert [text.get_text() for text in first.texts] == [
        "updates · MB a round\nRandom: 10.0 · 0.60", "9.0 · 0.50", "8.0 · 0.50",
    ]  # fmt: skip
    assert [text.get_text() for text in second.texts] == [
        "updates · MB a round\n(Random)", "7.0 · 0.50 (10.0 · 0.60)", "6.0 · 0.50 (10.0 · 0.70)",
    ]  # fmt: skip


def table_of(experiment: str) -> pd.DataFrame:
    return archive.read(experiment, "paper").table


class Archived(dict[str, pd.DataFrame]):
    """An experiment's table, from the archive."""

    def __missing__(self, experiment: str) -> pd.DataFrame:
        return table_of(experiment)


@pytest.mark.parametrize("page", ["claims", "methods", "semantics", "aggregation", "deadlines", "fashion"])
def test_docs_have_the_sentences_of_the_pages(page: str) -> None:
    """The cells of a page up to its sentence, on the archived runs at scale paper."""
    cells = json.loads((ROOT / "notebooks" / "world" / f"{page}.ipynb").read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    said: list[str] = []
    scope: dict[str, Any] = {"scale": None, "artifact": SimpleNamespace(results=Archived(), say=said.append)}
    for code in codes[1:]:
        exec(code.split("plots.style()")[0], scope)
        if said:
            break
    docs = " ".join((ROOT / "docs" / "world.md").read_text().split())
    assert " ".join(said[0].split()) in docs


def test_docs_have_the_numbers_of_the_archive() -> None:
    effects = claims(measured(table_of("world_claims"), mean_of("test_accuracy")), "Random", unit=100)
    ahead = effects.set_index(["setting", "method"])["difference"]
    some = ["HiCS-FL", "AFL", "Pow-d", "Oort"]
    assert ahead["by label"][some].round().between(10, 11).all()
    assert (ahead["everyone"][some[:3]].max().round(), ahead["everyone", "Oort"].round()) == (1, -4)
    tables = pd.concat([table_of("world_claims"), table_of("world_aggregation")])
    of_fedau = claims(measured(tables, mean_of("test_accuracy")), "Random", unit=100).query(
        "setting == 'everyone'"
    )
    behind_random = -of_fedau[of_fedau["method"].str.startswith("FedAU")]["difference"]
    assert (len(behind_random), behind_random.min().round(), behind_random.max().round()) == (3, 8, 14)
    last = table_of("world_claims").query("round == 100")
    assert last[last["setting"].isin(["by label", "Markov"])]["worst_class"].max() == 0
