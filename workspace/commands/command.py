"""Commands that run beside this process: `fedlib ...` in forks of one warm process, others in a shell."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

import psutil

from fedlib.settings.schema import ROOT
from workspace.commands.warm import KILLED, VARIABLE, answer, send, warm

CORES = "LOKY_MAX_CPU_COUNT"  # joblib's variable for the number of cores that a process may use
TAIL = 30  # lines that are shown of what a command said that failed
Tell = Callable[[str], None]
Start = Callable[[str, str, Mapping[str, str]], "Command"]


@contextmanager
def commands(log: IO[str], tell: Tell) -> Generator[Start]:
    """A function that starts commands (stage, command, environment); the warm process starts with the first one."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    lock = threading.Lock()
    with ExitStack() as stack:

        @cache
        def helped() -> dict[str, str]:
            return stack.enter_context(warm({**os.environ, "PATH": path}))

        def start(stage: str, command: str, environment: Mapping[str, str]) -> Command:
            with lock:
                where = {key: value for key, value in helped().items() if key in ("PATH", VARIABLE)}
            return Command(stage, command, {**environment, **where}, log, tell)

        yield start


class Command:
    """A stage's command, run by the warm process if there is one.

    What it says goes into the log; lines on training's progress go to `tell` too, and the last lines are kept.
    """

    def __init__(
        self, stage: str, command: str, environment: Mapping[str, str], log: IO[str], tell: Tell
    ) -> None:
        self.stage, self.status, self.stopped = stage, 0, False
        self.tail: deque[str] = deque(maxlen=TAIL)
        read, self.output = os.pipe()
        self.follow = threading.Thread(target=self._follow, args=(read, log, tell), daemon=True)
        self.follow.start()
        program, *words = shlex.split(command)
        self.connection: socket.socket | None = None
        if program == "fedlib" and VARIABLE in environment:
            with suppress(ConnectionRefusedError, FileNotFoundError):  # it has ended: only time depends on it
                self.connection = send(words, environment[VARIABLE], (self.output, self.output), environment)
        if self.connection is None:
            self.process = subprocess.Popen(
                command,
                shell=True,
                cwd=ROOT,
                env=environment,
                stdout=self.output,
                stderr=self.output,
                process_group=0,
            )

    def wait(self) -> int:
        """The exit status, once it has ended."""
        try:
            self.status = self.process.wait() if self.connection is None else answer(self.connection)
            if not self.stopped and (self.status < 0 or self.status == KILLED):
                free = psutil.virtual_memory().available / 2**30
                self.tail.append(
                    f"{self.stage}: it was killed. If nobody did that, memory ran out ({free:.1f} GiB are free now): "
                    f"end other programs, or set {CORES}=1 to have one stage at a time."
                )
            return self.status
        finally:
            if self.connection is not None:
                self.connection.close()
            os.close(self.output)
            self.follow.join(timeout=5)  # what the command left running may hold the other end

    def stop(self) -> None:
        """End it; `wait` returns."""
        self.stopped = True
        with suppress(OSError):  # it has ended
            if self.connection is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.connection.shutdown(socket.SHUT_RDWR)

    def _follow(self, read: int, log: IO[str], tell: Tell) -> None:
        with open(read, encoding="utf-8", errors="replace") as output:
            for line in output:
                self.tail.append(f"{self.stage}: {line.rstrip()}")
                with suppress(ValueError):  # the log is closed
                    log.write(f"{self.tail[-1]}\n")
                if " rounds (" in line:
                    tell(f"  {line.rstrip()}")
