"""Files that are written completely or not at all, and are read back as they were written or not at all.

A record carries a digest of itself (`sealed`) and digests of the files that belong to it; `unsealed` checks it on
reading. A record without a digest is refused.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedlib.errors import ConfigError, InUse, StoreError

HOME = Path(__file__).resolve().parents[1]  # the folder that this package is in


def root() -> Path:
    """The project to work on: the nearest folder, from the working directory upwards, that is a clone of the project.

    Elsewhere: the clone that this file is part of; for an installed package, the working directory.
    """
    here = Path.cwd().resolve()
    clones = (folder for folder in (here, *here.parents, HOME) if is_clone(folder))
    return next(clones, Path.cwd())


def is_clone(folder: Path) -> bool:
    """Whether a folder has settings and a library of its own."""
    return (folder / "params.yaml").is_file() and (folder / "fedlib" / "__init__.py").is_file()


ROOT = root()


def check_code() -> None:
    """Refuse to work on one clone with the code of another.

    Raises:
        ConfigError: they differ.
    """
    if ROOT != HOME and is_clone(ROOT):
        raise ConfigError(
            f"{ROOT}: this program's fedlib is that of {HOME}, which would write its numbers here; start the program "
            f"with PYTHONPATH={shlex.quote(str(ROOT))}, or in another folder."
        )


def temporary() -> Path:
    """A folder of this user's among temporary files, for what libraries keep where HOME cannot be written.

    Raises:
        OSError: there is none that this user alone can write.
    """
    return private(Path(tempfile.gettempdir()) / f"fedlib-{os.getuid()}")


def private(folder: Path) -> Path:
    """Make a folder that this user alone can read and write, because what it holds is run.

    Raises:
        OSError: it cannot be made or written, or others can reach what it holds.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    alone = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if not (alone and os.access(folder, os.W_OK)):
        raise PermissionError(f"{folder} is not this user's alone")
    return folder


def find_home() -> None:
    """Where HOME cannot be written, libraries that keep something there shall find another one."""
    home = Path.home()
    if not (home.is_dir() and os.access(home, os.W_OK | os.X_OK)):
        with suppress(OSError):
            os.environ["HOME"] = str(temporary())


@contextmanager
def writing(path: Path) -> Generator[None]:
    """In this context, a file that cannot be written is a StoreError, one sentence that names it."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written ({error.strerror}); free some space or make the folder writable, "
            "then repeat the command: what was finished is kept."
        ) from None


def replace_folder(old: Path, new: Path) -> None:
    """Replace the folder `old` by `new`. Whoever reads in the meantime finds either the old one or the new one."""
    if old.exists() and _swapped(old, new):
        shutil.rmtree(new, ignore_errors=True)
    else:
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)


def _swapped(first: Path, second: Path) -> bool:
    """Exchange two paths in one step; False where the system cannot. Linux can, on most file systems.

    Python has no function for it, so the C library's is called.
    """
    folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return bool(call) and not call(folder, os.fsencode(first), folder, os.fsencode(second), exchange)


def say(sentence: object) -> None:
    """Print a progress message to stderr, apart from the program's output."""
    print(sentence, file=sys.stderr, flush=True)


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with a digest of its content."""
    content = _content(record)
    return {**content, "sha256": _digest(content)}


def unsealed(record: Any) -> dict[str, Any]:
    """The content of a sealed record, without its digest.

    Raises:
        ValueError: it is not a record, or its content differs from what was written.
    """
    if not isinstance(record, dict):
        raise ValueError("it holds no record")
    content = _content(record)
    if "sha256" not in record:
        raise ValueError("its record has no digest of itself")
    if record["sha256"] != _digest(content):
        raise ValueError("its record was changed after it was written")
    return content


def state_of(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Name, size and time of the last change of each file, in order; none of a file that is gone."""
    found = []
    for path in sorted(paths):
        with suppress(FileNotFoundError):
            about = path.stat()
            found.append((str(path), about.st_size, about.st_mtime_ns))
    return found


def write_sealed(path: Path, record: dict[str, Any]) -> None:
    """Write a record with its digest as a JSON file."""
    write_whole(path, json.dumps(sealed(record), indent=1, sort_keys=True).encode())


def read_sealed(path: Path) -> dict[str, Any]:
    """The record that a JSON file holds, as `unsealed`. Raises ValueError: it is none, or was changed."""
    return unsealed(json.loads(path.read_bytes()))


def _content(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "sha256"}


def _digest(record: dict[str, Any]) -> str:
    as_read = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextmanager
def alone(folder: Path, wait: bool = False) -> Generator[int]:
    """Lock a folder for work that must not run twice at a time. Yields the lock's descriptor, so a child can hold it.

    wait: until nobody else holds it.

    Raises:
        InUse: another process holds the lock; the message names it and its command.
        StoreError: the lock cannot be written.
    """
    path = folder / ".lock"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        # its descriptor is the lock; unbuffered, so that closing it on a full disk writes nothing more
        file = open(path, "ab", buffering=0)  # noqa: SIM115
    with file:
        with writing(path):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                raise InUse(
                    f"{folder} is in use by {holder(folder)}; wait for it to end, or stop it, and repeat the command."
                ) from None
            file.truncate(0)
            file.write(f"process {os.getpid()} ({shlex.join(['fedlib', *sys.argv[1:]])})".encode())
        yield file.fileno()


def holder(folder: Path) -> str:
    """The process that holds a folder (`alone`), or held it last, with its command."""
    with suppress(FileNotFoundError):
        return (folder / ".lock").read_text(encoding="utf-8", errors="replace") or "another process"
    return "another process"


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside its target, then move it there. Parent folders are created.

    Raises:
        StoreError: the disk is full or the folder cannot be written. No partial file is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with suppress(OSError):  # a read-only disk refuses this even where there is nothing to remove
            temporary.unlink()
