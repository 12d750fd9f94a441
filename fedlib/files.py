"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


class StoreError(RuntimeError):
    """Something on disk that cannot be used or written; one sentence for people."""


class Unfinished(StoreError):
    """Nothing of an experiment or study is finished."""


def cannot_write(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"{path}: cannot be written ({error.strerror}); free some space or make the folder writable, "
        "then repeat the command: what was finished is kept."
    )


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
