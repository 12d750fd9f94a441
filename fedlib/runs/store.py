"""Finished runs and checkpoints on disk, addressed by what produced them.

`<root>/<aa>/<address>/` holds, once a run is finished, `rounds.parquet` (what must be identical every time),
`timing.parquet` (what cannot be), and `run.json` (settings, provenance, address, the digests of both tables and its
own). `run.json` is written last: without it, a run is not finished. Until then there may be a `checkpoint.pt`, or a
`failed.json` that says why the run failed. Every file is written completely or not at all. A file that differs from
what was written is reported, and its run is trained again.
"""

from __future__ import annotations

import hashlib
import io
import shutil
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.errors import InUse, StoreError
from fedlib.files import alone, holder, read_sealed, say, write_sealed, write_whole, writing
from fedlib.runs.sealed import from_checkpoint, named, to_checkpoint
from fedlib.runs.work import is_measurement
from fedlib.settings.schema import ROOT

RUNS = ROOT / "data" / "runs"


def to_parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


class Store:
    """The runs in one folder."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def folder(self, address: str) -> Path:
        return self.root / address[:2] / address

    def finished(self, address: str) -> bool:
        """Whether a run is there and complete. A damaged run is reported and counts as unfinished."""
        if not (self.folder(address) / "run.json").exists():
            return False
        try:
            self.files(address)
        except StoreError as error:
            say(error)
            return False
        return True

    def files(self, address: str) -> tuple[bytes, bytes, dict[str, Any]]:
        """The files of a finished run, as `adopt` takes them: rounds, timing, record.

        Raises:
            StoreError: they are damaged, do not belong together, or belong to another run.
        """
        folder = self.folder(address)
        with named(folder / "run.json", f"delete the folder {folder} to train the run again"):
            record = read_sealed(folder / "run.json")
            if record["address"] != address:
                raise ValueError(f"it belongs to run {record['address']}")
            contents: list[bytes] = []
            for name in ("rounds", "timing"):
                path = folder / f"{name}.parquet"
                if not path.exists():
                    raise ValueError(f"{path.name} is missing beside it")
                contents.append(path.read_bytes())
                digest = hashlib.sha256(contents[-1]).hexdigest()
                if digest != record.get(f"{name}_sha256"):
                    raise ValueError(f"{path.name} does not match the digest that it holds")
            return contents[0], contents[1], record

    def finish(
        self, address: str, rounds: pd.DataFrame, timing: pd.DataFrame, record: dict[str, Any]
    ) -> None:
        """Store a finished run and delete its checkpoint."""
        self.adopt(address, to_parquet(rounds), to_parquet(timing), record)

    def adopt(self, address: str, rounds: bytes, timing: bytes, record: dict[str, Any]) -> None:
        """Store a finished run given as bytes (trained elsewhere), and delete what killed processes left beside it."""
        folder = self.folder(address)
        write_whole(folder / "timing.parquet", timing)
        write_whole(folder / "rounds.parquet", rounds)
        digests = {
            f"{name}_sha256": hashlib.sha256(content).hexdigest()
            for name, content in (("rounds", rounds), ("timing", timing))
        }
        write_sealed(folder / "run.json", {**record, "address": address, **digests})
        for leftover in [folder / "checkpoint.pt", folder / "failed.json", *folder.glob(".*.part")]:
            leftover.unlink(missing_ok=True)

    def fail(self, address: str, reason: str, trace: str) -> None:
        """Store why a run failed, until it is tried again."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        record = {"address": address, "reason": reason, "trace": trace, "date": date}
        write_sealed(self.folder(address) / "failed.json", record)

    def failure(self, address: str) -> dict[str, str] | None:
        """Why a run failed when it was last tried: its `reason`, `trace` and `date`.

        None if it did not fail, or if the file is not what was written: the run is tried again in any case.
        """
        path = self.folder(address) / "failed.json"
        if self.finished(address) or not path.exists():
            return None
        with suppress(OSError, ValueError):
            record = read_sealed(path)
            if {"reason", "trace", "date"} <= record.keys() and record["address"] == address:
                return {key: str(value) for key, value in record.items()}
        return None

    def try_again(self, address: str) -> None:
        """Forget that a run failed.

        Raises:
            StoreError: the folder cannot be written.
        """
        path = self.folder(address) / "failed.json"
        if path.exists():
            with writing(path):
                path.unlink()

    def read(self, address: str) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The rounds (with timing columns) and the record of a finished run; of a measurement, its table.

        Raises:
            StoreError: the run's files contradict each other or cannot be read.
        """
        rounds, timing, record = self.files(address)
        folder = self.folder(address)
        with named(folder / "rounds.parquet", f"delete the folder {folder} to train the run again"):
            tables = [pd.read_parquet(io.BytesIO(content)) for content in (rounds, timing)]
            if is_measurement(record):
                return tables[0], record
            if any(len(table) != len(tables[0]) for table in tables) or not _in_order(tables[0]):
                raise ValueError("it lacks rounds")
        return pd.concat(tables, axis=1), record

    def save_checkpoint(self, address: str, state: dict[str, Any]) -> None:
        import torch  # here, so that opening results does not import torch

        buffer = io.BytesIO()
        torch.save(pack(state), buffer)
        write_whole(self.folder(address) / "checkpoint.pt", to_checkpoint(buffer.getvalue(), address))

    def drop_checkpoint(self, address: str) -> None:
        (self.folder(address) / "checkpoint.pt").unlink(missing_ok=True)

    def load_checkpoint(
        self, address: str, usable: Callable[[Any], bool] = lambda state: isinstance(state, dict)
    ) -> dict[str, Any] | None:
        """The last checkpoint of an unfinished run. None if there is none, or (this is reported) none that is usable.

        usable: whether the content can belong to this run.
        """
        path = self.folder(address) / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            state = self.checkpoint(address)
            if not usable(state):
                raise StoreError(
                    f"{path}: this checkpoint does not hold a state of its run, which starts again."
                )
            return state
        except StoreError as error:
            say(error)
            return None

    def checkpoint(self, address: str) -> Any:
        """The content of a checkpoint.

        Raises:
            StoreError: it is damaged, belongs to another run, or holds anything but numbers, text and arrays.
        """
        import torch

        path = self.folder(address) / "checkpoint.pt"
        with named(path, "its run starts again"):
            content = from_checkpoint(path.read_bytes(), address)
            return unpack(torch.load(io.BytesIO(content), weights_only=True))

    @contextmanager
    def claim(self, address: str) -> Generator[bool]:
        """Lock a run for this process. Yields True if it is ours, False if another process is training it now.

        Raises:
            StoreError: the disk is full or the folder cannot be written.
        """
        with ExitStack() as lock:
            try:
                lock.enter_context(alone(self.folder(address)))
                ours = True
            except InUse:
                ours = False
            yield ours

    def holder(self, address: str) -> str:
        """The process that is training a run, with its command."""
        return holder(self.folder(address))

    def forget(self, address: str) -> None:
        shutil.rmtree(self.folder(address), ignore_errors=True)


def _in_order(rounds: pd.DataFrame) -> bool:
    return rounds["round"].tolist() == list(range(len(rounds)))


def pack(value: Any) -> Any:
    """Convert arrays to tensors, so that a checkpoint can be read back by unpickling only plain data."""
    import torch

    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        with suppress(TypeError, ValueError):  # torch has no such type: text, objects
            tag = "__numpy__" if kind is np.ndarray else "__number__"
            return {tag: torch.from_numpy(np.require(value, requirements=["C", "W"]))}
    elif kind is dict:
        return {k: pack(v) for k, v in value.items()}
    elif kind in (list, tuple):
        return kind(pack(v) for v in value)
    elif value is None or kind in (bool, int, float, str) or isinstance(value, torch.Tensor):
        return value
    dtype = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
    raise StoreError(
        f"a {kind.__name__}{dtype} cannot be kept in a checkpoint; keep arrays of numbers, numbers, text, lists or "
        "dicts."
    )


def unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__numpy__"}:
            return value["__numpy__"].numpy()
        if set(value) == {"__number__"}:
            return value["__number__"].numpy()[()]
        return {k: unpack(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(unpack(v) for v in value)
    return value
