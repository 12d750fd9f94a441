"""An experiment's results: train missing runs, write one tidy table, and open it in every notebook.

Runs come from the store, from earlier results, or from the archive (`archive.py`).
`data/results/<scale>/<experiment>.parquet` has one row per (setting, method, seed, round), with the columns listed in
ARCHITECTURE.md. `<experiment>.json` beside it says what made each run and which runs are missing. `<experiment>.csv`
has the curves of test accuracy for `dvc plots`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from fedlib.errors import DataError, StoreError, Unfinished
from fedlib.files import sealed, unsealed, write_whole
from fedlib.runs import archive as archives
from fedlib.runs.sealed import check, info_of, named, rows_of, seals, to_parquet
from fedlib.runs.store import Store
from fedlib.settings import params
from fedlib.settings.params import Labelled
from fedlib.settings.schema import ROOT, Run, Scale

if TYPE_CHECKING:
    from fedlib.runs.place import Place

RESULTS = ROOT / "data" / "results"
MEASURES = [
    "test_loss",
    "test_accuracy",
    "train_loss",
    "train_loss_std",
    "client_accuracy",
    "client_accuracy_std",
    "local_loss",
    "local_loss_std",
]


def path_of(experiment: str, scale: Scale, results: Path = RESULTS) -> Path:
    """The file with an experiment's table at a scale."""
    return results / scale / f"{experiment}.parquet"


def simulate(
    experiment: str,
    scale: Scale | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] | None = None,
    experiments: params.Experiments | None = None,
    place: Place | None = None,
    results: Path = RESULTS,
    tell: Callable[[str], None] = print,
    archive: Path = archives.ARCHIVE,
    only_finished: bool = False,
) -> Path:
    """Train the missing runs of an experiment at a scale and write its table; returns the table's path.

    Archived runs with the same settings and data are not trained again. Runs whose dataset is not available are left
    out and named in the record.

    methods, seeds, settings: train only these. The table then holds them and everything that was finished before.
    only_finished: train nothing.

    Raises:
        ConfigError: the experiment, a method or a seed does not exist, or settings cannot be run.
        DataError: nothing is finished, and data is missing. Unfinished: nothing is finished.
        Failed: some runs failed; the others are finished, and the table is written. StoreError: an archive is damaged.
    """
    from fedlib.runs.place import Place
    from fedlib.runs.train import train  # here, so that opening results does not import torch

    experiments = experiments or params.load()
    place = place or Place.from_environment()
    scale = scale or experiments.scale
    labelled = experiments.runs(experiment, scale)
    wanted = params.choose(labelled, methods, seeds, settings)
    kept = experiments.archived(experiment)
    finished = Finished(experiment, scale, kept, place, results, archive, any_data=only_finished)
    if not only_finished:
        lacking = [one.run for one in wanted if not finished.has(one.run)]
        lacking = [run for run in lacking if run.dataset not in finished.absent]
        train(lacking, place, tell, f"{experiment} [{scale}]")
        for reason in finished.absent.values():
            tell(f"{experiment} [{scale}]: {reason}")
    path = gather(experiment, scale, labelled, finished, results)
    tried = [] if only_finished else [(_name(one), finished.failure(one.run)) for one in wanted]
    if failures := {name: why for name, why in tried if why}:
        raise Failed(f"{experiment} [{scale}]", failures, len(tried))
    return path


class Failed(StoreError):
    """Some runs failed. All others continued, and the table is written unless no run is finished.

    traces: name of the run -> traceback of its error. missing: the missing runs as in the record of results, where
    there is no table.
    """

    def __init__(
        self, what: str, failures: dict[str, dict[str, str]], planned: int, missing: Sequence[Any] = ()
    ) -> None:
        self.traces = {name: why["trace"] for name, why in failures.items()}
        self.missing = list(missing)
        lines = "".join(f"\n{name}: {why['reason']}" for name, why in failures.items())
        super().__init__(
            f"{what}: {len(failures)} of {planned} runs failed; repeat the command to try them again, with "
            f"--traceback to see where.{lines}"
        )


def _name(one: Labelled) -> str:
    """The name of a run, for messages."""
    return ", ".join(filter(None, [one.setting, one.method, f"seed {one.run.seed}"]))


