"""The commands of plain `dvc repro`: a warm process runs them, which the first starts and which leaves when idle."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fedlib.digests import address_of
from fedlib.files import HOME, ROOT, state_of, temporary
from workspace.commands.warm import SERVE

AGAIN = "FEDLIB_AGAIN"  # set if finished runs shall be made again
FORCED = {"-f", "--force"}  # options of `dvc repro`
IDLE, PATIENCE = 60.0, 30.0  # seconds


def warm_process(arguments: Sequence[str]) -> str | None:
    """The address of the warm process for this code and these archives; None if there can be none."""
    if list(arguments[:3]) == ["notebook", "run", "simulate"] and is_forced():
        os.environ[AGAIN] = "1"
    try:
        path = temporary() / f"warm-{address_of([str(ROOT), sys.prefix, _state()])}"
    except OSError:
        return None
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        return str(path)
    path.unlink(missing_ok=True)  # of one that was killed
    variables = {
        key: value for key, value in os.environ.items() if not key.startswith("DVC_") and key != AGAIN
    }
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "workspace", SERVE, str(path), str(IDLE)],
        env=variables,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,  # Ctrl-C stops the command, not this
    )
    limit = time.monotonic() + PATIENCE
    while not path.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.01)
    return str(path) if path.exists() else None


def is_forced() -> bool:
    """Whether this is a stage of `dvc repro -f`."""
    import psutil

    for process in psutil.Process().parents():
        with suppress(psutil.Error):
            words = process.cmdline()
            if "repro" in words and any(Path(word).name == "dvc" for word in words[: words.index("repro")]):
                return bool(FORCED & set(words))
    return False


def _state() -> list[tuple[str, int, int]]:
    """The state of all files that a warm process has read once and for all."""
    folders = [(HOME / "fedlib", "*.py"), (HOME / "workspace", "*.py"), (ROOT / "data" / "archive", "*")]
    files = [path for folder, pattern in folders for path in folder.rglob(pattern) if path.is_file()]
    return state_of([*files, ROOT / "params.yaml"])
