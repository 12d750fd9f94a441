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
from workspace.analysis import effects, judge, words
from workspace.analysis.estimators import cell_outcome
from workspace.analysis.readings import primary, readings
from workspace.pages import first, forest, front, published, readme
from workspace.pages.evidence import Evidence, pooled

# Effects of five seeds on the logarithmic scale, under the primary reading and under others.
ONE = primary("hcsfed").reading
CONTROL = next(iter(primary("hcsfed").beside))
TWO = readings("hcsfed")[0].name
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
        "under": False,
        "finest": 0.0,
        "late": 0,
        "lost": 0,
        "over": "all",
        "primary": reading == ONE,
        "arms": '{"a": [1.0, 0.2], "b": [-1.0, 0.2]}',
        "needed": 0,
        "runs": f"{reading}{values}",
        "words": "",
    } | more
    effect = judge.effect_of(row)
    outcome = cell_outcome(effect)
    silent = not row["primary"] and outcome in words.BY_ITSELF
    found = {"p": effect.p_shown, "p_reversed": effect.p_reversed, "outcome": "" if silent else outcome}
    return row | found | more


def of(*rows: dict[str, Any]) -> Evidence:
    return Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return of(
        cell("hcsfed.T1.a", ONE, CLEAR),
        cell("hcsfed.T1.b", ONE, AGAINST),
        cell("hcsfed.T1.b", CONTROL, NOISE),
        cell("hcsfed.T1.d", ONE, NOISE),
        cell("hcsfed.T1.d", TWO, CLEAR),
        cell("hcsfed.T1.k", ONE, [0.5]),
        cell("hcsfed.C.a", ONE, []),
        cell("hcsfed.T1.f", ONE, CLEAR, kind="supporting"),
        cell("hcsfed.F1.a", ONE, CLEAR, kind="construction"),
    )


OUTCOMES = {
    "hcsfed.T1.a": "holds", "hcsfed.T1.b": "contradicted", "hcsfed.T1.d": "not shown", "hcsfed.T1.k": "one seed",
    "hcsfed.C.a": "not run", "hcsfed.T1.f": "holds", "hcsfed.F1.a": "by construction",
}  # fmt: skip


def test_each_core_claim_is_counted_once_under_its_own_outcome(evidence: Evidence):
    counts = ["holds", "contradicted", "not shown", "one seed", "not run"]
    assert evidence.tally("hcsfed") == dict.fromkeys(counts, 1)
    assert list(evidence.tally("hcsfed")) == counts, "in the order of the words"
    assert {claim: evidence.outcome(claim) for claim in OUTCOMES} == OUTCOMES


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
    assert '<span class="verdict holds">holds</span>' in row
    assert "consistently achieves the fastest convergence" in row, "the claim in the paper's own words"
    assert "smaller than printed: 2 × for 4 × (same cells)" in row.replace("\u00a0", " ")
    assert "2 × [" in row.replace("\u00a0", " ")
    assert ", 5 seeds" in row
    assert "8 and 2 rounds" in row
    assert 'href="hcsfed/table_1.html#hcsfed.T1.a"' in row
    left, ours, printed = (float(re.search(pattern, row)[1]) for pattern in (
        r'class="null" x1="([\d.]+)"', r'circle cx="([\d.]+)"', r'class="printed" d="M([\d.]+)'))  # fmt: skip
    assert left < ours < printed + 4, "1 lies left of 2, and 2 left of 4"


def test_a_story_says_the_claim_in_the_papers_words_and_what_it_comes_to(evidence: Evidence):
    paper = next(one for one in front.story(evidence, {"hcsfed": "MNIST 5 of 5"}) if one["title"] == "HCSFed")
    assert paper["said"].startswith("HCSFed consistently achieves the fastest convergence")
    assert paper["place"] == "section 5, on Table 1"
    told, data, control = paper["sentences"]
    assert told == evidence.in_words("hcsfed.T1.a") == "holds; smaller than printed"
    row = evidence.primary("hcsfed.T1.a")
    assert data == f"MNIST: {forest.effect(row)}, 5 seeds (printed: 4)"
    assert control.startswith("HCSFed needs fewer rounds to 80 % than Random")
    assert "; with one rule of aggregation for both: " in control, "both sentences, or none"
    assert not any(one["sentences"] for one in front.story(evidence, {}) if one["title"] != "HCSFed")
    text = readme.findings(evidence)["hcsfed"]
    assert all(said in text for said in paper["sentences"])
    assert front.grid(evidence)["effect"].tolist() == [forest.effect(row)]


def test_an_effect_of_one_seed_is_said_without_an_interval():
    rows = [cell("hcsfed.T1.a", ONE, [math.log(2)], low=math.nan, high=math.nan)]
    alone = Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])
    story = front.story(alone, {})
    assert ["one seed", "MNIST: 2\u00a0×, one seed (printed: 4)"] in [paper["sentences"] for paper in story]


def test_new_seeds_alone_stand_beside_the_one_cell_that_has_them():
    """The other cells of this reading are the primary one's: a mean over both would have no seed in common."""
    alone, fashion, cifar = "as written, the new seeds alone", "Fashion-MNIST, Random", "CIFAR-10, Random"
    new = {"seeds": list(range(5, 20))}
    evidence = of(
        cell("hics.T1.b", "as written", CLEAR * 4, paper="hics_fl", cell=fashion, primary=True),
        cell("hics.T1.b", "as written", CLEAR, paper="hics_fl", cell=cifar, primary=True, runs="of CIFAR-10"),
        cell("hics.T1.b", alone, CLEAR * 3, paper="hics_fl", cell=fashion, **new),
        cell("hics.T1.b", alone, CLEAR, paper="hics_fl", cell=cifar, runs="of CIFAR-10"),
    )
    ((reading, row),) = evidence.beside("hics.T1.b")
    assert (reading.name, row["cell"], row["n"]) == (alone, fashion, 15)
    (said,) = front.beside(evidence, "hics.T1.b")
    assert said == f"{reading.words}: {forest.effect(row)}, 15 seeds ({fashion})"
    assert "2 × [1.82, 2.2]" in said.replace("\u00a0", " "), "2 = exp(0.694), divided and multiplied by 1.1"
    assert front.beside(evidence, "hics.T1.a") == [], "a claim that has no rows"


