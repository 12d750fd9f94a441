"""The rule for everything that is read back from a table or a checkpoint: it is complete and as written, or is refused.

The schema metadata of a parquet file carries a record (`files.sealed`). The record holds the number and the digest of
each run's rows, in order. So rows that were changed, doubled, shuffled or taken from another run are detected. The
first line of a checkpoint holds its run's address and its digest.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import accumulate, groupby
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedlib.errors import StoreError
from fedlib.files import sealed, unsealed

KEY = b"fedlib"
MARK = b"fedlib checkpoint"
LONGEST = 64 * 2**20  # bytes of a record; the longest of all archives has a twentieth of it
AS_JSON = json.JSONEncoder(default=lambda value: _plain(value))
Labels = Sequence[dict[str, Any]]  # for each run, the columns and values that identify its rows


@contextmanager
def named(path: Path, mend: str) -> Generator[None]:
    """In this context, an error in a file's content is reported in a sentence that names it; `mend` says what to do."""
    try:
        yield
    except (StoreError, FileNotFoundError):
        raise
    except Exception as error:  # a damaged file raises almost anything
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise StoreError(f"{path}: this file cannot be used ({reason}); {mend}.") from None


def rows_digest(rows: pd.DataFrame) -> str:
    """SHA-256 of a table's values, in order. The width of whole numbers and decimals does not matter."""
    return _digests(rows, [(0, len(rows))])[0]


def _digests(table: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The digest of the rows from start to end, for each span (start, end)."""
    totals = [hashlib.sha256() for _ in spans]
    for name in sorted(table.columns):
        values = table[name]
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biuf":
            numbers = values.to_numpy(np.float64)
            numbers = np.where(np.isnan(numbers), np.nan, numbers)
            contents = [numbers[start:end].tobytes() for start, end in spans]
        else:
            texts = _texts(values)
            contents = [f"[{', '.join(texts[start:end])}]".encode() for start, end in spans]
        for total, content, (start, end) in zip(totals, contents, spans, strict=True):
            total.update(f"{name} {end - start} {len(content)}\n".encode() + content)
    return [total.hexdigest() for total in totals]


def _texts(values: pd.Series) -> Sequence[str]:
    """Each value as JSON."""
    if isinstance(values.dtype, pd.StringDtype):  # labels, which repeat: each is written once
        codes, labels = pd.factorize(values, use_na_sentinel=False)
        return np.array([json.dumps(_plain(label)) for label in labels], dtype=object)[codes]
    return [_text(value) for value in values.to_numpy(object)]


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return encode_basestring_ascii(value)  # what `json.dumps` calls
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1:
        return str(value.tolist())  # JSON, too, and faster: most values are lists of clients
    return AS_JSON.encode(_plain(value))


def _plain(value: Any) -> Any:
    """A value as JSON; missing values as None."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    return None if value is pd.NA or (isinstance(value, float) and np.isnan(value)) else value


def parts(table: pd.DataFrame, labels: Labels) -> list[tuple[int, int]]:
    """Each run's rows, from start to end, in the order of the table.

    Raises:
        ValueError: rows belong to no run, a run has no rows, or a run's rows are not contiguous.
    """
    label_names = list(labels[0]) if labels else []
    has_labels = set(label_names) <= set(table.columns)
    keys = (
        list(zip(*(table[column].to_numpy(object) for column in label_names), strict=True))
        if has_labels
        else []
    )
    counted = [(key, len(list(group))) for key, group in groupby(keys)]
    actual, expected = [key for key, _ in counted], {tuple(label.values()) for label in labels}
    if set(actual) != expected or len(actual) != len(expected) or len(keys) != len(table):
        raise ValueError("its rows are not those of its runs")
    ends = list(accumulate(n for _, n in counted))
    return [(end - n, end) for end, (_, n) in zip(ends, counted, strict=True)]


def seals(table: pd.DataFrame, labels: Labels) -> list[list[Any]]:
    """Number and digest of each run's rows, in the order of the table. Raises the same errors as `parts`."""
    spans = parts(table, labels)
    digests = _digests(table, spans)
    return [[end - start, digest] for (start, end), digest in zip(spans, digests, strict=True)]


def check(table: pd.DataFrame, labels: Labels, expected: list[list[Any]]) -> None:
    """Check that a table is the one that was sealed.

    Raises:
        ValueError: it is not.
    """
    actual = seals(table, labels)
    if actual != [list(seal) for seal in expected]:
        raise ValueError("its rows are not those that were written")


def to_parquet(table: pa.Table, info: dict[str, Any], **options: Any) -> bytes:
    """A table as parquet, with a sealed record."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, table.schema, write_page_checksum=True, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({KEY: packed(sealed(info))})
    return buffer.getvalue()


def info_of(content: bytes) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The checked record and the column names of a parquet file, without reading its rows.

    Raises:
        ValueError, OSError: it has no record, or is damaged.
    """
    metadata = _metadata(content)
    if KEY not in (metadata.metadata or {}):
        raise ValueError("it has no record of what made it")
    return unsealed(unpacked(metadata.metadata[KEY])), tuple(metadata.schema.to_arrow_schema().names)


def _metadata(content: bytes) -> pq.FileMetaData:
    return pq.read_metadata(pa.BufferReader(content))


def rows_of(content: bytes, ignore_metadata: bool = False) -> pd.DataFrame:
    """The rows of a parquet file, with its pages' checksums verified."""
    table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    return table.to_pandas(ignore_metadata=ignore_metadata)


def packed(info: dict[str, Any]) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(info, sort_keys=True).encode(), 9))


