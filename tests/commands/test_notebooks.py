"""Notebooks: normalised, run with checked parameters, byte for byte the same twice, kept without outputs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from papermill import execute_notebook

import workspace.commands.inprocess  # noqa: F401 - here, so that the child processes find it imported
from fedlib.errors import ConfigError
from workspace.commands import notebooks
from workspace.pages import seals


def execute(source: Path, output: Path, parameters: dict) -> None:
    nbformat.write(notebooks.executed(source, parameters), output)


KERNEL = {"name": "mine", "display_name": "Mine"}
COMMITTED = sorted(p for p in notebooks.SOURCES.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)


def written(path: Path, *cells: str) -> Path:
    """A notebook with a parameters cell and these code cells."""
    parameters = new_code_cell("scale = None", metadata={"tags": ["parameters"]})
    cells = [new_markdown_cell("# A title"), parameters, *map(new_code_cell, cells)]
    notebook = new_notebook(cells=cells, metadata=notebooks.METADATA)
    nbformat.write(notebook, path)
    return path


def in_child(work: Callable[..., None], *arguments: object) -> str:
    """Run in a process of its own, as notebooks always are; returns the name of what it raised."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        try:
            work(*arguments)
            theirs.send("")
        except Exception as error:
            theirs.send(f"{type(error).__name__}: {error}")

    process = context.Process(target=child)
    process.start()
    outcome = ours.recv()
    process.join()
    return outcome


def outputs(path: Path) -> list:
    cells = nbformat.read(path, as_version=4).cells
    return [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]


def shown(folder: Path, *cells: str) -> list:
    """What a notebook of these cells shows once it has been run."""
    source = written(folder / "a.ipynb", *cells)
    assert in_child(execute, source, folder / "out.ipynb", {}) == ""
    return outputs(folder / "out.ipynb")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda p: p.relative_to(notebooks.SOURCES).as_posix())
def test_committed_notebooks_hold_no_outputs(path: Path) -> None:
    for cell in notebooks.read(path).cells:
        assert cell.cell_type != "code" or (not cell.outputs and cell.execution_count is None)


@given(
    ids=st.lists(st.text("abcdef0123456789", min_size=8, max_size=8), min_size=2, max_size=2, unique=True),
    count=st.integers(1, 99),
    editor=st.dictionaries(st.sampled_from(["lines_to_next_cell", "papermill", "vscode"]), st.integers()),
)
def test_what_running_and_saving_changes_is_not_in_the_normalised_notebook(ids, count, editor) -> None:
    plain = new_notebook(cells=[new_markdown_cell("text"), new_code_cell("1 + 1")])
    saved = new_notebook(
        cells=[new_markdown_cell("text", id=ids[0]), new_code_cell("1 + 1", id=ids[1], metadata=editor)],
        metadata={
            "language_info": {"name": "python", "version": "3.99"},
            "kernelspec": {"name": "mine", "display_name": "Mine"},
        },
    )
    saved.cells[1].execution_count = count
    saved.cells[1].outputs = [new_output("stream", text="2")]
    assert nbformat.writes(notebooks.normalise(saved)) == nbformat.writes(notebooks.normalise(plain))


def test_normalising_keeps_code_prose_and_tags() -> None:
    cells = [new_markdown_cell("text"), new_code_cell("x = 1", metadata={"tags": ["parameters"]})]
    normal = notebooks.normalise(new_notebook(cells=cells))
    assert [cell.source for cell in normal.cells] == ["text", "x = 1"]
    assert normal.cells[1].metadata == {"tags": ["parameters"]}
    nbformat.validate(normal)


def test_normalise_all_follows_its_sources(tmp_path: Path) -> None:
    (tmp_path / "in" / "paper").mkdir(parents=True)
    source = written(tmp_path / "in" / "paper" / "figure_1.ipynb", "1")
    (made,) = notebooks.normalise_all(tmp_path / "in", tmp_path / "out")
    assert made == tmp_path / "out" / "paper" / "figure_1.ipynb"
    first = made.stat().st_ino
    notebooks.normalise_all(tmp_path / "in", tmp_path / "out")
    assert made.stat().st_ino == first  # what did not change keeps its date
    source.unlink()
    assert notebooks.normalise_all(tmp_path / "in", tmp_path / "out") == []
    assert not made.exists()


def test_running_twice_writes_the_same_bytes(tmp_path: Path) -> None:
    source = written(
        tmp_path / "a.ipynb", "print('at', scale)", "import pandas as pd\npd.DataFrame({'x': [1]})"
    )
    for name in ("one.ipynb", "two.ipynb"):
        assert in_child(execute, source, tmp_path / name, {"scale": "demo"}) == ""
    assert (tmp_path / "one.ipynb").read_bytes() == (tmp_path / "two.ipynb").read_bytes()
    text, frame = outputs(tmp_path / "one.ipynb")
    assert text.text == "at demo\n"
    assert "<table" in frame.data["text/html"]


def test_a_cell_shows_what_a_kernel_would_show(tmp_path: Path) -> None:
    cells = (
        "from IPython.display import *\nprint('one')\ndisplay(Markdown('**two**'))\nprint('three')",
        "display(HTML('<b>four</b>'))\n'five'",
        "6;",
        "x = 7\nx",
    )
    source = written(tmp_path / "a.ipynb", *cells)
    assert in_child(execute, source, tmp_path / "ours.ipynb", {"scale": "demo"}) == ""
    kernel = tmp_path / "kernel.ipynb"
    execute_notebook(str(source), str(kernel), {"scale": "demo"}, kernel_name="python3", progress_bar=False)
    nbformat.write(notebooks.normalise(notebooks.read(kernel), outputs=True), kernel)
    assert outputs(tmp_path / "ours.ipynb") == outputs(kernel)


