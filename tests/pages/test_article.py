"""The articles: their numbers are those of the effects table, every core claim stands there once, and a PDF is made."""

from __future__ import annotations

import math
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_evidence import AGAINST, CLEAR, CONTROL, NOISE, ONE, cell

from fedlib.errors import ConfigError
from fedlib.settings.schema import ROOT
from workspace.analysis import effects
from workspace.analysis.paper import papers
from workspace.pages import article, forest, published
from workspace.pages.evidence import Evidence


def made(first: list[float]) -> dict[str, Any]:
    """HCSFed's article from a made-up table of four core claims and a supporting one."""
    rows = [
        cell("hcsfed.T1.a", ONE, first),
        cell("hcsfed.T1.a", ONE, AGAINST, cell="MNIST, q = 50 %"),
        cell("hcsfed.T1.b", ONE, CLEAR),
        cell("hcsfed.T1.b", CONTROL, NOISE),
        cell("hcsfed.T1.k", ONE, [0.5]),
        cell("hcsfed.T1.d", ONE, []),
        cell("hcsfed.T1.f", ONE, CLEAR, kind="supporting"),
    ]
    evidence = Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])
    return article.content("hcsfed", evidence, "MNIST 5 of 5")


def claim(said: dict[str, Any], name: str) -> dict[str, Any]:
    (one,) = (one for one in said["claims"] if one["id"] == name)
    return one


def test_every_core_claim_stands_there_once_with_its_outcome():
    said = made(CLEAR)
    assert {one["id"]: one["outcome"] for one in said["claims"]} == {
        "hcsfed.T1.a": "contradicted",
        "hcsfed.T1.b": "holds",
        "hcsfed.T1.k": "one seed",
        "hcsfed.T1.d": "not run",
    }
    assert len(said["claims"]) == 4
    assert said["counted"] == "1 holds, 1 contradicted, 1 one seed, 1 not run"
    assert "4 core claims" in said["scope"][-1]
    assert "others (1)" in said["scope"][-1]
    assert "as its authors' earlier program runs" in " ".join(said["methods"])


def test_effects_and_intervals_are_those_of_the_table_and_a_claim_that_was_not_run_has_none():
    rows = claim(made(CLEAR), "hcsfed.T1.b")["rows"]
    assert [(row["reading"], row["seeds"]) for row in rows] == [
        ("as its authors' earlier program runs", 5),
        ("with one rule of aggregation for both", 5),
    ]
    assert claim(made(CLEAR), "hcsfed.T1.d")["rows"] == []
    assert rows[0]["effect [95 %]"].replace("\u00a0", " ").startswith("2 × [1.97, 2.03]")
    alone = claim(made(CLEAR), "hcsfed.T1.k")["rows"][0]
    assert (alone["effect [95 %]"].replace("\u00a0", " "), alone["seeds"]) == ("1.65 ×", 1)


def test_a_value_that_changes_in_the_table_changes_the_text():
    before, after = made(CLEAR), made([value + 1 for value in CLEAR])
    assert claim(before, "hcsfed.T1.a")["rows"] != claim(after, "hcsfed.T1.a")["rows"]
    assert "to 2\u00a0× [1.82, 2.2]" in claim(before, "hcsfed.T1.a")["notes"]
    assert "to 5.44\u00a0× [4.95, 5.99]" in claim(after, "hcsfed.T1.a")["notes"]
    for name in ("hcsfed.T1.k", "hcsfed.T1.d"):
        assert claim(before, name) == claim(after, name)
    assert "Smaller than printed" in claim(before, "hcsfed.T1.b")["notes"]
    assert "p of the claim" in claim(before, "hcsfed.T1.b")["notes"]


def test_what_would_decide_is_said_with_the_weakest_cell():
    one = {"needed": 12, "weakest": "CIFAR-10"}
    assert forest.seeds_of(one) == "about 12 seeds would show it; weakest: CIFAR-10"
    assert forest.seeds_of({"needed": 1001, "weakest": ""}) == "more than 1,000 seeds would show it"
    assert forest.seeds_of({"needed": 0, "weakest": "CIFAR-10"}) == ""


def test_error_rates_of_a_claim_with_one_cell_have_no_cell_without_an_effect():
    rates = pd.DataFrame(
        {"seeds": [5, 5], "full": [0.07, 0.9], "one null": [math.nan, 0.02]}, index=["a", "b"]
    )
    (alone,), (several,) = (article._errors(rates, name) for name in "ab")
    assert alone.endswith("the order is shown in 7 % of draws if every cell has its effect.")
    assert several.endswith("in 90 % of draws if every cell has its effect, in 2 % if one has none.")


@pytest.mark.parametrize("paper", papers())
def test_what_is_written_by_hand_has_all_parts_and_no_result(paper: str):
    said = article.handwritten(paper)
    assert said["title"][0] in papers()[paper].citation
    assert all(len(said[part]) >= 2 for part in article.PARTS)
    text = (files("workspace") / "papers" / paper / "article.md").read_text()
    assert not re.findall(r"\d\s*(?:×|%|times|nats|points)|\[\d|\d\.\d", text), "numbers come from the table"


def test_a_part_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "papers" / "fedcor"
    folder.mkdir(parents=True)
    monkeypatch.setattr(article, "files", lambda _: tmp_path)
    assert article.handwritten("fedcor") == {}
    (folder / "article.md").write_text(
        "# FedCor\n\n## Scope\n\nSome.\n\n## What was easy\n\n- A\n  b.\n- C.\n"
    )
    with pytest.raises(ConfigError, match="fedcor/article.md: no text under 'What was hard'"):
        article.handwritten("fedcor")


def test_the_pdf_names_no_place_on_this_machine_and_is_the_same_every_time(tmp_path: Path):
    pdfs = [tmp_path / "a.pdf", tmp_path / "b.pdf"]
    for pdf in pdfs:
        published.report(pdf, ROOT / "site" / "article.typ", made(CLEAR) | {"footer": "Scale paper"})
    content = pdfs[0].read_bytes()
    assert content.startswith(b"%PDF-")
    assert content == pdfs[1].read_bytes()
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, flags=re.S)
    assert streams
    whole = content + b"".join(unpacked(stream) for stream in streams)
    for place in (str(tmp_path), str(ROOT), "/tmp/", "report.json"):
        assert place.encode() not in whole


def unpacked(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return stream
