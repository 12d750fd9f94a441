"""Files that appear whole or not at all, and come back as they were written or not at all.

A record carries a digest of itself (`sealed`), and digests of what belongs to it; `unsealed` checks it when it is read.
A record without one was written before there were any. It is taken as it is: its reader checks that its address is
that of its settings, as it was checked then. `fedlib verify --renew` seals the archives of before.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class StoreError(RuntimeError):
    """Something on disk that cannot be used or written; one sentence for people."""


class Unfinished(StoreError):
    """Nothing of an experiment or study is finished."""


def cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path}: cannot be written ({error.strerror}); free some space or make the folder writable, "
        "then repeat the command: what was finished is kept."
    )


def replace_folder(old: Path, new: Path) -> None:
    """Put a folder in the place of another, which goes; whoever reads meanwhile finds the one or the other."""
    swapped = old.exists() and _swapped(old, new)
    if not swapped:
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)
    else:
        shutil.rmtree(new, ignore_errors=True)


def _swapped(one: Path, other: Path) -> bool:
    """Exchange two paths in one step, which Linux can, on most file systems."""
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return bool(call) and not call(here, os.fsencode(one), here, os.fsencode(other), exchange)


def say(sentence: object) -> None:
    """Tell whoever waits, beside what the program prints."""
    print(sentence, file=sys.stderr, flush=True)


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the digest of all that it says."""
    own = {key: value for key, value in record.items() if key != "sha256"}
    return {**own, "sha256": _digest(own)}


def unsealed(record: Any) -> dict[str, Any]:
    """A record as it was sealed, without its digest; one of before, which has none, as it is.

    Raises:
        ValueError: it is no record, or says something else than when it was written.
    """
    if not isinstance(record, dict):
        raise ValueError("it holds no record")
    own = {key: value for key, value in record.items() if key != "sha256"}
    if "sha256" in record and record["sha256"] != _digest(own):
        raise ValueError("its record was changed after it was written")
    return own


def _digest(record: dict[str, Any]) -> str:
    as_read = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextmanager
def alone(folder: Path) -> Iterator[int]:
    """Hold a folder for what must not run twice at a time; yields the lock's descriptor, for a child to hold it too.

    Raises:
        StoreError: another process holds it; the message names that process and its command.
    """
    path = folder / ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115 (its descriptor is the lock)
    except OSError as error:
        raise cannot_write(path, error) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise StoreError(
                f"{folder} is in use by {file.read() or 'another process'}; wait for it to end, or stop it, and "
                "repeat the command."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} ({shlex.join(['fedlib', *sys.argv[1:]])})")
        file.flush()
        yield file.fileno()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside its place, then move it there; parents are made.

    Raises:
        StoreError: the disk is full or the folder cannot be written; nothing half-written stays behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        with suppress(OSError):  # a read-only disk refuses this even where there is nothing to remove
            temporary.unlink()
