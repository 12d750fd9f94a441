"""Run notebooks reproducibly: with papermill's parameters and without traces of time and place.

A source notebook is *normalised* before anything depends on it (no outputs, no counts, canonical metadata, ids by
position), so opening, running and saving it without changing code or prose makes nothing stale. Its cells then run in
the command's process (`inprocess.py`). A notebook that needs missing results (`lookup.ResultsMissing`) ends at that
cell without an error.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from fedlib.errors import ConfigError, meant
from fedlib.files import replace_folder, say, write_whole
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis.paper import printed_curves
from workspace.commands.stages import AGAIN
from workspace.commands.uses import digests, digests_of_log, digests_of_site, parsed
from workspace.pages import seals

SOURCES = ROOT / "notebooks"
EXAMPLES = SOURCES / "natural"  # of the library: no artifacts, run by hand
NORMALISED = ROOT / "data" / "notebooks"
RESULTS = ROOT / "data" / "results"
MAKING = "making"  # the folder of `data` with pages whose notebooks have not ended
WHOLE_SCALE = {"scoreboard", "discrepancies"}  # artifacts that read every experiment
MEASURED = ("scoreboard", "arena")  # artifacts whose numbers `dvc metrics` and `dvc exp` compare
BESIDE = {  # artifact -> files and folders in git that it reads beside results
    "scoreboard": ["data/error_rates.csv"],
    "leaderboard": ["arena"],
    "theory-engine": ["data/reference"],
}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
LOGS = ("simulate",)  # notebooks that run once per experiment or study
KEPT = ("tags", "slideshow")  # cell metadata that belongs to the content


def normalise(notebook: NotebookNode, outputs: bool = False) -> NotebookNode:
    """A copy without anything that running, opening or saving changes; `outputs` keeps the outputs."""
    cells = []
    for position, old in enumerate(notebook.cells):
        cell = NotebookNode(cell_type=old.cell_type, id=f"cell-{position}", source=old.source)
        cell.metadata = NotebookNode({key: old.metadata[key] for key in KEPT if old.metadata.get(key)})
        if old.cell_type == "code":
            cell.execution_count = None
            cell.outputs = old.outputs if outputs else []
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = None
        cells.append(cell)
    return NotebookNode(cells=cells, metadata=NotebookNode(METADATA), nbformat=4, nbformat_minor=5)


def read(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises:
        ConfigError: the file is missing or is not a notebook.
    """
    try:
        return nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise ConfigError(f"there is no notebook {path}.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder, where a notebook belongs; move it away.") from None
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no valid notebook: {str(error).splitlines()[0]}.") from None


