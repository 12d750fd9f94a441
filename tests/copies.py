"""Copies of the project, without data, for tests that change it or write into it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import forked
import nbformat
from jupyter_client import AsyncKernelManager
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fedlib.settings.schema import ROOT
from workspace.commands import notebooks, pipeline


def copy_project(root: Path) -> dict[str, str]:
    """Copy code, notebooks and settings to `root`; returns the environment in which `fedlib` is that copy's.

    Bytecode and machine code come along: they are those of unchanged files, and to compile them takes long.
    """
    for name in ("fedlib", "workspace", "notebooks", "site", "arena"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("*.tmp.*", ".ipynb*"))
    shutil.copytree(ROOT / "data" / "reference", root / "data" / "reference")
    for name in ("params.yaml", "dvc.yaml", "data/error_rates.csv", "data/SHA256SUMS"):
        shutil.copy(ROOT / name, root / name)
    return environment_of(root)


def environment_of(root: Path) -> dict[str, str]:
    """The environment in which `fedlib` is that of a copy of the project."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("FEDLIB_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    return forked.forking({**own, "PYTHONPATH": str(root), "PATH": path, "FEDLIB_WORKERS": "1"})


KERNEL = "from ipykernel.kernelapp import launch_new_instance; launch_new_instance()"


class ForkedKernel(AsyncKernelManager):
    """Begins a notebook's kernel in a fork, if its environment is `forked.forking`."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [sys.executable, "-m", "workspace", "python", "-c", KERNEL, "-f", self.connection_file]


PARAMS = """\
scale: demo
experiments:
  tiny: &run
    title: A very small experiment
    dataset: digits
    partition: {scheme: iid}
    model: logistic
    N: 4
    m: 2
    T: 2
    local: {lr: 0.1, batch: 8, steps: 2}
    methods: {MD: {sampler: md}}
    seeds: 2
  elsewhere: {<<: *run, title: Data that is not here, dataset: mini_imagenet, seeds: 1}
studies: {}
artifacts:
  theory-tiny: {experiments: [tiny]}
  theory-elsewhere: {experiments: [elsewhere]}
"""


def _write(path: Path, *cells: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parameters = new_code_cell("scale = None", metadata={"tags": ["parameters"]})
    made = [new_markdown_cell("# Tiny"), parameters, *map(new_code_cell, cells)]
    nbformat.write(new_notebook(cells=made, metadata=notebooks.METADATA), path)


class Project:
    """A copy of the project with settings and artifacts of its own; `dvc` runs DVC there."""

    def __init__(
        self, folder: Path, settings: str = PARAMS, pages: Iterable[str] = ("tiny", "elsewhere")
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        for name in ("fedlib", "workspace", "site", "docs", "dvc.yaml", ".dvcignore"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        (folder / "notebooks").mkdir()
        (folder / "data" / "archive").mkdir(parents=True)
        for name in notebooks.LOGS:
            shutil.copy(ROOT / "notebooks" / f"{name}.ipynb", folder / "notebooks")
        (folder / "params.yaml").write_text(settings)
        for name in pages:
            show = f"artifact.table(artifact.results['{name}'].groupby('method')[['test_accuracy']].last())"
            opened = f"artifact = Artifact.open('theory-{name}', scale)"
            cells = "from workspace.pages.artifact import Artifact", opened, show, "artifact.judge()"
            _write(self.notebook(name), *cells)
        pipeline.write_stages(folder / "dvc.yaml")
        self.environment = {**os.environ, "PYTHONPATH": str(folder), "FEDLIB_WORKERS": "1"}
        self.environment.pop("FEDLIB_MIRROR", None)
        (folder / ".dvc").mkdir()
        (folder / ".dvc" / "config").write_text("[core]\n    analytics = false\n    no_scm = true\n")

    def notebook(self, name: str) -> Path:
        return self.folder / "notebooks" / "theory" / f"{name}.ipynb"

    def dvc(self, *arguments: str) -> str:
        return self.call("dvc", *arguments)

    def fedlib(self, *arguments: str) -> str:
        return self.call("fedlib", *arguments)

    def call(self, *command: str, status: int = 0) -> str:
        """What a command says, which ends with a status."""
        done = forked.run(command, self.folder, self.environment)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def made(self) -> dict[str, bytes]:
        """What is determined: the rounds of all runs, the tables and verdicts of all pages."""
        data = self.folder / "data"
        patterns = (
            "runs/??/*/rounds.parquet",
            "artifacts/**/*.csv",
            "artifacts/**/*.json",
            "metrics/**/*.json",
        )
        found = [path for pattern in patterns for path in data.glob(pattern)]
        return {path.relative_to(data).as_posix(): path.read_bytes() for path in found}
