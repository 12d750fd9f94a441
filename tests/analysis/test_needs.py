"""Which runs undecided claims ask for: by the arms of their cells, under every reading."""

from __future__ import annotations

from fedlib.runs.work import Plan
from fedlib.settings import params
from workspace.analysis import needs


def test_claims_ask_for_their_arms_under_every_reading() -> None:
    """Of HCSFed, without any run."""
    of = needs.needed("hcsfed", {})
    assert set(of) <= {claim.id for claim in needs.data.claims_of("hcsfed")}
    assert {core for core, _ in of.values()} == {True, False}
    arms = {arm for _, parts in of.values() for part in parts for arm in part}
    settings = params.load()
    assert {arm.experiment for arm in arms} <= {*settings.names, *settings.studies}
    assert {arm.experiment for arm in arms} <= needs.experiments_of("hcsfed")
    assert any(arm.method == "HCSFed-R (GC-A)" for arm in arms)
    table_1 = {arm.method for arm in arms if arm.experiment == "hcsfed_table_1"}
    planned = {work.labels["method"] for work in Plan.of_experiment("hcsfed_table_1", "paper", settings).work}
    assert {"Random"} < table_1 < planned
