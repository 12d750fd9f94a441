"""Error rates of every core claim: within what `docs/judging.md` accepts; the committed table is of these claims."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from workspace.analysis import power
from workspace.analysis.claim import claims_of
from workspace.analysis.frozen import digest
from workspace.analysis.paper import papers
from workspace.analysis.power import Simulated

CORE = [
    claim
    for paper in papers()
    for claim in claims_of(paper)
    if claim.kind == "core" and claim.measure is not None
]
TABLE = power.stored()


def test_the_committed_table_is_that_of_these_claims():
    found = {(row.claim, row.digest, row.seeds) for row in TABLE.itertuples()}
    assert found == {(claim.id, digest(claim), n) for claim in CORE for n in power.SEEDS}, (
        "run: fedlib fairness"
    )


@pytest.mark.parametrize("rate", power.BOUNDED)
def test_no_claim_passes_by_chance_more_often_than_is_accepted(rate):
    """2.5 % and two standard errors; of rows that were drawn anew, what chance may add to the largest of twenty."""
    few = TABLE["draws"] == power.DRAWS
    assert TABLE.loc[few, rate].dropna().le(power.ceiling(power.DRAWS)).all()
    allowed = stats.binom.ppf(1 - 0.01 / 20, power.MORE, 0.025) / power.MORE
    assert TABLE.loc[~few, rate].dropna().le(allowed).all()
    assert TABLE[rate].mean() <= 0.025


def people(m: int, **more: object) -> Simulated:
    """m alike cells of standard deviation 1, correlated by 0.3, with an effect of 2 standard deviations."""
    correlation = np.full((m, m), 0.3) + 0.7 * np.eye(m)
    about = {"groups": tuple((k,) for k in range(m)), "over": "all", "bound": np.zeros(m)} | more
    return Simulated(np.full(m, 2.0), np.ones(m), correlation, **about)


@pytest.mark.parametrize(
    ("m", "n", "full", "shown"), [(2, 3, 25, 38), (2, 5, 82, 89), (6, 5, 63, 84), (6, 10, 100, 100), (22, 5, 29, 72)]
)  # fmt: skip
def test_power_is_that_of_an_independent_simulation(m, n, full, shown):
    """Percentages from another program with 4,000 draws."""
    rates = power.rates(people(m), n, np.random.default_rng(0))
    error = 300 * math.sqrt(0.25 * (1 / 2000 + 1 / 4000))  # three standard errors of the difference
    assert 100 * rates["full"] == pytest.approx(full, abs=error)
    assert 100 * rates["shown full"] == pytest.approx(shown, abs=error)


def test_one_cell_without_effect_passes_at_the_level_and_no_oftener_with_more_seeds():
    rates = [power.rates(people(6), n, np.random.default_rng(n))["one null"] for n in (5, 10, 40)]
    assert max(rates) <= 0.025 + 3 * math.sqrt(0.025 / 2000)


def test_not_excluded_is_not_as_large():
    """At half of the printed effect, with its margin there: as large in 2.5 % of draws, not in 60 %."""
    one = people(1, margin=1.0, printed=2.0)
    rates = power.rates(one, 5, np.random.default_rng(0))
    assert rates["large half"] == pytest.approx(0.025, abs=0.012)
    assert rates["large full"] > rates["large half"]
    assert rates["smaller none"] > 0.3


def test_late_runs_of_the_faster_side_alone_are_not_bounded():
    alike = Simulated(
        np.full(6, 0.5), np.full(6, 0.25), np.full((6, 6), 0.3) + 0.7 * np.eye(6),
        tuple((k,) for k in range(6)), "all", np.zeros(6), late=True,
    )  # fmt: skip
    rates = power.rates(alike, 5, np.random.default_rng(0))
    assert max(rates["late both"], rates["late slower"]) <= 0.025
    assert rates["late faster"] > 0.05


def test_an_unreadable_table_says_how_to_make_it_again(tmp_path):
    from fedlib.errors import StoreError

    path = tmp_path / "error_rates.csv"
    pd.DataFrame(
        {"claim": ["x"], "digest": [""], "cells": [1], "seeds": [3], **dict.fromkeys(power.RATES, [2.0])}
    ).to_csv(path)
    with pytest.raises(StoreError, match="must be between 0 and 1; `fedlib fairness`"):
        power.stored(path)
    with pytest.raises(StoreError, match="cannot be read"):
        power.stored(tmp_path / "none.csv")
