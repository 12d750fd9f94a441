"""Every page's notebook, run by hand: without papermill and DVC, and before there are results."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import Any

import forked
import pandas as pd
import pytest
from copies import ForkedKernel, copy_project
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from papermill import inspect_notebook

from fedlib.runs import archive, results
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.commands import notebooks
from workspace.commands.inprocess import IN_ORDER

# As `%reset -f`, which takes 0.4 s longer each time.
CLEAR = """\
import builtins
for name in {*globals()} - {*dir(builtins), "In", "Out", "get_ipython", "exit", "quit", "open"}:
    if not name.startswith("_"):
        del globals()[name]"""


@pytest.mark.slow
def test_every_page_runs_by_hand_and_says_what_to_run_first(tmp_path: Path) -> None:
    """In a kernel as JupyterLab has it, from the notebook's own folder; one kernel for all, to be quick."""
    environment, settings = copy_project(tmp_path), params.load()
    ran = new_notebook()
    client = NotebookClient(ran, timeout=600, kernel_manager_class=ForkedKernel)

    def runs(cell: NotebookNode) -> bool:
        """Whether a cell runs through; False where it ends for want of results."""
        ran.cells.append(cell)
        try:
            client.execute_cell(cell, len(ran.cells) - 1)
        except CellExecutionError as error:
            if error.ename not in {kind.__name__ for kind in IN_ORDER}:
                raise
            return False
        return True

    with client.setup_kernel(env=environment, cwd=str(tmp_path)):
        for name, experiments in settings.artifacts.items():
            path = tmp_path / "notebooks" / f"{name.replace('-', '/', 1)}.ipynb"
            assert runs(new_code_cell(f"{CLEAR}\n%cd -q {path.parent}"))
            cells = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
            done = list(takewhile(runs, cells))
            shown = "".join(o.data.get("text/markdown", "") for c in done for o in c.outputs if "data" in o)
            for experiment in experiments:
                assert f"`fedlib run {experiment} --scale {settings.scale}`" in shown, name


def test_a_page_and_a_table_come_from_the_archive(tmp_path: Path) -> None:
    """On a fresh clone, where nothing was run: the archive is looked into first, and what is not there is said."""
    environment = copy_project(tmp_path)
    for name in ("fedcor_partitions", "fedcor_centralised"):
        packed = archive.path_of(name, "paper")
        copy = tmp_path / packed.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(packed, copy)

    def fedlib(*command: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["fedlib", *command, "--scale", "paper"], tmp_path, environment)

    made = fedlib("notebook", "run", "fedcor-centralised")
    assert made.returncode == 0, made.stderr
    page = tmp_path / "data" / "artifacts" / "paper" / "fedcor-centralised" / "notebook.ipynb"
    assert "`fedcor_centralised` at scale **paper**" in page.read_text()
    assert "`fedcor_centralised` has not been run" not in page.read_text()

    table = fedlib("results", "fedcor_cifar10", "no_such_experiment", "fedcor_partitions")
    assert table.returncode == 1
    assert "fedcor_cifar10 at scale paper: none of its" in table.stderr
    assert "no experiment 'no_such_experiment'" in table.stderr
    assert "fedcor_partitions.parquet" in table.stdout
    there, _ = results.open_results("fedcor_partitions", "paper", tmp_path / "data" / "results")
    assert len(there)


TURNED = {  # parameter -> another value than that of any notebook
    "target": 0.55,
    "smoothing": 4,
    "rounds": 2,
    "in_a_row": 2,
    "share": 0.1,
    "coverage": 0.8,
    "noise": 0.1,
    "m": 6,
    "H": 6,
    "T_s": 0.002,
}
PROGRAM = """\
import os, sys
from workspace.commands import notebooks as n
for name, chosen in {chosen!r}.items():
    if not (child := os.fork()):
        try:
            n.executed(n.SOURCES / (n.place(name) + ".ipynb"), chosen)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("failed:", name)
"""


def _with_archive(folder: Path, experiments: Iterable[str]) -> dict[str, str]:
    """A copy of the project with these experiments' archives; returns its environment."""
    environment = copy_project(folder)
    for name in experiments:
        packed = archive.path_of(name, "paper")
        (folder / packed.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(packed, folder / packed.relative_to(ROOT))
    return environment


def _run(chosen: dict[str, dict[str, Any]], folder: Path, environment: dict[str, str]) -> str:
    """Run pages with parameters, each in a fork; returns the lines that name those that failed."""
    ran = forked.run(["python", "-c", PROGRAM.format(chosen=chosen)], folder, environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stderr[-3000:] if "failed:" in ran.stdout else ""


@pytest.mark.slow
def test_a_page_shows_what_its_reader_chose_from_the_archive(tmp_path: Path) -> None:
    """Two methods, one seed, another target and smoothing, nothing trained: the figure has their lines alone."""
    pages = {
        "fedcor-figure_4": {"seeds": 1, "methods": ["FedCor", "Random"], "target": 0.5, "smoothing": 30},
        "hics_fl-figure_13": {"seeds": 0, "methods": ["HiCS-FL", "Random"], "smoothing": 0},
        "clustered_sampling-figure_1": {"seeds": 0, "methods": "MD", "smoothing": 20},
    }
    experiments = ["fedcor_fmnist", "hics_fmnist", "cs_mnist", "cs_partitions"]
    environment = _with_archive(tmp_path, experiments)
    chosen = {page: {"scale": "paper", **more} for page, more in pages.items()}
    assert not _run(chosen, tmp_path, environment)
    drawn = {
        page: pd.read_csv(tmp_path / "data" / "chosen" / "paper" / page / "figure.csv") for page in pages
    }
    for page, table in drawn.items():
        own = pages[page]["methods"]
        assert set([own] if isinstance(own, str) else own) <= set(table["line"])
        assert not {"DivFL", "Pow-d", "Oort"} & set(table["line"])
    assert not (tmp_path / "data" / "artifacts").exists()
    raw = _run({"fedcor-figure_4": {"scale": "paper", "seeds": 1}}, tmp_path, environment)
    assert not raw
    again = pd.read_csv(tmp_path / "data" / "chosen" / "paper" / "fedcor-figure_4" / "figure.csv")
    both = again.merge(drawn["fedcor-figure_4"], on=["panel", "line", "x"])
    both = both[both["line"].isin(["FedCor", "Random"])]  # the target is a line of its own
    rough = both.sort_values("x").groupby(["panel", "line"])[["y_x", "y_y"]].agg(lambda y: y.diff().std())
    assert (rough["y_y"] < rough["y_x"]).all(), "smoothed curves are smoother"


@pytest.mark.slow
def test_every_page_takes_what_its_reader_turns(tmp_path: Path) -> None:
    """All pages at scale paper from the archive, with other values of their numbers."""
    environment = _with_archive(tmp_path, [path.stem for scale, path in archive.all_of() if scale == "paper"])
    chosen = {}
    for name in params.load().artifacts:
        source = notebooks.read(notebooks.SOURCES / f"{notebooks.place(name)}.ipynb")
        declared = inspect_notebook(notebooks.normalise(source))
        turned = {key: value for key, value in TURNED.items() if key in declared}
        if turned:
            chosen[name] = {"scale": "paper", **turned}
    assert len(chosen) > 40
    assert not _run(chosen, tmp_path, environment)
    assert not (tmp_path / "data" / "artifacts").exists(), "the site's own files stay"
