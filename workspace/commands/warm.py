"""Run many `fedlib` commands without importing everything each time.

`fedlib repro` starts one process that imports what notebooks and simulations need, and listens. While it runs
(`FEDLIB_WARM` names its socket), every `fedlib` command is forked from it, with the same arguments, folder,
environment, output and exit status as a command started normally, but some seconds faster. It affects nothing but
time.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, ForkingMixIn, UnixStreamServer

from fedlib.errors import StoreError

VARIABLE = "FEDLIB_WARM"
SERVE = "serve-warm"  # the argument for which `__main__` calls `serve`
PRELOADED = (
    "IPython.core.completer",
    "IPython.core.magics",
    "workspace.commands.cli",
    "workspace.commands.inprocess",
    "workspace.commands.notebooks",
    "fedlib.drawing.plots",
    "workspace.pages.artifact",
    "workspace.pages.logbook",
    "fedlib.runs.experiment",
    "fedlib.simulation.engine",
    "fedlib.training.compiled",
    "jinja2",
    "matplotlib.backends.backend_svg",
    "papermill.execute",
    "pyarrow.dataset",
    "scipy.signal",
    "torch._dynamo",  # which optimisers and GPyTorch import when they are first used
    "workspace.figures.studies",
)
BOOKS = ("claims", "readings", "printed", "findings")  # of the papers, which pages import
KILLED = 128 + signal.SIGKILL  # as shells say it
HEADER = 8  # bytes, which hold the length of the request that follows


def send(
    arguments: Sequence[str],
    address: str,
    output: tuple[int, int] = (1, 2),
    environment: Mapping[str, str] = os.environ,
) -> socket.socket:
    """Have the warm process run `fedlib <arguments>` in this folder; returns where it will send the exit status.

    output: descriptors of its standard output and standard error. If the connection is closed, the command ends.
    """
    content = {"arguments": list(arguments), "folder": os.getcwd(), "environment": dict(environment)}
    request = json.dumps(content).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
        socket.send_fds(connection, [len(request).to_bytes(HEADER, "big")], list(output))
        connection.sendall(request)
    except BaseException:
        connection.close()
        raise
    return connection


def ask(
    arguments: Sequence[str],
    address: str,
    output: tuple[int, int] = (1, 2),
    environment: Mapping[str, str] = os.environ,
) -> int:
    """As `send`; returns the exit status once the command has ended."""
    with send(arguments, address, output, environment) as connection:
        return answer(connection)


def answer(connection: socket.socket) -> int:
    """The exit status that the warm process sends once a command has ended; `KILLED` if it was killed."""
    return int(connection.recv(16) or KILLED)


class Handler(BaseRequestHandler):
    """One command, in a process forked for it."""

    def handle(self) -> None:
        gc.freeze()  # collecting would walk through, and so copy, everything inherited
        length, files, *_ = socket.recv_fds(self.request, HEADER, 2)
        request = json.loads(self.request.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
        for ours, theirs in zip((1, 2), files, strict=True):
            os.dup2(theirs, ours)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.environ.pop(VARIABLE, None)
        os.chdir(request["folder"])
        os.setsid()
        threading.Thread(target=self._end_with_client, daemon=True).start()
        assert isinstance(self.server, WarmServer)
        status = run(self.server.app, request["arguments"])
        # joblib cleans up in these; a forked process skips them at its end, and no public function calls them
        atexit._run_exitfuncs()
        self.request.sendall(str(status).encode())

    def _end_with_client(self) -> None:
        """If the client was killed or interrupted, kill the command and everything it started."""
        if not self.request.recv(1):
            os.killpg(0, signal.SIGKILL)


def run(app: Callable[[], int], arguments: Sequence[str]) -> int:
    """Run `fedlib <arguments>` here; returns its exit status."""
    sys.argv = ["fedlib", *arguments]
    try:
        return app()
    except SystemExit as end:
        return int(end.code) if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


class WarmServer(ForkingMixIn, UnixStreamServer):
    """idle: seconds without a command after which it leaves; None: it leaves with the process that started it."""

    def __init__(self, address: str, app: Callable[[], int], idle: float | None = None) -> None:
        super().__init__(f"{address}.new{os.getpid()}", Handler)
        os.rename(f"{address}.new{os.getpid()}", address)  # once it is there, it listens
        self.app, self.address, self.idle = app, address, idle
        self.parent = os.getppid()
        self.last_command = time.monotonic()

    def service_actions(self) -> None:
        super().service_actions()
        if self.active_children:
            self.last_command = time.monotonic()
        if self.idle is not None:
            if time.monotonic() - self.last_command > self.idle:
                Path(self.address).unlink(missing_ok=True)
                sys.exit()
        elif (
            os.getppid() != self.parent
        ):  # our parent is gone, so the commands that run here for DVC must end
            for command in self.active_children or ():
                for kill in (os.kill, os.killpg):  # the second fails if it was not yet the head of a session
                    with suppress(ProcessLookupError):
                        kill(command, signal.SIGKILL)
            sys.exit()


def preload() -> None:
    """Import and read what notebooks and simulations need, so that forks of this process have it."""
    import nbformat

    from fedlib.runs import archive
    from fedlib.settings import code
    from workspace.analysis import effects
    from workspace.analysis.paper import parts

    for module in PRELOADED:
        importlib.import_module(module)
    for book in BOOKS:
        parts(book)
    nbformat.validate(nbformat.v4.new_notebook())  # which compiles the schema
    with suppress(SyntaxError, ValueError, OSError):  # the command that needs it reports it
        code.everything()
    effects.needed()
    for scale, path in archive.all_of():
        with suppress(StoreError):  # the command that needs it reports it
            archive.read(path.stem, scale)


def serve(address: str, app: Callable[[], int], idle: float | None = None) -> None:
    """The warm process: listen, and run `app` (`fedlib ...`) for every request, each in a fork. idle: `WarmServer`."""
    from fedlib.errors import ConfigError
    from fedlib.settings import params  # not at the top: `ask` needs none of it

    with WarmServer(address, app, idle) as server:
        preload()
        importlib.import_module("fedlib.training.loops").load()
        with suppress(ConfigError):  # the command that needs it reports it
            params.load()
        server.serve_forever()


@contextmanager
def warm(environment: Mapping[str, str]) -> Generator[dict[str, str]]:
    """`environment` in which `fedlib` commands fork from a warm process, which runs as long as this context."""
    with tempfile.TemporaryDirectory(prefix="fedlib") as folder:
        address = str(Path(folder, "warm"))
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workspace", SERVE, address],
            env=environment,
            process_group=0,  # Ctrl-C stops the process that started this one
        )
        try:
            while not Path(address).exists() and process.poll() is None:
                threading.Event().wait(0.01)
            listens = process.poll() is None  # it ends if its address is too long for a socket
            yield {**environment, VARIABLE: address} if listens else dict(environment)
        finally:
            process.terminate()
            process.wait()
