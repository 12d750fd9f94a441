"""Every command of docs/dvc.md, word by word, in a small project with experiments and pages of the same names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from copies import Project
from nbformat.v4 import new_code_cell, new_notebook

from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.commands import notebooks, pipeline

DOCUMENTED = [
    re.sub(r"  +[a-z].*", "", line)
    for block in re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "dvc.md").read_text(), re.DOTALL)
    for line in block.splitlines()
]
PARAMS = """\
scale: demo
experiments:
  cs_mnist:
    title: A very small experiment
    dataset: digits
    partition: {scheme: iid}
    model: logistic
    N: 4
    m: 2
    T: 2  # rounds
    local: &local {lr: 0.1, batch: 8, steps: 2}
    methods: {MD: {sampler: md}}
    scales: {demo: {T: 3}}
studies: {}
artifacts:
  clustered_sampling-figure_1: {experiments: [cs_mnist]}
  fedcor-table_1: {experiments: [cs_mnist]}
  arena: {experiments: [cs_mnist]}
"""
LAST = "artifact.results['cs_mnist'].groupby('method')[['round', 'test_accuracy']].last()"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The pipeline made once, and committed with its results."""
    made = Project(tmp_path_factory.mktemp("docs") / "ours", PARAMS, pages=())
    for name in ("clustered_sampling-figure_1", "fedcor-table_1", "arena"):
        path = made.folder / "notebooks" / f"{notebooks.place(name)}.ipynb"
        path.parent.mkdir(exist_ok=True)
        cells = [
            new_code_cell("scale = None", metadata={"tags": ["parameters"]}),
            new_code_cell(
                "from workspace.pages.artifact import Artifact\n"
                f"artifact = Artifact.open({name!r}, scale)\n"
                f"last = {LAST}\n"
                "artifact.table(last)\n"
                "artifact.measure(last['test_accuracy'].to_dict())"
                if name == "arena"
                else f"from workspace.pages.artifact import Artifact\nArtifact.open({name!r}, scale)"
            ),
        ]
        nbformat.write(new_notebook(cells=cells, metadata=notebooks.METADATA), path)
    pipeline.write_stages(made.folder / "dvc.yaml")
    (made.folder / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (made.folder / ".gitignore").write_text(
        "/data/*\n!/data/archive/\n/reports/\n/dvc_plots/\n__pycache__/\n.dvc/tmp\n.dvc/cache\n"
    )
    (made.folder / "data" / "archive" / "README.md").touch()
    git(made, "init", "--quiet", "--initial-branch=main")
    commit(made)
    made.call(*["dvc", "repro", "fedcor-table_1"])
    made.call("dvc", "repro")
    commit(made)
    return made


def git(project: Project, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *own, *words], cwd=project.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commit(project: Project) -> None:
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--allow-empty", "--message=made")


def ran(said: str) -> set[str]:
    return set(re.findall(r"Running stage '(.+?)'", said))


def accuracy(project: Project) -> dict[str, float]:
    return json.loads((project.folder / "data" / "metrics" / "demo" / "arena.json").read_text())


def trained(project: Project) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (project.folder / "data" / "runs").rglob("run.json")}


def rounds(project: Project) -> int:
    table = pd.read_parquet(project.folder / "data" / "results" / "demo" / "cs_mnist.parquet")
    return int(table["round"].max())


TRIED: set[str] = set()


def documented(project: Project, command: str, *instead: tuple[str, str]) -> str:
    """What a command of the page says. instead: what stands for a place of the reader's."""
    assert command in DOCUMENTED, f"docs/dvc.md has no {command!r}"
    TRIED.add(command)
    for old, new in instead:
        command = command.replace(old, new)
    words = [word.strip("\"'") for word in re.findall(r"\"[^\"]*\"|'[^']*'|\S+", command)]
    return git(project, *words[1:]) if words[0] == "git" else project.call(*words)


