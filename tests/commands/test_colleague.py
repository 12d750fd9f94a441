"""A colleague has the commit with `dvc.lock` and a shared folder: pulled, all is up to date, and nothing is trained."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from copies import Project

from fedlib.settings.schema import ROOT


@pytest.mark.slow
def test_what_was_pushed_is_pulled_whole(tmp_path: Path) -> None:
    ours, theirs, shared = (tmp_path / name for name in ("ours", "theirs", "shared"))
    ours.mkdir()
    project = Project(ours)
    project.fedlib("repro")
    project.dvc("remote", "add", "-d", "shared", str(shared))
    project.dvc("push")
    made = {ours: {"data", "reports"}, ours / ".dvc": {"cache", "tmp"}}
    shutil.copytree(ours, theirs, ignore=lambda folder, _: made.get(Path(folder), set()))
    (theirs / "data" / "archive").mkdir(parents=True)
    project.folder = theirs
    project.environment["PYTHONPATH"] = str(theirs)
    project.dvc("pull")
    assert project.made().keys() >= {"artifacts/demo/theory-tiny/table.csv", "metrics/demo/theory-tiny.json"}
    said = project.dvc("repro", "report")
    assert set(re.findall(r"Running stage '(.*?)'", said)) <= {"report"}
    assert "up to date" in project.dvc("status")
    assert not (theirs / "data" / "runs").exists(), "nothing was trained"


def test_every_stage_says_what_it_is_for() -> None:
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count("desc: ") == text.count("cmd: ")
