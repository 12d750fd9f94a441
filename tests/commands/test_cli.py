"""The command line: what it offers, and that what a person can mend is said in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedlib import __version__ as version
from fedlib.errors import ConfigError
from fedlib.runs import place
from fedlib.settings import params, schema
from workspace.commands import cli, cli_runs, listing, pipeline

COMMANDS = [
    "list",
    "run",
    "results",
    "archive",
    "scale",
    "set",
    "report",
    "repro",
    "pipeline",
    "doctor",
    "data",
    "notebook",
    "new",
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


@pytest.mark.parametrize("command", [[], ["report"], ["run"], ["data", "prepare"], ["arena", "check"]])
def test_a_flag_has_no_type(command: list[str]) -> None:
    assert "<bool>" not in CliRunner().invoke(cli.commands, [*command, "--help"]).output


def test_the_version_is_the_librarys(fedlib) -> None:
    assert fedlib("--version") == (0, f"{version}\n")


def test_open_says_which_site_or_page_is_not_there(
    fedlib, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "ROOT", tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert "no site yet; make it: fedlib report --scale paper" in fedlib("open")[1]
    for name in ("demo/index", "paper/index", "paper/fedcor/table_1"):
        path = tmp_path / "reports" / f"{name}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert "did you mean fedcor/table_1?" in fedlib("open", "fedcor-tabel_1")[1]
    fedlib("open")
    fedlib("open", "fedcor-table_1")
    fedlib("open", "--scale", "demo")
    assert [path.partition("/reports/")[2] for path in opened] == [
        "paper/index.html",
        "paper/fedcor/table_1.html",
        "demo/index.html",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list"],
        ["list", "--paper", "fedcor"],
        ["scale"],
        ["data", "status"],
        ["run", "cs_mnits"],
        ["run", "cs_mnist", "--methods", "MDD"],
        ["results", "cs_mnits"],
        ["archive", "cs_mnits"],
        ["notebook", "run", "fedcor-table_9"],
    ],
)
def test_what_only_reads_settings_imports_nothing_that_takes_long(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "workspace", *arguments]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=schema.ROOT).stderr
    imported = {line.split("|")[-1].strip().split(".")[0] for line in told.splitlines() if "|" in line}
    assert "fedlib" in imported
    assert not imported & {"torch", "pandas", "numba", "matplotlib", "papermill", "gpytorch", "sklearn"}
    assert "scipy.special" not in told


def test_list_names_what_the_other_commands_take(fedlib) -> None:
    status, shown = fedlib("list")
    assert status == 0
    for name in ("cs_mnist", "fedcor-table_1", "cs_partitions", "clustered_size", "cifar10"):
        assert name in shown


def test_list_can_be_about_one_paper(fedlib) -> None:
    status, shown = fedlib("list", "--paper", "fedcor", "--scale", "paper")
    assert status == 0
    for name in (
        "fedcor_fmnist",
        "fedcor-table_1",
        "theory-fedcor",
        "fedcor_toy",
        "power_of_choice",
        "cifar10",
    ):
        assert f" {name} " in shown
    for name in ("cs_mnist", "hcsfed-table_1", "cs_partitions", "hics_fl", "mnist"):
        assert f" {name} " not in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "cs_mnits"], "no experiment 'cs_mnits'; did you mean cs_mnist"),
        (["run", "cs_partition"], "did you mean cs_partitions"),
        (["run", "cs_mnist", "--methods", "MDD"], "no method 'MDD'; did you mean MD?"),
        (["run", "cs_mnist", "--seeds", "99"], "no seed 99; there are 0, 1"),
        (["list", "--paper", "fedcorr"], "no paper 'fedcorr'; did you mean fedcor?"),
        (["data", "prepare", "mnits"], "unknown dataset 'mnits'; did you mean mnist"),
        (["data", "verify", "mnits"], "unknown dataset 'mnits'"),
        (["notebook", "run", "fedcor-table_9"], "no notebook 'fedcor-table_9'; did you mean fedcor-table_1"),
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
    assert "'--scale': 'huge' is not one of" in shown
    status, shown = fedlib("frobnicate")
    assert status == 2
    assert "No such command 'frobnicate'; there are list, run," in shown
    status, shown = fedlib("run", "cs_partitions", "--methods", "MD")
    assert status == 1
    assert "'cs_partitions' has no method 'MD'" in shown
    status, shown = fedlib("run", "cs_mnist", "--seeds", "one")
    assert status == 2
    assert "no list of seeds" in shown


@pytest.mark.parametrize(("text", "numbers"), [("0,3", [0, 3]), ("0-4", [0, 1, 2, 3, 4]), ("7", [7])])
def test_seeds_are_numbers_and_ranges(text: str, numbers: list[int]) -> None:
    assert cli_runs._numbers(text) == numbers


def test_methods_and_seeds_may_be_repeated(fedlib, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "fedlib.runs.experiment.simulate",
        lambda whole, part, **given: asked.extend(part.work) or Path("table"),
    )
    status, _ = fedlib(
        *("run", "hcsfed_table_1", "--scale", "paper"),
        *("--methods", "Random, attrition", "--methods", "Random, Cluster"),
        *("--seeds", "0", "--seeds", "2-3", "--setting", "MNIST, q = 10 %, alpha = 0.1"),
    )
    assert status == 0
    methods, seeds = ["Random, attrition", "Random", "Cluster"], [0, 2, 3]
    setting = "MNIST, q = 10 %, alpha = 0.1"
    expected = {(setting, method, seed) for method in methods for seed in seeds}
    assert {tuple(work.columns.values()) for work in asked} == expected


def test_a_study_is_run_by_its_name_and_in_part(fedlib, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        "fedlib.runs.experiment.simulate", lambda whole, part, **given: asked.append(part) or Path("table")
    )
    assert fedlib("run", "cs_partitions", "--scale", "cpu")[0] == 0
    assert fedlib("run", "hics_partitions", "--scale", "paper", "--seeds", "0")[0] == 0
    assert [(part.name, part.scale) for part in asked] == [
        ("cs_partitions", "cpu"),
        ("hics_partitions", "paper"),
    ]
    assert {work.labels["seed"] for work in asked[1].work} == {0}
    assert fedlib("run", "fedcor_loss_changes", "--scale", "paper", "--dataset", "fmnist")[0] == 0
    assert {work.labels["data"] for work in asked[2].work} == {"FMNIST"}


def test_changing_the_scale_rewrites_one_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    old = params.PARAMS.read_text()
    path.write_text(old)
    pipeline.set_scale("paper", path)
    changed = [(a, b) for a, b in zip(old.splitlines(), path.read_text().splitlines(), strict=True) if a != b]
    assert changed == [(f"scale: {params.load().scale}", "scale: paper")]
    path.write_text("experiments: {}\n")
    with pytest.raises(ConfigError, match="has no line `scale"):
        pipeline.set_scale("paper", path)


@pytest.mark.bad_input
@pytest.mark.parametrize("text", ["0-99999999999", "0-999999999", "4-0", "-1", "0-", "1e3", "", "0,,1"])
def test_ranges_of_seeds_are_bounded(fedlib, text: str) -> None:
    status, shown = fedlib("run", "cs_mnist", f"--seeds={text}")
    assert status == 2
    assert "seeds" in shown


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FEDLIB_RUNS", "", "FEDLIB_RUNS is empty; name a folder, or unset it."),
        ("FEDLIB_DATASETS", " ", "FEDLIB_DATASETS is empty"),
        ("FEDLIB_WORKERS", "many", "FEDLIB_WORKERS is 'many'; it must be a whole number."),
        ("FEDLIB_WORKERS", "9" * 30, "it must be a whole number"),
        ("FEDLIB_DEVICE", "tpu", "FEDLIB_DEVICE is 'tpu'; it must be cpu or cuda."),
    ],
)
def test_the_environment_is_checked(monkeypatch, variable: str, value: str, message: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=message):
        place.Place.from_environment()


def test_doctor_fills_in_estimates_as_it_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = params.load()
    two = {name: whole.raw["experiments"][name] for name in ("cs_mnist", "cs_fedprox")}
    monkeypatch.setattr("fedlib.runs.cost.seconds", lambda run: 60.0)
    shown = []
    listing.costs(params.Experiments({"experiments": two}), "demo", lambda *what: shown.append(what))
    last = [[list(column.cells)[-1] for column in table.columns] for table, _ in shown]
    assert [cells[0] for cells in last] == ["0 of 2", "1 of 2", "all"]
    assert [cells[-1] for cells in last] == ["measuring ...", "measuring ...", ""]
    assert [measured for _, measured in shown] == ["1 of 2: cs_mnist", "2 of 2: cs_fedprox", ""]
