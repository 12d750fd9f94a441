"""What a function uses: the globals, modules and variables that its code reads, and which of them are installed."""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
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


class Unseen(Exception):
    """Code reads something by a name that is not written in it. what: how a message calls it."""


# what these bring depends on more than the code that calls them
UNSEEN = {
    *(
        getattr(builtins, name)
        for name in ("globals", "eval", "exec", "compile", "__import__", "open", "input")
    ),
    *(import_module, sys._getframe, os.getenv, getattr(os, "getenvb", None)),
}
BETWEEN = ("PUSH_NULL", "PRECALL", "CACHE", "COPY_FREE_VARS", "RESUME", "NOP")  # steps that compute nothing
JOINS = ("BINARY_OP", "FORMAT_VALUE", "FORMAT_SIMPLE", "BUILD_STRING", "STORE_FAST", "RETURN_VALUE")


def uses(code: CodeType, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a function refers to: (name, value) of the globals that it and the functions inside it read.

    Of a module, only what is read from it. Of the environment, the variables that the code names.

    Raises:
        Unseen: it reads files, variables or modules in a way that does not say which.
    """
    reached: dict[str, Any] = {}
    inside: dict[str, Any] = {}  # modules that the function imports
    steps = [step for step in dis.get_instructions(code) if step.opname not in BETWEEN]
    for i, step in enumerate(steps):
        following = steps[i + 1 :]
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            path, value = step.argval, names.get(step.argval, vars(builtins).get(step.argval, MISSING))
            if value is MISSING:
                continue
            if step.argval not in names and value not in UNSEEN:
                continue
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
        previous, last = steps[i - 1] if i else None, i
        for read in following:
            if not isinstance(value, ModuleType) or read.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                break
            path, value, last = f"{path}.{read.argval}", getattr(value, read.argval, None), last + 1
        if value is os.environ or value is os.getenv:
            variable = _variable(value, previous, steps[last + 1 :], names)
            if variable is None:
                raise Unseen(f"{path}, which it reads by a name that is not written there")
            path, value = f"{path}[{variable!r}]", os.environ.get(variable)
        elif value is sys.modules or (callable(value) and is_one_of(value, UNSEEN)):
            raise Unseen(f"{path}, which brings what is not written there")
        reached[path] = value
    yield from sorted(reached.items())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from uses(constant, names)


MISSING = object()


def is_one_of(value: Any, values: Iterable[Any]) -> bool:
    return any(value is one for one in values)


def _variable(
    reader: Any, previous: dis.Instruction | None, following: list[dis.Instruction], names: dict[str, Any]
) -> str | None:
    """The variable that code reads from the environment by a text or a global text; None if it is not so plain."""
    first = following[0] if following else None
    if first is None:
        return None
    if first.opname == "CONTAINS_OP":
        return _text(previous, names)
    called = reader is os.getenv
    if not called and first.opname in ("LOAD_ATTR", "LOAD_METHOD"):
        if first.argval != "get":
            return None
        called, following = True, following[1:]
    variable = _text(following[0], names) if following else None
    if variable is None or not called:
        reading = following[1] if len(following) > 1 else None
        return (
            variable if reading and (reading.opname == "BINARY_SUBSCR" or reading.argrepr == "[]") else None
        )
    for step in following[1:]:  # the default, if any
        if step.opname.startswith("CALL"):
            return variable
        if step.opname in JOINS:
            break
    return None


def _text(step: dis.Instruction | None, names: dict[str, Any]) -> str | None:
    """The text that a step loads: one that is written there, or that of a global."""
    if step is None:
        return None
    value = step.argval if step.opname == "LOAD_CONST" else None
    if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        value = names.get(step.argval)
    return value if isinstance(value, str) else None


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


@functools.cache
def built(module: str | None) -> str:
    """Digest of the file of a compiled module of the program or of a package; empty for the engine's own."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if of_the_engine(module) or not file or file.endswith(".py"):
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def shortened(file: str) -> str:
    return "/".join(Path(file).parts[-3:])


def of_the_engine(module: str | None) -> bool:
    """Whether a module is Python's own or the engine's, whose version is not part of an address."""
    top = (module or "").partition(".")[0]
    return top in ENGINE or top in sys.stdlib_module_names or top == "builtins"


@functools.cache
def version(module: str | None) -> str:
    """The version of the package that a module is part of; empty for Python's and the engine's own."""
    top = (module or "").partition(".")[0]
    version = getattr(sys.modules.get(top), "__version__", "")
    return "" if of_the_engine(module) else str(version)