def normalise_all(sources: Path = SOURCES, target: Path = NORMALISED) -> list[Path]:
    """Write a normalised copy of every notebook below `sources` to `target`, and delete copies without a source.

    A copy's metadata contains the digests of the code that the notebook uses, so it changes when that code does.
    `site.json` and `log.json` beside them have those of the site, and of what shows a log.
    """
    beside = {"site.json": digests_of_site(ROOT), "log.json": digests_of_log(ROOT)}
    copies = {target / name: json.dumps(files, indent=1).encode() + b"\n" for name, files in beside.items()}
    for source in sorted(sources.rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in source.parts:
            notebook, place = normalise(read(source)), source.relative_to(sources)
            for number, cell in enumerate(notebook.cells, start=1):
                if cell.cell_type == "code" and not parsed(cell.source):
                    say(f"{source}: cell {number} is not finished, and will fail where it is run.")
            uses = digests(place.with_suffix("").as_posix(), notebook, ROOT)
            notebook.metadata = NotebookNode({**METADATA, "uses": uses})
            copies[target / place] = nbformat.writes(notebook).encode()
    for old in set(target.rglob("*.ipynb")) - set(copies):
        old.unlink()
    for path, content in copies.items():
        if not path.exists() or path.read_bytes() != content:  # otherwise its date would change
            write_whole(path, content)
    return [path for path in copies if path.suffix == ".ipynb"]


def clean(path: Path) -> bool:
    """Normalise a source notebook in place; True if that changed it."""
    old = path.read_bytes()
    new = nbformat.writes(normalise(read(path))).encode() + b"\n"
    if new != old:
        write_whole(path, new)
    return new != old


def run(name: str, scale: Scale, experiment: str | None = None, only_finished: bool = False) -> Path:
    """Run an artifact's notebook at a scale; returns the executed notebook.

    `simulate` runs for one experiment or study, and the executed notebook is its log. With `only_finished`
    they train and measure nothing.

    Raises:
        ConfigError: no such notebook, or nothing to simulate.
    """
    source = SOURCES / f"{place(name)}.ipynb"
    if not source.exists():
        names = [path.relative_to(SOURCES).with_suffix("").as_posix() for path in SOURCES.rglob("*.ipynb")]
        near = meant(name, sorted(path.replace("/", "-", 1) for path in names))
        raise ConfigError(f"there is no notebook {name!r}; {near}")
    if name in LOGS:
        if experiment is None:
            raise ConfigError(f"`{name}` needs an experiment: add --experiment NAME.")
        output = ROOT / "data" / "results" / scale / f"{experiment}.ipynb"
        if os.environ.get(AGAIN) and not only_finished:
            forget(experiment, scale)
        chosen = {"only_finished": True} if only_finished else {}
        ran = executed(source, {"experiment": experiment, "scale": scale, **chosen})
        seals.seal(ran, [], log_sources(experiment, scale))
    else:
        output, metrics = page(name, scale), ROOT / "data" / "metrics" / scale / f"{name}.json"
        if name in MEASURED:
            write_whole(metrics, b"{}\n")  # of a page that ends before it has numbers
        make(source, output, page_sources(name, params.load().artifacts.get(name, []), scale))
        return output
    write_whole(output, nbformat.writes(ran).encode())
    return output


def make(source: Path, output: Path, sources: Iterable[Path]) -> None:
    """Make the page of an artifact elsewhere, and replace its folder once its notebook has ended."""
    *_, scale, name = output.parent.parts
    made = ROOT / "data" / MAKING / scale / name
    shutil.rmtree(made, ignore_errors=True)  # of a process that was killed
    os.environ[seals.PAGES] = MAKING
    try:
        ran = executed(source, {"scale": scale})
        seals.seal(ran, seals.files_beside(made / output.name), sources)
        write_whole(made / output.name, nbformat.writes(ran).encode())
        output.parent.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(output.parent, made)
    finally:
        del os.environ[seals.PAGES]
        shutil.rmtree(made, ignore_errors=True)


def forget(experiment: str, scale: Scale) -> None:
    """Drop the finished runs of an experiment or study from the store, so that they are made again."""
    from fedlib.runs.lookup import Finished
    from fedlib.runs.place import Place
    from workspace.analysis.experiments import plan

    whole = plan(experiment, scale)
    finished = Finished(whole, Place.from_environment())
    for work in whole.work:
        if address := finished.address(work):
            finished.store.forget(address)
            say(f"{experiment}, {work.words}: is done again.")


def place(artifact: str) -> str:
    """The place of an artifact's notebook: "fedcor-table_1" -> "fedcor/table_1"."""
    return artifact.replace("-", "/", 1)


def page(artifact: str, scale: Scale) -> Path:
    """The notebook of an artifact's page."""
    return ROOT / "data" / "artifacts" / scale / artifact / "notebook.ipynb"


def log_sources(experiment: str, scale: Scale) -> list[Path]:
    """What the log of an experiment or study is made from: its notebook, the code's digests, and its table."""
    return [NORMALISED / "simulate.ipynb", NORMALISED / "log.json", RESULTS / scale / f"{experiment}.parquet"]


def beside_results(artifact: str) -> list[str]:
    """Files and folders in git that an artifact reads beside results, also the printed curves of its figure."""
    curves = printed_curves(place(artifact))
    return [*BESIDE.get(artifact, []), *([str(curves.relative_to(ROOT))] if curves.exists() else [])]


def page_sources(artifact: str, experiments: Iterable[str], scale: Scale) -> list[Path]:
    """What an artifact's page is made from: its notebook with the code's digests, tables, and files in git."""
    tables = [RESULTS / scale / f"{name}.parquet" for name in experiments]
    if artifact in WHOLE_SCALE:
        tables = list((RESULTS / scale).glob("*.parquet"))
    notebook = NORMALISED / f"{place(artifact)}.ipynb"
    beside = [ROOT / path for path in beside_results(artifact)]
    return [notebook, *tables, *beside, *(path for folder in beside for path in folder.rglob("*"))]


def executed(source: Path, parameters: Mapping[str, Any]) -> NotebookNode:
    """Run a notebook from top to bottom in this process; returns it with its outputs.

    Standard output goes to the notebook and immediately to the terminal; standard error (progress) goes only to the
    terminal. Running a notebook twice gives the same bytes if its cells print the same.

    Raises:
        ConfigError: no such parameter, or a cell ends the process. PapermillExecutionError: a cell failed.
    """
    from papermill.execute import execute_notebook, raise_for_execution_errors
    from papermill.inspection import inspect_notebook

    from workspace.commands.inprocess import run_cells

    notebook = normalise(read(source))
    declared = inspect_notebook(notebook)
    for name in parameters:
        if name not in declared:
            listed = ", ".join(declared) or "none"
            raise ConfigError(f"notebook {source.name} has no parameter {name!r}; it has {listed}.")
    ran = execute_notebook(notebook, None, dict(parameters), kernel_name="python3", prepare_only=True)
    run_cells(ran)
    raise_for_execution_errors(ran, None)
    return normalise(ran, outputs=True)
