"""The warm process: a command that it runs for another is that command, to its exit status and its end."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from system import until

from fedlib.settings.schema import ROOT
from workspace.commands import warm

FORK = multiprocessing.get_context("fork")


def fedlib(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workspace", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with warm.warm(os.environ) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["scale"], ["run", "nothing"], ["run", "--methods"], ["data", "prepare", "nowhere"]]
)
def test_a_command_says_and_returns_the_same(environment: dict[str, str], arguments: list[str]) -> None:
    cold, warmed = (fedlib(variables, *arguments) for variables in (os.environ, environment))
    assert (cold.returncode, cold.stdout, cold.stderr) == (warmed.returncode, warmed.stdout, warmed.stderr)


def test_a_large_environment_arrives_whole(environment: dict[str, str]) -> None:
    large = {**environment, **{f"LARGE_{n}": "x" * 100_000 for n in range(10)}}
    done = fedlib(large, "scale")
    assert done.returncode == 0, done.stderr


def test_without_a_warm_process_commands_start_by_themselves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("x" * 120)  # longer than the address of a socket may be
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with warm.warm(os.environ) as made:
        assert made == dict(os.environ)


def test_a_command_does_without_a_warm_process_that_has_ended() -> None:
    with warm.warm(os.environ) as made:
        pass
    done = fedlib(made, "scale")
    assert (done.returncode, done.stderr) == (0, "")


@dataclass(frozen=True)
class Waiting:
    """A warm server for commands that never end, and where the last one writes the number of its process."""

    address: str
    pid: Path

    def serve(self) -> None:
        with warm.WarmServer(self.address, self.never_done) as server:
            server.serve_forever()

    def never_done(self) -> int:
        self.pid.write_text(f"{os.getpid()}.")
        time.sleep(600)
        return 0

    def ask(self) -> multiprocessing.process.BaseProcess:
        """The process that has asked for a command, once the command runs."""
        until(lambda: Path(self.address).exists())
        asking = FORK.Process(target=lambda: sys.exit(warm.ask([], self.address)))
        asking.start()
        until(lambda: self.pid.exists() and self.pid.read_text().endswith("."))
        return asking

    def runs(self) -> bool:
        """Whether the command still runs."""
        return psutil.pid_exists(int(self.pid.read_text().rstrip(".")))


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Waiting:
    monkeypatch.setenv(warm.VARIABLE, str(tmp_path / "warm"))
    return Waiting(str(tmp_path / "warm"), tmp_path / "pid")


def test_who_is_killed_takes_along_what_it_asked_for(waiting: Waiting) -> None:
    server = FORK.Process(target=waiting.serve)
    server.start()
    try:
        asking = waiting.ask()
        assert waiting.runs()
        asking.kill()
        until(lambda: not waiting.runs())
    finally:
        server.kill()


def test_a_killed_repro_takes_along_what_runs_for_it(waiting: Waiting) -> None:
    """DVC would go on for hours, and lock its files; instead, its command fails and it ends."""

    def repro() -> None:
        FORK.Process(target=waiting.serve).start()
        time.sleep(600)

    killed = FORK.Process(target=repro)
    killed.start()
    asking = waiting.ask()
    killed.kill()
    asking.join(timeout=60)
    assert asking.exitcode == warm.KILLED
    until(lambda: not waiting.runs())
