"""`benchmarks.rented`, rehearsed without a card and without a network."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import rented
from fedlib.errors import DataError
from fedlib.runs import archive
from fedlib.settings.schema import ROOT

PART = "cs_mnist --methods MD --seeds 0"


def rent(folder: Path, *options: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        "-P",
        "-m",
        "benchmarks.rented",
        str(folder),
        "--cpu",
        "--scale",
        "demo",
        *options,
    ]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def files_of(folder: Path) -> dict[Path, float]:
    return {path: path.stat().st_mtime for path in folder.rglob("*.parquet")}


@pytest.mark.slow
def test_a_rental_leaves_all_that_it_made_in_its_folder_and_goes_on_there(tmp_path: Path) -> None:
    tree = files_of(ROOT / "data")
    once = rent(tmp_path, "--seconds", "400", "--sections", "limits", "--train", PART)
    assert once.returncode == 0, once.stderr
    numbers = json.loads((tmp_path / "gpu.json").read_bytes())
    assert numbers["limits"]["TFLOP/s"] > 0
    assert "Float32 products" in (tmp_path / "GPU.md").read_text()
    first = list(archive.read("cs_mnist", "demo", tmp_path / "archive").runs)
    assert {(record["method"], record["seed"]) for record in first} == {("MD", 0)}

    more = rent(
        tmp_path, "--seconds", "400", "--measure", "0", "--train", PART, "--train", PART.replace("0", "1")
    )
    assert more.returncode == 0, more.stderr
    both = archive.read("cs_mnist", "demo", tmp_path / "archive").runs
    assert [record for record in both if record["seed"] == 0] == first
    assert {record["seed"] for record in both} == {0, 1}
    assert files_of(ROOT / "data") == tree


@pytest.mark.slow
def test_a_rental_ends_when_its_time_is_up(tmp_path: Path) -> None:
    """A part is too long for the time that is left: it is stopped, and what it finished is archived."""
    began = time.monotonic()
    rental = rented.Rental(tmp_path, 60, "demo", "cpu")
    rental.train("hcsfed_sweep_mnist")
    assert time.monotonic() - began < 60 + 5


def test_nothing_is_trained_on_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlib.data.datasets.digest", lambda name: "another")
    with pytest.raises(DataError, match="mnist: its digest is another, that of cs_mnist's archived runs "):
        rented.check_data(["cs_mnist"], "paper")