class Finished:
    """The finished runs of an experiment at a scale: in the store, in its earlier results, anywhere in the archive.

    absent: dataset -> why it is not available. For runs on it (and for all runs, with `any_data`), archived runs are
    accepted whatever the digest of their data.

    kept: the columns that archives of the experiment keep (`Experiments.archived`).
    """

    def __init__(
        self,
        experiment: str,
        scale: Scale,
        kept: Collection[str],
        place: Place,
        results: Path,
        archive: Path,
        any_data: bool = False,
    ) -> None:
        self.store, self.place, self.any_data = Store(place.runs), place, any_data
        self.packed = archives.sources(experiment, scale, kept, results, archive)
        self.digests: dict[str, str] = {}
        self.absent: dict[str, str] = {}

    def digest(self, dataset: str) -> str | None:
        from fedlib.data import datasets

        if dataset not in self.digests and dataset not in self.absent:
            try:
                self.digests[dataset] = datasets.digest(dataset, self.place.datasets)
            except DataError as error:
                self.absent[dataset] = str(error)
        return self.digests.get(dataset)

    def _stored(self, run: Run) -> str | None:
        from fedlib.settings.code import NUMERICS

        digest = self.digest(run.dataset)
        addresses = (run.address, run.address_of_before) if digest and self.store.root.exists() else ()
        there = (one(NUMERICS, digest) for one in addresses)
        return next((address for address in there if self.store.finished(address)), None)

    def _packed(self, run: Run) -> tuple[archives.Packed, str] | None:
        from fedlib.settings.code import NUMERICS

        digest = None if self.any_data else self.digest(run.dataset)
        return archives.find(self.packed, run.dataset, partial(run.address, NUMERICS), digest)

    def address(self, run: Run) -> str | None:
        """The address of a finished run; None if it is not finished."""
        if stored := self._stored(run):
            return stored
        found = self._packed(run)
        return found[1] if found else None

    def has(self, run: Run) -> bool:
        """Whether a run is finished."""
        return self.address(run) is not None

    def failure(self, run: Run) -> dict[str, str] | None:
        """Why a run failed when it was last tried (see `Store.failure`)."""
        from fedlib.settings.code import NUMERICS

        digest = self.digest(run.dataset)
        return self.store.failure(run.address(NUMERICS, digest)) if digest and not self.has(run) else None

    def read(self, run: Run) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """The rounds and the record of a finished run; None if it is not finished."""
        if address := self._stored(run):
            return self.store.read(address)
        if found := self._packed(run):
            packed, address = found
            return packed.rows(address), packed.records[address]
        return None


def tidy(
    experiment: str, labelled: Sequence[Labelled], finished: Finished
) -> tuple[pd.DataFrame, list[dict[str, Any]], list[dict[str, Any]], dict[str, dict[str, str]]]:
    """The table of all finished runs, what made them, which are missing, and why runs failed."""
    frames, names, records, missing = [], [], [], []
    failures: dict[str, dict[str, str]] = {}
    for one in labelled:
        labels = {"setting": one.setting, "method": one.method, "seed": one.run.seed}
        if (found := finished.read(one.run)) is None:
            if why := finished.failure(one.run):
                failures[_name(one)] = why
            reason = why["reason"] if why else finished.absent.get(one.run.dataset, "")
            missing.append({**labels, "reason": reason} | ({"failed": why["date"]} if why else {}))
            continue
        rounds, record = found
        frames.append(rounds)
        names.append({"experiment": experiment, **labels})
        records.append({**record, **labels})
    table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
    of = [k for k, rounds in enumerate(frames) for _ in range(len(rounds))]
    for k, (label, values) in enumerate(pd.DataFrame(names).iloc[of].items()):
        table.insert(k, label, values.array)
    for column in MEASURES if frames else ():
        if column not in table:
            table[column] = float("nan")
    return table, records, missing, failures


