"""A program's own data: arrays, tensors or datasets of pairs, and the split over clients."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlib.data import partition
from fedlib.data.datasets import Tensors
from fedlib.data.schemes import Scheme
from fedlib.data.schemes.given import Given
from fedlib.digests import address_of
from fedlib.errors import ConfigError


@dataclass(frozen=True)
class Data:
    """Training and test samples as arrays.

    x: float32, int64 (tokens) or uint8 (pixels, 0 to 255), (n, ...). y: int64 or float32, (n, ...).
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    @property
    def labels(self) -> bool:
        """Whether y holds class labels, one per sample. Negative ones are for a loss to ignore."""
        return self.y_train.ndim == 1 and self.y_train.dtype == np.int64 and self.y_train.min(initial=0) >= 0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays."""
        total = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            total.update(f"{array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def tensors(self) -> Tensors:
        """As executors take them; pixels become floats in [0, 1]."""
        parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in (self.x_train, self.x_test)]
        y = [torch.from_numpy(np.ascontiguousarray(part)) for part in (self.y_train, self.y_test)]
        if self.x_train.dtype != np.uint8:
            return Tensors(parts[0], y[0], parts[1], y[1])
        C = self.x_train.shape[1]
        pixels = self.x_train, np.full(C, np.float32(1) / np.float32(255)), np.zeros(C, np.float32)
        return Tensors(parts[0].float().div_(255), y[0], parts[1].float().div_(255), y[1], pixels)

    def for_partition(self) -> Data:
        """The same data with labels. They are all 0 where y holds none, which `IID` accepts."""
        if self.labels:
            return self
        zeros = [np.zeros(len(part), np.int64) for part in (self.y_train, self.y_test)]
        return Data(self.x_train, zeros[0], self.x_test, zeros[1])


def data_of(x: Any, y: Any, test: Any, negative: bool = False) -> Data:
    """The arguments of `fedlib.simulate` as arrays.

    x: (n, ...) samples and y: (n, ...) targets; or x is a dataset of pairs and y is None. test: a pair of such arrays,
    a dataset of pairs, or None. negative: whether labels may be negative, for a loss that takes them.

    Raises:
        ConfigError: they are not arrays of numbers, or do not fit together.
    """
    x_train, y_train = _pair("x", x, y, negative)
    if test is None:
        return Data(x_train, y_train, x_train[:0], y_train[:0])
    pair = test if isinstance(test, tuple | list) and len(test) == 2 else (test, None)
    x_test, y_test = _pair("test", *pair, negative)
    for name, ours, theirs in (("x", x_train, x_test), ("y", y_train, y_test)):
        if ours.shape[1:] != theirs.shape[1:] or ours.dtype != theirs.dtype:
            raise ConfigError(
                f"test: its {name} is {_look(theirs)}, but that of training is {_look(ours)}; make them the same."
            )
    return Data(x_train, y_train, x_test, y_test)


def _pair(what: str, x: Any, y: Any, negative: bool) -> tuple[np.ndarray, np.ndarray]:
    if y is None:
        if not (hasattr(x, "__getitem__") and hasattr(x, "__len__")) or hasattr(x, "dtype"):
            raise ConfigError(f"{what}: y is missing; give y, or a dataset of (x, y) pairs.")
        samples = [_sample(what, x[i]) for i in range(len(x))]
        x, y = (np.stack(part) for part in zip(*samples, strict=True))
    x, y = _numbers(f"{what}'s samples", x), _numbers(f"{what}'s targets", y)
    if len(x) != len(y):
        raise ConfigError(
            f"{what}: there are {len(x)} samples and {len(y)} targets; give one target per sample."
        )
    if x.ndim < 2:
        raise ConfigError(f"{what}: samples are {_look(x)}; give (n, ...), one row per sample.")
    y = y.astype(np.float32 if y.dtype.kind == "f" else np.int64)
    if not negative and y.ndim == 1 and y.dtype == np.int64 and y.min(initial=0) < 0:
        raise ConfigError(f"{what}: a label is {y.min()}; number the classes from 0.")
    return x if x.dtype == np.uint8 else x.astype(np.float32 if x.dtype.kind == "f" else np.int64), y


def _sample(what: str, pair: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"{what}: the dataset gives {type(pair).__name__}; it must give pairs (x, y).")
    image = np.asarray(pair[0])
    if hasattr(pair[0], "getbands"):  # a Pillow image: rows, columns and maybe channels
        image = np.moveaxis(image.reshape(*image.shape[:2], -1), -1, 0)
    return image, np.asarray(pair[1])


def _numbers(what: str, values: Any) -> np.ndarray:
    array = values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{what} are {array.dtype}; give numbers.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ConfigError(f"{what} hold values that are not finite; clean them first.")
    return array


def _look(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"


class Clients:
    """The split of samples over clients: a column of owners, a partition, or a scheme that is drawn for each seed.

    N: number of clients. names: of the clients, if a column gives them. spec: the partition in a run's settings.

    Raises:
        ConfigError: a sample has no owner, the column has the wrong length, or N is missing for a scheme.
    """

    def __init__(self, clients: Any, data: Data, N: int | None, holdout: float) -> None:
        self.names: list[Any] | None = None
        self.fixed: partition.Partition | None = None
        self.data, self.holdout = data.for_partition(), holdout
        if isinstance(clients, Scheme):
            if N is None:
                raise ConfigError(f"N is missing: say how many clients {type(clients).__name__} is to make.")
            self.N, self.spec = N, clients
            return
        parts = clients if isinstance(clients, partition.Partition) else self._by_column(clients)
        self.N = len(parts.train)
        if N not in (None, self.N):
            raise ConfigError(f"N is {N}, but clients has {self.N}; leave N out.")
        given = {"train": parts.train, "holdout": parts.holdout, "test": parts.test}
        content = {k: [np.asarray(part).tolist() for part in v] for k, v in given.items() if v is not None}
        self.spec = Given(digest=address_of(content))
        self.fixed = parts

    def partition(self, seed: int) -> partition.Partition:
        """The partition of the run with this seed."""
        if self.fixed is None:
            return partition.make(self.spec, self.data, self.N, seed, self.holdout)
        if self.holdout and self.fixed.holdout is None:
            from fedlib.streams import stream

            parts = partition.hold_out(self.fixed.train, self.holdout, stream(seed, "partition"))
            return partition.Partition(*parts, self.fixed.test, self.fixed.labels)
        return self.fixed

    def _by_column(self, clients: Any) -> partition.Partition:
        if clients is None:
            raise ConfigError("clients is missing: say who owns each sample, or how to split them.")
        column = clients.detach().cpu().numpy() if isinstance(clients, torch.Tensor) else clients
        column = pd.Series(list(column), dtype=None if len(column) else object)
        n, y = len(self.data.y_train), self.data.y_train
        if len(column) != n:
            raise ConfigError(f"clients names the owners of {len(column)} samples, but there are {n}.")
        try:
            code, names = pd.factorize(column, sort=True)
        except TypeError:  # labels of different types have no order
            code, names = pd.factorize(column)
        if (code < 0).any():
            raise ConfigError(f"clients: sample {int((code < 0).argmax())} has no owner; leave it out.")
        self.names = list(names)
        train: Sequence[np.ndarray] = np.split(
            np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1]
        )
        labels = np.zeros((len(names), int(y.max()) + 1), int)
        np.add.at(labels, (code, y), 1)
        return partition.Partition(list(train), None, None, labels)
