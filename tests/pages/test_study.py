"""The study: its text has no number and no outcome of its own, and each of them has its row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from fedlib.settings.schema import ROOT
from workspace.analysis import effects, words
from workspace.analysis.paper import papers
from workspace.figures.picture import svg
from workspace.pages import chooser, published
from workspace.pages.entries import MINE, OTHERS
from workspace.pages.evidence import Evidence
from workspace.pages.study import StudyArticle, inline

TEMPLATE = (ROOT / "site" / "study.md").read_text()
CALL = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.S)
NAMES = re.compile(
    r"CIFAR-10+|Algorithm [12]|(Table|Figure) \d|fdff729|--retrain \d"
)  # of things, not numbers
FACTS = {name: name for name in ("runs", "own", "hours", "devices", "data")}


def typed_digits(template: str) -> list[str]:
    """Digits of the prose that no call made; references have years and are left out."""
    prose = re.sub(r"(?ms)^## References.*?(?=^## )", "", template)
    return re.findall(r"\d[\d.,]*", NAMES.sub("", CALL.sub("", prose)))


def typed_outcomes(template: str) -> list[str]:
    """Sentences with a word of an outcome and without a call; sections that explain words or limits are left out."""
    prose = re.sub(r"(?ms)^## (How claims are judged|Limits).*?(?=^## )", "", template)
    known = [
        *words.ORDER,
        *words.SIZES,
        "reversed",
        "significant",
        "replicated",
        "refuted",
        "faster",
        "slower",
    ]
    word = re.compile(rf"\b({'|'.join(map(re.escape, sorted(known, key=len, reverse=True)))})\b")
    sentences = re.split(r"(?<=[.;])\s+(?=[A-Z*{])|\n\n", prose)
    typed = [text for text in sentences if word.search(CALL.sub("", text)) and "{{" not in text]
    return [text for text in typed if not text.startswith(EXPLAINED)]


# Sentences that tell which words a table has, or what was not run, whatever came out.
EXPLAINED = ("The control, the same program", "A dash: not run", "CIFAR-100, Mini-ImageNet")


def test_no_number_of_the_text_is_typed_by_hand() -> None:
    assert typed_digits(TEMPLATE) == []
    assert typed_digits(f"{TEMPLATE}\nIt is 1.5 times faster in 3 settings.\n") == ["1.5", "3"]
    assert typed_digits('{{ effect("hcsfed.T1.b") }} of CIFAR-10') == []


def test_no_outcome_of_the_text_is_typed_by_hand() -> None:
    assert typed_outcomes(TEMPLATE) == []
    assert typed_outcomes("HiCS-FL: this is contradicted on MNIST.\n\nNothing.") == [
        "HiCS-FL: this is contradicted on MNIST."
    ]
    assert typed_outcomes('HiCS-FL: {{ verdict("hics.T1.b") }}, contradicted or not.') == []


def arena() -> dict[str, Any]:
    """Random and all samplers of the text, two settings, two seeds: a sampler's gain is its place in the list."""
    methods = ["Random", *MINE.values(), *OTHERS]
    settings = [
        {"experiment": "a", "setting": str(k), "name": f"MNIST, setting {k}", "labels": label}
        for k, label in enumerate((chooser.ONE, chooser.MORE))
    ]
    at = {cost: [1.0, 2.0] for cost in ("round", "megabytes", "client_steps", "server_seconds")}
    return {
        "settings": settings,
        "methods": [{"name": m, "kind": "sampler", "bytes": "1", "steps": "1"} for m in methods],
        "runs": [
            {"s": s, "m": m, "seed": seed, "at": at, "accuracy": [50.0, 50.0 + 2 * m + 0.1 * seed * (m > 0)]}
            for s in range(2)
            for m in range(len(methods))
            for seed in range(2)
        ],
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> StudyArticle:
    """From a table in which nothing was run, an arena and worlds made up."""
    folder = tmp_path_factory.mktemp("artifacts")
    (folder / "arena").mkdir()
    (folder / "arena" / "chooser.json").write_text(json.dumps(arena()))
    for page, worlds in {
        "world-claims": ("everyone", "by label"),
        "world-semantics": ("visible", "hidden"),
        "world-aggregation": ("everyone", "by label"),
        "world-deadlines": ("median, rho = 0", "median, rho = -0.8"),
        "world-asynchronous": ("K = 5, rho = -0.8", "K = 5, rho = 0.8"),
    }.items():
        (folder / page).mkdir()
        rows = [
            {"setting": world, "method": method, "difference": 3.0 - k, "low": 2.0 - k, "high": 4.0 - k,
             "seeds": 5, "outcome": "holds" if k < 2 else "not shown" if k < 5 else "contradicted"}
            for world in worlds for k, method in enumerate([*MINE.values(), *OTHERS])
        ]  # fmt: skip
        pd.DataFrame(rows).to_csv(folder / page / "outcomes.csv", index=False)
    study = StudyArticle.of(Evidence.of(effects.table({})), folder, FACTS)
    assert study is not None
    return study


def test_every_number_and_every_outcome_has_its_row(made: StudyArticle) -> None:
    text = made.text(TEMPLATE)
    assert not re.search(r"\{\{|\bnan\b", text)
    asked = CALL.findall(TEMPLATE)
    assert len(made.entries.used) >= len([call for call in asked if call.startswith("{{")]) * 0.9
    for entry in made.entries.used:
        assert entry.row.split(":")[0] in ROWS, entry
        assert entry.text in text or entry.text.capitalize() in text or entry.call.startswith("control"), (
            entry
        )
    outcomes = [entry for entry in made.entries.used if entry.call.startswith(OUTCOMES)]
    assert {entry.row for entry in outcomes if entry.section == "Abstract"} >= {
        "effects: fedcor.T1.b, primary reading", "effects: hics.T1.b, primary reading", "summary: core claims"
    }  # fmt: skip


OUTCOMES = ("verdict", "apart", "explained", "tally", "core", "sized", "as_claimed", "surely")
ROWS = {
    *("effects", "summary", "print", "readings", "levels", "sensitivity", "sensitivity of core claims"),
    *("error_rates", "judging", "papers", "archive", "arena"),
    *(
        "world-claims",
        "world-semantics",
        "world-deadlines",
        "world-asynchronous",
        "world-aggregation",
        "world-methods",
    ),
}


def test_the_abstract_lists_what_it_rests_on(made: StudyArticle) -> None:
    made.text(TEMPLATE)
    abstract = made.tables()["abstract"]
    calls = re.findall(r"\{\{", TEMPLATE.split("## Abstract")[1].split("## ")[0])
    assert len(abstract) == len(calls)
    assert "arena: ranking where clients hold one label" in set(abstract["rests on"])


def test_a_study_that_lacks_claims_or_the_arena_is_not_made(made: StudyArticle, tmp_path: Path) -> None:
    assert StudyArticle.of(made.entries.evidence, tmp_path, FACTS) is None
    assert StudyArticle.of(None, tmp_path, FACTS) is None


def test_the_page_and_the_pdf_say_the_same(made: StudyArticle, tmp_path: Path) -> None:
    page, pdf = made.markdown(TEMPLATE), tmp_path / "study.pdf"
    blocks = made.typst(TEMPLATE)
    pictures = {f"{name}.svg": svg(figure, name) for name, figure in made.figures().items()}
    assert set(pictures) == {f"{name}.svg" for name in ("forest", "multiverse", "skew", "cost", "worlds")}
    published.report(
        pdf, ROOT / "site" / "study.typ", blocks | {"title": "Study", "footer": "Scale paper"}, pictures
    )
    assert pdf.read_bytes().startswith(b"%PDF")
    headings = [line.lstrip("# ") for line in page.splitlines() if line.startswith("#")]
    assert [
        block["text"].replace("\\", "") for block in blocks["blocks"] if block["kind"][0] == "h"
    ] == headings
    for name in pictures:
        assert f"/files/study/{name}" in page


def test_whose_a_speed_up_is_follows_both_intervals() -> None:
    above, below, none = (words.side(*ends, 1.0) for ends in ((1.1, 1.3), (0.7, 0.9), (0.9, 1.1)))
    assert (
        words.explained(above, none)
        == words.explained(above, below)
        == "the speed-up is the rule's, not the selection's"
    )
    assert words.explained(above, above) == "the speed-up is in part the selection's"
    assert words.explained(none, none) == "there is no speed-up to explain"
    assert words.side(float("nan"), float("nan"), 1.0) == "not measured"


@pytest.mark.parametrize(
    ("text", "typst"),
    [
        ("a *b* **c** `d_e`", 'a #emph[b] #strong[c] #raw("d_e")'),
        ("1 × [0.9, 1.1] (x)", "1 × \\[0.9, 1.1\\] (x)"),
        ("[a](https://b.org) T_s #1 $2", '#link("https://b.org")[a] T\\_s \\#1 \\$2'),
    ],
)
def test_markdown_becomes_typst(text: str, typst: str) -> None:
    assert inline(text) == typst


def test_it_counts_the_papers_that_it_is_about_and_their_claims_alone(made: StudyArticle) -> None:
    assert "experiments of four papers" in made.text(TEMPLATE)
    assert set(made.entries.evidence.claims["paper"]) == set(MINE) < set(papers())
