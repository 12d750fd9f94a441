"""A partition from a file: the indices of each client's samples. The file is named by a digest of its content.

    spec = given.keep(train=[[0, 5, 7], [1, 2]])  # data/partitions/<digest>.json
    spec                                          # GivenPartition(scheme='given', digest='...'), a run's `partition`

The digest is part of a run's address. Where the file came from is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedlib.data.schemes.base import LabelledData, Parts, Scheme, Split, register
from fedlib.digests import address_of
from fedlib.errors import ConfigError
from fedlib.files import ROOT, write_whole

PARTITIONS = ROOT / "data" / "partitions"
PARTS = ("train", "holdout", "test")

Indices = Sequence[Sequence[int] | np.ndarray]


@register(revision=0)
class GivenPartition(Scheme):
    """A partition listed in a file, for every seed: `data/partitions/<digest>.json` (written by `keep`)."""

    scheme: Literal["given"] = "given"
    digest: str

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        parts = load(self, N, len(data.y_train), len(data.y_test))
        return Split(parts["train"], parts.get("test"), parts.get("holdout"))


def content_of(
    train: Indices, holdout: Indices | None = None, test: Indices | None = None
) -> dict[str, list[list[int]]]:
    """The parts that a partition has, as its file holds them and its digest identifies them."""
    parts_of = dict(zip(PARTS, (train, holdout, test), strict=True))
    return {
        name: [np.asarray(part, dtype=np.int64).tolist() for part in parts]
        for name, parts in parts_of.items()
        if parts is not None
    }


def keep(
    train: Indices, holdout: Indices | None = None, test: Indices | None = None, root: Path | None = None
) -> GivenPartition:
    """Write a partition to its file; returns the settings that refer to it.

    train, holdout: for each client, a list of indices into the training set. test: for each client, a list of indices
        into the test set.
    """
    content = {
        name: [sorted(part) for part in parts] for name, parts in content_of(train, holdout, test).items()
    }
    spec = GivenPartition(digest=address_of(content))
    write_whole((root or PARTITIONS) / f"{spec.digest}.json", json.dumps(content).encode())
    return spec


def load(
    spec: GivenPartition, N: int, n_train: int, n_test: int, root: Path | None = None
) -> dict[str, Parts]:
    """`train` of a partition, and `test` and `holdout` where it has them: one int64 array of indices per client.

    Raises:
        ConfigError: the file is missing or damaged, or it does not describe N clients of this dataset.
    """
    root = root or PARTITIONS
    path = root / f"{spec.digest}.json"
    where = f"partition.digest: {path.name}"
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{where} is not in {root}; copy it there, or make it (`given.keep`).") from None
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON ({error}); make it again (`given.keep`).") from None
    if address_of(content) != spec.digest:
        raise ConfigError(f"{where} does not match the digest in its name; make it again (`given.keep`).")
    if content.get("train") is None or set(content) - set(PARTS):
        raise ConfigError(
            f"{where} must hold train, and may hold holdout and test; it has {', '.join(content)}."
        )
    sizes = {"train": n_train, "holdout": n_train, "test": n_test}
    return {
        name: _checked(parts, f"{where}: {name}", N, sizes[name])
        for name, parts in content.items()
        if parts is not None
    }


def _checked(parts: list[list[int]], where: str, N: int, n: int) -> Parts:
    if len(parts) != N:
        raise ConfigError(f"{where} has {len(parts)} clients, but N is {N}; set N: {len(parts)}.")
    arrays = [np.array(part, dtype=np.int64) for part in parts]
    for k, part in enumerate(arrays):
        if not len(part):
            raise ConfigError(f"{where} of client {k} is empty; leave the client out.")
        if part.min() < 0 or part.max() >= n:
            raise ConfigError(
                f"{where} of client {k} has sample {part.max()}, but the dataset has 0 to {n - 1}; "
                "does the partition belong to another dataset?"
            )
    return arrays
