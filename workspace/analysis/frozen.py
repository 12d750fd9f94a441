"""What the outcome of a claim depends on, as one digest: it changes with whatever decides, and not with words.

    digest(claim)     # the claim, its statistics' code, its reading, the rule by which it is judged
    changed("fedcor") # claims that differ from `papers/fedcor/frozen.csv` without an entry in its `amendments.md`

Code counts by its syntax tree, without comments, docstrings and annotations: a statistic with all functions and values
of `workspace` and `fedlib.measure` that it uses, directly or indirectly.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from functools import cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pandas as pd

from fedlib.errors import ConfigError, meant
from fedlib.settings.schema import ROOT
from workspace.analysis import arrivals, cells, effects, estimators, judge, sentences
from workspace.analysis import claim as claims
from workspace.analysis.claim import Claim, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import REASONS, Planned, planned, primary, readings

FOLDER = ROOT / "workspace" / "papers"
HEADING = """# Changes of claims

One entry for each change of a claim in `frozen.csv`: its id and new digest, the date, what changed and why, and what
was known of its results at the time.

"""
RULE: tuple[ModuleType | Callable, ...] = (
    *(estimators, judge, cells, arrivals, claims),
    *(effects.judged, effects.corrected, effects.under_readings, effects._state, Planned.seen),
)
OURS = ("workspace", "fedlib.measure")
SILENT = {"type_params", "type_comment", "ctx", "kind", "returns", "annotation"}


def digest(claim: Claim) -> str:
    """Of everything that the outcome of a claim depends on, but for the runs."""
    first = primary(claim.paper)
    reading = next(reading for reading in readings(claim.paper) if reading.name == first.reading)
    where = [[list(reading.find(arm.where)) for arm in cell.arms] for cell in claim.cells]
    made_of = [
        *(
            [claim.id, claim.kind, claim.estimator, claim.margin, claim.over],
            plain(claim.measure),
            plain(claim.cells),
        ),
        *([first.reading, dict(first.reasons), REASONS], where, rule()),
        [
            plain(plan)
            for plan in planned()
            if any(place[:2] == [plan.experiment, plan.setting] for places in where for place in places)
        ],
    ]
    return short(made_of)


def short(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@cache
def rule() -> str:
    """Digest of the rule by which all claims are judged."""
    return short(
        [tree(parsed(file_of(part))) if isinstance(part, ModuleType) else code(part) for part in RULE]
    )


def plain(value: Any, visited: frozenset[int] = frozenset()) -> Any:
    """A value as JSON: fields of claims but for what is only shown, functions by their code."""
    if isinstance(value, partial):
        return [plain(part, visited) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, FunctionType):
        return code(value, visited)
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        fields = {key: getattr(value, key) for key in value.__dataclass_fields__ if key != "shown"}
        return {key: plain(field, visited) for key, field in fields.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return [[plain(key, visited), plain(item, visited)] for key, item in value.items()]
    if isinstance(value, tuple | list | set | frozenset):
        items = [plain(item, visited) for item in value]
        return sorted(items, key=repr) if isinstance(value, set | frozenset) else items
    if isinstance(value, bool | int | str | type(None)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def code(function: Callable, visited: frozenset[int] = frozenset()) -> Any:
    """The syntax tree of a function, and what it uses."""
    function = inspect.unwrap(function)
    if (
        not isinstance(function, FunctionType)
        or id(function) in visited
        or not ours(function.__module__)
        or function is sentences.said  # words alone
    ):
        return getattr(function, "__qualname__", repr(type(function)))
    visited |= {id(function)}
    nodes = list(nodes_of(function))
    inside = [] if function.__closure__ is None else [cell.cell_contents for cell in function.__closure__]
    used = [
        [name, code(value, visited) if isinstance(value, FunctionType) else plain(value, visited)]
        for name, value in globals_of(nodes, function.__globals__)
    ]
    return [[tree(node) for node in nodes], [plain(value, visited) for value in inside], used]


def ours(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in OURS)


def file_of(value: Any) -> str:
    return str(inspect.getsourcefile(value))


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


def nodes_of(function: FunctionType) -> Iterator[ast.AST]:
    """Where a function stands in the syntax tree of its file; of lambdas all of its line."""
    line = function.__code__.co_firstlineno
    for node in functions(parsed(file_of(function))).get(function.__name__, ()):
        decorators = getattr(node, "decorator_list", [])
        if line in (node.lineno, min([node.lineno, *(decorator.lineno for decorator in decorators)])):
            yield node


@cache
def functions(module: ast.Module) -> dict[str, list[ast.FunctionDef | ast.Lambda]]:
    """The functions of a syntax tree by their names."""
    found: dict[str, list[ast.FunctionDef | ast.Lambda]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            found.setdefault(getattr(node, "name", "<lambda>"), []).append(node)
    return found


def globals_of(nodes: Iterable[ast.AST], known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The functions and plain values of a module that some nodes name, in the order of their names."""
    names, own, attributes = set(), set(), set()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.arg):
                own.add(part.arg)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                own.add(part.id)
            if isinstance(part, ast.Name) and part.id in known:
                names.add(part.id)
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                attributes.add((part.value.id, part.attr))
    for name in sorted(names - own):
        value = known[name]
        if isinstance(value, ModuleType):
            if ours(value.__name__):
                yield from (
                    (f"{name}.{attr}", getattr(value, attr))
                    for base, attr in sorted(attributes)
                    if base == name and hasattr(value, attr)
                )
        elif not isinstance(value, type):
            yield name, value


