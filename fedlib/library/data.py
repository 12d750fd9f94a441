"""A program's own data: arrays, tensors or datasets of pairs, and the split over clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlib.data import partition, schemes
from fedlib.data.datasets import Tensors, digest_of_arrays
from fedlib.data.partition import Partition
from fedlib.data.schemes import Scheme
from fedlib.data.schemes.given import GivenPartition, content_of
from fedlib.digests import address_of
from fedlib.errors import ConfigError, meant
from fedlib.library.inputs import Column, Packing, as_array, by_client, is_dataset, packed, pair_of, put_aside
from fedlib.streams import stream

MOST_GAPS = 10  # of numbers below the largest label, for one that occurs
LOST = 1e-4  # share of a column's range by which rounding to single precision may move its values
BLOCK = 2**16  # rows that are compared at a time


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
        y = self.y_train
        return y.ndim == 1 and y.dtype == np.int64 and y.min(initial=0) >= 0 and not self.ids

    @cached_property
    def ids(self) -> bool:
        """Whether whole numbers as targets leave out most numbers below the largest, as ids or counts do."""
        y = np.concatenate([self.y_train.ravel(), self.y_test.ravel()])
        if y.dtype != np.int64 or not len(y):
            return False
        return int(y.max()) + 1 > MOST_GAPS * len(np.unique(y)) + MOST_GAPS

    @property
    def classes(self) -> int:
        """Number of classes of labels in training and test; 1 where y holds no labels."""
        return int(max(part.max(initial=0) for part in (self.y_train, self.y_test))) + 1 if self.labels else 1

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the arrays."""
        return digest_of_arrays(("", part) for part in (self.x_train, self.y_train, self.x_test, self.y_test))

    def tensors(self) -> Tensors:
        """As executors take them; pixels become floats in [0, 1]."""
        x, y, x_test, y_test = (
            torch.from_numpy(np.ascontiguousarray(part))
            for part in (self.x_train, self.y_train, self.x_test, self.y_test)
        )
        if x.dtype != torch.uint8:
            return Tensors(x, y, x_test, y_test)
        C = x.shape[1]
        pixels = self.x_train, np.full(C, np.float32(1) / np.float32(255)), np.zeros(C, np.float32)
        return Tensors(x.float().div_(255), y, x_test.float().div_(255), y_test, pixels)

    def real(self) -> Data:
        """The same data with whole numbers as floats, for a shipped model."""
        if self.x_train.dtype != np.int64:
            return self
        return replace(self, x_train=self.x_train.astype(np.float32), x_test=self.x_test.astype(np.float32))

    def for_partition(self) -> Data:
        """The same data with labels. They are all 0 where y holds none, which `IID` accepts."""
        if self.labels:
            return self
        zeros = [np.zeros(len(part), np.int64) for part in (self.y_train, self.y_test)]
        return Data(self.x_train, zeros[0], self.x_test, zeros[1])


@dataclass(frozen=True)
class Samples:
    """What a program handed over, as arrays. owner, test_owner: whose each sample is, if the samples say so.

    packing: how several inputs per sample are packed, None for one input.
    """

    data: Data
    owner: Column | None = None
    test_owner: Column | None = None
    packing: Packing | None = None


