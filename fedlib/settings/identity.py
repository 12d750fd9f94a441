"""Identify a program's own functions, classes and objects by what they compute: their code, and the values they use.

    digest_of_value(loss, "loss")  # 16 hex digits

Code counts as compiled code, so comments, docstrings and the lines around a function do not matter. What it refers to
counts too: closures, defaults, globals, attributes, base classes. What is installed counts by its name and version, and
by the plain values that it holds.

What is listed here is identified; everything else is refused in a sentence that names it. An object is identified by
what it says of itself for copying (`__reduce_ex__`) and by its attributes. What no digest can see (a package that was
changed in memory, deep inside) is what `recheck` of `fedlib.simulate` is for.
"""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import os
import re
import sys
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from fedlib.errors import ConfigError
from fedlib.settings.used import (
    UNSEEN,
    Unseen,
    built,
    cell_content,
    installed,
    is_one_of,
    of_the_engine,
    shortened,
    uses,
    version,
)

PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    range,
)
LISTS = (list, tuple, collections.deque)
MAPPINGS = (dict, collections.OrderedDict, collections.Counter, MappingProxyType)
BUILT_IN = (
    BuiltinFunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodWrapperType,
    WrapperDescriptorType,
)
WRAPPERS = {  # kinds of values that hold others -> the attributes that hold them
    property: ("fget", "fset", "fdel"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    functools.singledispatchmethod: ("func",),
    type(functools.cache(len)): ("__wrapped__",),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
    slice: ("start", "stop", "step"),
}
HOOKS = tuple(  # attributes of a module of torch
    f"_{kind}_hooks"
    for kind in ("forward", "forward_pre", "backward", "backward_pre", "state_dict", "state_dict_pre")
) + ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
NOT_COMPUTED = {  # attributes of a class that say nothing about what it computes
    *("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__abstractmethods__"),
    *("_abc_impl", "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__qualname__"),
    "__slotnames__",  # which copying adds
    *(
        "__firstlineno__",
        "__static_attributes__",
        "__parameters__",
        "__orig_bases__",
        "__slots__",
        "__hash__",
    ),
}


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
        self.hooks: set[int] = set()  # mappings of torch's hooks
        self.names: set[str] = set()  # that code reads

    def put(self, *words: Any) -> None:
        for word in words:
            content = word if isinstance(word, bytes) else str(word).encode()
            self.total.update(f"{len(content)}:".encode() + content)

    def add(self, value: Any, name: str) -> None:
        if type(value) in PLAIN:
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
        elif is_one_of(value, (os.environ, sys.modules)) or is_one_of(value, UNSEEN):
            self.refuse(value, name)
        elif isinstance(value, BUILT_IN):
            self.built_in(value, name)
        elif type(value) in WRAPPERS:
            parts = [(key, getattr(value, key)) for key in WRAPPERS[type(value)]]
            self.add_parts(type(value).__name__, parts, name)
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
        code, attributes = function.__code__, dict(vars(function))
        attributes.pop("__wrapped__", None)
        cells = [
            (key, cell_content(cell))
            for key, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
        ]
        defaults = [("", function.__defaults__), ("", function.__kwdefaults__)]
        if is_one_of(function, UNSEEN):
            self.refuse(function, name)
            return
        if installed(code.co_filename):
            self.put("installed", shortened(code.co_filename), code.co_qualname, version(function.__module__))
            nested = (
                "<locals>" in code.co_qualname
            )  # made by a call, which may have said what its defaults are
            self.add_parts("cells", cells, name)
            self.add_parts("defaults", defaults if nested else [], name)
            self.add_parts("attributes", attributes.items(), name)
            if not of_the_engine(function.__module__):
                names = function.__globals__
                self.add_parts("reads", plain_of({key: names.get(key) for key in code.co_names}), name)
            return
        self.add(code, name)
        self.add_parts("cells", cells, name)
        self.add_parts("defaults", defaults, name)
        self.add_parts("attributes", attributes.items(), name)
        try:
            used = list(uses(code, function.__globals__))
        except Unseen as error:
            self.refuse(function, name, f"{name} uses {error}")
            return
        self.add_parts("uses", used, name)

    def built_in(self, value: Any, name: str) -> None:
        module = getattr(value, "__module__", None) or ""
        self.put("built in", module, getattr(value, "__qualname__", value), version(module), built(module))
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType | type):
            self.add(owner, f"{name}.__self__")

    def kind(self, cls: type, name: str) -> None:
        module = sys.modules.get(cls.__module__)
        self.put("class", cls.__qualname__)
        if cls.__module__ == "builtins" or installed(getattr(module, "__file__", None), module):
            self.put(cls.__module__, version(cls.__module__), built(cls.__module__))
            if cls.__module__ != "builtins":
                self.add_parts("set", changed_in(cls), name)
            return
        inner = [(key, part) for key, part in vars(cls).items() if key not in NOT_COMPUTED]
        fields = vars(cls).get("__dataclass_fields__", {})
        inner += [(key, (field.default, field.default_factory, field.init)) for key, field in fields.items()]
        self.add_parts("holds", inner, name)
        self.add_parts("bases", [(base.__qualname__, base) for base in cls.__bases__], name)
        if type(cls) is not type:
            self.add(type(cls), name)

    def module(self, module: ModuleType, name: str) -> None:
        """A module that is handed on as a whole, so that anything in it may be read."""
        self.put("module", module.__name__)
        file = getattr(module, "__file__", None)
        if installed(file, module):
            self.put(version(module.__name__), built(module.__name__))
            if not of_the_engine(module.__name__):
                self.add_parts("holds", plain_of(vars(module)), name)
        elif file and Path(file).suffix == ".py":
            names = {key: part for key, part in vars(module).items() if not key.startswith("__")}
            self.add_parts("holds", sorted(names.items()), name)
        else:
            self.refuse(module, name)

    # -- things ------------------------------------------------------------------------------------------------

    def thing(self, value: Any, name: str) -> None:
        kind = type(value)
        self.put("thing", kind.__qualname__)
        if kind in MAPPINGS:
            keys = id(value) not in self.hooks
            self.put(len(value))
            for key, part in list(value.items()):
                self.add(key if keys else "", name)
                self.add(part, f"{name}[{key!r}]" if keys and isinstance(key, str | int) else name)
        elif kind in LISTS:
            self.add_parts("list", [("", part) for part in value], name)
        elif kind in (set, frozenset):
            self.put(*sorted(digest_of_value(part, name, self.skip) for part in value))
        elif isinstance(value, enum.Enum):
            self.add(kind, name)
            self.put(value.name)
        elif isinstance(value, np.ndarray) and kind is np.ndarray:
            self.put(value.dtype.str, value.dtype.descr if value.dtype.names else "", value.shape)
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
        elif isinstance(value, weakref.ref) and (target := value()) is not None:  # a dead one is refused
            self.add(target, name)
        elif _instance_of(value, "pandas", "DataFrame", "Series", "Index"):
            self.add([np.asarray(part) for part in (value, *getattr(value, "axes", ()))], name)
        elif _instance_of(value, "numba.core.dispatcher", "Dispatcher"):
            self.add_parts("compiled", [("", value.py_func), ("", value.targetoptions)], name)
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
        if (state := _state(value)) is None:
            self.refuse(value, name)
        else:
            if _instance_of(value, "torch.nn", "Module"):  # the keys of its hooks are counted up
                self.hooks |= {id(vars(value).get(key)) for key in HOOKS}
            self.add_parts("attributes", state, name)

    def refuse(self, value: Any, name: str, why: str = "") -> None:
        if not self.skip:
            why = why or f"{name} is a {type(value).__name__}, which cannot be identified"
            raise ConfigError(
                f"store: {why}; pass key=, any text or numbers that stand for it and that you change whenever it "
                "changes, or leave store out."
            )
        self.put("skipped")


