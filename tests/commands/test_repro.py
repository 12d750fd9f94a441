"""`fedlib repro`: how far it is, what it keeps for DVC, and what is left behind when it is killed."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest

from fedlib.runs.place import Place
from fedlib.settings.schema import Scale
from workspace.commands import dvc, repro
from workspace.commands.command import Command
from workspace.commands.progress import TRUST, StageProgress
from workspace.commands.repro import taking_all_cores
from workspace.commands.warm import VARIABLE

NEEDS = {
    "data": set(),
    "simulate@a": {"data"},
    "page-a": {"simulate@a"},
    "page-b": {"data"},
    "report": {"page-a", "page-b"},
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def never(name: str) -> bool:
    """Whether a stage takes all cores."""
    return False


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """What the stages took the last time: a minute each."""
    path = tmp_path / "repro.json"
    path.write_text(json.dumps({"paper": dict.fromkeys(NEEDS, 60.0)}))
    return path


def goes(progress: StageProgress, clock: Clock, name: str, seconds: float | None) -> None:
    """A stage of a plan, which runs for so long, or is left out."""
    if seconds is not None:
        progress.begins(name)
        clock.now += seconds
    progress.ended(name)


def test_the_time_left_follows_this_machine(times: Path) -> None:
    said, clock = [], Clock()
    progress = StageProgress(times, "paper", 1, never, said.append, clock)
    progress.planned(NEEDS, earlier=set())
    for name in NEEDS:
        goes(progress, clock, name, 120.0)
    assert said[0] == "1 of 5: data (about 5 min left)"
    assert said[-1] == f"5 of 5: report (about {60 * (480 + TRUST) / (240 + TRUST) / 60:.0f} min left)"
    progress.keep()
    assert json.loads(times.read_text())["paper"] == dict.fromkeys(NEEDS, 120.0)


def test_the_time_of_a_stage_that_was_cut_short_is_not_kept(times: Path) -> None:
    clock = Clock()
    progress = StageProgress(times, "paper", 1, never, lambda line: None, clock)
    progress.planned(NEEDS, earlier=set())
    progress.begins("data")
    clock.now += 5.0
    progress.ended("data", well=False)
    goes(progress, clock, "page-b", 7.0)
    progress.keep()
    assert json.loads(times.read_text())["paper"] == {**dict.fromkeys(NEEDS, 60.0), "page-b": 7.0}


def test_what_is_not_stale_takes_no_time(times: Path) -> None:
    clock = Clock()
    progress = StageProgress(times, "paper", 1, never, lambda line: None, clock)
    progress.planned(NEEDS, earlier=set(NEEDS))
    for name in ("data", "simulate@a", "page-a"):
        goes(progress, clock, name, None)
    few = progress.remaining()
    assert few == pytest.approx(2 * 60 / 4)
    progress = StageProgress(times, "paper", 1, never, lambda line: None, clock)
    progress.planned(NEEDS, earlier=set(NEEDS))
    goes(progress, clock, "data", None)
    goes(progress, clock, "simulate@a", 60.0)
    assert progress.remaining() == pytest.approx(60 + 60 * 2 / 3 + 60), "what needs the stale is stale"


def test_two_at_once_take_half_as_long_but_for_those_that_take_all_cores_and_the_last(times: Path) -> None:
    said, clock = [], Clock()
    progress = StageProgress(times, "paper", 2, lambda name: name == "simulate@a", said.append, clock)
    progress.planned(NEEDS, earlier=set())
    progress.begins("data")
    assert progress.remaining() == pytest.approx(60 / 2 + 60 + 2 * 60 / 2 + 60)
    clock.now += 20.0
    progress.begins("page-b")
    assert progress.remaining() == pytest.approx(40 / 2 + 60 + 2 * 60 / 2 + 60)
    assert said == ["1 of 5: data (about 4 min left)", "2 of 5: page-b (about 3 min left)"]


@pytest.mark.parametrize(
    ("scale", "place", "alone"),
    [
        ("demo", Place(), False),
        ("demo", Place(runs=Path("elsewhere")), False),
        ("demo", Place(workers=1), True),
        ("demo", Place(device="cuda"), True),
        ("demo", Place(scheduler="tcp://host:8786"), True),
        ("cpu", Place(), True),
    ],
)
def test_who_says_how_to_train_has_one_training_at_a_time(scale: str, place: Place, alone: bool) -> None:
    takes_all = taking_all_cores(scale, place)
    assert [takes_all(name) for name in ("simulate@a", "study@b", "page", "report")] == [
        alone,
        alone,
        False,
        False,
    ]


def test_no_time_is_told_that_nobody_knows(tmp_path: Path) -> None:
    said = []
    progress = StageProgress(tmp_path / "repro.json", "paper", 1, never, said.append)
    progress.planned(NEEDS, earlier=set())
    progress.begins("data")
    assert said == ["1 of 5: data"]
    (tmp_path / "repro.json").write_text("[1")
    StageProgress(tmp_path / "repro.json", "demo", 1, never, said.append)


@pytest.mark.parametrize(
    ("scale", "made", "status"),
    [("demo", (0, True), 0), ("paper", (0, True), 0), ("demo", (0, False), 0), ("demo", (255, False), 255)],
)
def test_after_the_site_of_its_scale_comes_that_of_the_papers(
    scale: Scale, made: tuple[int, bool], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only once, only if the site was made at all, and only if it is another scale's."""
    asked = []
    monkeypatch.setattr(repro, "alone", lambda folder: nullcontext())
    for step in ("write_stages", "forget_missing"):
        monkeypatch.setattr(repro.pipeline, step, lambda: None)
    monkeypatch.setattr(repro.pipeline, "forget_changed", lambda scale: None)
    monkeypatch.setattr(repro, "_reproduced", lambda arguments, scale: made)
    monkeypatch.setattr(repro.pipeline, "make_pages", lambda *how, **kind: asked.append((how[0], kind)) or [])
    assert repro.repro([], scale) == status
    wanted = [("paper", {"with_site": True})] if scale == "demo" and made == (0, True) else []
    assert asked == wanted


