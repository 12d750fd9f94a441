"""Every page's notebook, run by hand: without papermill and DVC, and before there are results."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from copies import copy_project
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from fedlib.commands import notebooks
from fedlib.commands.inprocess import IN_ORDER
from fedlib.settings import params


def test_every_page_runs_by_hand_and_says_what_to_run_first(tmp_path: Path) -> None:
    """In a kernel as JupyterLab starts it, from the notebook's own folder; one kernel for all, to be quick."""
    environment, settings = copy_project(tmp_path), params.load()
    ran = new_notebook()
    client = NotebookClient(ran, timeout=600)

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
        for name, entry in settings.artifacts.items():
            path = tmp_path / "notebooks" / f"{name.replace('-', '/', 1)}.ipynb"
            runs(new_code_cell(f"%reset -f\n%cd -q {path.parent}"))
            cells = [cell for cell in notebooks.read(path).cells if cell.cell_type == "code"]
            done = list(takewhile(runs, cells))
            shown = "".join(o.data.get("text/markdown", "") for c in done for o in c.outputs if "data" in o)
            for experiment in (entry or {}).get("experiments", []):
                assert f"`fedlib run {experiment} --scale {settings.scale}`" in shown, name
