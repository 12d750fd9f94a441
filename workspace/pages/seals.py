"""The seal of a page or log, in its notebook's metadata: digests of its cells and files, and of what it was made from.

A page whose cells or files were changed later is not shown, and a page made from other results or code is made again,
whatever the dates of the files say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlib.errors import StoreError
from fedlib.files import sealed, unsealed
from fedlib.settings.schema import ROOT

if TYPE_CHECKING:
    from nbformat import NotebookNode  # a notebook's kernel, which imports this, can do without: it takes 2 s

KEY = "seal"  # of the notebook's metadata
PAGES = "FEDLIB_PAGES"  # the folder of `data` that pages are made in; without it, `artifacts`
FILES = (".csv", ".json", ".svg", ".txt")  # that a page makes beside its notebook


def seal(notebook: NotebookNode, files: Iterable[Path], sources: Iterable[Path]) -> None:
    """Seal a notebook that was run, with the files that it made and those that it was made from."""
    import nbformat

    as_read = nbformat.reads(nbformat.writes(notebook), as_version=4)
    record = {"cells": _cells(as_read), "files": _digests(files), "sources": _digests(sources, _from_root)}
    notebook.metadata[KEY] = sealed(record)


def opened(path: Path) -> NotebookNode:
    """Read a page or a log; returns it without its seal.

    Raises:
        StoreError: the page or one of its files is not as it was made.
    """
    notebook, record = _read(path)
    page = path.name == "notebook.ipynb"  # with a folder of its own; a log is named as its experiment
    recorded, computed = record.get("files", {}), _digests(files_beside(path)) if page else {}
    wrong = [name for name in sorted({*computed, *recorded}) if computed.get(name) != recorded.get(name)]
    if record.get("cells") != _cells(notebook):
        wrong = [f"{path.parent.name}/{path.name}"]
    if wrong:
        raise StoreError(
            f"{path.parents[1] / wrong[0]} is not as it was made; delete {path.parent if page else path}, and "
            ".dvc/cache, which may hold it too, and repeat the command."
        )
    return notebook


def is_current(path: Path, sources: Iterable[Path]) -> bool:
    """Whether a page or log is there, as it was made, and made from these files as they are now."""
    try:
        opened(path)
        return _read(path)[1].get("sources") == _digests(sources, _from_root)
    except (FileNotFoundError, StoreError):
        return False


def files_beside(path: Path) -> list[Path]:
    """The files of a page beside its notebook."""
    return [file for file in path.parent.glob("*") if file.suffix in FILES]


def _read(path: Path) -> tuple[NotebookNode, dict[str, Any]]:
    """A notebook without its seal, and what the seal says."""
    import nbformat

    try:
        notebook = nbformat.read(path, as_version=4)
        record = unsealed(notebook.metadata.pop(KEY, {}))
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error}); delete it and repeat the command.") from None
    return notebook, record


def _cells(notebook: NotebookNode) -> str:
    return hashlib.sha256(json.dumps(notebook.cells, sort_keys=True).encode()).hexdigest()


def _in_folder(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _from_root(file: Path) -> str:
    """A source's path in the project: two of them may have the same name in folders of the same name."""
    path = file.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def _digests(files: Iterable[Path], key: Callable[[Path], str] = _in_folder) -> dict[str, str]:
    """Key -> digest, of the files that are there."""
    return {
        key(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files) if file.is_file()
    }
