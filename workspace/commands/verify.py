"""`fedlib verify`: check stored files, train archived runs again, and add digests to old archives.

Every file is read back by the same rule as usual (`runs/sealed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from fedlib.data import datasets
from fedlib.errors import ConfigError, DataError, StoreError
from fedlib.files import read_sealed
from fedlib.runs import archive as archives
from fedlib.runs import retrain
from fedlib.runs.archive import ARCHIVE
from fedlib.runs.place import Place
from fedlib.runs.results import RESULTS, curves_of, read_table
from fedlib.runs.sealed import from_kept, info_of, named
from fedlib.runs.store import Store
from fedlib.runs.work import words
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import power, reference
from workspace.commands.listing import table
from workspace.commands.pipeline import INPUTS
from workspace.figures import printed
from workspace.pages import seals

SECONDS = 5.0


@dataclass
class Checked:
    """Files of one kind: how many there are, and what is wrong."""

    kind: str
    files: int
    wrong: list[str] = field(default_factory=list)


def everything(place: Place, results: Path, archive: Path, inputs: Path) -> list[Checked]:
    """Check everything: datasets, inputs, finished runs and measurements, checkpoints, results and the archive."""
    store, runs = Store(place.runs), place.runs.glob("??/*/run.json")
    prepared = [
        name for name in datasets.KINDS if datasets.status(name, place.datasets)["state"] != "missing"
    ]
    return [
        check_each(
            "datasets",
            prepared,
            lambda name: datasets.verify(name, place.datasets),
        ),
        check_each("inputs", inputs.glob("*/*.json"), _json),
        check_each("finished runs", runs, lambda path: store.read(path.parent.name)),
        check_each(
            "checkpoints",
            place.runs.glob("??/*/checkpoint.pt"),
            lambda path: store.checkpoint(path.parent.name),
        ),
        check_each("results", results.glob("*/*.parquet"), _results),
        check_each(
            "archives",
            archives.all_of(archive),
            lambda archived: archives.read(archived[1].stem, archived[0], archive).table,
        ),
    ]


def check_each(kind: str, files: Iterable, check: Callable[..., object]) -> Checked:
    """Check files of one kind. check: raises what is wrong with one."""
    files = sorted(files)
    checked = Checked(kind, len(files))
    for file in files:
        try:
            check(file)
        except (ConfigError, DataError, StoreError) as error:
            checked.wrong.append(str(error))
    return checked


def _json(path: Path) -> None:
    with named(path, "delete it; the pipeline makes it again"):
        read_sealed(path)


def _effects(path: Path) -> None:
    with named(path, "delete it; it is made anew"):
        content = path.read_bytes()
        from_kept(path, info_of(content)[0]["address"], "delete it; it is made anew")


def _results(path: Path) -> None:
    table, _ = read_table(path)
    _json(path.with_suffix(".json"))
    curves = path.with_suffix(".csv")
    with named(curves, "`dvc repro -f` of its experiment makes it again"):
        if not curves.is_file() or curves.read_bytes() != curves_of(table):
            raise ValueError("it is not what the table beside it says")


def _arena(path: Path) -> None:
    _ = archives.read(path.stem, path.parent.name, path.parents[1]).table


def checked() -> tuple[Table, list[str]]:
    """One row per kind of file, and a sentence for each file that is not as written."""
    kinds = everything(Place.from_environment(), RESULTS, ARCHIVE, INPUTS)
    pages = (ROOT / "data" / "artifacts").glob("*/*/notebook.ipynb")
    kinds += [
        check_each("pages", pages, seals.opened),
        check_each("logs", RESULTS.glob("*/*.ipynb"), seals.opened),
        check_each("effects", (ROOT / "data" / "effects").glob("*.parquet"), _effects),
        check_each("error rates of claims", [power.TABLE], power.stored),
        check_each("reference curves", reference.programs(), reference.reference),
        check_each("printed curves", (ROOT / "data" / "printed").glob("*/*.csv"), printed.read),
        check_each("arena", (ROOT / "arena").glob("*/*/*/*.parquet"), _arena),
        check_each("tables beside them", reference.OURS, reference.own_table),
    ]
    rows = [(kind.kind, kind.files, kind.files - len(kind.wrong), len(kind.wrong)) for kind in kinds]
    return table("Stored files", ("", "files", "as written", "wrong"), rows), [
        s for kind in kinds for s in kind.wrong
    ]


def trained_again(
    scale: Scale, n: int, rounds: int | None, seed: int, tell: Callable[[str], None]
) -> tuple[Table, bool]:
    """One row per archived run that was trained again, and whether all differ only as `docs/determinism.md` allows.

    rounds: the first rounds of each run; None: those that took `SECONDS` when it was archived.
    """
    place = Place.from_environment()
    sample = retrain.sample(scale, n, seed, ARCHIVE, place)
    compared = []
    for i, archived in enumerate(sample, start=1):
        tell(f"{i} of {len(sample)}: {archived.experiment}, {words(archived.record)}")
        compared.append(
            retrain.train_again(archived, rounds or retrain.rounds_within(archived, SECONDS), place)
        )
    rows = [
        (
            run.run.experiment,
            words(run.run.record),
            f"{run.rounds} of {len(run.run.rows) - 1}",
            f"{run.largest:.0e}",
            run.verdict,
        )
        for run in compared
    ]
    columns = ("experiment", "run", "rounds", "losses differ by", "")
    title = f"Archived runs of scale {scale}, trained again (seed {seed})"
    return table(title, columns, rows), all(run.allowed for run in compared)


def renewed() -> Iterable[str]:
    """Give archived runs their current addresses; yields one line per archive, then the counts of all."""
    files = runs = rows = 0
    for _, path in archives.all_of(ARCHIVE):
        archive = archives.renew(path)
        files, runs, rows = files + 1, runs + archive.runs, rows + archive.rows
        outcome = "renewed" if archive.rewritten else "unchanged"
        counts = f"{archive.runs:,} runs, {archive.rows:,} rows, {archive.moved:,} with another address"
        yield f"{path.relative_to(ROOT)}: {outcome}; {counts}"
    yield f"{files} files, {runs:,} runs, {rows:,} rows"
