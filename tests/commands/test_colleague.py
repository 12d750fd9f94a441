"""A colleague has the commit with `dvc.lock` and a shared folder: pulled, all is up to date, and nothing is trained."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from copies import Project

from fedlib.runs.results import open_results
from fedlib.settings.schema import ROOT


def test_results_of_two_trainings_are_the_same_files(tmp_path: Path) -> None:
    """Seconds and dates stand apart, so that two machines' `dvc.lock` agree; who has them, reads them."""
    project = Project(tmp_path)
    made, data = [], tmp_path / "data"
    for turn in range(2):
        project.fedlib("notebook", "normalise")
        project.fedlib("notebook", "run", "simulate", "--experiment", "tiny")
        made.append({path.name: path.read_bytes() for path in (data / "results" / "demo").iterdir()})
        table, info = open_results("tiny", "demo", data / "results")
        assert (table["seconds"] > 0).any()
        assert all("date" in run for run in info["runs"])
        for folder in ("runs", "results", "times"):
            shutil.move(data / folder, tmp_path / f"{folder} {turn}")
    assert set(made[0]) == {"tiny.parquet", "tiny.json", "tiny.csv", "tiny.ipynb"}
    assert made[0] == made[1]
    table, _ = open_results("tiny", "demo", tmp_path / "results 1")
    assert table["seconds"].isna().all()


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
