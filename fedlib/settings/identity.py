"""Identify a program's own functions, classes and objects by what they compute: their code, and the values they use.

    digest_of_value(loss, "loss")  # 16 hex digits

Code counts as compiled code, so comments, docstrings and the lines around a function do not matter. What it refers to
counts too: closures, defaults, globals, attributes, base classes. What is installed counts by its name and version.
"""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from fedlib.errors import ConfigError
from fedlib.settings.used import cell_content, installed, shortened, uses, version

PLAIN = (bool, int, float, complex, str, bytes, bytearray, type(None), type(Ellipsis), range, slice)
BUILT_IN = (
    BuiltinFunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
NOT_COMPUTED = {  # attributes of a class that say nothing about what it computes
    *("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__abstractmethods__"),
    *("_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__qualname__"),
    *(
        "__firstlineno__",
        "__static_attributes__",
        "__parameters__",
        "__orig_bases__",
        "__slots__",
        "__hash__",
    ),
}
# where a compiled function keeps the plain one
INNER = ("__func__", "py_func", "__wrapped__", "func", "_orig_mod")


def digest_of_value(value: Any, name: str, skip: bool = False) -> str:
    """Identifies a value by its content, the same in every process.

    name: how messages call it. skip: leave out what cannot be identified, instead of an error.

    Raises:
        ConfigError: some part of it cannot be identified; the message names the part.
    """
    walk = _Walk(skip)
    walk.add(value, name)
    return walk.total.hexdigest()[:16]


def names_read(cls: type) -> set[str]:
    """The attributes and globals that a class's own code, and all code of the program that it uses, reads by name."""
    walk = _Walk(skip=True)
    walk.add(cls, "")
    return walk.names


class _Walk:
    """Adds one value after another to a digest. A value that occurs again is added as the number of its first time."""

    def __init__(self, skip: bool) -> None:
        self.total, self.skip = hashlib.sha256(), skip
        self.ordinals: dict[int, int] = {}
        self.alive: list[Any] = []  # so that no id is used twice
        self.names: set[str] = set()  # that code reads

    def put(self, *words: Any) -> None:
        for word in words:
            content = word if isinstance(word, bytes) else str(word).encode()
            self.total.update(f"{len(content)}:".encode() + content)

    def add(self, value: Any, name: str) -> None:
        if isinstance(value, PLAIN):
            self.put(type(value).__name__, "nan" if value != value else repr(value))
            return
        if id(value) in self.ordinals:
            self.put("again", self.ordinals[id(value)])
            return
        self.ordinals[id(value)] = len(self.ordinals)
        self.alive.append(value)
        if isinstance(value, CodeType):
            self.code(value, name)
        elif isinstance(value, FunctionType):
            self.function(value, name)
        elif isinstance(value, MethodType):
            self.add_parts("method", [("", value.__func__), ("", value.__self__)], name)
        elif isinstance(value, type):
            self.kind(value, name)
        elif isinstance(value, ModuleType):
            self.module(value, name)
        elif isinstance(value, BUILT_IN):
            self.put("built in", getattr(value, "__module__", ""), getattr(value, "__qualname__", value))
            if isinstance(owner := getattr(value, "__self__", None), ModuleType | None | type) is False:
                self.add(owner, f"{name}.__self__")
        elif isinstance(value, property):
            self.add_parts("property", [("", value.fget), ("", value.fset)], name)
        elif isinstance(value, functools.partial):
            self.add_parts("partial", [("", value.func), ("", value.args), ("", value.keywords)], name)
        elif isinstance(value, functools.cached_property):
            self.add(value.func, name)
        else:
            self.thing(value, name)

    def add_parts(self, kind: str, parts: Iterable[tuple[str, Any]], name: str) -> None:
        parts = list(parts)
        self.put(kind, len(parts))
        for key, part in parts:
            self.put(key)
            self.add(part, f"{name}.{key}" if key else name)

    # -- code --------------------------------------------------------------------------------------------------

    def code(self, code: CodeType, name: str) -> None:
        constants = list(code.co_consts)
        if constants and isinstance(constants[0], str) and not code.co_name.startswith("<"):
            constants[0] = None  # the docstring
        self.put("code", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self.put(code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames)
        self.put(code.co_freevars, code.co_cellvars)
        self.names |= set(code.co_names)
        for constant in constants:
            self.add(constant, name)

    def function(self, function: FunctionType, name: str) -> None:
        code = function.__code__
        cells = [
            (key, cell_content(cell))
            for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        ]
        if installed(code.co_filename):
            self.put("installed", shortened(code.co_filename), code.co_qualname, version(function.__module__))
            with_code = [(key, value) for key, value in cells if isinstance(value, Callable)]
            self.lenient(with_code, name)
            return
        self.add(code, name)
        self.add_parts("cells", cells, name)
        self.add_parts("defaults", [("", function.__defaults__), ("", function.__kwdefaults__)], name)
        attributes = {key: value for key, value in vars(function).items() if key != "__wrapped__"}
        self.add_parts("attributes", attributes.items(), name)
        self.add_parts("uses", uses(code, function.__globals__), name)

    def lenient(self, parts: Iterable[tuple[str, Any]], name: str) -> None:
        """Add parts of something installed; what cannot be identified there is its own affair."""
        skip, self.skip = self.skip, True
        self.add_parts("within", parts, name)
        self.skip = skip

    def kind(self, cls: type, name: str) -> None:
        module = sys.modules.get(cls.__module__)
        self.put("class", cls.__qualname__)
        if cls.__module__ == "builtins" or installed(getattr(module, "__file__", None), module):
            self.put(cls.__module__, version(cls.__module__))
            return
        inner = [(key, part) for key, part in vars(cls).items() if key not in NOT_COMPUTED]
        fields = vars(cls).get("__dataclass_fields__", {})
        inner += [(key, (field.default, field.default_factory, field.init)) for key, field in fields.items()]
        self.add_parts("holds", inner, name)
        self.add_parts("bases", [(base.__qualname__, base) for base in cls.__bases__], name)

    def module(self, module: ModuleType, name: str) -> None:
        self.put("module", module.__name__)
        file = getattr(module, "__file__", None)
        if installed(file, module):
            self.put(version(module.__name__))
        elif file and Path(file).suffix == ".py":  # used as a whole
            self.add(compile(Path(file).read_bytes(), "", "exec", dont_inherit=True, optimize=2), name)
        else:
            self.refuse(module, name)

    # -- things ------------------------------------------------------------------------------------------------

    def thing(self, value: Any, name: str) -> None:
        self.put("thing", type(value).__qualname__)
        if isinstance(value, collections.abc.Mapping) and type(value).__module__ in (
            "builtins",
            "collections",
        ):
            keys = isinstance(value, dict) and not name.endswith("_hooks")  # the keys of hooks are counted up
            for key, part in list(value.items()):
                self.add(key if keys else "", name)
                self.add(part, f"{name}[{key!r}]" if keys else name)
        elif isinstance(value, tuple | list | collections.deque):
            self.add_parts("list", [("", part) for part in value], name)
            if type(value) not in (tuple, list, collections.deque):  # it is more than one
                self.add(type(value), name)
        elif isinstance(value, set | frozenset):
            self.put(*sorted(digest_of_value(part, name, self.skip) for part in value))
        elif isinstance(value, enum.Enum):
            self.add(type(value), name)
            self.put(value.name)
        elif isinstance(value, np.ndarray):
            self.put(value.dtype.str, value.shape)
            if value.dtype.hasobject:
                self.add(value.tolist(), name)
            else:
                self.put(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, np.generic | np.dtype | re.Pattern):
            self.put(repr(value))
        elif _instance_of(value, "torch", "Tensor"):
            self.tensor(value, name)
        elif _instance_of(value, "torch", "Generator"):
            self.put(value.get_state().numpy().tobytes())
        elif _instance_of(value, "torch", "dtype", "device", "Size", "layout", "memory_format"):
            self.put(repr(value))
        elif value is os.environ:
            self.refuse(value, name)
        elif _instance_of(value, "pandas", "DataFrame", "Series", "Index"):
            self.add([np.asarray(part) for part in (value, *getattr(value, "axes", ()))], name)
        else:
            self.object(value, name)

    def tensor(self, tensor: Any, name: str) -> None:
        whole = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
        self.put(tensor.dtype, tuple(tensor.shape), tensor.requires_grad)
        flat = whole.cpu().contiguous().flatten()
        self.put(flat.view(dtype=sys.modules["torch"].uint8).numpy().tobytes() if whole.numel() else b"")
        if hooks := getattr(tensor, "_backward_hooks", None):
            self.add_parts("hooks", [("", hook) for hook in hooks.values()], name)

    def object(self, value: Any, name: str) -> None:
        self.add(type(value), name)
        inner = next((part for key in INNER if isinstance(part := getattr(value, key, None), Callable)), None)
        plain = _instance_of(value, "torch.nn", "Module") or isinstance(
            vars(type(value)).get("func"), property
        )
        if inner is not None and not plain:
            self.add(inner, name)
        elif (state := _state(value)) is None:
            self.refuse(value, name)
        else:
            self.add_parts("attributes", state, name)

    def refuse(self, value: Any, name: str) -> None:
        if not self.skip:
            raise ConfigError(
                f"store: {name} is a {type(value).__name__}, which cannot be identified; pass key=, any text or "
                "numbers that stand for it and that you change whenever it changes, or leave store out."
            )
        self.put("skipped")


def _state(value: Any) -> list[tuple[str, Any]] | None:
    """The attributes of an object, by the protocol of copying; None if it has none that can be read."""
    attributes = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for key in [slots] if isinstance(slots, str) else slots:
            if key not in ("__dict__", "__weakref__") and hasattr(value, key):
                attributes[key] = getattr(value, key)
    try:  # a lock, an open file and the like refuse
        reduced = value.__reduce_ex__(2)
    except Exception:
        return None
    if (
        attributes
        or type(value).__reduce_ex__ is object.__reduce_ex__
        and type(value).__reduce__ is object.__reduce__
    ):
        return list(attributes.items())
    return [("", reduced)] if isinstance(reduced, str) else [("", part) for part in reduced[1:3]]


def _instance_of(value: Any, package: str, *kinds: str) -> bool:
    """Whether a value is of a class of a package, which is not imported for that."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, tuple(getattr(module, kind) for kind in kinds))
