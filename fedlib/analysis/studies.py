"""Studies: measurements that some figures need in addition to training curves, made once and kept like results.

A study is a module with two functions. `units(settings, experiments, scale)` yields its units, each a plain dictionary
of everything that determines its numbers, with `labels` for display. `measure(unit, place, halfway)` turns a unit into
a table and, if that takes long, reports its progress to `halfway`. A unit is measured once: its table is kept under
the digest of the unit without its labels. A killed study resumes where it stopped. All tables together are
`data/results/<scale>/<study>.parquet`, described by `<study>.json`.

The settings are in `params.yaml` under `studies`, as `<paper>_<module>`. A study that trains takes its runs from the
experiments there.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedlib.analysis.paper import papers
from fedlib.errors import DataError
from fedlib.runs.studies import Unit

if TYPE_CHECKING:
    from fedlib.runs.archive import Packed
    from fedlib.runs.place import Place
    from fedlib.settings.params import Experiments
    from fedlib.settings.schema import Scale

LABELS = {"setting": "", "method": "", "seed": 0}  # columns of every table of results


def run_study(
    name: str,
    scale: Scale | None = None,
    experiments: Experiments | None = None,
    place: Place | None = None,
    results: Path | None = None,
    tell: Callable[[str], None] = print,
    archive: Path | None = None,
    only_finished: bool = False,
) -> Path:
    """Measure the missing units of a study at a scale and write its table; returns the table's path.

    Archived units are not measured again. Units whose dataset is unavailable, or with `only_finished` all units that
    have not been measured, are left out and named in the record.

    Raises:
        ConfigError: no such study, or invalid settings. DataError: none of its datasets is available.
        Unfinished: no unit is finished. StoreError: a damaged archive.
    """
    from fedlib.errors import Unfinished
    from fedlib.runs import archive as archives
    from fedlib.runs.place import Place
    from fedlib.runs.results import RESULTS, nothing_of, write_table
    from fedlib.settings import params

    experiments, place = experiments or params.load(), place or Place.from_environment()
    scale, results = scale or experiments.scale, results or RESULTS
    units = units_of(name, experiments, scale)
    known = Measured(name, scale, place, results, archive or archives.ARCHIVE, any_data=only_finished)
    if not only_finished:
        measure_missing(name, scale, units, known, tell)
    tables, records, missing = [], [], []
    for unit in units:
        labels = {key: unit["labels"].get(key, default) for key, default in LABELS.items()}
        if (found := known.read(unit)) is None:
            reason = known.absent.get(unit.get("dataset"), "")
            missing.append({**labels, "unit": unit["labels"], "reason": reason})
            tell(f"{name} [{scale}]: {words(unit)}: {reason or 'not measured'}")
            continue
        rows, record = found
        tables.append(rows.assign(**unit["labels"]))
        records.append({**record, **labels, "unit": unit})
    if not tables and only_finished:
        raise Unfinished(nothing_of(name, scale, len(units)))
    if not tables:
        raise DataError(missing[0]["reason"])
    path = results / scale / f"{name}.parquet"
    record = {"study": name, "scale": scale, "planned": len(units), "runs": records, "missing": missing}
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(**{k: v for k, v in LABELS.items() if k not in table}, diverged=False)
    write_table(path, table, record)
    return path


def units_of(name: str, experiments: Experiments, scale: Scale) -> list[Unit]:
    """The units of a study at a scale.

    Raises:
        ConfigError: no such study, or invalid settings.
    """
    from fedlib.settings.sections import Study, valid

    settings, module = experiments.study(name, scale), module_of(name)
    valid(getattr(module, "Keys", Study), settings, f"{experiments.source}: studies.{name}")
    return list(module.units(settings, experiments, scale))


def words(unit: Unit) -> str:
    """A unit's labels as text, for messages."""
    return ", ".join(str(label) for label in unit["labels"].values() if label != "")


def measure_missing(
    name: str, scale: Scale, units: list[Unit], known: Measured, tell: Callable[[str], None]
) -> None:
    """Measure the missing units whose dataset is available, and report progress."""
    from fedlib.files import write_whole
    from fedlib.runs.halfway import Halfway
    from fedlib.runs.progress import duration
    from fedlib.runs.sealed import to_kept

    todo = [unit for unit in units if not known.has(unit) and known.kept(unit)]
    began = time.monotonic()
    for done, unit in enumerate(todo):
        left = duration((time.monotonic() - began) / max(done, 1) * (len(todo) - done))
        tell(
            f"{name} [{scale}]: {done + 1} of {len(todo)}: {words(unit)}"
            + f", about {left} left" * bool(done)
        )
        kept = known.kept(unit)
        halfway = Halfway(kept.stem, known.place, tell, f"{name} [{scale}]: {words(unit)}")
        write_whole(kept, to_kept(module_of(name).measure(unit, known.place, halfway), kept.stem))
        halfway.over()


