"""The measured programs, each in its own process and, if needed, its own environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
TIMEOUT = 600.0  # seconds, of one process


class Failed(RuntimeError):
    """A candidate gave no result; the message is the end of its output."""


@dataclass(frozen=True)
class Candidate:
    """A program that trains a workload and prints its measurements (`protocol.measured_rounds`).

    peer: folder below `peers/`, None for this project's own programs. arguments: those before the workload's.
    python_version: of the peer's environment; None: that of this program.
    """

    title: str
    arguments: tuple[str, ...]
    workloads: tuple[str, ...]
    peer: str | None = None
    python_version: str | None = None

    @property
    def python(self) -> Path:
        return PEERS / ".envs" / self.peer / "bin" / "python" if self.peer else Path(sys.executable)

    @property
    def installed(self) -> bool:
        return self.python.exists()

    def measure(self, workload: str, options: Sequence[str]) -> dict[str, Any]:
        """Run it once; returns its measurements.

        Raises:
            Failed: it printed no measurements.
        """
        command = [str(self.python), *self.arguments, workload, *options]
        paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Failed(f"no result within {TIMEOUT:.0f} s") from None
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"rates"')]
        if not lines:
            raise Failed((done.stderr or done.stdout).strip()[-300:] or f"exit code {done.returncode}")
        return json.loads(lines[-1])


def peer(name: str, title: str, *workloads: str, python_version: str | None = None) -> Candidate:
    return Candidate(title, (str(PEERS / name / "run.py"),), workloads, name, python_version)


def own(title: str, module: str, *workloads: str) -> Candidate:
    return Candidate(title, ("-m", f"benchmarks.{module}"), workloads)


CANDIDATES = {
    "engine": own("this engine", "engine", "W1", "W2", "W3", "W4"),
    "plain": own("plain PyTorch loop, client after client", "plain", "W1", "W2", "W3", "W4"),
    "usual": Candidate(
        "DataLoader and deep copy per client", ("-m", "benchmarks.plain", "--usual"), ("W1", "W2", "W3")
    ),
    "flower": peer("flower", "Flower (Ray simulation)", "W1", "W2"),
    "pfl": peer("pfl", "pfl-research", "W1", "W2"),
    "fedjax": peer("fedjax", "FedJAX (jit)", "W1", "W2"),
    "blazefl": peer("blazefl", "BlazeFL (thread pool)", "W1", "W2", python_version="3.12"),
    "fluke": peer("fluke", "fluke", "W1", "W2"),
    "fedlab": peer("fedlab", "FedLab (serial trainer)", "W1", "W2"),
    "flgo": peer("flgo", "FLGo (thread pool)", "W1", "W2"),
    "jax": peer("jax", "pure JAX (vmap over clients, scan over steps)", "W1", "W2", "W4"),
}


def install(name: str) -> None:
    """Make a peer's environment from its lock file.

    Raises:
        subprocess.CalledProcessError: it could not be installed; uv has printed the reason.
    """
    folder, uv = PEERS / ".envs" / name, str(Path(sys.executable).with_name("uv"))
    base = CANDIDATES[name].python_version or sys.executable
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", base, str(folder)], check=True)
    lock, python = str(PEERS / name / "requirements.lock"), str(folder / "bin" / "python")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock], check=True
    )