def gather(
    experiment: str, scale: Scale, labelled: Sequence[Labelled], finished: Finished, results: Path = RESULTS
) -> Path:
    """Write the tidy table of all finished runs of an experiment, and beside it what made them and which are missing.

    Raises:
        DataError, Failed, Unfinished: no run is finished: data is missing, or some runs failed, or none was tried.
    """
    from fedlib.errors import DataError

    table, records, missing, failures = tidy(experiment, labelled, finished)
    if not records:
        for reason in () if finished.any_data else finished.absent.values():
            raise DataError(reason)
        if failures:
            raise Failed(f"{experiment} [{scale}]", failures, len(labelled), missing)
        raise Unfinished(nothing_of(experiment, scale, len(labelled)))
    path = path_of(experiment, scale, results)
    info = {
        "experiment": experiment,
        "scale": scale,
        "planned": len(labelled),
        "runs": records,
        "missing": missing,
    }
    write_results(path, table, info)
    return path


def nothing_of(name: str, scale: Scale, planned: int) -> str:
    """What is said where nothing of an experiment or study is finished."""
    return (
        f"{name} at scale {scale}: none of its {planned:,} planned runs is finished or archived; run: "
        f"fedlib run {name} --scale {scale}"
    )


def write_results(path: Path, table: pd.DataFrame, info: dict[str, Any]) -> None:
    """Write a table, the record of what made it, and its curves."""
    write_whole(path.with_suffix(".csv"), accuracy_curves(table).to_csv(index=False).encode())
    write_table(path, table, info)


def write_table(path: Path, table: pd.DataFrame, info: dict[str, Any]) -> None:
    """Write a table with the record of what made it inside, and the same record as JSON beside it.

    A reader at the same time sees either the old table with its record or the new one with its own.
    """
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    labels = [archives.labels_of(record) for record in info["runs"]]
    inside = {"name": path.stem, "scale": path.parent.name, "seals": seals(arrow.to_pandas(), labels)}
    write_whole(path.with_suffix(".json"), json.dumps(sealed(info), indent=1, sort_keys=True).encode())
    write_whole(path, to_parquet(arrow, info | inside, compression="zstd"))


def accuracy_curves(table: pd.DataFrame) -> pd.DataFrame:
    """Test accuracy in percent, mean over seeds: one row per (setting, method, round) where all seeds were tested."""
    if table.empty:
        return pd.DataFrame(columns=["setting", "method", "round", "accuracy"])
    tested = table.groupby(["setting", "method", "round"], sort=False)["test_accuracy"].agg(["mean", "count"])
    seeds = tested["count"].groupby(level=[0, 1]).transform("max")
    mean = 100 * tested["mean"][tested["count"] == seeds]
    return mean.dropna().round(3).rename("accuracy").reset_index()


def lacking(info: dict[str, Any]) -> str:
    """The missing runs in a record of results (`open_results`), in words; empty if none is missing.

    A setting without any run is named as a whole, and so is a method. Otherwise the missing seeds are named. Methods
    that lack the same seeds are named together, and so are settings that lack the same methods.
    """
    there = {(_setting(run), run["method"]) for run in info["runs"]}
    begun = {setting for setting, _ in there}
    gaps: dict[str, dict[str, list[str]]] = {}  # setting -> method -> seeds
    for run in info.get("missing", []):
        methods = gaps.setdefault(_setting(run), {})
        methods.setdefault(run.get("method", ""), []).append(str(run["seed"]))
    found: dict[tuple[str, str], list[str]] = {}  # methods and seeds -> the settings that lack them
    for setting, methods in gaps.items():
        alike: dict[str, list[str]] = {}  # seeds -> methods
        for method, seeds in methods.items():
            some = f" (seeds {', '.join(seeds)})" if (setting, method) in there else ""
            alike.setdefault(some, []).append(method)
        for some, names in alike.items() if setting in begun else [("", ["all"])]:
            found.setdefault((_counted(names, "methods"), some), []).append(setting)
    return "; ".join(
        " of ".join(filter(None, [names, _counted(settings, "settings")])) + some
        for (names, some), settings in found.items()
    )


