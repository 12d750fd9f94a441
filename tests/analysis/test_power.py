"""Both error rates of every claim: no more false passes than 5 %, and the committed table is that of these claims."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from workspace.analysis import power
from workspace.analysis.claim import claims_of
from workspace.analysis.paper import papers

MEASURED = {claim.id: claim for paper in papers() for claim in claims_of(paper) if claim.measure is not None}
TABLE = pd.read_csv(power.TABLE, float_precision="round_trip").set_index("claim")


def test_the_committed_table_is_that_of_these_claims():
    assert dict(TABLE["digest"]) == {id: claim.digest() for id, claim in MEASURED.items()}, (
        "run: fedlib fairness"
    )


@pytest.mark.parametrize("id", ["hcsfed.T1.d", "hcsfed.F4b.a", "hcsfed.F7a.a"])
def test_the_committed_rates_are_those_that_are_computed(id):
    rates = TABLE.loc[id, ["power", "false passes", "refuted though right"]].astype(float)
    assert power.rates(MEASURED[id]) == pytest.approx(tuple(rates), nan_ok=True)


def test_no_claim_passes_by_chance_more_often_than_the_level_says():
    allowed = 0.05 + 2 * math.sqrt(0.05 * 0.95 / power.DRAWS)  # two standard errors of the simulation
    assert TABLE["false passes"].max() <= allowed
    assert TABLE.loc[TABLE["kind"] == "core", "false passes"].max() <= 0.05
    assert TABLE["false passes"].mean() <= 0.025
    assert TABLE["refuted though right"].max() <= allowed


def test_a_claim_that_five_seeds_cannot_decide_says_so():
    weak = TABLE["power"] < 0.8
    assert TABLE.loc[weak, "words"].str.startswith("five seeds cannot decide this").all()
    assert TABLE.loc[TABLE["power"] >= 0.8, "words"].isna().all()


def test_only_what_the_table_lacks_is_computed(tmp_path, monkeypatch):
    asked: list[str] = []
    monkeypatch.setattr(power, "rates", lambda claim: asked.append(claim.id) or (0.9, 0.01, 0.0))
    path = tmp_path / "error_rates.csv"
    changed = TABLE.reset_index()
    changed.loc[changed["claim"] == "hcsfed.T1.d", "digest"] = "another"
    changed.to_csv(path, index=False)
    assert power.write(path)
    assert asked == ["hcsfed.T1.d"]
    assert not power.write(path)
