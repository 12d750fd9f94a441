"""Rules are fair: results made of the papers' own printed numbers pass them, and other results do not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis import fairness
from fedlib.analysis.claims import Claim, Runs, Tolerance, claims, misses
from fedlib.analysis.fairness import LAW, LEAST, SPREAD, Law, arriving, is_fair, least, share
from fedlib.analysis.measure import arrivals
from fedlib.analysis.paper import papers, part
from fedlib.analysis.verdict import decide
from fedlib.papers.fedcor.printed import PRINTED


@pytest.mark.parametrize("paper", list(papers()))
def test_printed_numbers_pass_the_rules_that_judge_ours_with_no_more_tolerance_than_that_takes(paper):
    by_id = {claim.id: claim for claim in claims(paper)}
    for law in part(paper, "fair").LAWS:
        drawn = law.drawn()
        for id, bound in law.claims.items():
            claim = by_id[id]
            assert (bound == LAW) == (claim.tolerance is not None), id
            if claim.tolerance:
                assert least(claim, drawn) == claim.tolerance.value, id
            else:
                assert is_fair(claim, drawn), id


def test_the_spread_is_what_is_printed():
    printed = [cell for row in PRINTED.values() for cell in row.values() if cell]
    assert len(printed) == 20
    assert round(float(np.median([std / mean for mean, std in printed])), 2) == SPREAD


def test_every_tolerance_is_under_a_law():
    for paper in papers():
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
    for step in claim.tolerance.steps:
        assert is_fair(claim.within(step), drawn) == (share(claim.within(step), drawn) >= LEAST)
    impossible = Claim("x", "", "", "", "", ("e",), rule, tolerance=misses(0))
    assert least(impossible, drawn) is None


def test_what_was_computed_is_read_again_until_the_code_changes(monkeypatch, tmp_path):
    row = pd.DataFrame(
        [("p.1", "a law", LAW, 7, 0.9)], columns=["claim", "law", "bound from", "draws", "held"]
    )
    asked: list[str] = []
    monkeypatch.setattr(fairness, "fairness", lambda paper: asked.append(paper) or row)
    first = fairness.all_fair(tmp_path)
    assert set(first["paper"]) == {paper.title for paper in papers().values()}
    pd.testing.assert_frame_equal(fairness.all_fair(tmp_path), first)
    assert len(asked) == len(papers())
    monkeypatch.setattr(fairness, "_code", lambda paper: "another")
    fairness.all_fair(tmp_path)
    assert len(asked) == 2 * len(papers())
    assert len(list(tmp_path.iterdir())) == len(papers()), "what is out of date goes"


@pytest.mark.parametrize("paper", list(papers()))
def test_every_claim_with_a_printed_number_is_under_a_law_or_says_why_not(paper):
    fair = part(paper, "fair")
    under = {id for law in fair.LAWS for id in law.claims}
    numbered = {claim.id for claim in claims(paper) if re.search(r"\d", claim.printed)}
    assert numbered <= under | set(fair.NO_LAW)
    assert not under & set(fair.NO_LAW)
    assert under | set(fair.NO_LAW) <= {claim.id for claim in claims(paper)}


@pytest.mark.parametrize("paper", list(papers()))
def test_laws_are_drawn_from_the_generator_alone(paper):
    for law in part(paper, "fair").LAWS:
        one, again, other = (law.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
        for name in one:
            pd.testing.assert_frame_equal(one[name], again[name])
        assert any(not one[name].equals(other[name]) for name in one)


def test_a_rule_does_not_pass_whatever_it_is_given():
    """With the methods' names exchanged, the printed numbers of Table 1 fail the rules that they pass."""
    swap = {
        "fedcor": {"FedCor": "Random", "Random": "FedCor"},
        "hics_fl": {"HiCS-FL": "DivFL", "DivFL": "HiCS-FL"},
        "hcsfed": {
            "HCSFed-R (GC-A)": "Random",
            "Random": "HCSFed-R (GC-A)",
            "HCSFed-R (GC-B)": "Random, attrition",
        }
        | {"Random, attrition": "HCSFed-R (GC-B)"},
    }
    for paper, names in swap.items():
        law = part(paper, "fair").LAWS[0]
        tables = law.draw(np.random.default_rng(0))
        runs = Runs({e: t.assign(method=t["method"].replace(names)) for e, t in tables.items()})
        by_id = {claim.id: claim for claim in claims(paper)}
        assert by_id[next(iter(law.claims))].rule(runs).status != "held", paper


def test_runs_made_of_rounds_arrive_in_these_rounds():
    rounds = {("s", "A"): np.array([3.0, np.inf]), ("s", "B"): np.array([20.0, 21.0])}
    table = arriving("e", rounds, {"s": 0.8}, T=20)
    assert arrivals(table, 0.8).tolist() == [3, np.inf, 20, np.inf]
    assert table["round"].max() == 20
