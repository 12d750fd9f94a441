"""A sampler's file that somebody submits: what it may import and use, and the process of its own in which it runs.

Nothing of it is executed in this process. Its class here is a `fedlib.isolated` one, known by the digest of the file.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedlib.errors import ConfigError, SamplerError
from fedlib.isolated.process import Executable, Limits, may_import
from fedlib.isolated.sampler import Isolated, made
from fedlib.registry import NameTaken
from fedlib.samplers import Information, Round, Selection, unloaded
from fedlib.samplers.registry import REGISTRY

EXCLUDED = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "open", "vars"}
FRAMES = {"sys", "modules", "f_back", "f_globals", "f_locals", "gi_frame", "tb_frame", "cr_frame"}
FILES = {"fromfile", "tofile", "memmap", "load", "loads", "loadtxt", "genfromtxt", "save", "savez", "savetxt"}
FILES |= {"savez_compressed", "dump", "dumps", "DataSource", "ctypes", "ctypeslib"}
ATTRIBUTES = FRAMES | FILES  # that lead out of a sampler
SURE = 4  # standard errors by which weights may miss their expectation


def registered(
    path: Path, information: Collection[Information], parameters: Sequence[str], limits: Limits
) -> type[Isolated]:
    """The sampler of a file, registered under the file's name: it runs in processes of its own. Nothing is executed.

    information: all that it may see. parameters: their names.

    Raises:
        ConfigError: the file uses what the rules exclude, or a sampler of fedlib has its name.
    """
    code = path.read_bytes()
    check_source(path)
    name, where = path.stem, f"{path.parent.name}/{path.name}"
    cls = made(name, Executable(path.name, code, limits=limits), information, parameters, keep_rules)
    try:
        return REGISTRY.register(name, digest=hashlib.sha256(code).hexdigest()[:16])(cls)
    except NameTaken:
        raise ConfigError(
            f"{where}: fedlib has a sampler {name!r} already; rename the folder and its files.{unloaded()}"
        ) from None


def keep_rules(sampler: Any, round: Round, selection: Selection) -> None:
    """What the rules ask of a selection beyond the contract of samplers.

    Raises:
        SamplerError: more than m clients, weights of its own, or expected draws with which ipw would not be unbiased.
    """
    clients = selection.clients
    if len(clients) > round.m:
        raise SamplerError(f"it chose {len(clients)} clients, but in the arena at most m = {round.m} train")
    if selection.weights is not None:
        raise SamplerError(
            "its Selection has weights of its own; in the arena they follow from its `aggregation`"
        )
    if (
        sampler.aggregation != "ipw"
        or selection.expected is None
        or np.shape(selection.expected) != clients.shape
    ):
        return  # the engine refuses what is missing
    with np.errstate(divide="ignore", invalid="ignore"):
        total = float((sampler.fed.p[clients] / selection.expected).sum())
    sampler.totals = [*getattr(sampler, "totals", []), total]
    if round.t == sampler.fed.T and len(sampler.totals) == round.t:
        totals = np.array(sampler.totals)
        error = totals.std(ddof=1) / np.sqrt(len(totals)) if len(totals) > 1 else 0.0
        if not abs(totals.mean() - 1) <= SURE * error + 1e-6:
            raise SamplerError(
                f"the weights of a round sum to {totals.mean():.2f} on average; with aggregation ipw that is 1, if its "
                "`expected` draws are those of its scheme"
            )


def check_source(path: Path) -> None:
    """Check what a sampler's file imports and which built-in functions it uses.

    This is for people who read it: what counts is that its process has nothing to reach (`fedlib.isolated`).

    Raises:
        ConfigError: it is no Python, or uses what the rules exclude.
    """
    try:
        tree = ast.parse(path.read_bytes())
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{path.name}: cannot be read as Python ({error}); correct it.") from None
    for node in nodes:
        line = f"{path.name}, line {getattr(node, 'lineno', 0)}"
        for name in _imported(node):
            if not may_import(name):
                raise ConfigError(f"{line}: imports {name}, which the rules do not allow; take it away.")
        if isinstance(node, ast.Name) and (node.id in EXCLUDED or node.id.startswith("__")):
            raise ConfigError(f"{line}: uses {node.id}, which the rules do not allow; take it away.")
        leads_out = isinstance(node, ast.Attribute) and (node.attr in ATTRIBUTES or node.attr.startswith("_"))
        if leads_out and not _own(node.value):
            raise ConfigError(f"{line}: uses .{node.attr}, which the rules do not allow; take it away.")


def _own(node: ast.AST) -> bool:
    """Whether an expression is the sampler itself, whose attributes may have any name."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