def samples_of(x: Any, y: Any, clients: Any, test: Any, client_test: Any, negative: bool) -> Samples:
    """The arguments of `fedlib.simulate` as arrays. negative: whether labels may be negative, for a loss to ignore.

    Raises:
        ConfigError: they are not arrays of numbers, or do not fit together.
    """
    packings: list[tuple[str, Packing | None]] = []

    def read(place: str, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        x, packing = packed(place, x)
        packings.append((place, packing))
        if packing != packings[0][1]:
            raise ConfigError(
                f"{place}: its inputs differ from those of {packings[0][0]}; give the same ones."
            )
        return _pair(place, x, y, negative)

    owner: Column | None = None
    if x is None and not isinstance(clients, Mapping | Sequence):
        raise ConfigError(
            "x is missing; give samples, or give clients as a mapping or list of each client's dataset."
        )
    if x is None:
        x_train, y_train, owner = by_client("clients", clients, read)
    else:
        x_train, y_train = read("x", x, y)
        if clients is not None and not isinstance(clients, Scheme | partition.Partition):
            owner = column_of("clients", clients, len(y_train))
    x_test, y_test, test_owner = x_train[:0], y_train[:0], None
    if test is not None:
        x_test, y_test = read("test", *pair_of("test", test))
    if isinstance(client_test, float):
        if owner is None or test is not None:
            raise ConfigError(
                "client_test: a share needs clients whose samples are fixed, and no other test data; leave test out, "
                "or give the owner of each test sample."
            )
        aside = put_aside(owner, client_test)
        x_test, y_test, test_owner = x_train[aside], y_train[aside], owner.of(aside)
        x_train, y_train, owner = x_train[~aside], y_train[~aside], owner.of(~aside)
    elif isinstance(client_test, Mapping):
        if test is not None:
            raise ConfigError("client_test brings the clients' own test data; leave test out.")
        x_test, y_test, test_owner = by_client("client_test", client_test, read)
    elif client_test is not None:
        if test is None:
            raise ConfigError("client_test names the owners of test samples; give test as well.")
        test_owner = column_of("client_test", client_test, len(y_test))
    data = Data(x_train, y_train, x_test, y_test)
    for name, ours, theirs in (("x", x_train, x_test), ("y", y_train, y_test)):
        if ours.shape[1:] != theirs.shape[1:] or ours.dtype != theirs.dtype:
            raise ConfigError(
                f"test: its {name} is {_look(theirs)}, but that of training is {_look(ours)}; make them the same."
            )
    return Samples(data, owner, test_owner, packings[0][1])


def column_of(place: str, values: Any, n: int) -> Column:
    """The owners of n samples, numbered in the order of their names.

    Raises:
        ConfigError: it has another length, or a sample has no owner.
    """
    if isinstance(values, torch.Tensor | np.ndarray):
        values = as_array(place, values)
    elif isinstance(values, str | bytes | Mapping) or not (
        hasattr(values, "__len__") and hasattr(values, "__iter__")
    ):
        raise ConfigError(
            f"{place} is of type {type(values).__name__}; give a list or column with the owner of each sample."
        )
    elif hasattr(values, "ndim") and values.ndim != 1:
        raise ConfigError(
            f"{place} is a table {values.shape}; give one column of it, the owner of each sample."
        )
    column = pd.Series(list(values), dtype=None if len(values) else object)
    if len(column) != n:
        raise ConfigError(f"{place} names the owners of {len(column)} samples, but there are {n}.")
    try:
        code, names = pd.factorize(column, sort=True)
    except TypeError:  # labels of different types have no order
        code, names = pd.factorize(column)
    if (code < 0).any():
        raise ConfigError(f"{place}: sample {int((code < 0).argmax())} has no owner; leave it out.")
    return Column(code, list(names))


def _pair(place: str, x: Any, y: Any, negative: bool) -> tuple[np.ndarray, np.ndarray]:
    if y is None:
        if not is_dataset(x):
            raise ConfigError(f"{place}: y is missing; give y, or a dataset of (x, y) pairs.")
        samples = [_sample(place, x[i]) for i in range(len(x))]
        if not samples:
            raise ConfigError(f"{place} has no samples; give some, or leave it out.")
        if len({part.shape for part, _ in samples}) > 1 or len({part.shape for _, part in samples}) > 1:
            raise ConfigError(f"{place}: the dataset's samples differ in shape; give all of them one.")
        x, y = (np.stack(part) for part in zip(*samples, strict=True))
    x, y = _numbers(f"{place}'s samples", x), _numbers(f"{place}'s targets", y)
    if len(x) != len(y):
        raise ConfigError(
            f"{place}: there are {len(x)} samples and {len(y)} targets; give one target per sample."
        )
    if not len(x):
        raise ConfigError(f"{place} has no samples; give some, or leave it out.")
    if x.ndim < 2:
        raise ConfigError(f"{place}: samples are {_look(x)}; give (n, ...), one row per sample.")
    y = y.astype(np.float32 if y.dtype.kind == "f" else np.int64)
    if not negative and y.ndim == 1 and y.dtype == np.int64 and y.min(initial=0) < 0:
        raise ConfigError(f"{place}: a label is {y.min()}; number the classes from 0.")
    return x if x.dtype == np.uint8 else x.astype(np.float32 if x.dtype.kind == "f" else np.int64), y


def _sample(place: str, pair: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"{place}: the dataset gives {type(pair).__name__}; it must give pairs (x, y).")
    image = np.asarray(pair[0])
    if hasattr(pair[0], "getbands"):  # a Pillow image: rows, columns and maybe channels
        image = np.moveaxis(image.reshape(*image.shape[:2], -1), -1, 0)
    return image, np.asarray(pair[1])


def _numbers(place: str, values: Any) -> np.ndarray:
    array = as_array(place, values)
    if array.dtype.kind not in "fiub":
        raise ConfigError(f"{place} are {array.dtype}; give numbers.")
    if array.dtype.kind == "f" and not (np.abs(array) <= np.finfo(np.float32).max).all():
        raise ConfigError(
            f"{place} hold values that are not finite in single precision; clean or scale them first."
        )
    if array.dtype.kind == "f" and array.dtype.itemsize > 4 and (lost := lost_to_rounding(array)) > LOST:
        raise ConfigError(
            f"{place} need double precision: in single precision, which is used here, some would move by {lost:.2g} of "
            "their column's range; subtract the column's mean first."
        )
    return array


def lost_to_rounding(array: np.ndarray) -> float:
    """By how much of their column's range values (n, ...) move, at most, when they become single precision."""
    if not array.size:
        return 0.0
    rows = array.reshape(len(array), -1)
    width = np.asarray(rows.max(0) - rows.min(0), float)
    moved = np.zeros_like(width)
    for first in range(0, len(rows), BLOCK):
        part = rows[first : first + BLOCK]
        moved = np.maximum(moved, np.abs(part - part.astype(np.float32)).max(0))
    return float((moved[width > 0] / width[width > 0]).max(initial=0.0))


def _look(array: np.ndarray) -> str:
    return f"{array.dtype} {array.shape}"


class Clients:
    """The split of samples over clients: a column of owners, a partition, or a scheme that is drawn for each seed.

    N: number of clients. names: of the clients, if a column gives them. spec: the partition in a run's settings.

    Raises:
        ConfigError: clients are missing, N is missing for a scheme, or test samples belong to nobody.
    """

    def __init__(self, clients: Any, samples: Samples, N: int | None, holdout: float) -> None:
        self.names: list[Any] | None = None
        self.fixed: partition.Partition | None = None
        self.data, self.holdout = samples.data.for_partition(), holdout
        if isinstance(clients, Scheme):
            if N is None:
                raise ConfigError(f"N is missing: say how many clients {type(clients).__name__} is to make.")
            if samples.test_owner is not None:
                raise ConfigError(
                    "client_test needs clients with fixed samples; a scheme makes its own test parts."
                )
            self.N, self.spec = N, clients
            self._register(clients)
            return
        parts = clients if isinstance(clients, partition.Partition) else self._by_column(samples.owner)
        self.N = len(parts.train)
        if N not in (None, self.N):
            raise ConfigError(f"N is {N}, but clients has {self.N}; leave N out.")
        if samples.test_owner is not None:
            parts = replace(parts, test=self._test_parts(samples.test_owner))
        parts.check(len(self.data.y_train), len(self.data.y_test))
        self.spec = GivenPartition(digest=address_of(content_of(parts.train, parts.holdout, parts.test)))
        self.fixed = parts

    def _register(self, scheme: Scheme) -> None:
        """Register a program's own scheme if it was not, and check that it splits the data alike for the same seed."""
        if schemes.base.REGISTRY.shipped(scheme.scheme):
            return
        try:
            schemes.register()(type(scheme))
        except ValueError as error:
            raise ConfigError(f"clients: {error}") from None
        first, second = (partition.make(scheme, self.data, self.N, 0) for _ in range(2))
        if any(not np.array_equal(a, b) for a, b in zip(first.train, second.train, strict=True)):
            raise ConfigError(
                f"clients: {type(scheme).__name__} splits the data in another way each time; draw from rng alone."
            )

    def partition(self, seed: int) -> Partition:
        """The partition of the run with this seed."""
        if self.fixed is None:
            return partition.make(self.spec, self.data, self.N, seed, self.holdout)
        if self.holdout and self.fixed.holdout is None:
            parts = partition.hold_out(self.fixed.train, self.holdout, stream(seed, "partition"))
            return partition.Partition(*parts, self.fixed.test, self.fixed.labels)
        return self.fixed

    def name(self, client: int) -> str:
        """How messages call a client."""
        return f"client {client if self.names is None else self.names[client]!r}"

    def _by_column(self, owner: Column | None) -> Partition:
        if owner is None:
            raise ConfigError("clients is missing: say who owns each sample, or how to split them.")
        self.names, y = owner.names, self.data.y_train
        labels = np.zeros((len(owner.names), int(y.max()) + 1), int)
        np.add.at(labels, (owner.code, y), 1)
        return partition.Partition(_places(owner.code, len(owner.names)), None, None, labels)

    def _test_parts(self, owner: Column) -> list[np.ndarray]:
        """Each client's test samples."""
        names = list(range(self.N)) if self.names is None else self.names
        place = {name: k for k, name in enumerate(names)}
        for name in owner.names:
            if name not in place:
                raise ConfigError(f"client_test: there is no client {name!r}; {meant(name, map(str, names))}")
        parts = _places(np.array([place[name] for name in owner.names])[owner.code], self.N)
        for name, part in zip(names, parts, strict=True):
            if not len(part):
                raise ConfigError(f"client_test: client {name!r} has no test samples; give each client some.")
        return parts


def _places(code: np.ndarray, N: int) -> list[np.ndarray]:
    """The samples of each of N owners."""
    return np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code, minlength=N))[:-1])
