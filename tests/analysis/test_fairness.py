"""Rules are fair: results made of the papers' own printed numbers pass them, and other results do not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis.claims import Runs, claims
from fedlib.analysis.fairness import LEAST, arriving, fairness
from fedlib.analysis.measure import arrivals
from fedlib.analysis.paper import papers, part


@pytest.mark.parametrize("paper", list(papers()))
def test_printed_numbers_pass_the_rules_that_judge_ours(paper):
    found = fairness(paper).set_index("claim")["held"]
    assert (found >= LEAST).all(), found[found < LEAST].to_dict()


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
        assert by_id[law.claims[0]].rule(runs).status != "held", paper


def test_runs_made_of_rounds_arrive_in_these_rounds():
    rounds = {("s", "A"): np.array([3.0, np.inf]), ("s", "B"): np.array([20.0, 21.0])}
    table = arriving("e", rounds, {"s": 0.8}, T=20)
    assert arrivals(table, 0.8).tolist() == [3, np.inf, 20, np.inf]
    assert table["round"].max() == 20