def test_readings_are_not_votes_on_any_page():
    """One primary reading against sixty others that all say the opposite."""
    rows = [cell("hcsfed.T1.a", ONE, CLEAR)]
    names = [reading.name for reading in readings("hcsfed") if reading.name != ONE][:60]
    rows += [cell("hcsfed.T1.a", name, [v + k / 100 for v in AGAINST]) for k, name in enumerate(names)]
    evidence = Evidence.of(pd.DataFrame(rows)[effects.COLUMNS])
    assert evidence.outcome("hcsfed.T1.a") == "holds"
    pages = [
        evidence.row("hcsfed.T1.a"),
        *readme.findings(evidence).values(),
        front.grid(evidence).to_string(),
        front.finding(evidence, "hcsfed.T1.a"),
    ]
    for page in pages:
        assert not re.search(r"median|\d+ (of \d+ )?readings|under \d+", page), page


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


def test_the_labels_of_an_axis_stay_in_the_picture():
    drawn = forest.plot(
        [cell("hics.F4.b", ONE, [0.1, 0.2, 0.4], low=0.1, high=0.4, unit="of the loss", null=0.0)]
    )
    labels = re.findall(r'<text x="([\d.]+)" y="\d+" text-anchor="middle">([^<]+)<', drawn)
    assert any(text == "0 of the loss" for _, text in labels)
    for x, text in labels:
        assert forest.GLYPH * len(text) / 2 <= float(x) <= forest.WIDTH - forest.GLYPH * len(text) / 2, text


def test_effects_without_an_interval_are_told_one_by_one():
    ran = pd.DataFrame([cell("hcsfed.T1.a", ONE, [math.log(2)], low=math.nan, high=math.nan)])
    assert forest.alone(ran.to_dict("records")) == "2\u00a0×; one seed"
    assert forest.alone(ran.assign(n=0, estimator="exact fact").to_dict("records")) == "–", (
        "a fact has no seeds"
    )


def test_an_effect_that_may_be_larger_says_so_and_points_there():
    row = cell("hcsfed.T1.a", ONE, CLEAR, open=True)
    assert forest.effect(row).startswith("≥ 2")
    assert 'class="open"' in forest.plot([row])
    assert 'class="open"' not in forest.plot([row | {"open": False}])
    assert forest.effect(row | {"estimator": "exact fact"}) == "exact"


def test_verdicts_are_those_of_the_schema(evidence: Evidence):
    made = json.loads(published.verdicts(evidence, "paper", "1 of 2 planned runs"))
    schema = json.loads(published.schema())
    assert set(made) == set(schema["required"])
    assert set(made["claims"][0]) == set(schema["$defs"]["PublishedClaim"]["properties"])
    assert {row["claim"]: row["outcome"] for row in made["claims"] if row["primary"]} == OUTCOMES
    assert {row["outcome"] for row in made["claims"] if not row["primary"]} == {""}
    assert json.loads(published.verdicts(None, "demo", "none"))["claims"] == []


@pytest.mark.parametrize("narrow", [False, True])
def test_the_main_claims_can_be_read_on_the_screen_that_they_are_drawn_for(evidence: Evidence, narrow: bool):
    drawn = first.figure(first.headlines(evidence), narrow=narrow)
    width = float(re.search(r'viewBox="0 0 (\d+)', drawn)[1])
    scale = min(1, (328 if narrow else 820) / width)
    sizes = [float(size) * scale for size in re.findall(r'font-size="(\d+)"', drawn)]
    assert min(sizes) >= 9
    (ours,) = (float(at) for at in re.findall(r'circle cx="([\d.]+)"', drawn))
    (printed,) = (float(at) + 6 for at in re.findall(r'<path d="M([\d.]+)', drawn))
    (one,) = {float(at) for at in re.findall(r'x1="([\d.]+)"[^>]*stroke-opacity="0.8"', drawn)}
    assert printed - ours == pytest.approx(ours - one, abs=0.3), "1, 2 and 4 on an axis of logarithms"
    assert 0 < one < printed < width


def test_the_report_is_a_pdf_of_two_pages_at_most(evidence: Evidence, tmp_path: Path):
    grid = front.plain(front.grid(evidence))
    assert {row[-1] for row in grid[1:]} <= set(OUTCOMES.values()), "words, no markup"
    data = {
        "title": published.NAME,
        "summary": front.SUMMARY,
        "papers": front.story(evidence, {}),
        "footer": "Scale paper",
        "question": first.QUESTION,
        "answers": [["", "Clustered Sampling", " is above random selection."]],
        "figure": first.figure(first.headlines(evidence), ink="#1f2328"),
        "key": first.KEY,
        "grid": grid,
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


def test_a_cells_seeds_are_counted_in_words_and_a_fact_has_none():
    row = cell("hcsfed.T1.a", ONE, [math.log(2)], low=math.nan, high=math.nan)
    assert ", one seed" in forest.plot([row])
    assert "1 seeds" not in forest.plot([row])
    fact = {"estimator": "exact fact", "n": 0, "outcome": "true"}
    assert "seed" not in forest.plot([row | fact])
