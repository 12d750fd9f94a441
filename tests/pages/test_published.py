"""What leaves the site can be read by machines, and the report opens."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pandas as pd
from nbformat.v4 import new_code_cell, new_notebook, new_output

from fedlib.samplers import SAMPLERS
from workspace.pages import chooser, front, published, seals


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


def test_a_large_table_is_offered_as_an_archive_that_pandas_reads(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": range(40_000), "y": 0.5})
    table.to_csv(tmp_path / "effects.csv", index=False)
    name, content = published.download(tmp_path / "effects.csv")
    assert name == "effects.csv.zip"
    assert published.download(tmp_path / "effects.csv") == (name, content), "the same bytes every time"
    assert len(content) < (tmp_path / "effects.csv").stat().st_size / 2
    (tmp_path / "taken" / name).parent.mkdir()
    (tmp_path / "taken" / name).write_bytes(content)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "taken" / name), table)
    (tmp_path / "small.csv").write_text("x\n1\n")
    assert published.download(tmp_path / "small.csv") == ("small.csv", b"x\n1\n")


def test_a_notebook_is_offered_without_what_its_page_shows(tmp_path: Path) -> None:
    shown = [
        new_output("display_data", data={"image/svg+xml": "<svg/>"}),
        new_output("display_data", data={"text/html": "<table/>"}),
        new_output("display_data", data={"text/markdown": "It holds."}),
    ]
    notebook = new_notebook(cells=[new_code_cell("show()", outputs=shown)], metadata={seals.KEY: "sealed"})
    nbformat.write(notebook, tmp_path / "notebook.ipynb")
    name, content = published.download(tmp_path / "notebook.ipynb")
    assert name == "notebook.ipynb"
    read = nbformat.reads(content.decode(), as_version=4)
    nbformat.validate(read)
    picture, table, words = (output.data for output in read.cells[0].outputs)
    assert [*picture] == [*table] == ["text/plain"]
    assert words == {"text/markdown": "It holds."}
    assert seals.KEY not in read.metadata


def test_a_picture_is_kept_once_and_text_stays_as_it_was_typed(tmp_path: Path) -> None:
    (tmp_path / "_images").mkdir()
    for name, content in {
        "a.svg": "<?xml?>\n<svg>1</svg>\n",
        "b c.svg": "<svg>1</svg>",
        "d.svg": "<svg>2</svg>",
    }.items():
        (tmp_path / "_images" / name).write_text(content)
    typed = "<pre>\n  one\n    two\n</pre>"
    images = [f'<img src="../_images/{name}"/>' for name in ("a.svg", "b%20c.svg", "d.svg")]
    page = tmp_path / "papers" / "page.html"
    page.parent.mkdir()
    page.write_text("\n      ".join(["<p>", *images, typed, "</p>"]))
    published.lighten(tmp_path)
    published.prune(tmp_path)
    assert page.read_text() == "\n".join(["<p>", images[0], images[0], images[2], typed, "</p>"])
    assert {path.name for path in (tmp_path / "_images").iterdir()} == {"a.svg", "d.svg"}


def test_pictures_and_downloads_of_former_pages_are_pruned(tmp_path: Path) -> None:
    kept, gone = ("_images/a b.svg", "_downloads/1/t.csv"), ("_images/old.svg", "_downloads/2/t.csv")
    for name in (*kept, *gone):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "p.html").write_text(
        '<img src="../_images/a%20b.svg"><a href="../_downloads/1/t.csv">t.csv</a>'
    )
    published.prune(tmp_path)
    assert [(tmp_path / name).exists() for name in (*kept, *gone)] == [True, True, False, False]