def tree(node: Any) -> Any:
    """A syntax tree as JSON, without what says nothing."""
    if isinstance(node, list):
        return [tree(part) for part in node]
    return tree_of(node) if isinstance(node, ast.AST) else repr(node)


@cache
def tree_of(node: ast.AST) -> Any:
    fields = dict(ast.iter_fields(node))
    body = fields.get("body")
    if isinstance(body, list) and body and isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
        first = body[0]
        if (
            isinstance(first, ast.Expr)
            and isinstance(first.value, ast.Constant)
            and isinstance(first.value.value, str)
        ):
            fields["body"] = body[1:]
    kept = [
        [key, tree(value)] for key, value in fields.items() if key not in SILENT and value not in (None, [])
    ]
    return [type(node).__name__, kept]


# -- what was frozen


def frozen(paper: str, folder: Path = FOLDER) -> dict[str, str]:
    """Claim -> digest, as it was frozen."""
    table = pd.read_csv(folder / paper / "frozen.csv")
    return dict(zip(table["claim"], table["digest"], strict=True))


def seal(paper: str, folder: Path = FOLDER) -> str:
    """The digest of `frozen.csv` itself, which `amendments.md` names."""
    return hashlib.sha256((folder / paper / "frozen.csv").read_bytes()).hexdigest()[:16]


def changed(paper: str, claims: Iterable[Claim] | None = None, folder: Path = FOLDER) -> list[str]:
    """The claims of a paper that are not as they were frozen, without an amendment that says so.

    An amendment names the claim and its new digest. "frozen.csv" stands for the file itself, whose digest the
    amendments name too: a row cannot be dropped or written anew in silence.
    """
    said = (folder / paper / "amendments.md").read_text(encoding="utf-8")
    there = {claim.id: digest(claim) for claim in (claims_of(paper) if claims is None else claims)}
    before = frozen(paper, folder)
    names = [
        id
        for id in {**before, **there}
        if before.get(id) != there.get(id)
        and not re.search(rf"{re.escape(id)}\b.*{there.get(id, 'dropped')}", said)
    ]
    return names + ([] if f"frozen.csv {seal(paper, folder)}" in said else ["frozen.csv"])


def first(paper: str, folder: Path = FOLDER) -> str:
    """Freeze a paper's claims today (`freeze`), with an `amendments.md` that says so if there is none.

    Raises:
        ConfigError: there is no such paper, or claims differ from what was frozen and no amendment says so.
    """
    if not (folder / paper / "claims.py").exists():
        raise ConfigError(f"workspace/papers has no {paper!r} with a claims.py; {meant(paper, papers())}")
    said, today = folder / paper / "amendments.md", date.today().isoformat()
    if said.exists():
        differ = [name for name in changed(paper, folder=folder) if name != "frozen.csv"]
        if known := [name for name in differ if name in frozen(paper, folder)]:
            raise ConfigError(
                f"{known[0]} differs from how it was frozen; say in {said.name} why, with its id and new digest "
                f"{next((digest(claim) for claim in claims_of(paper) if claim.id == known[0]), 'dropped')}."
            )
    line = freeze(paper, today, folder)
    if not said.exists():
        said.write_text(
            f"{HEADING}- {today}: all claims are frozen before any run that they judge; {line}.\n",
            encoding="utf-8",
        )
    return line


def freeze(paper: str, day: str, folder: Path = FOLDER) -> str:
    """Write `frozen.csv` anew; returns the line with which an amendment must name it."""
    rows = [(claim.id, claim.version, day, digest(claim)) for claim in claims_of(paper)]
    table = pd.DataFrame(rows, columns=["claim", "version", "date", "digest"])
    table.to_csv(folder / paper / "frozen.csv", index=False, lineterminator="\n")
    return f"frozen.csv {seal(paper, folder)}"
