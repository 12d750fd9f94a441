"""Studies: measurements that some figures need beside training curves, written once and kept like results.

A study is a module of this folder with two functions. `units(settings, experiments, scale)` yields what it is made of,
each unit a plain dictionary of all that determines its numbers, and `labels` to show them under;
`measure(unit, place, halfway)` turns a unit into a table, and where that takes long tells `halfway` how far it is. What
was measured is never measured again: the table is kept under the digest of the unit without its labels. A killed study
goes on where it was. All tables together are `data/results/<scale>/<study>.parquet`, described by `<study>.json`.

The settings stand in `params.yaml` under `studies`, as `<paper>_<module>`; a study that trains takes its runs from the
experiments there.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedlib.analysis.paper import papers

if TYPE_CHECKING:
    from fedlib.runs.archive import Packed
    from fedlib.runs.place import Place
    from fedlib.settings.params import Experiments
    from fedlib.settings.schema import Scale

Unit = dict[str, Any]
LABELS = {"setting": "", "method": "", "seed": 0}  # what every table of results has


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
    """Measure what a study still lacks at a scale and write its table; returns the table's path.

    What is archived is not measured again. Units whose dataset is not at hand, or with `only_finished` all that would
    have to be measured, are left out and named in the record.

    Raises:
        ConfigError: no such study, or settings that cannot be used.
        DataError: none of its datasets is at hand.
        Unfinished: nothing of it is finished. StoreError: a damaged archive.
    """
    from fedlib.data import datasets
    from fedlib.files import Unfinished
    from fedlib.runs import archive as archives
    from fedlib.runs.place import Place
    from fedlib.runs.results import RESULTS, write_table
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
        raise Unfinished(
            f"{name} has nothing finished at scale {scale}; run: fedlib run {name} --scale {scale}"
        )
    if not tables:
        raise datasets.DataError(missing[0]["reason"])
    path = results / scale / f"{name}.parquet"
    record = {"study": name, "scale": scale, "planned": len(units), "runs": records, "missing": missing}
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(**{k: v for k, v in LABELS.items() if k not in table}, diverged=False)
    write_table(path, table, record)
    return path


def units_of(name: str, experiments: Experiments, scale: Scale) -> list[Unit]:
    """What a study is made of at a scale.

    Raises:
        ConfigError: no such study, or settings that cannot be used.
    """
    from fedlib.settings.sections import Study, valid

    settings, module = experiments.study(name, scale), module_of(name)
    valid(getattr(module, "Keys", Study), settings, f"{experiments.source}: studies.{name}")
    return list(module.units(settings, experiments, scale))


def words(unit: Unit) -> str:
    """A unit's labels, as people are told which one it is."""
    return ", ".join(str(label) for label in unit["labels"].values() if label != "")


def measure_missing(
    name: str, scale: Scale, units: list[Unit], known: Measured, tell: Callable[[str], None]
) -> None:
    """Measure the units that are not there and whose dataset is, and say how far it is."""
    from fedlib.analysis.halfway import Halfway
    from fedlib.files import write_whole
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
    """The units of a study that have been measured: here, in its results of before, anywhere in the archive.

    absent: dataset -> why it is not at hand; of units on it, and with `any_data` of all, archived ones are taken
    whatever the digest of the data.
    """

    def __init__(
        self, name: str, scale: Scale, place: Place, results: Path, archive: Path, any_data: bool = False
    ) -> None:
        from fedlib.runs import archive as archives

        self.name, self.place, self.any_data = name, place, any_data
        self.packed = archives.sources(name, scale, (), results, archive)
        self.absent: dict[str, str] = {}

    def address(self, unit: Unit) -> str | None:
        """The address under which a measured unit is known."""
        if self._measured(unit) is not None:
            return self.kept(unit).stem
        found = self._packed(unit)
        return found[1] if found else None

    def has(self, unit: Unit) -> bool:
        return self.address(unit) is not None

    def kept(self, unit: Unit) -> Path | None:
        """Where its table stands once it is measured here; None where its dataset is not at hand."""
        source = self._source(unit)
        return source and self.place.runs / "studies" / f"{self._address(unit, source['digest'])}.parquet"

    def read(self, unit: Unit) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """The table of a measured unit, and what made it."""
        from fedlib.settings.code import code_of
        from fedlib.simulation.engine import NUMERICS

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
        """Its table as it was measured here; one that is damaged is named, and measured again."""
        from fedlib.files import StoreError, say
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
        """Name, provenance and digest of its dataset; of a unit that makes its own data, just that."""
        from fedlib.data import datasets

        if (dataset := unit.get("dataset")) is None:
            return {"name": "synthetic", "provenance": "data made for this study", "digest": ""}
        try:
            digest = datasets.digest(dataset, self.place.datasets)  # prepares what is embedded
        except datasets.DataError as error:
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
        from fedlib.settings.code import code_of
        from fedlib.simulation.engine import NUMERICS

        return archives.address_of_unit(self.name, unit, NUMERICS, dataset_digest, code_of(unit))


def module_of(name: str) -> ModuleType:
    """The module that measures a study: its name after the paper's ("fedcor_toy" is measured by `toy`)."""
    from fedlib.settings.schema import ConfigError

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


def runs_of(
    settings: dict[str, Any], experiments: Experiments, scale: Scale
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The training runs that a study follows: (labels, run) of each, a run as a plain dictionary.

    What an experiment saves by measuring losses seldom or by ending early is no matter of a study, which does neither.

    settings: `experiments` {label of the data set: experiment}, and optionally `settings` and `methods` to keep, and
    `seeds`, how many of each experiment's seeds to take.

    Raises:
        ConfigError: there is no such experiment, setting or method.
    """
    from fedlib.settings.errors import ConfigError, meant

    planned = [one for name in settings["experiments"].values() for one in experiments.runs(name, scale)]
    for kind in ("method", "setting"):
        there = {getattr(one, kind) for one in planned}
        for name in settings.get(f"{kind}s") or []:
            if name not in there:
                raise ConfigError(
                    f"studies: there is no {kind} {name!r} to follow; {meant(name, sorted(there))}"
                )
    for label, experiment in settings["experiments"].items():
        found = experiments.runs(experiment, scale)
        seeds = list(dict.fromkeys(one.run.seed for one in found))[: settings.get("seeds", 1)]
        for one in found:
            if one.run.seed not in seeds or one.method not in settings.get("methods", [one.method]):
                continue
            if one.setting in settings.get("settings", [one.setting]):
                labels = {"data": label, "setting": one.setting, "method": one.method, "seed": one.run.seed}
                evaluate = one.run.evaluate.model_copy(update={"train_every": None})
                run = one.run.model_copy(update={"until": None, "evaluate": evaluate})
                yield labels, run.model_dump(mode="json")
