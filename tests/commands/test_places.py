"""Where the project may stand: no git, a path of any letters, no home, a plain locale, a disk that takes nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from copies import Project
from system import disk, full, read_only

from fedlib.settings.schema import ROOT

MIXED_UP = ("Traceback", "Exception ignored", "not a git repository")
NOWHERE = "/dev/null/nowhere"  # which not even root can make


def call(project: Project, *command: str, status: int = 0, **environment: str) -> str:
    """What a command says, which ends with a status, nothing to read from, and no terminal."""
    done = subprocess.run(
        command,
        cwd=project.folder,
        env=project.environment | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    assert not [words for words in MIXED_UP if words in said], said
    return said


def unpacked(folder: Path) -> Project:
    """As from an archive of the repository: DVC is told of no git by nobody."""
    project = Project(folder)
    shutil.rmtree(folder / ".dvc")
    (folder / ".dvc").mkdir()
    shutil.copy(ROOT / ".dvc" / "config", folder / ".dvc" / "config")
    return project


@pytest.mark.slow
def test_from_an_archive_in_a_path_of_any_letters_without_home_and_temporary_files(tmp_path: Path) -> None:
    folder = tmp_path / "Übung 1 (größer) & $HOME"
    folder.mkdir()
    project = unpacked(folder)
    plain = {"LANG": "C", "LC_ALL": "C", "HOME": NOWHERE, "TMPDIR": NOWHERE, "XDG_CACHE_HOME": ""}
    call(project, "fedlib", "repro", "theory-tiny", **plain)
    assert (folder / "data/artifacts/demo/theory-tiny/table.csv").exists()
    assert "up to date" in call(project, "dvc", "status", "theory-tiny")


@pytest.mark.slow
def test_a_disk_that_takes_nothing_is_told_in_a_sentence(tmp_path: Path) -> None:
    """Full, then read-only: each time a sentence; with space the same command completes."""
    with disk(tmp_path / "disk", "40m") as folder:
        project = Project(folder)
        for prepare, reason in ((full, "No space left on device"), (read_only, "Read-only file system")):
            with prepare(folder):
                said = call(project, "fedlib", "repro", "theory-tiny", status=1)
            assert f"cannot be written ({reason}); free some space or make the folder writable" in said
            assert len(said.splitlines()) == 1
        project.fedlib("repro", "theory-tiny")
        assert "artifacts/demo/theory-tiny/table.csv" in project.made()
