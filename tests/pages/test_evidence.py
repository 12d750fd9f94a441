"""From the effects table to bars, sentences, rows and files: an outcome that is swapped on the way turns a test red."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedlib.settings.schema import ROOT
from workspace.analysis import effects
from workspace.analysis.readings import readings
from workspace.pages import forest, front, published, readme
from workspace.pages.evidence import DEPENDS, Evidence, pooled

# Effects of five seeds on the logarithmic scale, and what they come to for a claim of "more" with margin 1.
ONE, TWO = (reading.name for reading in readings("hcsfed")[:2])
CLEAR = [0.68, 0.70, 0.69, 0.71, 0.69]  # twice as fast
AGAINST = [-value for value in CLEAR]
NOISE = [-1.0, 1.0, 0.4, -0.6, 0.2]


def cell(claim: str, reading: str, values: list[float], **more: Any) -> dict[str, Any]:
    n = len(values)
    middle = math.exp(sum(values) / n) if n else math.nan
    row = {
        "paper": "hcsfed",
        "claim": claim,
        "artifact": "hcsfed/table_1",
        "kind": "core",
        "estimator": "log-ratio of rounds",
        "reading": reading,
        "commit": "",
        "cell": "MNIST, q = 10 %",
        "data": "MNIST",
        "partition": "Dirichlet",
        "participation": "10 %",
        "unit": "times",
        "null": 1.0,
        "estimate": middle,
        "low": middle / 1.1,
        "high": middle * 1.1,
        "margin": 1.0,
        "test": "more",
        "n": n,
        "seeds": list(range(n)),
        "values": values,
        "printed": 4.0,
        "shown": "8 and 2 rounds",
        "censored": 0,
        "open": False,
        "outcome": "undecided",
        "needed": 0,
        "runs": f"{reading}{values}",
        "words": "",
    }
    return row | more


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    rows = [
        cell("hcsfed.T1.a", ONE, CLEAR, outcome="replicated"),
        cell("hcsfed.T1.b", ONE, AGAINST, outcome="refuted"),
        cell("hcsfed.T1.c", ONE, NOISE),
        cell("hcsfed.T1.d", ONE, CLEAR, outcome="replicated"),
        cell("hcsfed.T1.d", TWO, NOISE),
        cell("hcsfed.T1.e", ONE, [], outcome="not run"),
        cell("hcsfed.T1.f", ONE, CLEAR, outcome="replicated", kind="supporting"),
    ]
    return Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])


def test_each_core_claim_is_counted_once_under_its_own_outcome(evidence: Evidence):
    assert evidence.tally("hcsfed") == {
        "replicated": 1, DEPENDS: 1, "undecided": 1, "refuted": 1, "not run": 1,
    }  # fmt: skip
    assert [evidence.outcome(f"hcsfed.T1.{k}") for k in "abcde"] == [
        "replicated", "refuted", "undecided", DEPENDS, "not run",
    ]  # fmt: skip


def test_what_is_kept_is_what_is_read(evidence: Evidence, tmp_path: Path):
    for name, table in evidence.parts().items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    read = Evidence.read(tmp_path)
    assert read is not None
    assert read.tally("hcsfed") == evidence.tally("hcsfed")
    assert read.row("hcsfed.T1.a") == evidence.row("hcsfed.T1.a")
    assert Evidence.read(tmp_path / "nowhere") is None


def test_a_row_shows_printed_ours_and_the_numbers_behind(evidence: Evidence):
    row = evidence.row("hcsfed.T1.a", "hcsfed/table_1.html#hcsfed.T1.a")
    assert '<span class="verdict replicated">replicated</span>' in row
    assert "2 × [" in row.replace("\u00a0", " ")
    assert "8 and 2 rounds" in row
    assert 'href="hcsfed/table_1.html#hcsfed.T1.a"' in row
    left, ours, printed = (float(re.search(pattern, row)[1]) for pattern in (
        r'class="null" x1="([\d.]+)"', r'circle cx="([\d.]+)"', r'class="printed" d="M([\d.]+)'))  # fmt: skip
    assert left < ours < printed + 4, "1 lies left of 2, and 2 left of 4"


def test_a_sentence_says_effect_interval_seeds_print_and_outcome(evidence: Evidence):
    paper = next(one for one in front.story(evidence, {"hcsfed": "MNIST 5 of 5"}) if one["title"] == "HCSFed")
    main = next(iter(evidence.outcomes["claim"]))
    assert paper["claim"] == evidence.text(main)
    (said,) = paper["sentences"]
    row = evidence.claims[evidence.claims["claim"] == main].iloc[0]
    assert said == f"MNIST: {forest.effect(row)}, 5 seeds, printed 4; {row['outcome']}"
    assert [one["sentences"] for one in front.story(evidence, {}) if one["title"] != "HCSFed"] == [[]] * 3


def test_an_effect_of_one_seed_is_said_without_an_interval():
    rows = [cell("hcsfed.T1.a", ONE, [math.log(2)], outcome="one seed", low=math.nan, high=math.nan)]
    story = front.story(Evidence.of(pd.DataFrame(rows)[effects.COLUMNS]), {})
    assert ["MNIST: 2\u00a0×, one seed, printed 4"] in [paper["sentences"] for paper in story]


def test_the_pooled_is_pooled_as_ours_is():
    cells = pd.DataFrame({"cell": ["a", "b", "b"], "printed": [2.0, 8.0, 8.0], "unit": "times"})
    cells["estimator"] = "log-ratio of rounds"
    assert pooled(cells) == pytest.approx(4)
    assert pooled(cells.assign(unit="points")) == 5
    assert math.isnan(pooled(cells.assign(printed=math.nan)))
    assert math.isnan(pooled(cells.assign(estimator=forest.AGREEMENT))), "levels are no effects"


def places(svg: str) -> dict[str, float]:
    patterns = {"null": r'class="null" x1="([\d.]+)"', "ours": r'circle cx="([\d.]+)"',
                "printed": r'class="printed" d="M([\d.]+)'}  # fmt: skip
    return {name: float(re.search(pattern, svg)[1]) for name, pattern in patterns.items()}


def test_what_should_agree_with_print_has_its_printed_mark_where_there_is_no_difference():
    row = cell("hcsfed.T1.j", ONE, CLEAR, printed=45.0)
    at = places(forest.plot([row | {"estimator": forest.AGREEMENT}]))
    assert at["printed"] + 4 == pytest.approx(at["null"])
    at = places(forest.plot([row]))
    assert at["printed"] > at["ours"] > at["null"]


def test_an_effect_that_may_be_larger_says_so_and_points_there():
    row = cell("hcsfed.T1.a", ONE, CLEAR, open=True)
    assert forest.effect(row).startswith("≥ 2")
    assert 'class="open"' in forest.plot([row])
    assert 'class="open"' not in forest.plot([row | {"open": False}])
    assert forest.effect(row | {"estimator": "exact fact"}) == "exact"


def test_many_readings_are_shown_by_the_median_of_those_that_can_answer():
    values = {"reading": list("abcdef"), "estimate": [1.0, 5.0, 2.0, 4.0, 3.0, 99.0], "cells": 2}
    about = {"claim": "c", "runs": list("abcdef"), "outcome": ["undecided"] * 5 + ["infeasible"]}
    judged = pd.DataFrame(values | about)
    assert forest.standing(judged)["reading"] == "e"
    assert forest.standing(judged)["which"] == "the median of 5 readings"
    assert forest.standing(judged.iloc[:3])["reading"] == "a"
    seed = judged.iloc[:1].assign(reading="g", runs="g", estimate=math.nan, outcome="one seed")
    assert forest.standing(pd.concat([judged, seed]))["which"] == "a", "no median where some have one seed"


def test_front_page_and_scoreboard_count_the_same_readings():
    """Readings that compare the same runs are one piece of evidence, on every page."""
    names = [reading.name for reading in readings("hcsfed")[:9]]
    found = [CLEAR, CLEAR, NOISE, NOISE, AGAINST, [v + 0.1 for v in CLEAR], CLEAR, CLEAR, CLEAR]
    rows = [cell("hcsfed.T1.a", name, of, runs=str(of)) for name, of in zip(names, found, strict=True)]
    evidence = Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])
    said = evidence.summary["outcome"].iloc[0]
    assert said == "replicated under 2, refuted under 1, undecided under 1 of 4 readings"
    story = next(paper for paper in front.story(evidence, {}) if paper["title"] == "HCSFed")
    assert story["sentences"][0].endswith(f"; {said}")
    assert sorted(front.grid(evidence)["seeds"]) == [5] * 4
    assert f"<small>{said}</small>" in evidence.row("hcsfed.T1.a")
    (line,) = (line for line in readme.findings(evidence.table) if "HCSFed" in line)
    assert said in line


def test_verdicts_are_those_of_the_schema(evidence: Evidence):
    made = json.loads(published.verdicts(evidence, "paper", "1 of 2 planned runs"))
    schema = json.loads(published.schema())
    assert set(made) == set(schema["required"])
    assert set(made["claims"][0]) == set(schema["$defs"]["PublishedClaim"]["properties"])
    outcomes = {row["claim"]: row["outcome"] for row in made["claims"] if row["reading"] == ONE}
    assert outcomes == {
        "hcsfed.T1.a": "replicated", "hcsfed.T1.b": "refuted", "hcsfed.T1.c": "undecided",
        "hcsfed.T1.d": "replicated", "hcsfed.T1.e": "not run", "hcsfed.T1.f": "replicated",
    }  # fmt: skip
    assert json.loads(published.verdicts(None, "demo", "none"))["claims"] == []


def test_the_report_is_a_pdf_of_two_pages_at_most(evidence: Evidence, tmp_path: Path):
    data = {
        "title": published.NAME,
        "summary": front.SUMMARY,
        "papers": front.story(evidence, {}),
        "footer": "Scale paper",
    }
    published.report(tmp_path / "report.pdf", ROOT / "site" / "report.typ", data)
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 2


def test_supporting_claims_of_a_page_with_many_open_on_a_click():
    rows = {f"c{k}": (k < 3, f'<tr id="c{k}"></tr>') for k in range(9)}
    page = forest.on_page(rows)
    shown, _, folded = page.partition("<details><summary>6 supporting claims</summary>")
    assert re.findall('id="(c.)"', shown) == ["c0", "c1", "c2"]
    assert re.findall('id="(c.)"', folded) == [f"c{k}" for k in range(3, 9)]
    assert "<details>" not in forest.on_page(dict(list(rows.items())[:8])), "few are all shown"
    assert "<details>" not in forest.on_page({name: (False, row) for name, (_, row) in rows.items()})
    assert forest.on_page({}) == ""
