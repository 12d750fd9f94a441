"""Check that everything stored is what was written. Every file is read back by the same rule as usual (`sealed.py`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fedlib.data import datasets
from fedlib.errors import DataError, StoreError
from fedlib.files import unsealed
from fedlib.runs import archive as archives
from fedlib.runs.place import Place
from fedlib.runs.results import read_table
from fedlib.runs.sealed import info_of, named
from fedlib.runs.store import Store
from fedlib.settings.schema import Scale


@dataclass
class Checked:
    """Files of one kind: how many there are, how many of them are too old to have digests, and what is wrong."""

    kind: str
    files: int = 0
    older: int = 0
    wrong: list[str] = field(default_factory=list)


def everything(place: Place, results: Path, archive: Path, inputs: Path) -> list[Checked]:
    """Check everything: datasets, inputs, finished runs and measurements, checkpoints, results and the archive."""
    store, runs = Store(place.runs), sorted(place.runs.glob("??/*/run.json"))
    checkpoints = sorted(place.runs.glob("??/*/checkpoint.pt"))
    prepared = [
        name for name in datasets.KINDS if datasets.status(name, place.datasets)["state"] != "missing"
    ]
    return [
        check_each("datasets", prepared, lambda name: _dataset(name, place)),
        check_each("inputs", sorted(inputs.glob("*/*.json")), _json),
        check_each("finished runs", runs, lambda path: _run(store, path)),
        check_each("checkpoints", checkpoints, lambda path: _checkpoint(store, path)),
        check_each("results", sorted(results.glob("*/*.parquet")), _results),
        check_each("archives", [*archives.all_of(archive)], lambda archived: _archive(*archived, archive)),
    ]


def check_each(kind: str, files: list, older: Callable[..., bool]) -> Checked:
    """older: checks a file (it raises what is wrong) and returns whether the file is too old to have digests."""
    checked = Checked(kind, len(files))
    for file in files:
        try:
            checked.older += older(file)
        except (DataError, StoreError) as error:
            checked.wrong.append(str(error))
    return checked


def _dataset(name: str, place: Place) -> bool:
    datasets.verify(name, place.datasets)
    return "sha256" not in json.loads((place.datasets / f"{name}.json").read_bytes())


def _json(path: Path) -> bool:
    with named(path, "delete it; the pipeline makes it again"):
        record = json.loads(path.read_bytes())
        unsealed(record)
        return "sha256" not in record


def _run(store: Store, path: Path) -> bool:
    store.read(path.parent.name)
    return "sha256" not in json.loads(path.read_bytes())


def _checkpoint(store: Store, path: Path) -> bool:
    store.checkpoint(path.parent.name)
    return False


def _results(path: Path) -> bool:
    read_table(path)
    _json(path.with_suffix(".json"))
    return False


def _archive(scale: Scale, path: Path, root: Path) -> bool:
    _ = archives.read(path.stem, scale, root).table
    return "seals" not in info_of(path.read_bytes())[0]


def renew(archive: Path) -> Iterator[tuple[Path, archives.Renewed]]:
    """Seal every older archive; archives that are sealed already do not change."""
    for path in sorted(archive.glob("*/*.parquet")):
        yield path, archives.renew(path)
