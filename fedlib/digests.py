"""Identify what determines a result: settings by a digest, and code that is not shipped by a digest of its source."""

from __future__ import annotations

import ast
import dis
import hashlib
import json
import linecache
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

HOUSE = Path(__file__).resolve().parent
TOPS = tuple(  # folders in fedlib that count as a file's own package
    HOUSE / place for place in ("samplers", "data/schemes", "data/sources", "algorithms", "training/models")
)
CONTRACT = {top / name for top in TOPS for name in ("__init__.py", "base.py", "registry.py")}
PLAIN = (bool, int, float, str, bytes, type(None), tuple, list, dict, set)
# where a property, a compiled function, ... keeps the plain function
WRAPPED = ("fget", "func", "__func__", "py_func", "__wrapped__")


def address_of(made_of: Any) -> str:
    """The address of results: a digest of everything that determines their numbers."""
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


def digest_of(cls: Any) -> str:
    """Digest of the file of a class or function, and of every file that it imports from its package or folder.

    For a class from a notebook: digest of the cells that define it and of the functions, classes and values it uses.
    """
    home = file_of(cls)
    return digest_of_file(home) if home else _digest(cells(cls))


def digest_of_file(file: Path) -> str:
    """Digest of a file and of every file that it imports from its package (or folder, if it is in none)."""
    return _digest(texts_of(file))


def _digest(texts: Iterator[tuple[str, str]]) -> str:
    return hashlib.sha256(repr(sorted(set(texts))).encode()).hexdigest()[:16]


def file_of(value: Any) -> Path | None:
    """The file of a module, or of the module that defines a class or function; None in a notebook or if built in."""
    module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
    file = getattr(module, "__file__", None)
    path = Path(file).resolve() if file else None
    return path if path and path.is_file() else None  # a program from a pipe is called <stdin>


def place_of(cls: type | FunctionType) -> str:
    """Where a class is defined, for messages."""
    return f"{cls.__qualname__} in {file_of(cls) or 'this notebook'}"


def texts_of(file: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of a file and of what it imports, directly or indirectly, from its package or its folder."""
    top, packaged = file.parent, (file.parent / "__init__.py").exists()
    while packaged and top not in TOPS and (top.parent / "__init__.py").exists():
        top = top.parent
    installed = not packaged and top.name in ("site-packages", "dist-packages")
    visited, waiting = set(CONTRACT), [file]
    while waiting:
        current = waiting.pop()
        if current not in visited:
            visited.add(current)
            text = current.read_text(encoding="utf-8")
            yield current.relative_to(top).as_posix(), text
            if not installed:
                bases = list(top.parents) if packaged else [top]
                waiting += imported_files(imports(text), current, top, bases)


def imported_files(
    statements: Iterable[tuple[int, list[str]]], file: Path, top: Path, bases: list[Path]
) -> Iterator[Path]:
    """Files below `top` that a file's imports, each (level, names), name; bases: where absolute names begin."""
    for level, names in statements:
        for base in [file.parents[level - 1]] if level else bases:
            for name in names:
                path = base.joinpath(*name.strip(".").split("."))
                for candidate in (path.with_suffix(".py"), path / "__init__.py"):
                    if candidate.is_relative_to(top) and candidate.is_file():
                        yield candidate


@lru_cache(maxsize=256)
def imports(text: str) -> list[tuple[int, list[str]]]:
    """(level, names) of every import in a text; the level counts the leading dots."""
    return list(import_statements(ast.walk(ast.parse(text))))


def import_statements(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, list[str]]]:
    """(level, names) of every import among the nodes of a syntax tree."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield 0, [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
            yield node.level, names


def cells(cls: type) -> Iterator[tuple[str, str]]:
    """(name, text) of the notebook cells that define a class and what it uses, and of the plain values that it uses."""
    visited: set[int] = set()
    waiting: list[tuple[str, Any]] = [(cls.__qualname__, cls)]
    while waiting:
        name, value = waiting.pop()
        value = next((inner for key in WRAPPED if (inner := getattr(value, key, None))), value)
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, PLAIN):
            yield name, repr(value)
        elif hasattr(value, "tobytes"):
            yield name, hashlib.sha256(value.tobytes()).hexdigest()
        elif not isinstance(value, type | FunctionType | ModuleType):
            continue
        elif (
            getattr(value, "__module__", "") != cls.__module__
        ):  # of a library, or a file beside the notebook
            file = file_of(value)
            if file and file.parent == Path.cwd():
                yield from texts_of(file)
        elif isinstance(value, type):
            members = {key: inner for key, inner in vars(value).items() if callable(inner) or key[:2] != "__"}
            waiting += [(f"{value.__qualname__}.{key}", inner) for key, inner in members.items()]
            waiting += [(base.__qualname__, base) for base in value.__bases__]
        else:
            if text := "".join(linecache.getlines(value.__code__.co_filename)):
                yield value.__qualname__, text
            used = names_used(value.__code__) & set(value.__globals__)
            waiting += [(key, value.__globals__[key]) for key in used]


def names_used(code: CodeType) -> set[str]:
    """The global names that a function, or a function inside it, reads."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return names.union(*(names_used(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
