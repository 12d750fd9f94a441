"""The process of a sampler's file or of another program: how it is started, asked and ended."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import sysconfig
import weakref
from dataclasses import dataclass, field
from typing import Any

from fedlib.digests import HOUSE
from fedlib.errors import SamplerError
from fedlib.isolated.messages import Broken, Channel

BOOT = "import json, sys; given = json.loads(sys.argv[1]); sys.path[:0] = given['path']; "
BOOT += "from fedlib.isolated.host import main; main(given)"
MODULES = {  # that a sampler's file may import; of a package, what is below it too
    *("__future__", "abc", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math"),
    *("typing", "numpy", "scipy", "fedlib.samplers"),
}
START_SECONDS = 120  # for the house's own imports, on a busy machine


@dataclass(frozen=True)
class Limits:
    """What a process may use: seconds for each answer, seconds of processor time in all, and MiB of memory."""

    seconds: float = 10.0
    processor_seconds: int = 600
    memory: int = 2048


@dataclass(frozen=True)
class Executable:
    """What runs in the other process.

    file: its name in messages. code: of a Python file for `host.py`; empty for another `command`, which speaks the
    messages itself.
    """

    file: str
    code: bytes = b""
    command: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    def start(self) -> Process:
        """A new process of it.

        Raises:
            SamplerError: it cannot be started.
        """
        command, environment = list(self.command), {}
        if self.code:
            given = {
                "path": [str(HOUSE.parent), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")],
                "modules": modules_of(self.code),
                "memory": self.limits.memory * 2**20,
                "processor_seconds": self.limits.processor_seconds,
            }
            command = [sys.executable, "-I", "-S", "-B", "-c", BOOT, json.dumps(given)]
            environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        try:
            started = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd="/",
                bufsize=0,
            )
        except OSError as error:
            raise SamplerError(f"{self.file}: cannot be started ({error.strerror})") from None
        return Process(started, self)


class Process:
    """A process that answers messages. held: the mechanisms that lock it in (`sandbox.MECHANISMS`)."""

    def __init__(self, started: subprocess.Popen[bytes], program: Executable) -> None:
        assert started.stdin
        assert started.stdout
        self.started, self.program = started, program
        self.channel = Channel(started.stdout.fileno(), started.stdin.fileno())
        for pipe in (started.stdin, started.stdout):
            os.set_blocking(pipe.fileno(), False)
        self.held: tuple[str, ...] = ()
        self.end = weakref.finalize(self, _end, started)

    def ready(self) -> Process:
        """This process, once the house's own part has started and locked itself in."""
        self.held = tuple(self._received(START_SECONDS)["ready"])
        return self

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """What it answers to a message.

        Raises:
            SamplerError: it reports an error, has ended, is late or says what is no message.
        """
        try:
            self.channel.send(message, self.program.limits.seconds)
        except Broken as broken:
            raise self._failed(broken) from None
        message = self._received(self.program.limits.seconds)
        if "error" in message:
            self.end()
            raise SamplerError(str(message["error"])[:2000])
        return message

    def _received(self, seconds: float) -> dict[str, Any]:
        try:
            return self.channel.receive(seconds)
        except Broken as broken:
            raise self._failed(broken) from None

    def _failed(self, broken: Broken) -> SamplerError:
        self.end()
        status, limits = self.started.returncode, self.program.limits
        if "in time" in str(broken):
            why = f"it takes more than {limits.seconds:g} s for an answer"
        elif status == -signal.SIGXCPU:
            why = f"it used more than {limits.processor_seconds} s of processor time"
        else:
            why = f"{broken} before it answered"
        return SamplerError(f"{self.program.file}: {why}")


def _end(started: subprocess.Popen[bytes]) -> None:
    for pipe in (started.stdin, started.stdout):
        if pipe:
            pipe.close()
    try:
        started.wait(0.05)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def modules_of(code: bytes) -> list[str]:
    """The modules that a Python file imports and may import; none where it is no Python, which shows when it is run."""
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    aliases = {
        a.asname or a.name: a.name for node in nodes if isinstance(node, ast.Import) for a in node.names
    }
    names = {
        *aliases.values(),
        "numpy.random",
        "numpy.ma",
    }  # which functions such as np.unique load when called
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
        ):
            # packages load some of their modules when used
            names.add(f"{aliases[node.value.id]}.{node.attr}")
    return sorted(filter(may_import, names))


def may_import(name: str) -> bool:
    """Whether a sampler's file may import a module."""
    return any(name == known or name.startswith(f"{known}.") for known in MODULES)
