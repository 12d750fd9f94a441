"""Two clones and one environment: each works on its own folder, with its own code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from copies import copy_project

from fedlib.files import HOME


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of this clone's environment in another one's folder."""
    own = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "FEDLIB_WARM")}
    return subprocess.run(
        [sys.executable, "-P", *arguments], cwd=folder, env=own, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clone")
    copy_project(root)
    return root


@pytest.mark.parametrize("below", [".", "notebooks/fedcor"])
def test_a_command_in_another_clone_runs_its_code_on_its_files(below: str, clone: Path) -> None:
    params = clone / "params.yaml"
    params.write_text(params.read_text().replace("scale: demo", "scale: cpu", 1))
    (clone / "workspace" / "commands" / "cli_data.py").open("a").write("\nprint('the code of the clone')\n")
    done = program(clone / below, "-c", "from workspace.__main__ import main; main()", "scale")
    assert done.returncode == 0, done.stderr
    assert "the code of the clone" in done.stdout
    assert "scale: cpu" in done.stdout


@pytest.mark.bad_input
def test_a_program_is_refused_to_work_on_another_clone(clone: Path) -> None:
    done = program(clone, "-c", "from fedlib.settings import params; params.load()")
    assert done.stderr.splitlines()[-1].endswith("with PYTHONPATH=" + str(clone) + ", or in another folder.")
    assert str(HOME) in done.stderr


def test_elsewhere_a_program_works_on_the_clone_that_its_code_is_from(tmp_path: Path) -> None:
    done = program(tmp_path, "-c", "from fedlib.files import ROOT; print(ROOT)")
    assert done.stdout == f"{HOME}\n"
