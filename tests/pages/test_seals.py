"""The seal of a page: what is changed afterwards is named, and dates of files say nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from fedlib.errors import StoreError
from workspace.pages import seals


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with a file, made from a table."""
    (tmp_path / "e.parquet").write_bytes(b"rows")
    path = tmp_path / "p-figure_1" / "notebook.ipynb"
    path.parent.mkdir()
    path.with_name("verdicts.json").write_text("[]")
    shown = new_output(
        "display_data", data={"text/html": "<b>1</b>\n<i>2</i>", "application/json": {"x": [1]}}
    )
    notebook = new_notebook(cells=[new_code_cell("show()", id="cell-0", outputs=[shown])])
    seals.seal(notebook, seals.files_beside(path), [tmp_path / "e.parquet"])
    nbformat.write(notebook, path)
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def without_seal(page: Path) -> None:
    notebook = nbformat.read(page, as_version=4)
    del notebook.metadata[seals.KEY]
    nbformat.write(notebook, page)


EDITS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a verdict": (lambda page: page.with_name("verdicts.json").write_text("[1]"), "verdicts.json"),
    "an output": (lambda page: edit(page, "<b>1</b>", "<b>2</b>"), "notebook.ipynb"),
    "code": (lambda page: edit(page, "show()", "shown()"), "notebook.ipynb"),
    "the seal": (lambda page: edit(page, '"files": {', '"files": {"a": "b",'), "notebook.ipynb"),
    "no seal": (without_seal, "notebook.ipynb"),
    "a file that goes": (lambda page: page.with_name("verdicts.json").unlink(), "verdicts.json"),
    "a file that comes": (lambda page: page.with_name("table.csv").write_text("1"), "table.csv"),
    "no notebook": (lambda page: page.write_text("{"), "notebook.ipynb"),
}


@pytest.mark.parametrize(("change", "named"), EDITS.values(), ids=EDITS)
def test_a_page_that_was_changed_is_refused_by_name(page: Path, change: Callable, named: str) -> None:
    source = page.parents[1] / "e.parquet"
    assert seals.opened(page).metadata == {}
    assert seals.is_current(page, [source])
    change(page)
    assert not seals.is_current(page, [source])
    with pytest.raises(StoreError, match=f"{page.parent.name}/{named} "):
        seals.opened(page)


def test_a_page_is_as_old_as_its_sources_are_different(page: Path) -> None:
    source = page.parents[1] / "e.parquet"
    os.utime(source, (2e9, 2e9))  # a clock that was set forward
    assert seals.is_current(page, [source])
    source.write_bytes(b"others")
    os.utime(source, (1, 1))
    assert not seals.is_current(page, [source])
    assert not seals.is_current(page, [])
    assert not seals.is_current(page.with_name("absent.ipynb"), [])


def test_a_log_must_be_sealed_and_not_changed(tmp_path: Path) -> None:
    log = tmp_path / "e.ipynb"
    notebook = new_notebook(cells=[new_code_cell("1", id="cell-0")])
    nbformat.write(notebook, log)
    with pytest.raises(StoreError, match="e.ipynb is damaged .its record has no digest of itself"):
        seals.opened(log)
    seals.seal(notebook, [], [])
    nbformat.write(notebook, log)
    (tmp_path / "e.csv").write_text("1")
    seals.opened(log)
    edit(log, '"1"', '"2"')
    with pytest.raises(StoreError, match="e.ipynb is not as it was made; delete .*e.ipynb, and"):
        seals.opened(log)


def test_sources_of_one_name_in_folders_of_one_name_are_two(tmp_path: Path) -> None:
    """As the archives of two submissions: a change of either makes the page old."""
    sources = [tmp_path / name / "paper" / "arena_tasks.parquet" for name in ("one", "other")]
    for source in sources:
        source.parent.mkdir(parents=True)
        source.write_bytes(b"rows")
    notebook = new_notebook(cells=[new_code_cell("1", id="cell-0")])
    page = tmp_path / "p-leaderboard" / "notebook.ipynb"
    page.parent.mkdir()
    seals.seal(notebook, [], sources)
    nbformat.write(notebook, page)
    assert seals.is_current(page, sources)
    for source in sources:
        source.write_bytes(b"others")
        assert not seals.is_current(page, sources)
        source.write_bytes(b"rows")
    assert seals.is_current(page, sources)
