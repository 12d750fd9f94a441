"""Open registries: whatever is registered in a file of a folder, an installed package or a notebook is known by name.

A file that cannot be loaded only affects users of what it registers. Shipped code has a revision, which whoever
changes what it computes raises (`released.py`). Other code is identified by a digest of its source (`digests.py`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import FunctionType
from typing import Any, TypeVar

from fedlib import released
from fedlib.digests import digest_of, file_of, place_of
from fedlib.errors import meant

T = TypeVar("T", bound=type | FunctionType)  # a class or a function


class NameTaken(ValueError):
    """Two of a kind are registered under one name."""


class Registry:
    """What is registered in the files of a package, in entry points of installed packages, and in programs.

    noun: what it registers, for messages. package: dotted name; all its files are loaded at the first look-up.
    group: of entry points; each names a module.

    entries: name -> class or function. revisions: name -> revision, of shipped code. problems: file or package that
    could not be loaded -> why. contested: name that two files register -> message that names both. loaded: whether
    all files were loaded.
    """

    def __init__(self, noun: str, package: str, group: str | None = None) -> None:
        self.noun, self.package, self.group = noun, package, group
        self.entries: dict[str, Any] = {}
        self.revisions: dict[str, int] = {}
        self.problems: dict[str, str] = {}
        self.contested: dict[str, str] = {}
        self._digests: dict[Any, str] = {}
        self._code: dict[Any, released.Code] = {}
        self.loaded, self._loading = False, RLock()

    def register(self, name: str, revision: int | None = None, digest: str | None = None) -> Callable[[T], T]:
        """Decorator: make a class or function known under `name`.

        A class that is defined again, for example when a notebook cell is run again, replaces its earlier version.
        revision: of shipped code only. Revision 0 is no part of an address; raising it gives runs another address.
        digest: of code that is not in the entry's own file.

        Raises:
            NameTaken: outside the package, another entry has that name.
        """

        def add(entry: T) -> T:
            inside = entry.__module__.startswith(f"{self.package}.")
            if not inside:
                self.load_all()
            earlier = self.entries.get(name)
            if earlier and (earlier.__module__, earlier.__qualname__) != (
                entry.__module__,
                entry.__qualname__,
            ):
                conflict = f"{self.noun} {name!r} is registered twice, by {place_of(earlier)} and by {place_of(entry)}"
                if not (inside and earlier.__module__.startswith(f"{self.package}.")):
                    raise NameTaken(f"{conflict}; rename one.")
                self.contested[name] = self.problems[str(file_of(entry))] = f"{conflict}; rename one."
                return entry
            if revision is not None:
                self.revisions[name] = revision
            elif digest or file_of(entry):
                self._digests[entry] = digest or digest_of(
                    entry
                )  # now: the file may change later, this entry does not
            self.entries[name] = entry
            return entry

        return add

    def version_of(self, name: str) -> int | str:
        """The version of an entry's code: the revision of shipped code, else a digest of its source.

        Raises:
            ValueError: there is no such entry.
        """
        if self.shipped(name):
            return released.version(f"{self.noun} {name}", self.revisions.get(name, 0), self.code_of(name))
        entry = self.find(name)
        return self._digests.get(entry) or digest_of(entry)

    def shipped(self, name: str) -> bool:
        """Whether an entry is shipped: its registration or the record says its revision."""
        entry = self.load_all().get(name)
        own = entry is not None and entry.__module__.startswith("fedlib.")
        return name in self.revisions or (own and f"{self.noun} {name}" in released.record())

    def code_of(self, name: str) -> released.Code:
        """What an entry of the package computes, per file (`released.behaviour`)."""
        entry = self.find(name)
        if entry not in self._code:
            file = file_of(entry)
            self._code[entry] = released.behaviour(file, entry.__qualname__.split(".")[0]) if file else {}
        return self._code[entry]

    def find(self, name: str) -> Any:
        """The class or function registered under `name`.

        Raises:
            ValueError: nothing has that name, or two have it.
        """
        entries = self.load_all()
        if name in self.contested:
            raise NameTaken(self.contested[name])
        if name not in entries:
            near = meant(name, sorted(entries))
            raise ValueError(f"unknown {self.noun} {name!r}; {near}{self.unloaded()}")
        return entries[name]

    def unloaded(self) -> str:
        """What could not be loaded and why, to append to an error message; empty where everything loaded."""
        self.load_all()
        return "".join(f" {place} could not be loaded: {why}." for place, why in self.problems.items())

    def load_all(self) -> dict[str, Any]:
        """Import all files of the package and all entry points, once; `problems` then says what could not be loaded."""
        with self._loading:
            if not self.loaded:
                self.loaded = True  # a file that is loaded now may ask for others
                self._load()
        return self.entries

    def _load(self) -> None:
        spec = find_spec(self.package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for module in pkgutil.iter_modules([folder]):
                path = Path(folder) / f"{module.name}.py"
                with self._noted(str(path)):
                    released.text_of(path)
                    importlib.import_module(f"{self.package}.{module.name}")
        for point in entry_points(group=self.group) if self.group else ():
            package = point.dist.name if point.dist else "?"
            with self._noted(f"{point.value} of the installed package {package}"):
                point.load()

    @contextmanager
    def _noted(self, place: str) -> Generator[None]:
        try:
            yield
        except NameTaken as error:
            self.problems[place] = str(error)
        except (Exception, SystemExit) as error:
            self.problems[place] = f"{type(error).__name__}: {error}"
