"""What leaves the site can be read by machines, and the report opens."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from fedlib.data import schemes
from fedlib.pages import front, published
from fedlib.samplers import SAMPLERS
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
    assert front.runs_by_data({"a": "fmnist", "b": "fmnist", "c": "cifar10"}, {"a", "b"}) == (
        "Fashion-MNIST 2 of 2, CIFAR-10 none of 1"
    )
    (paper,) = front.story({"fedcor": rows}, {})
    assert "99 %; here: 50 %" in paper["finding"]


def test_what_a_sampler_asks_is_read_off_its_questions():
    asked = {name: front.asks(sampler) for name, sampler in SAMPLERS.items()}
    for name in ("uniform", "md", "clustered_size", "clustered_similarity", "hics_fl", "oort"):
        assert asked[name] == front.NOTHING, name
    for name in ("power_of_choice", "afl", "fedcor"):
        assert asked[name] == front.LOSSES, name
    for name in ("importance", "hcsfed", "divfl"):
        assert asked[name] == front.UPDATES, name


def test_which_sampler_depends_on_what_clients_hold_and_may_be_asked(tmp_path: Path):
    """Three settings, of which the arena ranks two: with one label a client MD is best unless losses may be asked."""
    cases = pd.DataFrame({"experiment": ["arena_a", "arena_a"], "setting": ["one", "mixed"]})
    accuracy = {"Random": [0.1, 0.1], "MD": [0.3, 0.2], "Pow-d": [0.4, 0.15]}
    pd.concat([cases, pd.DataFrame(accuracy)], axis=1).to_csv(tmp_path / "mean_accuracy.csv", index=False)
    keys = {"index": ["a one", "a mixed", "common"]}
    for name, values in {"rounds": [2.0, 3.0, 9.0], "megabytes": [1.5, 0.5, 9.0]}.items():
        table = pd.DataFrame(keys | {"MD": values, "Pow-d": [0.0, 1.0, 9.0]})
        table.to_csv(tmp_path / f"{name}.csv", index=False)

    def run(sampler: str, partition: dict) -> SimpleNamespace:
        return SimpleNamespace(
            partition=schemes.find(partition["scheme"])(**partition), method=SimpleNamespace(sampler=sampler)
        )

    splits = {"one": {"scheme": "one_class"}, "mixed": {"scheme": "shards", "shards": 2}}
    methods = {"Random": "uniform", "MD": "md", "Pow-d": "power_of_choice"}
    planned = [
        ("arena_a", SimpleNamespace(setting=setting, method=method, run=run(sampler, split)))
        for setting, split in splits.items()
        for method, sampler in methods.items()
    ]
    found = front.which_sampler(tmp_path, planned)
    assert found["best sampler"].tolist() == ["MD", "Pow-d", "MD"]
    assert found["times fewer rounds"].tolist() == ["2.0", "never", "3.0"]
    assert found["times fewer bytes"].tolist() == ["1.5", "never", "0.5"]
    assert found["clients may be asked"].tolist() == [
        front.NOTHING,
        f"{front.LOSSES}; {front.UPDATES}",
        "; ".join(front.ASKED),
    ]
    assert found["clients hold"].iloc[0] == f"{front.ONE} (1 setting)"
    assert front.which_sampler(tmp_path / "nowhere", planned).empty


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
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 2


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
