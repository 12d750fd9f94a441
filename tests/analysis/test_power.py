"""Error rates of every core claim: within what `docs/judging.md` accepts; the committed table is of these claims."""

from __future__ import annotations

import dataclasses
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.errors import StoreError
from workspace.analysis import kept, power
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


def test_more_cells_are_seldom_shown_than_have_an_effect():
    rates = power.rates(people(6), 5, np.random.default_rng(0))
    assert 0 < rates["too many"] <= 0.025 + 3 * math.sqrt(0.025 / 2000)


@pytest.mark.parametrize(("m", "n", "effect"), [(2, 3, 2.0), (6, 5, 0.8)])
def test_the_power_of_an_average_is_that_of_the_noncentral_t_distribution(m, n, effect):
    """The mean of m cells correlated by 0.3 has the variance (1 + 0.3 (m - 1)) / m."""
    average = dataclasses.replace(people(m, over="average"), effect=np.full(m, effect))
    shift = effect * math.sqrt(n * m / (1 + 0.3 * (m - 1)))
    exact = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, shift)
    found = power.rates(average, n, np.random.default_rng(0), power.MORE)
    assert 0.1 < exact < 0.95, "or this shows nothing"
    assert found["full"] == pytest.approx(exact, abs=3 * math.sqrt(exact * (1 - exact) / power.MORE))
    assert found["all null"] <= 0.025 + 3 * math.sqrt(0.025 / power.MORE)


def test_of_a_claim_of_sameness_the_effect_is_its_margin():
    same = [claim for paper in papers() for claim in claims_of(paper) if claim.test == "same"]
    assert same
    for claim in same:
        about = {"data": "", "partition": "", "participation": "", "n": 0, "outcome": "not run"}
        rows = [about | {"cell": cell.name} for cell in claim.cells]
        found = power.population(claim, rows)
        assert found.same
        assert found.effect.tolist() == [claim.bound(cell) for cell in claim.cells]


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


EDITS = {  # kind -> an edit of the table
    "false passes": lambda t: t.assign(**{"all null": 0.9}),
    "power": lambda t: t.assign(full=0.01),
    "one share": lambda t: t.assign(full=[*t["full"][:-1], 0.123]),
    "no share": lambda t: t.assign(full=2.0),
    "not a number": lambda t: t.assign(half="?"),
    "rows swapped": lambda t: t.iloc[::-1],
    "a row deleted": lambda t: t.iloc[1:],
    "a row doubled": lambda t: pd.concat([t, t.iloc[:1]]),
    "all rows deleted": lambda t: t.iloc[:0],
    "a claim renamed": lambda t: t.assign(claim="cs.M.z"),
    "seeds": lambda t: t.assign(seeds=10),
    "a digest": lambda t: t.assign(digest="0" * 16),
    "a column renamed": lambda t: t.rename(columns={"full": "half", "half": "full"}),
    "a column left out": lambda t: t.drop(columns="half"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edited_table_is_refused(kind, tmp_path):
    path = tmp_path / "error_rates.csv"
    for name in ("error_rates.csv", kept.SUMS):
        shutil.copy(power.TABLE.parent / name, tmp_path / name)
    table = power.stored(path)
    table.to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    power.stored(path)  # this writes the same bytes
    EDITS[kind](table).to_csv(path, index=False, float_format="%.4g", lineterminator="\n")
    with pytest.raises(StoreError, match=r"as written; `fedlib fairness` makes it again\.$"):
        power.stored(path)


def test_a_table_that_is_missing_or_not_named_says_how_to_make_it_again(tmp_path):
    path = tmp_path / "error_rates.csv"
    with pytest.raises(StoreError, match="error_rates.csv is missing; `fedlib fairness` makes it again"):
        power.stored(path)
    path.write_text("claim\n")
    with pytest.raises(StoreError, match="SHA256SUMS is missing; `fedlib fairness`"):
        power.stored(path)
    kept.write(tmp_path / "other.csv", b"")
    with pytest.raises(StoreError, match="does not name error_rates.csv"):
        power.stored(path)
    kept.write(path, b"claim\n")
    assert list(power.stored(path)) == ["claim"]
    assert set(kept.sums(tmp_path)) == {"other.csv", "error_rates.csv"}
