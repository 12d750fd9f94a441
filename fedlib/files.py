"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


class StoreError(RuntimeError):
    """Something on disk that cannot be used or written; one sentence for people."""


class Unfinished(StoreError):
    """Nothing of an experiment or study is finished."""


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
        raise StoreError(
            f"{path}: cannot be written ({error.strerror}); free some space or make the folder writable, "
            "then repeat the command: what was finished is kept."
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
