"""Numba compiles, once and for this processor, the loops that neither NumPy nor torch offers.

The machine code runs without the interpreter's lock (GIL). It is cached beside its source; if that folder cannot be
written, in the user's cache; and otherwise in a folder for temporary files, in each in a folder that nobody else can
reach, because Numba unpickles it. Each cache file starts with its digest. A damaged or empty file is ignored, and its
loop is compiled again. Numba has no public way to check its files; therefore
`pyproject.toml` caps its version.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    UserWideCacheLocator,
)

from fedlib.files import private, temporary

DIGEST = 32  # bytes at the start of each file


class CheckedFiles(IndexDataCacheFile):
    """Numba's index of a function, and the machine code that it names, as files with a digest."""

    def _load_index(self) -> dict[Any, str]:
        try:
            stamp, overloads = self._load_data(self._index_name)
        except OSError:
            return {}
        return overloads if stamp == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        self._save_data(self._index_name, ((self._version, self._source_stamp), overloads))

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        if hashlib.sha256(content[DIGEST:]).digest() != content[:DIGEST]:
            raise OSError("damaged")  # Numba treats this as a missing file
        return pickle.loads(content[DIGEST:])

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(content).digest() + content)


class Private(UserWideCacheLocator):
    """Where a function's machine code is kept: as Numba unpickles it, in a folder of this user's alone."""

    def __init__(self, function: Callable[..., Any], source: str) -> None:
        super().__init__(function, source)
        self._cache_path = str(_folder_of(Path(source)))


def _folder_of(source: Path) -> Path:
    """Beside the source, or else among the user's or the system's temporary files. Raises OSError: nowhere."""
    digest = hashlib.sha256(str(source.parent).encode()).hexdigest()[:16]
    with suppress(OSError):
        (beside := source.parent / "__pycache__").mkdir(exist_ok=True)
        return private(beside / "machine-code")
    with suppress(OSError, RuntimeError):  # no home
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        caches.mkdir(parents=True, exist_ok=True)
        return private(private(caches / "fedlib") / digest)
    return private(temporary() / digest)


class Files(CompileResultCacheImpl):
    _locator_classes = [Private]


class Cache(FunctionCache):
    """Numba's cache of a function, stored in `CheckedFiles`; nothing is kept where it cannot be written."""

    _impl_class = Files

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = CheckedFiles(
            self._cache_path, f"checked-{self._impl.filename_base}", locator.get_source_stamp()
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):
            super().save_overload(sig, data)


def _cache_of(function: Callable[..., Any]) -> Cache | None:
    with suppress(RuntimeError, OSError):  # it can be kept nowhere
        return Cache(function)
    return None


def _kept(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`njit` with a machine-code cache."""

    def compile_(function: Callable[..., Any]) -> Callable[..., Any]:
        dispatcher = njit(nogil=True, error_model="numpy", **options)(function)
        if (cache := _cache_of(function)) is not None:
            dispatcher._cache = cache
        return dispatcher

    return compile_


exact = _kept()  # adds in the written order
compiled = _kept(fastmath={"contract", "nsz", "reassoc"})
