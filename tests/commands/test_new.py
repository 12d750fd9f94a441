"""What `fedlib new` begins passes the tests that an addition must pass, and does what it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
from copies import copy_project

from fedlib.settings import params
from fedlib.settings.schema import ROOT

Call = Callable[..., str]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Call `fedlib` in a copy of the project with its tests -> what it says, if it ends with this status."""
    environment = copy_project(tmp_path)
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("ARCHITECTURE.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def called(*words: str, status: int = 0) -> str:
        done = forked.run(["fedlib", *words], tmp_path, environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return called


@pytest.mark.slow
def test_a_new_paper_stands_in_its_place_and_passes_once_it_is_frozen(tmp_path: Path, call: Call) -> None:
    said = call("new", "paper", "small_trial", "--title", "A Trial", "--year", "2023")
    assert "workspace/papers/small_trial/claims.py" in said
    call("new", "artifact", "small_trial-table_1", "st_first")
    settings = params.load(tmp_path / "params.yaml")
    order = [entry["paper"] for entry in settings.raw["experiments"].values()]
    position = order.index("small_trial")
    assert (order[position - 1], order[position + 1]) == ("power_of_choice", "hcsfed")
    pages = list(settings.artifacts)
    position = pages.index("small_trial-figure_1")
    assert pages[position - 1 : position + 3] == [
        *("power_of_choice-figure_4", "small_trial-figure_1"),
        *("small_trial-table_1", "hcsfed-figure_1"),
    ]
    call("freeze", "small_trial")
    call("new", "check", "small_trial")
    (tmp_path / "workspace" / "papers" / "small_trial" / "frozen.csv").unlink()
    assert "test_frozen.py" in call("new", "check", "small_trial", status=1)


def test_a_new_paper_has_a_page(tmp_path: Path, call: Call) -> None:
    call("new", "paper", "trial")
    call("run", "trial_first")
    call("notebook", "run", "trial-figure_1")
    assert (tmp_path / "data" / "artifacts" / "demo" / "trial-figure_1" / "figure.svg").exists()


@pytest.mark.slow
def test_a_new_sampler_passes_once_it_is_pinned_and_recorded(tmp_path: Path, call: Call) -> None:
    call("new", "sampler", "small_trial")
    assert "small_trial has no pin yet" in call("new", "check", "small_trial", status=1)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "tests/test_pins.py"], cwd=tmp_path, env=environment, check=True)
    call("revision", "keep", "small_trial")
    call("new", "check", "small_trial")


def test_a_new_dataset_is_prepared(call: Call) -> None:
    call("new", "dataset", "small_trial")
    call("data", "prepare", "small_trial")
    assert "small_trial" in call("data", "verify", "small_trial")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("paper", "fedcor"), "workspace/papers/fedcor/__init__.py is there already"),
        (("paper", "My Paper"), "'My Paper' is no name"),
        (("sampler", "../uniform"), "'../uniform' is no name"),
        (("artifact", "fedcor-figure_9", "fedcor_fmnst"), "no experiment or study 'fedcor_fmnst'"),
    ],
)
def test_what_is_there_or_no_name_is_refused_and_nothing_is_written(words, sentence, capsys, monkeypatch):
    from workspace.commands import cli

    before = subprocess.run(["git", "status", "--short"], cwd=ROOT, capture_output=True, check=False).stdout
    monkeypatch.setattr(sys, "argv", ["fedlib", "new", *words])
    assert cli.app() == 1
    assert sentence in capsys.readouterr().err
    after = subprocess.run(["git", "status", "--short"], cwd=ROOT, capture_output=True, check=False).stdout
    assert after == before
