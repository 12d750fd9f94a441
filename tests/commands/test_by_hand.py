"""Every page's notebook, run by hand: without papermill and DVC, and before there are results."""

from __future__ import annotations

import shutil
import subprocess
from itertools import takewhile
from pathlib import Path

import forked
import pandas as pd
import pytest
from copies import ForkedKernel, copy_project
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "experiments", "methods"),
    [
        ("fedcor-figure_4", ["fedcor_fmnist"], ["FedCor", "Random"]),
        ("hics_fl-figure_13", ["hics_fmnist"], ["HiCS-FL", "Random"]),
        ("clustered_sampling-figure_1", ["cs_mnist", "cs_partitions"], ["MD"]),
    ],
)
def test_a_page_shows_what_its_reader_chose_from_the_archive(
    page: str, experiments: list[str], methods: list[str], tmp_path: Path
) -> None:
    """Two methods, one seed, nothing trained: the figure has their lines alone."""
    environment = copy_project(tmp_path)
    for name in experiments:
        packed = archive.path_of(name, "paper")
        (tmp_path / packed.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(packed, tmp_path / packed.relative_to(ROOT))
    chosen = {"scale": "paper", "methods": methods, "seeds": 0}
    program = "from workspace.commands import notebooks as n\n"
    program += f"n.executed(n.SOURCES / {notebooks.place(page) + '.ipynb'!r}, {chosen!r})"
    ran = forked.run(["python", "-c", program], tmp_path, environment)
    assert ran.returncode == 0, ran.stderr
    drawn = pd.read_csv(tmp_path / "data" / "chosen" / "paper" / page / "figure.csv")
    assert set(methods) <= set(drawn["line"])
    assert not {"DivFL", "Pow-d", "Oort"} & set(drawn["line"])
    assert not (tmp_path / "data" / "artifacts").exists()
