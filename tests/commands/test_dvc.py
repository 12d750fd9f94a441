"""DVC's stages, several at once: what runs beside what, and that DVC finds what it would have left itself."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from workspace.commands.dvc import Loop, reproduce

SECONDS = 60.0  # that anything may take on a busy machine
PIPELINE = """
stages:
  data: {cmd: echo data > data, outs: [data]}
  left: {cmd: cat data > left, deps: [data], outs: [left]}
  right: {cmd: cat data > right, deps: [data], outs: [right]}
  page: {cmd: cat left right > page, deps: [left, right], outs: [page]}
"""


class Command:
    """A shell's command, which waits for something else to happen before it starts."""

    def __init__(self, command: str, ready: threading.Event) -> None:
        self.command, self.ready = command, ready
        self.stopped = False

    def wait(self) -> int:
        assert self.ready.wait(SECONDS), f"{self.command} waits in vain"
        return 1 if self.stopped else subprocess.call(self.command, shell=True)

    def stop(self) -> None:
        self.stopped = True
        self.ready.set()


class Story:
    """Starts stages' commands and follows DVC; `of` are those that began, and `ended` those that DVC is done with."""

    def __init__(self, **waits: str) -> None:
        self.waits = waits  # stage -> the stage whose begin it waits for
        self.of: list[str] = []
        self.ended_: list[str] = []
        self.began: dict[str, threading.Event] = {}
        self.beside: dict[str, set[str]] = {}
        self.well: dict[str, bool] = {}

    def event(self, name: str) -> threading.Event:
        return self.began.setdefault(name, threading.Event())

    def start(self, stage: str, command: str, environment: Mapping[str, str]) -> Command:
        others = set(self.of) - set(self.ended_)
        for one in others:
            self.beside.setdefault(one, set()).add(stage)
        self.beside.setdefault(stage, set()).update(others)
        self.of.append(stage)
        self.event(stage).set()
        return Command(command, self.event(self.waits.get(stage, stage)))

    def planned(self, needs: Mapping[str, set[str]], known: set[str]) -> None:
        self.needs, self.known = needs, known

    def ended(self, name: str, well: bool) -> None:
        self.well[name] = well
        self.ended_.append(name)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from dvc.repo import Repo

    monkeypatch.chdir(tmp_path)
    Repo.init(no_scm=True)
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    return tmp_path


def made(
    project: Path,
    story: Story,
    *arguments: str,
    at_once: int = 2,
    alone: Callable[[str], bool] = lambda name: False,
) -> int:
    return reproduce(list(arguments), Loop(story.start, story, at_once, alone), project)


def nothing_is_stale(project: Path) -> bool:
    return subprocess.run([sys.executable, "-m", "dvc", "status", "-q"], cwd=project).returncode == 0


def test_stages_that_do_not_need_each_other_run_at_once(project: Path) -> None:
    story = Story(left="right", right="left")  # each waits until the other has begun
    assert made(project, story) == 0
    assert story.beside == {"data": set(), "left": {"right"}, "right": {"left"}, "page": set()}
    assert story.needs["page"] == {"left", "right"}
    assert (project / "page").read_text() == "data\ndata\n"
    assert nothing_is_stale(project)
    ours = (project / "dvc.lock").read_bytes()
    subprocess.run([sys.executable, "-m", "dvc", "repro", "--force", "-q"], cwd=project, check=True)
    assert (project / "dvc.lock").read_bytes() == ours

    again = Story()
    assert made(project, again) == 0
    assert again.of == []
    assert again.known == set(again.ended_) == {"data", "left", "right", "page"}


@pytest.mark.parametrize("how", [{"at_once": 1}, {"alone": lambda name: name == "left"}])
def test_one_that_takes_all_cores_has_none_beside_it(project: Path, how: dict) -> None:
    story = Story()
    assert made(project, story, **how) == 0
    assert set().union(*story.beside.values()) == set()
    assert sorted(story.of) == ["data", "left", "page", "right"]


def test_one_that_fails_stops_what_needs_it_and_leaves_the_others_whole(project: Path) -> None:
    (project / "dvc.yaml").write_text(PIPELINE.replace("cat data > left", "exit 3"))
    story = Story(left="right", right="left")
    assert made(project, story) != 0
    assert sorted(story.of) == ["data", "left", "right"]
    assert (project / "right").exists()
    (project / "dvc.yaml").write_text(PIPELINE)
    again = Story()
    assert made(project, again) == 0
    assert sorted(again.of) == ["left", "page"]


def test_with_keep_going_only_what_needs_it_is_left_out(project: Path) -> None:
    more = "  other: {cmd: cat data > other, deps: [data], outs: [other]}\n"
    (project / "dvc.yaml").write_text(PIPELINE.replace("cat data > left", "exit 3") + more)
    story = Story()
    assert made(project, story, "--keep-going", at_once=1) != 0
    assert sorted(story.of) == ["data", "left", "other", "right"]


def test_forced_downstream_what_needs_a_stage_that_ran_runs_though_nothing_changed(project: Path) -> None:
    made(project, Story())
    (project / "dvc.yaml").write_text(PIPELINE.replace("cat data > left", "cat data > left; true"))
    plain = Story()
    assert made(project, plain) == 0
    assert plain.of == ["left"]
    (project / "dvc.yaml").write_text(PIPELINE)
    (project / ".dvc" / "cache" / "runs").rename(project / "runs")  # otherwise DVC restores what ran before
    forced = Story()
    assert made(project, forced, "--force-downstream") == 0
    assert forced.of == ["left", "page"]


@pytest.mark.bad_input
def test_a_damaged_lock_file_is_named_and_made_again(project: Path, capsys: pytest.CaptureFixture) -> None:
    assert made(project, Story()) == 0
    lock = project / "dvc.lock"
    whole = lock.read_bytes()
    lock.write_bytes(b"<<<<<<< ours\n" + whole)
    again = Story()
    assert made(project, again) == 0
    assert again.of == ["data"]  # it depends on nothing; the others came from the run cache
    assert lock.read_bytes() == whole
    assert re.search(r"dvc.lock, line \d+: not valid YAML .* It is made again", capsys.readouterr().err)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also in a job that a shell began in the background."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def test_an_interruption_ends_every_command_and_leaves_no_lock(project: Path, interruptible: None) -> None:
    story = Story(left="never", right="never")
    interrupt = threading.Thread(
        target=lambda: [
            *(story.event(name).wait(SECONDS) for name in ("left", "right")),
            os.kill(os.getpid(), signal.SIGINT),
        ]
    )
    interrupt.start()
    assert made(project, story) == 252  # DVC's for an interruption
    interrupt.join()
    assert sorted(story.of) == ["data", "left", "right"]
    assert story.well == {"data": True, "left": False, "right": False}
    again = Story()
    assert made(project, again) == 0
    assert sorted(again.of) == ["left", "page", "right"]
    assert nothing_is_stale(project)


def test_the_stages_take_another_scale_than_params_yaml_which_stays(project: Path) -> None:
    """DVC finds the same stages at the given scale; without one they take that of the file."""
    settings = project / "params.yaml"
    settings.write_text("scale: demo\n")
    (project / "dvc.yaml").write_text(
        "stages: {page: {cmd: 'echo ${scale} > page-${scale}', outs: ['page-${scale}']}}"
    )
    for scale in ("paper", ""):
        loop = Loop((story := Story()).start, story, 1, lambda name: False)
        assert reproduce([], loop, project, scale) == 0
    assert (project / "page-paper").read_text() == "paper\n"
    assert (project / "page-demo").read_text() == "demo\n"
    assert settings.read_text() == "scale: demo\n"
