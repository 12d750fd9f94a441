"""What leaves the site can be read by machines, and the report opens."""

from __future__ import annotations

import json
from pathlib import Path

from fedlib.samplers import SAMPLERS
from workspace.pages import chooser, front, published


def test_runs_are_counted_by_data_set():
    assert front.runs_by_data({"a": "fmnist", "b": "fmnist", "c": "cifar10"}, {"a", "b"}) == (
        "Fashion-MNIST 2 of 2, CIFAR-10 none of 1"
    )


def test_what_a_sampler_asks_is_read_off_its_questions():
    asked = {name: chooser.asks(sampler) for name, sampler in SAMPLERS.items()}
    for name in ("uniform", "md", "clustered_size", "clustered_similarity", "hics_fl", "oort"):
        assert asked[name] == chooser.NOTHING, name
    for name in ("power_of_choice", "afl", "fedcor"):
        assert asked[name] == chooser.LOSSES, name
    for name in ("importance", "hcsfed", "divfl"):
        assert asked[name] == chooser.UPDATES, name


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
