"""What leaves the site can be read by machines, and the report opens."""

from __future__ import annotations

import json
from pathlib import Path

from fedlib.pages import front, published
from fedlib.settings.schema import ROOT

ROW = {
    "paper": "fedcor",
    "id": "fedcor.T1.b",
    "artifact": "fedcor/table_1",
    "claim": "FedCor is <fast>.",
    "printed": "99 %",
    "replicated": "50 %",
    "interval": "",
    "verdict": "held",
    "words": "3 of 3",
    "strength": "settled",
    "as run": "held",
    "headline": "held as written",
    "detail": "",
}


def test_verdicts_are_those_of_the_schema():
    made = json.loads(published.verdicts([ROW], "paper", "1 of 2 planned runs"))
    schema = json.loads(published.schema())
    assert set(made) == set(schema["required"])
    assert set(made["claims"][0]) == set(schema["$defs"]["Claim"]["properties"])
    assert made["claims"][0]["as_run"] == "held"


def test_each_claim_is_in_one_part_of_the_bar_but_informative_ones():
    rows = [
        ROW,
        ROW | {"strength": "indicated"},
        ROW | {"headline": "held as run only"},
        ROW | {"headline": "held under neither"},
        ROW | {"headline": "not run"},
        ROW | {"headline": "informative"},
    ]
    assert front.counted(rows) == dict.fromkeys(front.BARS, 1)
    (paper,) = front.story({"fedcor": rows}, {})
    assert "99 %; here: 50 %" in paper["finding"]


def test_the_report_is_a_pdf_of_two_pages_at_most(tmp_path: Path):
    data = {
        "title": published.NAME,
        "summary": front.SUMMARY,
        "papers": front.story({"fedcor": [ROW] * 5}, {"fedcor": "A finding."}),
        "columns": ["sampler", "rank"],
        "samplers": [["DivFL", "1.2"]],
        "footer": "Scale paper",
    }
    published.report(tmp_path / "report.pdf", ROOT / "site" / "report.typ", data)
    content = (tmp_path / "report.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert 1 <= content.count(b"/Type /Page\n") + content.count(b"/Type/Page/") <= 2


def test_the_crate_names_every_page_and_number(tmp_path: Path):
    for name in ("index.html", "files/table.csv", "files/figure.svg", "_static/house.css"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    published.describe(tmp_path, "a site", {"data": ["MNIST"]})
    graph = json.loads((tmp_path / "ro-crate-metadata.json").read_text())["@graph"]
    ids = {entity["@id"] for entity in graph}
    assert {"index.html", "files/table.csv", "files/figure.svg", "#fedlib", "./"} <= ids
    assert "_static/house.css" not in ids