def unpacked(text: bytes) -> Any:
    """What `packed` wrote. Raises ValueError: it is no such text, or longer than any record is."""
    whole = zlib.decompressobj()
    content = whole.decompress(base64.b64decode(text, validate=True), LONGEST)
    if not whole.eof:
        raise ValueError(f"its record is damaged, or longer than {LONGEST >> 20} MB")
    return json.loads(content)


def to_kept(table: pd.DataFrame, address: str) -> bytes:
    """A table and its address, as parquet."""
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    seal = [len(table), rows_digest(arrow.to_pandas())]
    return to_parquet(arrow, {"address": address, "seals": [seal]}, compression="zstd")


def from_kept(path: Path, address: str, mend: str, digest: str = "") -> pd.DataFrame:
    """The table stored under an address.

    digest: SHA-256 of the file that was written, if it is known; the rows of this file need none of their own.

    Raises:
        StoreError: it is damaged, or belongs to another address. FileNotFoundError: there is none.
    """
    with named(path, mend):
        content = path.read_bytes()
        table = rows_of(content)
        info, _ = info_of(content)
        if info["address"] != address:
            raise ValueError(f"it belongs to {info['address']}")
        whole = hashlib.sha256(content).hexdigest() == digest
        if not whole and info["seals"] != [[len(table), rows_digest(table)]]:
            raise ValueError("its rows are not those that were written")
        return table


def to_checkpoint(content: bytes, address: str) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return b" ".join([MARK, address.encode(), digest.encode()]) + b"\n" + content


def from_checkpoint(content: bytes, address: str) -> bytes:
    """The content that was passed to `to_checkpoint`.

    Raises:
        ValueError: it is damaged, or belongs to another run.
    """
    head, _, inner = content.partition(b"\n")
    if not head.startswith(MARK + b" "):
        raise ValueError("it does not begin with its run's address")
    if head != to_checkpoint(inner, address).partition(b"\n")[0]:
        raise ValueError("it is damaged, or belongs to another run")
    return inner


def is_state(state: Any, T: int) -> bool:
    """Whether a checkpoint's content can belong to a run of T rounds: t rounds, with the rows of rounds 0 to t."""
    keys = {"t", "models", "algorithm", "sampler", "rows", "diverged"}
    if not isinstance(state, dict) or set(state) - {"world"} != keys:
        return False
    t, rows = state["t"], state["rows"]
    if type(t) is not int or not 0 <= t <= T or not isinstance(rows, list):
        return False
    rounds = [row.get("round") if isinstance(row, dict) else None for row in rows]
    return rounds == list(range(t + 1)) or (t == 0 and not rows)