@pytest.mark.parametrize("record", ['{"write": {"x": {"pid"', "[]", '{"read": {"x": [7]}}'])
def test_a_broken_record_of_readers_goes(record: str, tmp_path: Path) -> None:
    (tmp_path / "rwlock").write_text(record)
    dvc.release_killed(tmp_path / "rwlock")
    assert not (tmp_path / "rwlock").exists()


def test_whoever_reads_still_is_kept_and_a_number_that_was_given_again_is_not(tmp_path: Path) -> None:
    path, me = tmp_path / "rwlock", psutil.Process()
    path.write_text(json.dumps({"write": {"x": {"pid": me.pid, "cmd": "dvc repro"}}}))
    dvc.release_killed(path)
    assert path.exists()
    os.utime(path, (me.create_time() - 60,) * 2)  # written before this process began
    dvc.release_killed(path)
    assert not path.exists()
    dvc.release_killed(path)


def test_what_a_command_says_is_in_the_log_and_how_far_it_is_on_the_terminal(tmp_path: Path) -> None:
    code = "import sys; print('a warning', file=sys.stderr); print('a: 3 of 9 rounds (33%)'); sys.exit(3)"
    log, said = io.StringIO(), []
    environment = {**os.environ, VARIABLE: str(tmp_path / "gone")}
    assert Command("simulate@a", f'{sys.executable} -c "{code}"', environment, log, said.append).wait() == 3
    assert "simulate@a: a warning\n" in log.getvalue()
    assert said == ["  a: 3 of 9 rounds (33%)"]


def test_a_command_that_is_stopped_ends(tmp_path: Path) -> None:
    """With what it started: only then is nobody left who could write to its output."""
    command = Command("page", "sleep 600; true", dict(os.environ), io.StringIO(), lambda line: None)
    command.stop()
    assert command.wait() != 0
    assert not command.follow.is_alive()


@pytest.mark.bad_input
def test_a_command_that_is_killed_says_so_and_speaks_of_memory(tmp_path: Path) -> None:
    log = io.StringIO()
    command = Command("page", "kill -KILL $$", dict(os.environ), log, lambda line: None)
    assert command.wait() == -9
    (told,) = command.tail
    assert re.fullmatch(r"page: it was killed\. .*memory ran out \(\d+\.\d GiB are free now\): .*", told)
    stopped = Command("page", "sleep 600", dict(os.environ), log, lambda line: None)
    stopped.stop()
    stopped.wait()
    assert not stopped.tail
