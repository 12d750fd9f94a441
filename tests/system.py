"""What tests ask of the operating system: to wait for what must come, and for small disks that take nothing more."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


def until(condition: Callable[[], object], otherwise: str = "it never came", interval: float = 0.05) -> None:
    """Wait for what must come; whoever waits five minutes waits in vain."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(interval)


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """A real disk of this size."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={size}", "none", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """A disk without space for another file."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A disk that even root cannot write."""
    mount("-o", "remount,ro", str(folder))
    yield
    mount("-o", "remount,rw", str(folder))
