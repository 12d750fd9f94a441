"""What a function uses: the globals, modules and variables that its code reads, and which of them are installed."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedlib.digests import HOUSE

PLACES = tuple(  # of what is installed, not written for this program
    {
        str(HOUSE),
        *(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")),
    }
)
# their versions are not part of an address; `settings/code.py` says what is
ENGINE = {"torch", "numpy", "fedlib"}


def uses(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a function refers to: (name, value) of the globals that it and the functions inside it read.

    Of a module, only what is read from it. Of the environment, the variables that the code names.
    """
    reached: dict[str, Any] = {}
    inside: dict[str, Any] = {}  # modules that the function imports
    steps = list(dis.get_instructions(code))
    for i, step in enumerate(steps):
        following = steps[i + 1 :]
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in names:
            path, value = step.argval, names[step.argval]
        elif step.opname in ("LOAD_FAST", "LOAD_DEREF") and step.argval in inside:
            path, value = step.argval, inside[step.argval]
        elif step.opname == "IMPORT_NAME":
            module = _imported(steps, i, names)
            for from_it, stored in zip(following, following[1:], strict=False):
                if from_it.opname == "IMPORT_FROM":
                    inside[stored.argval] = getattr(module, from_it.argval, None)
                elif not from_it.opname.startswith("STORE"):
                    break
            if following[0].opname.startswith("STORE"):
                inside[following[0].argval] = module
            continue
        else:
            continue
        for read in following:
            if not isinstance(value, ModuleType) or read.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path, value = f"{path}.{read.argval}", getattr(value, read.argval, None)
        if value is os.environ or value is os.getenv:
            texts = [text for text in code.co_consts if isinstance(text, str)]
            texts += [text for key in code.co_names if isinstance(text := names.get(key), str)]
            value = {text: os.environ.get(text) for text in texts} or os.environ
        reached[path] = value
    yield from sorted(reached.items())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from uses(constant, names)


def _imported(steps: list[dis.Instruction], i: int, names: dict[str, Any]) -> ModuleType | None:
    """The module that an import inside a function brings; None if it cannot be loaded."""
    level = next((step.argval for step in reversed(steps[:i]) if isinstance(step.argval, int)), 0)
    name = steps[i].argval
    try:
        whole = resolve_name("." * level + name, names.get("__package__") or "") if level else name
        module = import_module(whole)
    except (ImportError, ValueError):
        return None
    from_it = steps[i + 1].opname == "IMPORT_FROM"
    return module if from_it else sys.modules.get(whole.split(".")[0], module)


def cell_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def installed(file: str | None, module: ModuleType | None = None) -> bool:
    """Whether code comes from an installed package or from Python itself, and not from the program."""
    if not file or file.startswith("<"):
        return module is not None and module.__name__ != "__main__" and not file and _built_in(module)
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return True
    return str(Path(file).resolve()).startswith(PLACES)


def _built_in(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return module.__name__ in sys.builtin_module_names or getattr(spec, "origin", None) in (
        "built-in",
        "frozen",
    )


def shortened(file: str) -> str:
    return "/".join(Path(file).parts[-3:])


@functools.cache
def version(module: str | None) -> str:
    """The version of the package that a module is part of; empty for Python's and the engine's own."""
    top = (module or "").partition(".")[0]
    version = getattr(sys.modules.get(top), "__version__", "")
    return "" if top in ENGINE or top in sys.stdlib_module_names else str(version)
