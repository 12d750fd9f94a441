"""The state of a strategy on disk between rounds, so that a stopped server can continue."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import torch

from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.runs.store import pack, unpack
from fedlib.simulation.checks import plain


def of_settings(settings: dict[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, default=plain)


def save(folder: Path, settings: dict[str, Any], state: dict[str, Any]) -> None:
    """Save a state. Raises StoreError: the sampler's state is not plain data, or the folder cannot be written."""
    buffer = io.BytesIO()
    torch.save(pack({"settings": of_settings(settings), **state}), buffer)
    write_whole(folder / "state.pt", buffer.getvalue())


def load(folder: Path | None, settings: dict[str, Any]) -> dict[str, Any] | None:
    """The last saved state; None if there is none.

    Raises:
        StoreError: it cannot be read, or belongs to other settings.
    """
    path = folder / "state.pt" if folder else None
    if path is None or not path.exists():
        return None
    try:
        state = unpack(torch.load(path, weights_only=True))
    except Exception as error:
        raise StoreError(
            f"{path}: cannot be read ({type(error).__name__}); delete it to start again."
        ) from None
    if state["settings"] != of_settings(settings):
        raise StoreError(
            f"{path}: belongs to other settings or another model; delete it, or name another store."
        )
    return state
