"""The code that each revision stands for: `revisions.json` records it, so changed code never brings back old numbers.

Recorded is a digest, per file, of what a sampler, scheme, algorithm or model computes: its syntax tree, and those of
the functions and classes that it uses from its own family. Comments, docstrings, annotations and the words of errors
are no part of it. Contracts (`base.py`) count by their functions only: what they ask of all is the engine's, whose
version is NUMERICS. Code that differs from its record is *unreleased*. Its runs have addresses of their own until
`fedlib revision keep NAME` records it, as a change that leaves all numbers as they are or as a raised revision.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fedlib.digests import CONTRACT, HOUSE, TOPS
from fedlib.errors import StoreError
from fedlib.files import say, write_whole

RECORD = HOUSE / "revisions.json"
FAMILY = (*TOPS, HOUSE / "kernels")
WORDLESS = {
    "annotation",
    "returns",
    "type_comment",
    "type_params",
    "ctx",
    "kind",
}  # fields that compute nothing
Code = dict[str, str]  # file, relative to this package -> digest of what is used of it


class File(NamedTuple):
    """What a file defines, imports (name -> file, and name there or None for the whole file) and does when loaded."""

    definitions: dict[str, list[ast.stmt]]
    imported: dict[str, tuple[Path, str | None]]
    loose: list[ast.stmt]


@cache
def text_of(path: Path) -> str:
    """The text of a file as this process first saw it: what it runs does not change when the file does."""
    return path.read_text(encoding="utf-8")


@cache
def record() -> dict[str, dict[str, Any]]:
    """Kind and name ("sampler md") -> revision, files, and the address word of what had one before it was recorded.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        return json.loads(RECORD.read_bytes())
    except (OSError, ValueError):
        raise StoreError(
            f"{RECORD}: it is missing or damaged; get it back with `git checkout -- {RECORD.name}`, or install fedlib "
            "again."
        ) from None


def version(key: str, revision: int, code: Code) -> int | str:
    """How addresses name shipped code: its revision, or a digest if it is unreleased (said once, to stderr)."""
    if sentence := departure(key, revision, code):
        _say_once(sentence)
        return digest(code)
    return record()[key].get("address", revision)


def departure(key: str, revision: int, code: Code) -> str | None:
    """One sentence on how code differs from the record of its revision; None if it does not."""
    known = record().get(key)
    apart = "its runs have addresses of their own until"
    command = f"`fedlib revision keep {key.split()[-1]}`"
    if known is None or known["revision"] != revision:
        return f"Unreleased: revision {revision} of {key} is not recorded yet; {apart} {command} records it."
    files = sorted(file for file in {*code, *known["files"]} if code.get(file) != known["files"].get(file))
    if not files:
        return None
    changed = " and ".join(f"fedlib/{file}" for file in files)
    return (
        f"Unreleased: {changed} changed what {key} computes; {apart} its revision is raised, or {command} says that "
        "all numbers stay."
    )


@cache
def _say_once(sentence: str) -> None:
    if multiprocessing.current_process().name == "MainProcess":  # the others are its workers
        say(sentence)


def digest(code: Code) -> str:
    """One digest of all files."""
    return hashlib.sha256(repr(sorted(code.items())).encode()).hexdigest()[:16]


def keep(entries: Mapping[str, tuple[int, Code, int | str]]) -> None:
    """Record entries, each (revision, code, what addresses call it now). What is new keeps the address that it has."""
    new = dict(record())
    for key, (revision, code, address) in entries.items():
        known, entry = new.get(key), {"revision": revision, "files": dict(sorted(code.items()))}
        if known and known["revision"] == revision:
            address = known.get("address", revision)
        new[key] = entry | ({"address": address} if address != revision else {})
    write(new)


def write(entries: Mapping[str, dict[str, Any]]) -> None:
    """Write the record, one line an entry."""
    lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in sorted(entries.items())]
    write_whole(RECORD, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    record.cache_clear()


def behaviour(file: Path, name: str | None = None) -> Code:
    """What a class or function computes, or all of a file: file -> digest of the definitions that it uses there."""
    parts: dict[Path, list[Any]] = {}
    visited: set[tuple[Path, str | None]] = set()
    waiting: list[tuple[Path, str | None]] = [(file, name if name in parsed(file).definitions else None)]
    while waiting:
        place = file, name = waiting.pop()
        if place in visited or not any(file.is_relative_to(top) for top in FAMILY):
            continue
        visited.add(place)
        module = parsed(file)
        if name is None:
            waiting += [(file, defined) for defined in module.definitions]
        elif name in module.imported:
            waiting.append(module.imported[name])
        elif name in module.definitions:
            statements = module.definitions[name]
            if len(visited) > 1 and file in CONTRACT and not _counts(statements):
                continue
            if file not in parts:
                parts[file] = []
                loose = [] if file in CONTRACT else module.loose
                statements = [*statements, *loose]
            used: set[str] = set()
            parts[file].append((name, [content(statement, used) for statement in statements]))
            waiting += [(file, other) for other in used]
    return {
        path.relative_to(HOUSE).as_posix(): hashlib.sha256(repr(sorted(found, key=str)).encode()).hexdigest()[
            :12
        ]
        for path, found in parts.items()
    }


def _counts(statements: list[ast.stmt]) -> bool:
    """Whether a definition in a contract computes something: a function, or a class that is registered itself."""
    return not any(
        isinstance(node, ast.ClassDef) and not any(map(_registers, node.decorator_list))
        for node in statements
    )


def _registers(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and ast.unparse(decorator.func).split(".")[-1] == "register"


@cache
def parsed(path: Path) -> File:
    """A file's definitions, imports and other statements."""
    definitions: dict[str, list[ast.stmt]] = {}
    loose: list[ast.stmt] = []
    tree = ast.parse(text_of(path))
    for node in _flat(tree.body):
        names = list(_defined(node))
        for name in names:
            definitions.setdefault(name, []).append(node)
        if not names and not isinstance(node, ast.Import | ast.ImportFrom):
            loose.append(node)
    return File(definitions, dict(_imported(tree, path)), loose)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for part in (part for target in targets for part in ast.walk(target)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def _imported(tree: ast.Module, path: Path) -> Iterator[tuple[str, tuple[Path, str | None]]]:
    """Every name that a file imports from this package, anywhere in it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = path.parents[node.level - 1] if node.level else HOUSE.parent
        place = base.joinpath(*(node.module or "").split("."))
        for alias in node.names:
            whole, part = _module(place / alias.name), _module(place)
            if whole:
                yield alias.asname or alias.name, (whole, None)
            elif part:
                yield alias.asname or alias.name, (part, alias.name)


def _module(place: Path) -> Path | None:
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def content(node: Any, used: set[str] | None = None) -> Any:
    """A syntax tree as nested tuples without what computes nothing. The names that it reads are added to `used`."""
    used = set() if used is None else used
    if isinstance(node, list):
        return [
            content(part, used)
            for part in node
            if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            and not (isinstance(part, ast.expr) and _registers(part))
        ]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Name):
        used.add(node.id)
    if isinstance(node, ast.Raise):
        return ("Raise",)
    fields = ((key, part) for key, part in ast.iter_fields(node) if key not in WORDLESS)
    return (
        type(node).__name__,
        *((key, content(part, used)) for key, part in fields if part not in (None, [])),
    )
