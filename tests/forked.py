"""Commands and programs, forked from a process that has imported all libraries, but the project itself.

To import PyTorch, SciPy and the others takes far longer than what most commands do. A fork imports the project from
where PYTHONPATH says, so that a copy of the project runs its own code. What a fork starts is forked, too.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from types import ModuleType

from workspace.commands.warm import SERVE, VARIABLE, WarmServer, ask

LIBRARIES = (  # not `dvc`, which keeps the standard output that it is imported with
    "IPython.core.interactiveshell",
    "cffi.api",
    "dvc_data.index",
    "dvc_render",
    "ipykernel.kernelapp",
    "ipywidgets",
    "jinja2",
    "matplotlib.pyplot",
    "myst_nb.sphinx_ext",
    "networkx",
    "numba",
    "papermill.execute",
    "pyarrow.pandas_compat",
    "pydantic",
    "rich.console",
    "ruamel.yaml",
    "scipy.cluster.hierarchy",
    "scipy.optimize",
    "scipy.stats",
    "scmrepo.git",
    "seaborn",
    "sklearn.datasets",
    "sklearn.manifold",
    "sklearn.metrics",
    "sphinx.cmd.build",
    "sphinx_design",
    "torch.func",
    "typer",
)


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `fedlib ...`, `dvc ...` or `python -c CODE` in a folder."""
    assert command[0] in ("fedlib", *PROGRAMS), command
    words = command[1:] if command[0] == "fedlib" else command
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err, chdir(folder):
        status = ask(words, _address(), (out.fileno(), err.fileno()), forking(environment))
        told = [file.seek(0) or file.read() for file in (out, err)]
    return subprocess.CompletedProcess(command, status, *told)


def forking(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `fedlib ...` is forked."""
    return {**environment, VARIABLE: _address()}


_running: dict[str, subprocess.Popen[bytes]] = {}  # the process to fork from, by its address


def _address() -> str:
    if not _running:
        address = f"{tempfile.mkdtemp(prefix='forked')}/address"
        command = [sys.executable, "-P", __file__, address]
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        _running[address] = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL)
        while not Path(address).exists():
            assert _running[address].poll() is None
            time.sleep(0.01)
    return next(iter(_running))


def stop() -> None:
    for address, process in _running.items():
        process.terminate()
        process.wait()
        shutil.rmtree(Path(address).parent)


def serve(address: str) -> None:
    """The process to fork from: listen, import the libraries, and run what is asked for, each in a fork."""
    path = list(sys.path)

    def begin() -> int:
        for name in [name for name in sys.modules if name.split(".")[0] in ("fedlib", "workspace")]:
            del sys.modules[name]
        own = os.environ.get("PYTHONPATH")
        sys.path[:] = [*(own.split(os.pathsep) if own else []), *path]
        sys.dont_write_bytecode = bool(
            os.environ.get("PYTHONDONTWRITEBYTECODE")
        )  # read once, before the fork
        os.environ[VARIABLE] = address
        if sys.argv[1] in PROGRAMS:
            return PROGRAMS[sys.argv[1]](sys.argv[2:])
        importlib.import_module("fedlib.files").find_home()
        app = importlib.import_module("workspace.commands.cli").app
        if sys.argv[1] == SERVE:
            importlib.import_module("workspace.commands.warm").serve(sys.argv[2], app)
        return app()

    with WarmServer(address, begin) as server:
        for name in LIBRARIES:
            importlib.import_module(name)
        server.serve_forever()


def _python(arguments: list[str]) -> int:
    sys.argv, code = arguments, arguments[1]
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(main))
    return 0


def _dvc(arguments: list[str]) -> int:
    return importlib.import_module("dvc.cli").main(arguments)


PROGRAMS = {"python": _python, "dvc": _dvc}

if __name__ == "__main__":
    serve(sys.argv[1])