@pytest.mark.slow
def test_looking_changes_nothing(project: Project) -> None:
    assert "up to date" in documented(project, "dvc status")
    assert documented(project, "dvc repro fedcor-table_1").count("Running stage") == 0
    assert "simulate@cs_mnist" in documented(project, "dvc dag")
    shown = documented(project, "dvc metrics show")
    assert f"{accuracy(project)['MD']:.4f}"[:5] in shown
    assert "index.html" in documented(project, "dvc plots show")
    assert not documented(project, "dvc params diff").strip()
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.slow
def test_forced_an_experiment_is_trained_again(project: Project) -> None:
    """In a process of its own, whose command says `dvc repro -f`; without it the runs of the store are taken."""
    before = trained(project)
    project.call("dvc", "repro", "-s", "simulate@cs_mnist")
    assert trained(project) == before
    command = "dvc repro -f -s simulate@cs_mnist"
    assert command in DOCUMENTED
    TRIED.add(command)
    own = {name: value for name, value in project.environment.items() if name != "FEDLIB_WARM"}
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=project.folder, env=own, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is done again" in done.stdout + done.stderr
    again = trained(project)
    assert again.keys() == before.keys()
    assert all(again[path] > time for path, time in before.items())
    project.fedlib("repro", "-f", "-s", "simulate@cs_mnist")
    assert all(trained(project)[path] > time for path, time in again.items())
    git(project, "checkout", "dvc.lock")
    project.dvc("checkout")


@pytest.mark.slow
def test_an_experiment_of_dvc_has_its_own_numbers(project: Project) -> None:
    first, key = rounds(project), "experiments.cs_mnist.scales.demo.T=20"
    documented(project, f"dvc exp run --temp -S {key} clustered_sampling-figure_1")
    assert rounds(project) == first == 3, "this folder is as it was"
    assert git(project, "status", "--porcelain") == ""
    assert "20" in documented(project, "dvc exp show --only-changed")

    documented(project, f"dvc exp run -S {key} clustered_sampling-figure_1")
    assert rounds(project) == 20
    assert "20" in documented(project, "dvc params diff")
    documented(project, "git checkout params.yaml")
    documented(project, f"fedlib set {key}")
    changed = git(project, "diff", "--numstat", "params.yaml")
    assert changed.split()[:2] == ["1", "1"], "one line, comment and anchor as they were"
    assert "up to date" in project.dvc("status", "clustered_sampling-figure_1")
    assert params.load(project.folder / "params.yaml").runs("cs_mnist", "demo")[0].run.T == 20
    git(project, "checkout", "params.yaml", "dvc.lock")
    project.dvc("checkout")


@pytest.mark.slow
def test_experiments_wait_in_a_queue(project: Project) -> None:
    key = "experiments.cs_mnist.scales.demo.T=4"
    documented(project, f"dvc exp run --queue -S {key} clustered_sampling-figure_1")
    documented(project, "dvc exp run --run-all")
    assert "4" in documented(project, "dvc exp show --only-changed")
    assert rounds(project) == 3


@pytest.mark.slow
def test_a_colleague_pulls_all_and_trains_nothing(project: Project, tmp_path: Path) -> None:
    shared, theirs = tmp_path / "shared", tmp_path / "theirs"
    documented(
        project, "dvc remote add -d shared /mnt/shared/selection", ("/mnt/shared/selection", str(shared))
    )
    documented(project, "dvc push")
    documented(project, "git add dvc.lock .dvc/config")
    documented(project, 'git commit -m "Results at scale demo"')
    subprocess.run(["git", "clone", "--quiet", project.folder, theirs], check=True)
    colleague = Project.__new__(Project)
    colleague.folder = theirs
    colleague.environment = {**project.environment, "PYTHONPATH": str(theirs)}
    documented(colleague, "dvc pull")
    assert accuracy(colleague) == accuracy(project)
    assert ran(documented(colleague, "dvc repro report")) <= {"report"}
    assert "up to date" in colleague.dvc("status")
    assert not (theirs / "data" / "runs").exists(), "nothing was trained"


@pytest.mark.slow
def test_every_command_of_the_page_was_tried() -> None:
    assert set(DOCUMENTED) == TRIED
