"""Packed results: `data/archive/<scale>/<name>.parquet`, one compact file per experiment or study, kept in git.

A file holds the rows of every finished run. The metadata of its schema says what made each run (settings, data,
versions, device, date, address). It is read as numbers and text and never unpickled; its pages carry checksums.
`data/results` is read in the same way, so that either can supply runs that are not in the store.

Measures are stored as 32-bit floats, except for test accuracy; times are rounded to 8 bits, a study's samples to 12.
Who trained in each round is always kept; runs that were archived before that was so have no such column. Of the other
`OPTIONAL` columns, the archive keeps those that the experiment names under `archive` in `params.yaml`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedlib.errors import StoreError
from fedlib.files import say, write_whole
from fedlib.runs.sealed import check, info_of, named, parts, rows_digest, rows_of, seals, to_parquet
from fedlib.runs.work import LABELS, TIMES, addresses, is_measurement, labels_of
from fedlib.settings.params import OPTIONAL
from fedlib.settings.schema import ROOT, SCALES

if TYPE_CHECKING:
    from fedlib.settings.schema import Scale

ARCHIVE = ROOT / "data" / "archive"
EXACT = ("test_accuracy",)  # compared with targets such as 0.69; a share of 10,000 compresses well unrounded
TIME_BITS = 8
SAMPLE_BITS = 12  # finer than any histogram or test of normality sees, and half the bytes
LISTS = ("clients", "missing")  # of clients' numbers, a round
SETTLED = 2.0  # seconds after which a further change of a file also changes its times


def path_of(name: str, scale: str, root: Path = ARCHIVE) -> Path:
    """The archive's file of an experiment or study at a scale."""
    return root / scale / f"{name}.parquet"