class Measured:
    """The measured units of a study: in the store, in its earlier results, anywhere in the archive.

    absent: dataset -> why it is unavailable. Archived units on such a dataset (with `any_data`, all archived units)
    are used whatever the digest of their data.
    """

    def __init__(
        self, name: str, scale: Scale, place: Place, results: Path, archive: Path, any_data: bool = False
    ) -> None:
        from fedlib.runs import archive as archives

        self.name, self.place, self.any_data = name, place, any_data
        self.packed = archives.sources(name, scale, (), results, archive)
        self.absent: dict[str, str] = {}

    def address(self, unit: Unit) -> str | None:
        """The address of a measured unit; None if it has not been measured."""
        if self._measured(unit) is not None:
            return self.kept(unit).stem
        found = self._packed(unit)
        return found[1] if found else None

    def has(self, unit: Unit) -> bool:
        return self.address(unit) is not None

    def kept(self, unit: Unit) -> Path | None:
        """The path of its table in the store; None if its dataset is unavailable."""
        source = self._source(unit)
        return source and self.place.runs / "studies" / f"{self._address(unit, source['digest'])}.parquet"

    def read(self, unit: Unit) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """The table of a measured unit and its record."""
        from fedlib.settings.code import NUMERICS, code_of

        kept = self.kept(unit)
        if (table := self._measured(unit)) is not None:
            record = {
                "data": self._source(unit),
                "numerics": NUMERICS,
                "date": _date(kept),
                "address": kept.stem,
                "code": code_of(unit),
            }
            return table, record
        if found := self._packed(unit):
            packed, at = found
            return packed.rows(at).drop(columns="diverged"), packed.records[at]
        return None

    def _measured(self, unit: Unit) -> pd.DataFrame | None:
        """Its table in the store; a damaged one is reported and measured again."""
        from fedlib.errors import StoreError
        from fedlib.files import say
        from fedlib.runs.sealed import from_kept

        kept = self.kept(unit)
        if kept is None or not kept.exists():
            return None
        try:
            return from_kept(kept, kept.stem, "delete it to measure it again")
        except StoreError as error:
            say(error)
            return None

    def _source(self, unit: Unit) -> dict[str, str] | None:
        """Name, provenance and digest of its dataset, or a note that the unit makes its own data."""
        from fedlib.data import datasets

        if (dataset := unit.get("dataset")) is None:
            return {"name": "synthetic", "provenance": "data made for this study", "digest": ""}
        try:
            digest = datasets.digest(dataset, self.place.datasets)  # prepares embedded datasets
        except DataError as error:
            self.absent[dataset] = str(error)
            return None
        provenance = datasets.status(dataset, self.place.datasets)["provenance"]
        return {"name": dataset, "digest": digest, "provenance": provenance}

    def _packed(self, unit: Unit) -> tuple[Packed, str] | None:
        from fedlib.runs import archive as archives

        source = self._source(unit)
        digest = None if self.any_data or source is None else source["digest"]
        dataset = source["name"] if source else unit["dataset"]
        return archives.find(self.packed, dataset, partial(self._address, unit), digest)

    def _address(self, unit: Unit, dataset_digest: str | None) -> str:
        from fedlib.runs import archive as archives
        from fedlib.settings.code import NUMERICS, code_of

        return archives.address_of_unit(self.name, unit, NUMERICS, dataset_digest, code_of(unit))


def module_of(name: str) -> ModuleType:
    """The module that measures a study, named by the part after the paper ("fedcor_toy" is measured by `toy`)."""
    from fedlib.errors import ConfigError

    kind = name.partition("_")[2]
    places = [f"fedlib.papers.{paper}.study_{kind}" for paper in papers()]
    for place in [*places, f"fedlib.analysis.{kind}"]:
        if importlib.util.find_spec(place):
            return importlib.import_module(place)
    raise ConfigError(
        f"studies.{name}: there is no fedlib/papers/<paper>/study_{kind}.py that could measure it."
    )


def _date(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
