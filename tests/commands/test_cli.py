"""The command line: what it offers, and that what a person can mend is said in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlib.commands import cli, pipeline
from fedlib.settings import params, schema

COMMANDS = [
    "list",
    "run",
    "results",
    "archive",
    "scale",
    "report",
    "repro",
    "pipeline",
    "doctor",
    "data",
    "notebook",
]


@pytest.fixture
def fedlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Call `fedlib <arguments>` -> (exit status, what it wrote)."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fedlib", *arguments])
        try:
            status = cli.app()
        except SystemExit as end:
            status = end.code
        written = capsys.readouterr()
        return status, written.out + written.err

    return call


def test_help_names_every_command() -> None:
    shown = CliRunner().invoke(cli.commands, ["--help"])
    assert shown.exit_code == 0
    for command in COMMANDS:
        assert f" {command} " in shown.output


@pytest.mark.parametrize("command", [*([c] for c in COMMANDS), ["data", "prepare"], ["notebook", "run"]])
def test_every_command_explains_itself(command: list[str]) -> None:
    shown = CliRunner().invoke(cli.commands, [*command, "--help"])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()) > 5


def test_asking_for_help_imports_nothing_heavy() -> None:
    code = "import sys, fedlib.commands.cli; print({'torch', 'pandas', 'matplotlib', 'papermill'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"


def test_list_names_what_the_other_commands_take(fedlib) -> None:
    status, shown = fedlib("list")
    assert status == 0
    for name in ("cs_mnist", "fedcor-table_1", "cs_partitions", "clustered_size", "cifar10"):
        assert name in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "cs_mnits"], "no experiment 'cs_mnits'"),
        (["run", "cs_mnist", "--methods", "MDD"], "no method 'MDD'"),
        (["run", "cs_mnist", "--seeds", "99"], "no seed 99; it has 0; 1"),
        (["data", "prepare", "mnits"], "unknown dataset 'mnits'"),
        (["data", "verify", "mnits"], "unknown dataset 'mnits'"),
        (["notebook", "run", "fedcor-table_9"], "there is no notebook"),
        (["notebook", "run", "simulate"], "add --experiment NAME"),
    ],
)
def test_errors_are_one_sentence(fedlib, arguments: list[str], message: str) -> None:
    status, shown = fedlib(*arguments)
    assert status == 1
    assert message in shown
    assert "Traceback" not in shown
    assert len(shown.strip().splitlines()) == 1


def test_usage_errors_name_the_option(fedlib) -> None:
    status, shown = fedlib("run", "cs_mnist", "--scale", "huge")
    assert status == 2
    assert "--scale" in shown
    status, shown = fedlib("run", "cs_partitions", "--methods", "MD")
    assert status == 2
    assert "is a study" in shown
    status, shown = fedlib("run", "cs_mnist", "--seeds", "one")
    assert status == 2
    assert "no list of seeds" in shown


@pytest.mark.parametrize(("text", "numbers"), [("0,3", [0, 3]), ("0-4", [0, 1, 2, 3, 4]), ("7", [7])])
def test_seeds_are_numbers_and_ranges(text: str, numbers: list[int]) -> None:
    assert cli._numbers(text) == numbers


def test_methods_and_seeds_may_be_repeated(fedlib, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(
        "fedlib.runs.results.simulate", lambda name, scale, **given: asked.update(given) or Path("table")
    )
    status, _ = fedlib(
        *("run", "cs_fedprox", "--methods", "FedAvg, attrition", "--methods", "MD, Algorithm 1"),
        *("--seeds", "0", "--seeds", "2-3", "--setting", "alpha = 0.1, q = 10 %"),
    )
    assert status == 0
    assert asked["methods"] == ["FedAvg, attrition", "MD", "Algorithm 1"]
    assert asked["seeds"] == [0, 2, 3]
    assert asked["settings"] == ["alpha = 0.1, q = 10 %"]


def test_a_study_is_run_by_its_name(fedlib, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "fedlib.analysis.studies.run_study", lambda *given, **options: asked.append(given) or Path("table")
    )
    assert fedlib("run", "cs_partitions", "--scale", "cpu")[0] == 0
    assert asked == [("cs_partitions", "cpu")]


def test_changing_the_scale_rewrites_one_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    old = params.PARAMS.read_text()
    path.write_text(old)
    pipeline.set_scale("paper", path)
    changed = [(a, b) for a, b in zip(old.splitlines(), path.read_text().splitlines(), strict=True) if a != b]
    assert changed == [(f"scale: {params.load().scale}", "scale: paper")]
    path.write_text("experiments: {}\n")
    with pytest.raises(schema.ConfigError, match="has no line `scale"):
        pipeline.set_scale("paper", path)
