"""Studies: measurements that some figures need beside training curves, written once and kept like results.

A study is a module of this folder with two functions. `units(settings, experiments, scale)` yields what it is made of,
each unit a plain dictionary of all that determines its numbers, and `labels` to show them under; `measure(unit, place)`
turns a unit into a table. What was measured is never measured again: the table is kept under the digest of the unit
without its labels, so that a killed study goes on where it was. All tables together are
`data/results/<scale>/<study>.parquet`, described by `<study>.json`.

The settings stand in `params.yaml` under `studies`, as `<paper>_<module>`; a study that trains takes its runs from the
experiments there.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from fedlib.config import Experiments, Scale
    from fedlib.parallel import Place

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
    from fedlib import archive as archives
    from fedlib import config, data, store
    from fedlib.engine import NUMERICS
    from fedlib.files import Unfinished
    from fedlib.parallel import Place, duration
    from fedlib.results import RESULTS

    experiments, place = experiments or config.load(), place or Place.from_environment()
    scale = scale or experiments.scale
    settings = experiments.study(name, scale)
    module = module_of(name)
    packed = archives.sources(name, scale, results or RESULTS, archive or archives.ARCHIVE)
    tables, records, missing = [], [], []
    units, began, measured = list(module.units(settings, experiments, scale)), time.monotonic(), 0
    for i, unit in enumerate(units):
        labels = {key: unit["labels"].get(key, default) for key, default in LABELS.items()}
        words = ", ".join(str(label) for label in unit["labels"].values() if label != "")
        try:
            source, reason = _source(unit.get("dataset"), place), ""
        except data.DataError as error:
            source, reason = {"name": unit["dataset"], "digest": None}, str(error)
        of = partial(address, name, unit, NUMERICS)
        kept = place.runs / "studies" / f"{of(source['digest'])}.parquet"
        any_data = only_finished or source["digest"] is None
        found = archives.find(packed, source["name"], of, None if any_data else source["digest"])
        if not kept.exists() and found:
            one, at = found
            rows, record = one.rows(at).drop(columns="diverged"), one.records[at]
        elif not kept.exists() and any_data:
            missing.append({**labels, "unit": unit["labels"], "reason": reason})
            tell(f"{name} [{scale}]: {words}: {reason or 'not measured'}")
            continue
        else:
            if not kept.exists():
                pace = (time.monotonic() - began) / max(measured, 1)
                left = f", about {duration(pace * (len(units) - i))} left" if measured else ""
                tell(f"{name} [{scale}]: {i + 1} of {len(units)}: {words}{left}")
                store.write_whole(kept, store.to_parquet(module.measure(unit, place)))
                measured += 1
            rows = pd.read_parquet(io.BytesIO(kept.read_bytes()))
            record = {"data": source, "numerics": NUMERICS, "date": _date(kept), "address": kept.stem}
        tables.append(rows.assign(**unit["labels"]))
        records.append({**record, **labels, "unit": unit})
    if not tables and only_finished:
        raise Unfinished(f"{name} has nothing finished at scale {scale}; run: dvc repro study@{name}")
    if not tables:
        raise data.DataError(missing[0]["reason"])
    path = (results or RESULTS) / scale / f"{name}.parquet"
    planned = len(records) + len(missing)
    record = {"study": name, "scale": scale, "planned": planned, "runs": records, "missing": missing}
    table = pd.concat(tables, ignore_index=True)
    table = table.assign(**{k: v for k, v in LABELS.items() if k not in table}, diverged=False)
    store.write_whole(path.with_suffix(".json"), json.dumps(record, indent=1, sort_keys=True).encode())
    store.write_whole(path, store.to_parquet(table))
    return path


def address(name: str, unit: Unit, numerics: int, dataset_digest: str | None) -> str:
    """Under which a unit's table is kept: a digest of all that determines its numbers, its labels are none of that."""
    numbers = {key: value for key, value in unit.items() if key != "labels"}
    module = f"fedlib.studies.{name.partition('_')[2]}"
    made_of = json.dumps([module, numbers, numerics, dataset_digest], sort_keys=True)
    return hashlib.sha256(made_of.encode()).hexdigest()[:20]


def module_of(name: str) -> ModuleType:
    """The module that measures a study: its name after the paper's ("fedcor_toy" is measured by `toy`)."""
    from fedlib.config import ConfigError

    kind = name.partition("_")[2]
    try:
        return importlib.import_module(f"fedlib.studies.{kind}")
    except ModuleNotFoundError as error:
        if error.name != f"fedlib.studies.{kind}":
            raise
        raise ConfigError(
            f"studies.{name}: there is no fedlib/studies/{kind}.py that could measure it."
        ) from None


def _source(dataset: str | None, place: Place) -> dict[str, str]:
    """Name, provenance and digest of a prepared dataset; of a study that makes its own data, just that."""
    from fedlib import data

    if dataset is None:
        return {"name": "synthetic", "provenance": "data made for this study", "digest": ""}
    digest = data.digest(dataset, place.datasets)  # prepares what is embedded
    return {
        "name": dataset,
        "digest": digest,
        "provenance": data.status(dataset, place.datasets)["provenance"],
    }


def _date(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


def runs_of(
    settings: dict[str, Any], experiments: Experiments, scale: Scale
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The training runs that a study follows: (labels, run) of each, a run as a plain dictionary.

    What an experiment saves by measuring losses seldom or by ending early is no matter of a study, which does neither.

    settings: `experiments` {label of the data set: experiment}, and optionally `settings` and `methods` to keep, and
    `seeds`, how many of each experiment's seeds to take.
    """
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
