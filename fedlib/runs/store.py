"""Finished runs and checkpoints on disk, addressed by what produced them.

`<root>/<aa>/<address>/` holds, once the run is finished, `rounds.parquet` (what must be identical every time),
`timing.parquet` (what cannot be), and `run.json` (settings, provenance, and the digest of the rounds), written last:
a run without it is not finished. Until then there may be a `checkpoint.pt`. Every file appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pandas as pd

from fedlib.files import StoreError, cannot_write, write_whole
from fedlib.settings.schema import ROOT

RUNS = ROOT / "data" / "runs"
TIMING = ["seconds", "server_seconds"]


def to_parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


class Store:
    """The runs below one folder."""

    def __init__(self, root: Path = RUNS) -> None:
        self.root = Path(root)

    def folder(self, address: str) -> Path:
        return self.root / address[:2] / address

    def finished(self, address: str) -> bool:
        return (self.folder(address) / "run.json").exists()

    def finish(
        self, address: str, rounds: pd.DataFrame, timing: pd.DataFrame, record: dict[str, Any]
    ) -> None:
        """Keep a finished run and drop its checkpoint."""
        self.adopt(address, to_parquet(rounds), to_parquet(timing), record)

    def adopt(self, address: str, rounds: bytes, timing: bytes, record: dict[str, Any]) -> None:
        """Keep a finished run given as bytes (trained elsewhere); what killed processes left beside it goes."""
        folder = self.folder(address)
        write_whole(folder / "timing.parquet", timing)
        write_whole(folder / "rounds.parquet", rounds)
        record = {**record, "address": address, "rounds_sha256": hashlib.sha256(rounds).hexdigest()}
        write_whole(folder / "run.json", json.dumps(record, indent=1, sort_keys=True).encode())
        for left in [folder / "checkpoint.pt", *folder.glob(".*.part")]:
            left.unlink(missing_ok=True)

    def files(self, address: str) -> tuple[str, bytes, bytes, dict[str, Any]]:
        """A finished run as `adopt` takes it."""
        folder = self.folder(address)
        record = json.loads((folder / "run.json").read_text())
        return (
            address,
            (folder / "rounds.parquet").read_bytes(),
            (folder / "timing.parquet").read_bytes(),
            record,
        )

    def read(self, address: str) -> tuple[pd.DataFrame, dict[str, Any]]:
        """The rounds (with timing columns) and the record of a finished run.

        Raises:
            StoreError: the run's files disagree with each other or cannot be read.
        """
        folder = self.folder(address)
        try:
            record = json.loads((folder / "run.json").read_text())
            content = (folder / "rounds.parquet").read_bytes()
            if hashlib.sha256(content).hexdigest() != record["rounds_sha256"]:
                raise ValueError("contents do not match the digest in run.json")
            rounds = pd.read_parquet(io.BytesIO(content))
            timing = pd.read_parquet(folder / "timing.parquet")
        except (OSError, ValueError, KeyError) as error:
            raise StoreError(
                f"{folder}: this finished run cannot be read ({error}); delete the folder to train it again."
            ) from None
        return pd.concat([rounds, timing], axis=1), record

    def save_checkpoint(self, address: str, state: dict[str, Any]) -> None:
        import torch  # here, so that opening results imports no torch

        buffer = io.BytesIO()
        torch.save(pack(state), buffer)
        write_whole(self.folder(address) / "checkpoint.pt", buffer.getvalue())

    def load_checkpoint(self, address: str) -> dict[str, Any] | None:
        """The last checkpoint of an unfinished run, None if there is none.

        Raises:
            StoreError: the file is damaged or holds anything but numbers, text and arrays.
        """
        import torch

        path = self.folder(address) / "checkpoint.pt"
        if not path.exists():
            return None
        try:
            return unpack(torch.load(path, weights_only=True))
        except Exception as error:
            raise StoreError(
                f"{path}: this checkpoint cannot be read ({type(error).__name__}); delete it to start the run anew."
            ) from None

    @contextmanager
    def claim(self, address: str) -> Iterator[bool]:
        """Hold a run for this process: True if it is ours, False if another process is training it now.

        Raises:
            StoreError: the disk is full or the folder cannot be written.
        """
        folder = self.folder(address)
        lock = filelock.FileLock(folder / ".lock")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except filelock.Timeout:
            yield False
            return
        except OSError as error:
            raise cannot_write(folder, error) from None
        try:
            yield True
        finally:
            lock.release()

    def forget(self, address: str) -> None:
        shutil.rmtree(self.folder(address), ignore_errors=True)


def pack(value: Any) -> Any:
    """Arrays become tensors, so that a checkpoint can be read back without unpickling anything but plain data."""
    import torch

    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        with suppress(TypeError, ValueError):  # torch has nothing like it: text, objects
            tag = "__numpy__" if kind is np.ndarray else "__number__"
            return {tag: torch.from_numpy(np.asarray(value, order="C"))}
    elif kind is dict:
        return {k: pack(v) for k, v in value.items()}
    elif kind in (list, tuple):
        return kind(pack(v) for v in value)
    elif value is None or kind in (bool, int, float, str) or isinstance(value, torch.Tensor):
        return value
    of = f" of {value.dtype}" if isinstance(value, np.ndarray) else ""
    raise StoreError(
        f"a {kind.__name__}{of} cannot be kept in a checkpoint; keep arrays of numbers, numbers, text, lists or dicts."
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
