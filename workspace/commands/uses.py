"""The files of both packages that a notebook imports, directly or indirectly, found by reading, not by running them.

Their digests are stored in the notebook's normalised copy, so that this copy alone determines whether its stage is
stale: a change of a plot makes pages again, never simulations. Comments, docstrings and annotations are no part of a
digest, except that the site shows docstrings.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from fedlib.digests import import_statements, imported_files
from fedlib.released import content

# The code that determines the numbers of all simulations and studies; their notebooks import more, to show the
# results. Of samplers, schemes, algorithms and models it has what studies call: an experiment's input holds the version
# of its own.
NUMBERS = (
    "fedlib/__init__.py",
    "fedlib/digests.py",
    "fedlib/kinds.py",
    "fedlib/registry.py",
    "fedlib/released.py",
    "fedlib/streams.py",
    "fedlib/kernels/*.py",
    "fedlib/objectives/*.py",
    "fedlib/samplers/__init__.py",
    "fedlib/samplers/base.py",
    "fedlib/samplers/checks.py",
    "fedlib/samplers/registry.py",
    *(
        f"fedlib/samplers/{name}.py"
        for name in ("fedcor", "hcsfed", "importance", "linear_process", "weighted")
    ),
    "fedlib/data/*.py",
    "fedlib/data/schemes/__init__.py",
    "fedlib/data/schemes/base.py",
    "fedlib/data/sources/*.py",
    "fedlib/algorithms/__init__.py",
    "fedlib/algorithms/base.py",
    "fedlib/settings/*.py",
    "fedlib/world/*.py",
    "fedlib/training/*.py",
    "fedlib/training/models/__init__.py",
    "fedlib/simulation/*.py",
    "fedlib/runs/__init__.py",
    "fedlib/runs/archive.py",
    "fedlib/runs/lookup.py",
    "fedlib/runs/measuring.py",
    "fedlib/runs/measuring.py",
    "fedlib/runs/results.py",
    "fedlib/runs/sealed.py",
    "fedlib/runs/experiment.py",
    "fedlib/runs/studies.py",
    "fedlib/runs/place.py",
    "fedlib/runs/work.py",
    "workspace/analysis/study_partitions.py",
    "workspace/papers/*/study_*.py",
)
SITE = (  # what the site shows of the code, docstrings included, besides the code that makes it
    "fedlib/__init__.py",
    "fedlib/algorithms/*.py",
    "fedlib/data/*.py",
    "fedlib/flower/*.py",
    "fedlib/library/*.py",
    "fedlib/samplers/*.py",
    "fedlib/settings/schema.py",
    "fedlib/training/models/*.py",
    "workspace/papers/*/*",
)
LOG = (
    "workspace/pages/logbook.py",
    "fedlib/drawing/plots.py",
)  # what shows the log of an experiment or study
ROOTS = ("fedlib", "workspace")  # the packages whose files count
EVERY_CLAIM = ("scoreboard", "arena", "discrepancies")


def digests(place: str, notebook: NotebookNode, root: Path) -> dict[str, str]:
    """File (relative to the project) -> digest of its content, for a notebook at `notebooks/<place>.ipynb`."""
    if place == "simulate":
        files = {path for pattern in NUMBERS for path in root.glob(pattern)}
    else:
        claims = "*" if place in EVERY_CLAIM else place.split("/")[0]
        folders = root / "workspace" / "papers"
        books = [
            path for name in ("claims", "readings", "printed") for path in folders.glob(f"{claims}/{name}.py")
        ]
        cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        used = [path for cell in cells if parsed(cell) for path in imported(plain(cell), root)]
        files = closure([*used, *books], root)
    return {path.relative_to(root).as_posix(): digest(path) for path in sorted(files)}


def digests_of_site(root: Path) -> dict[str, str]:
    """File -> digest of its content, for all that the site is made from besides results and notebooks."""
    made_by = closure([root / "workspace" / "pages" / "site.py"], root)
    documented = {path for pattern in SITE for path in root.glob(pattern) if path.is_file()}
    return {
        path.relative_to(root).as_posix(): digest(path, path in documented)
        for path in sorted(made_by | documented)
    }


def digests_of_log(root: Path) -> dict[str, str]:
    """File -> digest of its content, for what shows the log of an experiment or study but determines no number of it.

    They are no part of the digests of `simulate`, so that a change of a plot makes logs again, never simulations.
    """
    numbers = {path for pattern in NUMBERS for path in root.glob(pattern)}
    files = closure([root / name for name in LOG], root) - numbers
    return {path.relative_to(root).as_posix(): digest(path) for path in sorted(files)}


def digest(path: Path, docstrings: bool = False) -> str:
    """Digest of what a file computes, and of its docstrings if they count; of a text, its bytes."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return _digest_of_code(path.read_bytes(), docstrings)


@cache
def _digest_of_code(code: bytes, docstrings: bool) -> str:
    tree = ast.parse(code)
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    texts = [
        ast.get_docstring(node) for node in ast.walk(tree) if docstrings and isinstance(node, documented)
    ]
    return hashlib.sha256(repr([content(tree), texts]).encode()).hexdigest()[:16]


def plain(cell: str) -> str:
    """A cell's code without IPython's own syntax: `%matplotlib inline`, `!pip list`, `%%time` in its first line."""
    first, _, remainder = cell.partition("\n")
    return TransformerManager().transform_cell(remainder if first.startswith("%%") else cell)


def parsed(cell: str) -> bool:
    """Whether a cell's code can be read; an unfinished one fails where it is run."""
    try:
        ast.parse(plain(cell))
    except (SyntaxError, ValueError):
        return False
    return True


def closure(files: Iterable[Path], root: Path) -> set[Path]:
    """The files, and all files of the project that they import, directly or indirectly."""
    files_used: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in files_used:
            files_used.add(file)
            waiting += imported(file.read_text(encoding="utf-8"), root)
    return files_used


@cache
def imported(code: str, root: Path) -> list[Path]:
    """Files of the project that a piece of code imports when it is loaded (not when its functions are called)."""
    statements = list(import_statements(_loaded(ast.parse(code))))
    files = [path for top in ROOTS for path in imported_files(statements, root, root / top, [root])]
    return [path for path in files if path.stat().st_size]


def _loaded(tree: ast.Module) -> Iterator[ast.stmt]:
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            waiting += node.body + node.orelse
        elif isinstance(node, ast.Try | ast.With):
            waiting += node.body