@dataclass(frozen=True)
class Packed:
    """Finished runs of one experiment or study at one scale: one record per run of what made it, and the rows.

    load: reads the rows when they are needed. columns: their names. needed: a run that lacks one of these columns
    counts as not here.
    """

    runs: tuple[dict[str, Any], ...] = ()
    load: Callable[[], pd.DataFrame] = pd.DataFrame
    columns: tuple[str, ...] = ()
    needed: frozenset[str] = frozenset()

    @cached_property
    def table(self) -> pd.DataFrame:
        return self.load()

    @cached_property
    def records(self) -> dict[str, dict[str, Any]]:
        """Records by address. The same numbers may be listed under several names."""
        return {record["address"]: record for record in self.runs}

    def contains(self, address: str) -> bool:
        """Whether a run is here, with the columns that are needed."""
        return address in self.records and (not self.needed or self.needed <= set(self.rows(address)))

    def rows(self, address: str) -> pd.DataFrame:
        """The rows of one run, without its labels and without lists of clients that were not kept."""
        start, end = self._spans[tuple(labels_of(self.records[address]).values())]
        rows = self._unlabelled.iloc[start:end].reset_index(drop=True)
        return rows.drop(columns=[name for name in LISTS if name in rows and rows[name].isna().all()])

    def read(self, address: str) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The rows and the record of one run, as `Store.read`."""
        return self.rows(address), self.records[address]

    @cached_property
    def digests(self) -> dict[str, set[str]]:
        """Dataset -> the digests of its data on which runs were trained."""
        digests: dict[str, set[str]] = {}
        for record in self.runs:
            digests.setdefault(record["data"]["name"], set()).add(record["data"]["digest"])
        return digests

    @cached_property
    def _spans(self) -> dict[tuple, tuple[int, int]]:
        """Labels of a run -> its rows, from start to end."""
        labels = [labels_of(record) for record in self.runs]
        spans = parts(self.table, labels)
        names = list(labels[0])
        starts = self.table[names].iloc[[start for start, _ in spans]].itertuples(index=False, name=None)
        return dict(zip(starts, spans, strict=True))

    @cached_property
    def _unlabelled(self) -> pd.DataFrame:
        return self.table.drop(columns=[*labels_of(self.runs[0]), "experiment"], errors="ignore")


def sources(name: str, scale: Scale, columns: Collection[str], results: Path, archive: Path) -> list[Packed]:
    """Tables that can supply runs that are not in the store: the earlier results, the archive, and the archives of
    other experiments and scales, which may hold the same runs.

    columns: the columns that archives of `name` keep (`Experiments.archived`). An archive without them cannot be used.
    """
    own_tables = read_results(name, scale, results), read(name, scale, archive)
    return [*own_tables, *_other_archives(name, scale, columns, archive)]


def elsewhere(
    name: str, scale: Scale, columns: Collection[str], runs: list[dict[str, Any]], archive: Path = ARCHIVE
) -> bool:
    """Whether archives of other experiments and scales hold all of these runs, and `name` has no archive."""
    if path_of(name, scale, archive).exists():
        return False
    archived = {
        address
        for packed in _other_archives(name, scale, columns, archive)
        for address in packed.records
        if packed.contains(address)
    }
    return archived.issuperset(record["address"] for record in runs)


def all_of(archive: Path = ARCHIVE) -> Iterator[tuple[Scale, Path]]:
    """Every archive there is, with its scale."""
    for scale in sorted(SCALES):
        for path in sorted((archive / scale).glob("*.parquet")):
            yield scale, path


def _other_archives(name: str, scale: Scale, columns: Collection[str], archive: Path) -> Iterator[Packed]:
    needed = {OPTIONAL[name_in_params] for name_in_params in columns}
    lists = frozenset(needed & {*LISTS})
    for other_scale, path in all_of(archive):
        if path != path_of(name, scale, archive):
            with suppress(StoreError):  # whoever needs this archive will get the error
                packed = read(path.stem, other_scale, archive)
                if needed <= set(packed.columns):
                    yield replace(packed, needed=lists) if lists else packed


def find(
    packed: Sequence[Packed], dataset: str, address: Callable[[str], str], digest: str | None
) -> tuple[Packed, str] | None:
    """The first table that has a run, and the run's address there.

    address: makes it from the digest of the dataset's data. digest: of the data; None: any that a table has.
    """
    address = cache(address)
    for table in packed:
        for data in sorted(table.digests.get(dataset, ())) if digest is None else [digest]:
            if table.contains(address(data)):
                return table, address(data)
    return None


def read_results(name: str, scale: Scale, results: Path) -> Packed:
    """The content of `data/results`. Empty if there is none, or if it is damaged; the latter is reported."""
    try:
        packed = read(name, scale, results)
        _ = packed.table
    except StoreError as error:
        say(error)
        return Packed()
    return packed


def read(name: str, scale: str, root: Path = ARCHIVE) -> Packed:
    """The archived runs of an experiment or study; empty if it has no archive.

    Raises:
        StoreError: the file is damaged or belongs to something else. Damaged rows are found when they are read.
    """
    path = path_of(name, scale, root)
    try:
        status = path.stat()
    except FileNotFoundError:
        return Packed()
    if not S_ISREG(status.st_mode):  # reading a pipe would wait
        raise StoreError(f"{path}: it is not a file; move it away.")
    if time.time() - max(status.st_mtime, status.st_ctime) < SETTLED:
        return _opened(path, name, scale, path.read_bytes())
    times = status.st_mtime_ns, status.st_ctime_ns
    return _settled(path, name, scale, (status.st_dev, status.st_ino, status.st_size, *times))


@lru_cache(maxsize=1024)
def _settled(path: Path, name: str, scale: str, version: tuple[int, ...]) -> Packed:
    """The content of a file that has been as it is for some time; `version` differs once it is written again."""
    return _opened(path, name, scale, path.read_bytes())


# More places than there are files: with fewer, a second pass over all of them would find none.
@lru_cache(maxsize=1024)
def _opened(path: Path, name: str, scale: str, content: bytes) -> Packed:
    with named(path, mend(path)):
        info, columns = info_of(content)
        if (info["name"], info["scale"]) != (name, scale):
            raise ValueError(f"it holds {info['name']} at scale {info['scale']}")
        runs = [_current(name, record) for record in info["runs"]]
        return Packed(tuple(runs), partial(_rows, path, content, runs, info["seals"]), columns)


def mend(path: Path) -> str:
    """What to do about a damaged file of this kind."""
    if path.parents[1].name == ARCHIVE.name:
        return f"get it back with `git checkout -- {path}`, or delete it"
    return f"delete it, then run: fedlib results {path.stem} --scale {path.parent.name}"


def _current(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """A run's record under the current address of its settings, data and numerics.

    Raises:
        ValueError: its address matches its settings neither now nor at the time of writing.
    """
    made_by = record["numerics"], record["data"]["digest"], record.get("code", {})
    valid = addresses(name, record, *made_by)
    if record["address"] not in valid:
        raise ValueError("a run's settings do not match its address")
    return {**record, "address": valid[0]}


def _rows(path: Path, content: bytes, runs: list[dict[str, Any]], expected: list[Any]) -> pd.DataFrame:
    with named(path, mend(path)):
        table = rows_of(content, ignore_metadata=True)
        check(table, [labels_of(record) for record in runs], expected)
    wide = {
        c: kind.name.replace("32", "64") for c, kind in table.dtypes.items() if kind in (np.float32, np.int32)
    }
    return table.astype(wide)


def write(
    name: str,
    scale: Scale,
    columns: Collection[str],
    table: pd.DataFrame,
    runs: list[dict[str, Any]],
    root: Path = ARCHIVE,
) -> Path:
    """Pack the rows of finished runs, with records of what made them (including `address`), into the archive.

    columns: the `OPTIONAL` columns to keep (`Experiments.archived`).
    """
    lean = _lean_study(table) if any(map(is_measurement, runs)) else _lean(table, columns)
    packed = pa.Table.from_pandas(lean, preserve_index=False)
    info = {"name": name, "scale": scale, "runs": runs}
    info["seals"] = seals(packed.to_pandas(ignore_metadata=True), [labels_of(record) for record in runs])
    path = path_of(name, scale, root)
    write_whole(path, _compressed(packed, info))
    return path


def _compressed(table: pa.Table, info: dict[str, Any]) -> bytes:
    decimals = [field.name for field in table.schema if pa.types.is_float32(field.type)]
    samples = [field.name for field in table.schema if field.type == pa.list_(pa.float32())]
    split = [*decimals, *(f"{name}.list.element" for name in samples)]
    return to_parquet(
        table.replace_schema_metadata(None),
        info,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.schema.names if name not in (*decimals, *samples)],
        column_encoding=dict.fromkeys(split, "BYTE_STREAM_SPLIT"),
        store_schema=False,
    )


def _lean_study(table: pd.DataFrame) -> pd.DataFrame:
    """A study's table in its archived form, with its samples, which are lists of decimals, rounded."""
    lean = table.drop(columns="experiment", errors="ignore")
    for column in lean.columns[[kind.kind == "O" for kind in lean.dtypes]]:
        lean[column] = [
            rounded(v, SAMPLE_BITS) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v
            for v in lean[column]
        ]
    return lean


