"""`fedlib repro` and `make repro`, killed at random moments: a further run completes, with the same bytes.

FEDLIB_KILLS sets how many kills there are: a seed and a way each, so that 12 try every way with both commands.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import forked
import nbformat
import numpy as np
import psutil
import pytest
from copies import PARAMS, Project
from system import until

from fedlib.settings.schema import ROOT

KILLS = int(os.environ.get("FEDLIB_KILLS", "1"))
WAIT = 300.0  # seconds, for what takes a few
COMMANDS = (["make", "repro"], ["fedlib", "repro"])
SETTINGS = (
    PARAMS.replace("N: 4", "N: 6")
    .replace("T: 2", "T: 60")
    .replace("{MD: {sampler: md}}", "{MD: {sampler: md}, Alg: {sampler: clustered_similarity}}")
)


class Killed(Project):
    """A small project, and how one runs it, kills it and looks at what it made."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SETTINGS)
        for name in ("Makefile", "pyproject.toml", "requirements.lock", "requirements-setup.lock"):
            shutil.copy2(ROOT / name, folder)
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / ".ready").touch()  # set up: by this environment
        of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
        self.environment = {k: v for k, v in self.environment.items() if k not in of_make}
        self.environment |= {"FEDLIB_CHECKPOINT_SECONDS": "0"}

    def clean(self) -> None:
        for path in (self.folder / "data").iterdir():
            if path.name not in ("archive", "datasets"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in ("reports", ".dvc/tmp", ".dvc/cache"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "dvc.lock").unlink(missing_ok=True)

    def begin(self, command: list[str], environment: Mapping[str, str] | None = None) -> psutil.Popen:
        with open(self.folder / "told.txt", "w") as told:
            where = {"cwd": self.folder, "env": environment or self.environment}
            return psutil.Popen(command, start_new_session=True, stdout=told, stderr=told, **where)

    def told(self) -> str:
        return (self.folder / "told.txt").read_text()

    def complete(self, command: list[str]) -> None:
        """Run it to its end, in forks, which is quicker."""
        process = self.begin(command, forked.forking(self.environment))
        try:
            assert process.wait(timeout=WAIT) == 0, self.told()
        finally:
            end(tree(process))


def tree(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started."""
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def interrupt(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    """As a terminal does: its whole group."""
    os.killpg(whole[0].pid, signal.SIGINT)


def terminate(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    whole[0].terminate()


def kill_parent(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    whole[0].kill()


def kill_worker(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    end([whole[1:][rng.integers(len(whole) - 1)]] if whole[1:] else whole)


def kill_both(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    end(whole)


def stop_and_go_on(whole: list[psutil.Process], rng: np.random.Generator) -> None:
    for act in (psutil.Process.suspend, psutil.Process.resume):
        for process in whole:
            with suppress(psutil.NoSuchProcess):
                act(process)
        time.sleep(0.3)


WAYS = (kill_both, interrupt, kill_worker, terminate, kill_parent, stop_and_go_on)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


@pytest.fixture(scope="module")
def undisturbed(project: Killed) -> tuple[float, dict[str, bytes]]:
    """How long it takes, and what it makes."""
    began = time.monotonic()
    assert project.begin(COMMANDS[1]).wait(timeout=WAIT) == 0, project.told()
    made = project.made()
    assert sum(name.endswith("rounds.parquet") for name in made) == 4
    assert "artifacts/demo/theory-tiny/table.csv" in made
    return time.monotonic() - began, made


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_it_is_completed_by_a_further_run(
    project: Killed, undisturbed, number: int, record_property
) -> None:
    record_property("kills survived", 1)
    record_property("results identical", len(undisturbed[1]))
    seconds, made = undisturbed
    rng, way = np.random.default_rng(number), WAYS[number % len(WAYS)]
    command = COMMANDS[(number + number // len(WAYS)) % len(COMMANDS)]
    moment = rng.uniform(0.05, 0.9) * seconds
    while True:
        project.clean()
        process = project.begin(command)
        whole = []
        try:
            with suppress(psutil.TimeoutExpired):
                process.wait(timeout=moment)
            whole = tree(process) if process.poll() is None else []
            if whole:
                way(whole, rng)
                process.wait(timeout=WAIT)
                gone = f"{way.__name__}: something goes on"
                until(lambda: not [one for one in whole if one.is_running()], gone)  # noqa: B023
                break
            moment /= 2  # it was sooner than the kill
        finally:
            end(whole or tree(process))
    project.complete(command)
    assert project.made() == made


@pytest.mark.slow
def test_a_second_one_names_the_first_and_goes_on_once_that_is_killed(
    project: Killed, undisturbed, record_property
) -> None:
    """The first one is stopped in a stage, then killed: DVC's record of who reads and writes what still names it."""
    record_property("kills survived", 1)
    project.clean()
    page, pipe = project.notebook("tiny"), project.folder / "pipe"
    notebook, before = nbformat.read(page, 4), page.read_bytes()
    notebook.cells.insert(1, nbformat.v4.new_code_cell(f"open({str(pipe)!r}).read()"))
    nbformat.write(notebook, page)
    os.mkfifo(pipe)
    command = [*COMMANDS[1], "theory-tiny"]
    first = project.begin(command)
    whole, ends = [], []

    def read() -> bool:
        assert first.poll() is None, project.told()
        with suppress(OSError):  # nobody reads
            ends.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    try:
        until(read, "the page was not made")
        whole = tree(first)
        first.suspend()
        second = project.begin(command)
        whole.append(second)
        assert second.wait(timeout=WAIT) == 1
        held = rf"\S*data is in use by process {first.pid} \(fedlib repro theory-tiny\); "
        named = held + r"wait for it to end, or stop it, and .*\n"
        assert re.fullmatch(named, project.told())
    finally:
        end(whole or tree(first))
        first.wait(timeout=WAIT)
        for one in ends:
            os.close(one)
        page.write_bytes(before)
    assert str(first.pid) in (project.folder / ".dvc" / "tmp" / "rwlock").read_text()
    project.complete(command)
    made = project.made()
    assert "artifacts/demo/theory-tiny/table.csv" in made
    assert made.items() <= undisturbed[1].items()
