"""Claims on data that has not been run stay as they were written, or their paper's amendments say why they changed."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fedlib.settings.schema import ROOT
from workspace.analysis.claim import Claim, claims_of
from workspace.analysis.paper import papers

FOLDER = ROOT / "workspace" / "papers"
FROZEN = [paper for paper in papers() if claims_of(paper)]


def changed(paper: str, claims: tuple[Claim, ...], folder: Path = FOLDER) -> list[str]:
    """The frozen claims of a paper that differ from `frozen.csv` without an amendment that names id and digest."""
    frozen = pd.read_csv(folder / paper / "frozen.csv").set_index("claim")["digest"]
    there = {claim.id: claim.digest() for claim in claims}
    said = (folder / paper / "amendments.md").read_text()
    return [
        id
        for id, digest in frozen.items()
        if there.get(str(id)) != digest
        and not re.search(rf"{re.escape(str(id))}\b.*{there.get(str(id), 'dropped')}", said)
    ]


@pytest.mark.parametrize("paper", FROZEN)
def test_claims_on_data_not_yet_run_are_as_they_were_frozen(paper):
    words = "add an entry with the claim's id and its new digest to amendments.md, saying what was known"
    assert changed(paper, claims_of(paper)) == [], words


def test_a_changed_margin_is_noticed_until_an_amendment_names_it(tmp_path):
    from dataclasses import replace

    (folder := tmp_path / "hcsfed").mkdir()
    for name in ("frozen.csv", "amendments.md"):
        (folder / name).write_bytes((FOLDER / "hcsfed" / name).read_bytes())
    claims = tuple(replace(c, margin=9.0) if c.id == "hcsfed.F5.a" else c for c in claims_of("hcsfed"))
    assert changed("hcsfed", claims, tmp_path) == ["hcsfed.F5.a"]
    assert changed("hcsfed", claims[:5], tmp_path) != []
    new = next(c.digest() for c in claims if c.id == "hcsfed.F5.a")
    with open(folder / "amendments.md", "a") as file:
        file.write(f"- hcsfed.F5.a ({new}): a wider margin.\n")
    assert changed("hcsfed", claims, tmp_path) == []


@pytest.mark.parametrize("paper", FROZEN)
def test_claims_whose_data_is_not_archived_are_frozen(paper):
    frozen = set(pd.read_csv(FOLDER / paper / "frozen.csv")["claim"])
    there = {path.stem for path in (ROOT / "data" / "archive" / "paper").glob("*.parquet")}
    for claim in claims_of(paper):
        asked = {arm.where.experiment for cell in claim.cells for arm in cell.arms}
        assert claim.id in frozen or not asked or asked & there, claim.id