def _lean(table: pd.DataFrame, columns: Collection[str]) -> pd.DataFrame:
    """A table of training runs in its archived form."""
    left_out = set(OPTIONAL.values()) - {OPTIONAL[column] for column in columns} - {*LISTS}
    lean = table.drop(columns=["experiment", *left_out], errors="ignore")
    for column in lean.select_dtypes("float64"):
        if column not in EXACT:
            lean[column] = lean[column].astype(np.float32)
    for column in lean.select_dtypes("int64"):
        if column != "seed" and lean[column].abs().max() < 2**31:
            lean[column] = lean[column].astype(np.int32)
    for column in (c for c in TIMES if c in lean):
        lean[column] = rounded(lean[column].to_numpy(), TIME_BITS)
    for column in (c for c in LISTS if c in lean):
        if lean[column].isna().all():
            lean = lean.drop(columns=column)
        else:
            lean[column] = [np.int32(v) if isinstance(v, list | np.ndarray) else None for v in lean[column]]
    if "notes" in lean and "notes" not in columns:
        noted = lean["notes"].notna()
        first = ~lean[noted].duplicated([*LABELS]).reindex(lean.index, fill_value=True)
        lean["notes"] = lean["notes"].where(first, None)
    return lean


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """float32 values rounded to `bits` significant bits."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(np.float32)


@dataclass(frozen=True)
class Renewed:
    """Runs and rows of an archive; number of changed addresses; whether it is rewritten."""

    runs: int
    rows: int
    moved: int
    rewritten: bool


def renew(path: Path) -> Renewed:
    """Give the runs of an archive their current addresses. The rows stay the same.

    Raises:
        StoreError: the archive is damaged, or its rows would change.
    """
    name, scale, content = path.stem, path.parent.name, path.read_bytes()
    old = _opened(path, name, scale, content)
    with named(path, mend(path)):
        stored, _ = info_of(content)
        table = pq.read_table(pa.BufferReader(content))
        info = {"name": name, "scale": scale, "runs": list(old.runs)}
        info["seals"] = seals(old.table, [labels_of(record) for record in old.runs])
        moved = sum(
            new_record["address"] != old_record["address"]
            for new_record, old_record in zip(old.runs, stored["runs"], strict=True)
        )
        if rewritten := stored != info:
            content = _compressed(table, info)
        if rows_digest(_opened(path, name, scale, content).table) != rows_digest(old.table):
            raise ValueError("its rows would change")
    if rewritten:
        write_whole(path, content)
    return Renewed(len(old.runs), table.num_rows, moved, rewritten)
