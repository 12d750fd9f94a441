"""Which runs open claims ask for: by the arms of their open cells, under the primary reading."""

from __future__ import annotations

import numpy as np
import pytest

from fedlib.runs.work import Plan
from fedlib.settings import params
from workspace.analysis import worth
from workspace.analysis.estimators import Effect


def test_claims_ask_for_their_arms_under_the_primary_reading_alone() -> None:
    """Of HCSFed, without any run."""
    of = worth.needed("hcsfed", {})
    known = {claim.id: claim for claim in worth.data.claims_of("hcsfed")}
    assert set(of) <= set(known)
    assert not [id for id in of if known[id].kind == "construction"]
    assert {core for core, _ in of.values()} == {True, False}
    arms = {arm for _, parts in of.values() for part in parts for arm in part}
    settings = params.load()
    assert {arm.experiment for arm in arms} <= {*settings.names, *settings.studies}
    table_1 = {arm for arm in arms if arm.experiment == "hcsfed_table_1"}
    planned = {work.labels["method"] for work in Plan.of_experiment("hcsfed_table_1", "paper", settings).work}
    assert {arm.method for arm in table_1} <= planned
    assert any(arm.method == "HCSFed-R (GC-A)" for arm in table_1)
    assert not any("H = 5" in arm.method or "GC-B" in arm.method for arm in table_1), "another reading"


def test_studies_are_asked_for_as_a_whole() -> None:
    arms = {arm for _, parts in worth.needed("hics_fl", {}).values() for part in parts for arm in part}
    assert worth.Condition("hics_entropy", "", "") in arms


def test_the_chance_is_the_power_of_one_more_seed_at_the_observed_spread() -> None:
    def chance(y: list[float]) -> float:
        row = {"values": y, "margin": 0.0, "null": 0.0, "test": "more", "open": False, "under": False}
        return worth.chance(row | {"finest": 0.0, "lost": 0})

    weak, strong, against = [0.5, -0.4, 0.2, 0.1], [0.5, 0.4, 0.6, 0.2], [-0.5, -0.4, -0.6, -0.2]
    assert chance(against) < 0.05 < chance(weak) < chance(strong)
    effect = Effect.of(strong)
    y = np.random.default_rng(0).normal(effect.estimate, effect.spread, (20_000, 5))
    t = y.mean(axis=1) / (y.std(axis=1, ddof=1) / np.sqrt(5))
    assert chance(strong) == pytest.approx((t > 2.776445).mean(), abs=0.015)
