"""The deposit: one file with everything, which its own checksums verify."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pandas as pd
import pytest

import fedlib
from fedlib.errors import ConfigError
from fedlib.settings.schema import ROOT
from workspace.commands import deposit


def git(folder: Path, *arguments: str) -> None:
    name = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with two files, an archive of this project and a site."""
    root = tmp_path / "project"
    for name in (
        "data/LICENCES.md",
        "data/archive/paper/cs_partitions.parquet",
        "data/archive/paper/hics_cifar10.parquet",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((ROOT / name).read_bytes())
    (root / "reports" / "paper").mkdir(parents=True)
    (root / ".gitignore").write_text("reports/\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "all")
    return root


def test_a_deposit_is_whole_and_verifies_itself(project: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no site; make one"):
        deposit.pack(tmp_path, project)
    (project / "reports" / "paper" / "index.html").write_text("<p>The site.</p>")
    packed = deposit.pack(tmp_path, project)
    content = packed.read_bytes()
    assert deposit.pack(tmp_path, project).read_bytes() == content
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path / "out", filter="data")
    folder = tmp_path / "out" / f"fedlib-{fedlib.__version__}"
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder, check=False).returncode == 0
    listed = {line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert listed == there - {"SHA256SUMS"} >= {"site/index.html", "computed.csv", "LICENCES.md"}
    (folder / "site" / "index.html").write_text("<p>Another.</p>")
    assert subprocess.run(check, cwd=folder, check=False, capture_output=True).returncode == 1

    table = pd.read_csv(folder / "computed.csv")
    assert set(table["experiment"]) == {"cs_partitions", "hics_cifar10"}
    assert "NVIDIA H200" in set(table["device"])
    assert (table.loc[table["experiment"] == "hics_cifar10", "hours"] > 0).all()


def test_what_is_not_committed_is_not_deposited(project: Path, tmp_path: Path) -> None:
    (project / "reports" / "paper" / "index.html").write_text("")
    (project / "data" / "LICENCES.md").write_text("changed")
    with pytest.raises(ConfigError, match="commit them"):
        deposit.pack(tmp_path, project)


def test_what_others_read_of_the_project_is_of_one_version() -> None:
    for name in ("codemeta.json", ".zenodo.json"):
        assert json.loads((ROOT / name).read_text())["version"] == fedlib.__version__
    assert f"version: {fedlib.__version__}\n" in (ROOT / "CITATION.cff").read_text()
