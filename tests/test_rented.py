"""`benchmarks.rented`, rehearsed without a card and without a network."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import rented
from fedlib.errors import DataError
from fedlib.runs import archive
from fedlib.settings.schema import ROOT
from workspace.commands import cli

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


def test_what_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen] = []
    start = rented.Rental.start

    def noted(*command) -> subprocess.Popen:
        started.append(start(*command))
        return started[-1]

    monkeypatch.setattr(rented.Rental, "start", noted)
    rental = rented.Rental(tmp_path, 60, "demo", "cpu")
    assert rental.call("http.server", "0", "--bind", "127.0.0.1", seconds=1) is None
    assert started[0].returncode == -signal.SIGTERM
    assert rental.call("timeit", "-n", "1", "pass", seconds=60) == 0


def test_there_is_time_to_archive_what_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []
    monkeypatch.setattr(
        rented.Rental, "call", lambda self, *command, seconds: asked.append((command[1], seconds))
    )
    rented.Rental(tmp_path, 300, "demo", "cpu").train(PART)
    (run, for_training), (archived, for_archive) = asked
    assert (run, archived) == ("run", "archive")
    assert for_training < 300 - rented.LAST < for_archive <= 300


@pytest.mark.parametrize("part", rented.TRAINED)
def test_each_part_names_runs_that_are_planned(
    part: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "fedlib.runs.experiment.simulate",
        lambda whole, part, **given: asked.extend(part.work) or Path("table"),
    )
    name, *options = shlex.split(part)
    done = CliRunner().invoke(
        cli.commands, ["run", name, "--scale", "paper", "--into", str(tmp_path), *options]
    )
    assert done.exit_code == 0, done.output
    assert asked


def test_nothing_is_trained_on_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlib.data.datasets.digest", lambda name: "another")
    with pytest.raises(DataError, match="mnist: its digest is another, that of cs_mnist's archived runs "):
        rented.check_data(["cs_mnist"], "paper")
