"""A claim's row of `effects.claims` under one reading, for tests on made-up tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from workspace.analysis import cells, effects
from workspace.analysis.claim import Arms, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import readings


def judge(id: str, results: Mapping[str, pd.DataFrame], reading: str = "") -> pd.Series:
    """The claim as if this reading were the primary one, alone, and tested whatever its kind.

    reading: its name; "" for the paper's first one.
    """
    claim = next(claim for paper in papers() for claim in claims_of(paper) if claim.id == id)
    named = {one.name: one for one in readings(claim.paper)}
    chosen = named[reading] if reading else readings(claim.paper)[0]
    rows = cells._under(claim, chosen, Arms(results), {})
    table = pd.DataFrame([row | {"primary": True} for row in rows], columns=effects.COLUMNS)
    return effects.claims(table.assign(kind="supporting")).iloc[0]


def none_run(paper: str) -> None:
    """Every claim of a paper is there once, and without results none is judged."""
    claims = claims_of(paper)
    assert len({claim.id for claim in claims}) == len(claims) > 10
    facts = {claim.id for claim in claims if claim.estimator == "exact fact"}
    assert {judge(claim.id, {}).outcome for claim in claims if claim.id not in facts} == {"not run"}