def present(info: dict[str, Any]) -> str:
    """What the record of results says is there, in words: "HiCS-FL / Random of (2), 1 seed"; empty if nothing is."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in info.get("runs", []):
        seeds.setdefault((_setting(run), run.get("method", "")), set()).add(run["seed"])
    methods: dict[tuple[str, int], list[str]] = {}  # (setting, number of seeds) -> methods
    for (setting, method), of in seeds.items():
        methods.setdefault((setting, len(of)), []).append(method)
    alike: dict[tuple[str, int], list[str]] = {}  # (methods, number of seeds) -> settings
    for (setting, n), names in methods.items():
        alike.setdefault((_counted(names, "methods"), n), []).append(setting)
    return "; ".join(
        f"{' of '.join(filter(None, [names, _counted(settings, 'settings')]))}, {n} seed{'s' * (n > 1)}"
        for (names, n), settings in alike.items()
    )


def failed(info: dict[str, Any]) -> list[str]:
    """The failed runs in a record of results, one sentence each."""
    return [
        f"{', '.join(filter(None, [run['setting'], run['method'], 'seed ' + str(run['seed'])]))}: {run['reason']}"
        for run in info.get("missing", [])
        if "failed" in run
    ]


def _setting(run: dict[str, Any]) -> str:
    """The setting of a run. For a study's unit, whose settings may occur on several datasets, with the dataset."""
    unit = run.get("unit", {})
    data, setting = unit.get("labels", unit).get("data", ""), run.get("setting", "")
    return data if setting in data else f"{data} {setting}".strip()


def _counted(names: list[str], what: str, few: int = 6) -> str:
    return " / ".join(names) if len(names) <= few else f"{len(names)} {what}"


def shows(experiment: str, scale: Scale, addresses: Sequence[str | None], results: Path = RESULTS) -> bool:
    """Whether the table of an experiment consists of exactly the runs at these addresses (None: unfinished)."""
    path = path_of(experiment, scale, results)
    try:
        with named(path, archives.mend(path)):
            info, _ = info_of(path.read_bytes())
    except (FileNotFoundError, StoreError):
        return False
    there = {run["address"] for run in info["runs"]}
    return info["planned"] == len(addresses) and there == set(addresses) - {None}


def record(experiment: str, scale: Scale, results: Path = RESULTS) -> dict[str, Any]:
    """The record of what made an experiment's or study's table; empty if it has not been run at this scale.

    Whoever reads the same record again gets the same object, not to be changed.

    Raises:
        StoreError: the record is damaged.
    """
    path = path_of(experiment, scale, results).with_suffix(".json")
    if not path.exists():
        return {}
    with named(path, archives.mend(path)):
        return _record(path.read_bytes())


@lru_cache(256)
def _record(content: bytes) -> dict[str, Any]:
    return unsealed(json.loads(content))


def covered(experiments: Iterable[str], scale: Scale, results: Path = RESULTS) -> set[tuple[str, str, str]]:
    """All (experiment, setting, method) that have at least one seed at a scale."""
    there = ((name, run) for name in experiments for run in record(name, scale, results).get("runs", []))
    return {(name, _setting(run), run.get("method", "")) for name, run in there}


def open_results(
    experiment: str, scale: Scale, results: Path = RESULTS
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The tidy table of an experiment, and the record of what made it.

    Raises:
        FileNotFoundError: the experiment has not been run at this scale.
        StoreError: the table is damaged, or is not the one that was written.
    """
    return read_table(path_of(experiment, scale, results))


_held: dict[Path, tuple[bytes, pd.DataFrame, dict[str, Any]]] = {}  # checked: file content, table, record


def hold(paths: Iterable[Path]) -> None:
    """Keep these tables in memory, and no others: this process and its forks read them without checking them again."""
    _held.clear()
    for path in paths:
        with suppress(StoreError):  # whoever needs this table will get the error
            content = path.read_bytes()
            _held[path] = content, *_checked(path, content)


def read_table(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table as `write_table` wrote it, and its record. Raises the same errors as `open_results`."""
    with named(path, archives.mend(path)):
        content = path.read_bytes()
    held, *known = _held.get(path, (None,))
    table, info = known if held == content else _checked(path, content)
    return table.copy(deep=False), dict(info)


def _checked(path: Path, content: bytes) -> tuple[pd.DataFrame, dict[str, Any]]:
    with named(path, archives.mend(path)):
        info, _ = info_of(content)
        if (info.pop("name"), info["scale"]) != (path.stem, path.parent.name):
            raise ValueError("it belongs to another one")
        table = rows_of(content)
        check(table, [archives.labels_of(record) for record in info["runs"]], info.pop("seals"))
        return table, info
