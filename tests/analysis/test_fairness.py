"""Rules are fair: results made of the papers' own printed numbers pass them, and other results do not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis import fairness
from fedlib.analysis.claims import Claim, Runs, Tolerance, claims, misses
from fedlib.analysis.fairness import LAW, LEAST, SPREAD, Law, arriving, least, share
from fedlib.analysis.measure import arrivals
from fedlib.analysis.paper import papers, part, parts
from fedlib.analysis.verdict import decide
from fedlib.errors import StoreError
from fedlib.papers.fedcor.printed import PRINTED


@pytest.mark.parametrize("paper", list(parts("fair")))
def test_printed_numbers_pass_the_rules_that_judge_ours_with_no_more_tolerance_than_that_takes(paper):
    """The shares of held draws are also those of the committed table, to the last digit."""
    by_id, rows = {claim.id: claim for claim in claims(paper)}, []
    for law in part(paper, "fair").LAWS:
        drawn = law.drawn()
        for id, bound in law.claims.items():
            claim = by_id[id]
            assert (bound == LAW) == (claim.tolerance is not None), id
            if claim.tolerance:
                assert least(claim, drawn) == claim.tolerance.value, id
            rows.append((id, law.words, bound, law.draws, share(claim, drawn)))
            assert rows[-1][-1] >= LEAST, id
    kept = pd.read_csv(fairness.TABLE, float_precision="round_trip")
    mine = kept[kept["claim"].isin([row[0] for row in rows])]
    assert list(mine.itertuples(index=False, name=None)) == rows, "run: fedlib fairness"


def test_the_page_shows_the_committed_table_and_computes_only_what_it_lacks(monkeypatch, tmp_path):
    asked: list[str] = []
    monkeypatch.setattr(fairness, "share", lambda claim, drawn: asked.append(claim.id) or len(drawn) / 1000)
    shown = fairness.all_fair()
    assert asked == []
    assert list(dict.fromkeys(shown["paper"])) == [papers()[name].title for name in parts("fair")]
    kept = pd.read_csv(fairness.TABLE, float_precision="round_trip")
    pd.testing.assert_frame_equal(shown.drop(columns="paper"), kept)

    changed = kept.drop(index=0)
    changed.loc[changed["claim"] == "cs.F1.h", "law"] = "another law"
    changed.to_csv(tmp_path / "fairness.csv", index=False)
    found = fairness.all_fair(tmp_path / "fairness.csv")
    assert asked == [kept["claim"][0], "cs.F1.h"]
    same = found["claim"].isin(asked) | (found["held"] == kept["held"])
    assert same.all()
    assert found[kept.columns[:-1]].equals(kept[kept.columns[:-1]])
    assert found.loc[found["claim"] == "cs.F1.h", "held"].item() == 0.02


def test_the_spread_is_what_is_printed():
    printed = [cell for row in PRINTED.values() for cell in row.values() if cell]
    assert len(printed) == 20
    assert round(float(np.median([std / mean for mean, std in printed])), 2) == SPREAD


def test_every_tolerance_is_under_a_law():
    for paper in parts("fair"):
        under = {id for law in part(paper, "fair").LAWS for id in law.claims}
        assert {claim.id for claim in claims(paper) if claim.tolerance} <= under


def test_the_least_tolerance_is_the_first_step_that_is_fair():
    def rule(runs: Runs, tolerance: float):
        return decide(bool(runs["e"]["value"].iloc[0] <= tolerance))

    law = Law("", {}, lambda rng: {"e": pd.DataFrame({"value": [rng.uniform(0, 10)]})}, draws=300)
    claim = Claim("x", "", "", "", "", ("e",), rule, tolerance=Tolerance(9, tuple(range(11))))
    drawn = law.drawn()
    found = least(claim, drawn)
    assert found in (8, 9)
    assert share(claim.within(found), drawn) >= LEAST > share(claim.within(found - 1), drawn)
    impossible = Claim("x", "", "", "", "", ("e",), rule, tolerance=misses(0))
    assert least(impossible, drawn) is None


@pytest.mark.parametrize("paper", list(parts("fair")))
def test_every_claim_with_a_printed_number_is_under_a_law_or_says_why_not(paper):
    fair = part(paper, "fair")
    under = {id for law in fair.LAWS for id in law.claims}
    numbered = {claim.id for claim in claims(paper) if re.search(r"\d", claim.printed)}
    assert numbered <= under | set(fair.NO_LAW)
    assert not under & set(fair.NO_LAW)
    assert under | set(fair.NO_LAW) <= {claim.id for claim in claims(paper)}


@pytest.mark.parametrize("paper", list(parts("fair")))
def test_laws_are_drawn_from_the_generator_alone(paper):
    for law in part(paper, "fair").LAWS:
        one, again, other = (law.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        for name in one:
            pd.testing.assert_frame_equal(one[name], again[name])
        assert any(not one[name].equals(other[name]) for name in one)


def test_runs_made_of_rounds_arrive_in_these_rounds():
    rounds = {("s", "A"): np.array([3.0, np.inf]), ("s", "B"): np.array([20.0, 21.0])}
    table = arriving("e", rounds, {"s": 0.8}, T=20)
    assert arrivals(table, 0.8).tolist() == [3, np.inf, 20, np.inf]
    assert table["round"].max() == 20


@pytest.mark.parametrize("share", ["1.01", "-5", "nan", "inf", "", "many"])
def test_a_table_with_a_share_that_is_none_is_refused(tmp_path, share: str):
    path = tmp_path / "fairness.csv"
    path.write_text(f"claim,law,bound from,draws,held\ncs.a,a law,this law,200,{share}\n")
    with pytest.raises(StoreError, match="fairness.csv.*`fedlib fairness`"):
        fairness.stored(path)
    path.write_text("claim,law,bound from,draws,held\ncs.a,a law,this law,200,1.0\n")
    assert fairness.stored(path)["held"].tolist() == [1.0]
