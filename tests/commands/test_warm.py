"""The warm process: a command that it runs for another is that command, to its exit status and its end."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedlib.commands import warm
from fedlib.settings.schema import ROOT

FEDLIB = [sys.executable, "-m", "fedlib"]
FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with warm.warm(os.environ) as made:
        yield made


@pytest.mark.parametrize(
    "arguments", [["scale"], ["run", "nothing"], ["run", "--methods"], ["data", "prepare", "nowhere"]]
)
def test_a_command_says_and_returns_the_same(environment: dict[str, str], arguments: list[str]) -> None:
    outcomes = []
    for variables in (os.environ, environment):
        command = [*FEDLIB, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)
        outcomes.append((done.returncode, done.stdout, done.stderr))
    assert outcomes[0] == outcomes[1]


def test_a_large_environment_arrives_whole(environment: dict[str, str]) -> None:
    large = {**environment, **{f"LARGE_{n}": "x" * 100_000 for n in range(10)}}
    done = subprocess.run(
        [*FEDLIB, "scale"], cwd=ROOT, env=large, capture_output=True, text=True, check=False
    )
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
    command = [*FEDLIB, "scale"]
    done = subprocess.run(command, cwd=ROOT, env=made, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_is_killed_takes_along_what_it_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    address = str(tmp_path / "warm")

    def never_done() -> int:
        pid.write_text(f"{os.getpid()}.")
        time.sleep(600)
        return 0

    def serve() -> None:
        with warm.WarmServer(address, never_done) as server:
            server.serve_forever()

    monkeypatch.setenv(warm.VARIABLE, address)
    server = FORK.Process(target=serve)
    server.start()
    try:
        until(lambda: Path(address).exists())
        asking = FORK.Process(target=warm.ask, args=([], address))
        asking.start()
        until(lambda: pid.exists() and pid.read_text().endswith("."))
        asked = int(pid.read_text().rstrip("."))
        assert running(asked)
        asking.kill()
        until(lambda: not running(asked))
    finally:
        server.kill()


def test_a_killed_repro_takes_along_what_runs_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """DVC would go on for hours, and lock its files; instead, its command fails and it ends."""
    pid = tmp_path / "pid"
    address = str(tmp_path / "warm")

    def never_done() -> int:
        pid.write_text(f"{os.getpid()}.")
        time.sleep(600)
        return 0

    def repro() -> None:
        FORK.Process(target=serve).start()
        time.sleep(600)

    def serve() -> None:
        with warm.WarmServer(address, never_done) as server:
            server.serve_forever()

    monkeypatch.setenv(warm.VARIABLE, address)
    killed = FORK.Process(target=repro)
    killed.start()
    until(lambda: Path(address).exists())
    asking = FORK.Process(target=lambda: sys.exit(warm.ask([], address)))
    asking.start()
    until(lambda: pid.exists() and pid.read_text().endswith("."))
    killed.kill()
    asking.join(timeout=60)
    assert asking.exitcode == warm.KILLED
    until(lambda: not running(int(pid.read_text().rstrip("."))))


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come; whoever waits a minute waits in vain."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it never came")


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