def test_a_page_is_replaced_only_when_its_notebook_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose cells fail leaves the page as it was; one that ends leaves nothing that it no longer makes."""
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    page = tmp_path / "data" / "artifacts" / "demo" / "arena"

    def run(name: str, ending: str) -> str:
        keep = f"artifact.keep(pd.DataFrame({{'x': [1]}}), {name!r})"
        opened = (
            f"artifact = Artifact('arena', scale, (), Results(scale, {{}}), {{}}, Path({str(tmp_path)!r}))"
        )
        imports = "import sys\nfrom pathlib import Path\nimport pandas as pd\n"
        imports += "from workspace.pages.artifact import Artifact\nfrom workspace.pages.origin import Results"
        source = written(tmp_path / "a.ipynb", imports, opened, keep, ending)
        return in_child(notebooks.make, source, page / "notebook.ipynb", [])

    def kept() -> dict[str, bytes]:
        assert not list((tmp_path / "data").glob("making/*/*"))
        seals.opened(page / "notebook.ipynb")
        return {path.name: path.read_bytes() for path in page.iterdir()}

    assert run("first", "1") == ""
    first = kept()
    assert first.keys() == {"first.csv", "notebook.ipynb"}
    for ending in ("1 / 0", "exit()", "quit", "sys.exit()", "sys.exit(1)", "raise SystemExit('enough')"):
        said = run("second", ending)
        assert ("ZeroDivisionError" if "/" in ending else f"the cell {ending!r} ends the notebook") in said
        assert kept() == first
    assert run("second", "1") == ""
    assert kept().keys() == {"second.csv", "notebook.ipynb"}


def test_a_misspelt_parameter_is_refused_by_name(tmp_path: Path) -> None:
    source = written(tmp_path / "a.ipynb", "1")
    outcome = in_child(execute, source, tmp_path / "out.ipynb", {"scael": "demo"})
    assert outcome == "ConfigError: notebook a.ipynb has no parameter 'scael'; it has scale."
    assert not (tmp_path / "out.ipynb").exists()


def test_a_failing_cell_leaves_nothing_behind(tmp_path: Path) -> None:
    source = written(tmp_path / "a.ipynb", "print('fine')", "1 / 0")
    outcome = in_child(execute, source, tmp_path / "out.ipynb", {})
    assert outcome.startswith("PapermillExecutionError")
    assert "ZeroDivisionError" in outcome
    assert list(tmp_path.iterdir()) == [source]


def test_missing_results_end_a_notebook_in_order(tmp_path: Path) -> None:
    cells = (
        "from workspace.pages.origin import Results\nprint('before')",
        "Results('demo', {})['e']",
        "print('after')",
    )
    assert [output.text for output in shown(tmp_path, *cells)] == ["before\n"]


def test_a_cell_that_asks_for_missing_results_with_a_default_gets_it(tmp_path: Path) -> None:
    cells = (
        "from workspace.pages.origin import Results\nprint(Results('demo', {}).get('e'))",
        "print('after')",
    )
    assert [output.text for output in shown(tmp_path, *cells)] == ["None\n", "after\n"]


def test_a_page_that_cannot_show_everything_says_so_and_still_decides_its_claims(tmp_path: Path) -> None:
    cells = (
        "from fedlib.measure import Missing\nfrom types import SimpleNamespace",
        "artifact = SimpleNamespace(judge=lambda: print('decided'))",
        "raise Missing('MD has not been run')",
        "print('after')",
        "artifact.judge();",
    )
    notice, decided = shown(tmp_path, *cells)
    assert notice.data["text/markdown"] == "Not to be shown yet: MD has not been run."
    assert decided.text == "decided\n"


@pytest.mark.parametrize(
    "content", ["", "{}", '{"cells": 3, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}']
)
def test_what_is_no_notebook_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.ipynb"
    path.write_text(content)
    with pytest.raises(ConfigError, match="broken.ipynb is no valid notebook"):
        notebooks.read(path)
    with pytest.raises(ConfigError, match="there is no notebook"):
        notebooks.read(tmp_path / "absent.ipynb")


def test_magics_work_and_figures_are_shown(tmp_path: Path) -> None:
    cells = (
        "%matplotlib inline\nimport matplotlib.pyplot as plt",
        "plt.plot([1, 2])\nplt.show()",
        "%%time\nx = 1",
        "!echo out",
    )
    everything = shown(tmp_path, *cells)
    assert [output for output in everything if "image/png" in output.get("data", {})]
    assert "Wall time" in str(everything)


@pytest.mark.bad_input
def test_a_cell_that_cannot_be_read_is_named_and_stops_nothing(tmp_path: Path, capsys) -> None:
    sources = tmp_path / "notebooks"
    sources.mkdir()
    written(sources / "mine.ipynb", "%%time\nfrom fedlib import files", "!pip list", "def f(:")
    (made,) = notebooks.normalise_all(sources, tmp_path / "out")
    assert "fedlib/files.py" in nbformat.read(made, as_version=4).metadata["uses"]
    told = capsys.readouterr().err.splitlines()
    assert told == [f"{sources / 'mine.ipynb'}: cell 5 is not finished, and will fail where it is run."]


@pytest.mark.bad_input
def test_a_folder_in_the_place_of_a_notebook_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").mkdir()
    with pytest.raises(ConfigError, match="x.ipynb is a folder, where a notebook belongs; move"):
        notebooks.read(tmp_path / "x.ipynb")
