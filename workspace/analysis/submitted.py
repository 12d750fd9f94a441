"""Load a sampler's file that somebody submits: what it may import and use, and that it registers what it says."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from fedlib.errors import ConfigError
from fedlib.samplers import Sampler, find
from fedlib.samplers.checks import check_class

MODULES = {  # that a sampler's file may import; of a package, what is below it too
    *("__future__", "abc", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math"),
    *("typing", "numpy", "scipy", "fedlib.samplers", "fedlib.kernels"),
}
EXCLUDED = {"__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "open", "vars"}


def load(path: Path, name: str) -> type[Sampler]:
    """The sampler that a file registers under a name; its code is executed.

    Raises:
        ConfigError: the file imports or uses what the rules exclude, cannot be executed, or registers another name.
    """
    check_source(path)
    module_name = f"arena_submission_{path.stem}"
    module = sys.modules[module_name] = ModuleType(module_name)
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
        cls = find(name)
        check_class(cls)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path.name}: {' '.join(str(error).split()) or type(error).__name__}") from None
    if cls.__module__ != module_name:
        raise ConfigError(
            f"{path.name}: does not register {name!r}, which fedlib has already; write @register with another name."
        )
    return cls


def check_source(path: Path) -> None:
    """Check what a sampler's file imports and which built-in functions it uses.

    Raises:
        ConfigError: it is no Python, or uses what the rules exclude.
    """
    try:
        tree = ast.parse(path.read_text())
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{path.name}: cannot be read as Python ({error}); correct it.") from None
    for node in ast.walk(tree):
        line = f"{path.name}, line {getattr(node, 'lineno', 0)}"
        for name in _imported(node):
            if not any(name == known or name.startswith(f"{known}.") for known in MODULES):
                raise ConfigError(f"{line}: imports {name}, which the rules do not allow; take it away.")
        if isinstance(node, ast.Name) and node.id in EXCLUDED:
            raise ConfigError(f"{line}: uses {node.id}, which the rules do not allow; take it away.")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield "." * node.level + (node.module or "")