def plain_of(names: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The plain values among those that a module or a class holds, in order; not what it says about itself."""
    return sorted(
        (key, part) for key, part in names.items() if type(part) in PLAIN and not key.startswith("__")
    )


def changed_in(cls: type) -> list[tuple[str, Any]]:
    """What may have been set in an installed class: its plain values, and functions that are not installed with it."""
    names = vars(cls)
    functions = [
        (key, part)
        for key, part in names.items()
        if isinstance(part, FunctionType)
        and not installed(part.__code__.co_filename)
        and not part.__code__.co_filename.startswith("<")
    ]
    return plain_of({} if of_the_engine(cls.__module__) else names) + functions


def _state(value: Any) -> list[tuple[str, Any]] | None:
    """All that an object holds: its attributes, and what it says of itself for copying; None if that is nothing."""
    attributes = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for key in [slots] if isinstance(slots, str) else slots:
            if key not in ("__dict__", "__weakref__"):
                with suppress(Exception):  # not set
                    attributes[key] = getattr(value, key)
    try:  # a lock, an open file and the like refuse
        reduced = type(value).__reduce_ex__(value, 4)
    except Exception:
        return None
    if isinstance(reduced, str):
        return [*attributes.items(), ("", reduced)]
    make, arguments, *rest = reduced
    state = rest[0] if rest else None
    default = state is None or state is getattr(value, "__dict__", None) or _default(value)
    parts = [make, arguments, None if default else state, *(list(items or ()) for items in rest[1:3])]
    return [*attributes.items(), *(("", part) for part in parts)]


def _default(value: Any) -> bool:
    """Whether a value is copied in Python's own way, so that its attributes are its state."""
    kind = type(value)
    plain_reduce = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
    return plain_reduce and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)


def _instance_of(value: Any, package: str, *kinds: str) -> bool:
    """Whether a value is of a class of a package, which is not imported for that."""
    module = sys.modules.get(package)
    return module is not None and isinstance(value, tuple(getattr(module, kind) for kind in kinds))
