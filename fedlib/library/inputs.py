"""Samples in every form that `fedlib.simulate` takes: one or several arrays, datasets, one dataset per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.streams import stream
from fedlib.training.objective import first_line

EXACT = 2**24  # whole numbers up to here are exact as float32


@dataclass(frozen=True)
class Packing:
    """How several inputs lie side by side in one float32 array (n, total).

    keys: their names, None for a tuple. shapes: of one sample of each. kinds: f (floats), i (whole numbers), b (flags)
    or u (pixels, 0 to 255, which become floats in [0, 1]).
    """

    keys: tuple[str, ...] | None
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]

    @property
    def sizes(self) -> list[int]:
        """Number of values of each input."""
        return [int(np.prod(shape)) for shape in self.shapes]


class Unpacked(nn.Module):
    """A module that takes several inputs, as one that takes a packed array."""

    def __init__(self, net: nn.Module, packing: Packing) -> None:
        super().__init__()
        self.net, self.packing = net, packing
        if named := getattr(net, "output_layer", None):
            self.output_layer = f"net.{named}"

    def forward(self, x: Tensor) -> Any:
        packing, parts = self.packing, []
        for part, shape, kind in zip(x.split(packing.sizes, 1), packing.shapes, packing.kinds, strict=True):
            part = part.reshape(len(part), *shape)
            parts.append(part.long() if kind == "i" else part > 0 if kind == "b" else part)
        if packing.keys is None:
            return self.net(*parts)
        return self.net(**dict(zip(packing.keys, parts, strict=True)))


def packed(place: str, x: Any) -> tuple[Any, Packing | None]:
    """A tuple or mapping of arrays (n, ...) as one array (n, total), and how to unpack it; other samples as they are.

    Raises:
        ConfigError: the arrays have different lengths, are not numbers, or are too large to be packed.
    """
    if not isinstance(x, tuple | Mapping):
        return x, None
    if not x:
        raise ConfigError(f"{place} is empty; give at least one array.")
    arrays = {name: as_array(f"{place}[{name!r}]", part) for name, part in by_name(x).items()}
    first, samples = next((name, len(array)) for name, array in arrays.items())
    kinds, columns = [], []
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise ConfigError(
                f"{place}[{name!r}] is {array.dtype} {array.shape}; give numbers, one row per sample."
            )
        if len(array) != samples:
            raise ConfigError(
                f"{place}[{name!r}] has {len(array)} samples, but {place}[{first!r}] has {samples}; give one row per "
                "sample."
            )
        kind = "i" if array.dtype.kind == "u" and array.dtype != np.uint8 else array.dtype.kind
        if kind == "i" and np.abs(array).max(initial=0) > EXACT:
            raise ConfigError(
                f"{place}[{name!r}] holds {np.abs(array).max()}; whole numbers must be {EXACT:,} at most."
            )
        column = array.reshape(len(array), -1).astype(np.float32)
        columns.append(column * (np.float32(1) / np.float32(255)) if kind == "u" else column)
        kinds.append(kind)
    keys = tuple(map(str, x)) if isinstance(x, Mapping) else None
    shapes = tuple(array.shape[1:] for array in arrays.values())
    return np.concatenate(columns, 1), Packing(keys, shapes, tuple(kinds))


def by_name(parts: Any) -> Mapping[Any, Any]:
    """A mapping as it is; the parts of a list or tuple by their numbers."""
    return parts if isinstance(parts, Mapping) else dict(enumerate(parts))


def as_array(place: str, values: Any) -> np.ndarray:
    """Values of any kind of array, tensor or table, one row per sample.

    Raises:
        ConfigError: they are no rows of one shape, or some of them are masked.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ConfigError(
            f"{place}: {int(np.ma.getmaskarray(values).sum()):,} values are masked, and a model sees no mask: leave "
            "these samples out, or fill them (numpy.ma.filled)."
        )
    try:
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except Exception as error:
        raise ConfigError(
            f"{place} cannot be made an array: {type(error).__name__}: {first_line(error)}"
        ) from None
    if array.ndim == 0:
        raise ConfigError(
            f"{place} is of type {type(values).__name__}; give an array with one row per sample."
        )
    return array


def is_dataset(values: Any) -> bool:
    """Whether it has samples by number, as datasets of torch and lists do, and is no array."""
    if isinstance(values, Mapping):
        return False
    return hasattr(values, "__getitem__") and hasattr(values, "__len__") and not hasattr(values, "dtype")


def pair_of(place: str, dataset: Any) -> tuple[Any, Any]:
    """A pair (x, y) of arrays, or a dataset of pairs, as (x, y); y is None for a dataset."""
    two_samples = isinstance(dataset, list) and all(isinstance(v, tuple) and len(v) == 2 for v in dataset)
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and not two_samples:
        return dataset[0], dataset[1]
    if not is_dataset(dataset):
        raise ConfigError(
            f"{place} is of type {type(dataset).__name__}; give (x, y), or a dataset of such pairs."
        )
    return dataset, None


@dataclass(frozen=True)
class Column:
    """The owner of each of n samples. code: (n,) places in names."""

    code: np.ndarray
    names: list[Any]

    def of(self, rows: np.ndarray) -> Column:
        """The owners of some of the samples."""
        return Column(self.code[rows], self.names)


Read = Callable[[str, Any, Any], tuple[np.ndarray, np.ndarray]]  # what, x, y -> arrays


def by_client(argument: str, clients: Any, read: Read) -> tuple[np.ndarray, np.ndarray, Column]:
    """x, y and owners of every client's own dataset, one after another. clients: name -> dataset, or a list.

    Raises:
        ConfigError: there is no client, one has no samples, or their samples differ in shape or type.
    """
    datasets = by_name(clients)
    names = list(datasets)
    if not names:
        raise ConfigError(f"{argument} is empty; give at least one client.")
    parts = []
    for name, dataset in datasets.items():
        place = f"{argument}[{name!r}]"
        x, y = read(place, *pair_of(place, dataset))
        first = parts[0][0] if parts else x
        if (x.shape[1:], x.dtype) != (first.shape[1:], first.dtype):
            raise ConfigError(
                f"{place} has samples {x.dtype} {x.shape[1:]}, but {argument}[{names[0]!r}] has {first.dtype} "
                f"{first.shape[1:]}; make them the same."
            )
        parts.append((x, y))
    owner = np.repeat(np.arange(len(names)), [len(x) for x, _ in parts])
    x, y = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return x, y, Column(owner, names)


def put_aside(owner: Column, share: float) -> np.ndarray:
    """(n,) True for `share` of each client's samples, at random but always the same ones.

    Raises:
        ConfigError: a client has too few samples.
    """
    aside = np.zeros(len(owner.code), bool)
    for k, name in enumerate(owner.names):
        mine = np.flatnonzero(owner.code == k)
        count = round(share * len(mine))
        if not 0 < count < len(mine):
            raise ConfigError(
                f"client_test: {share} of client {name!r}'s {len(mine)} samples leaves a part empty; give another "
                "share, or leave the client out."
            )
        aside[stream(0, "partition", k).permutation(mine)[:count]] = True
    return aside
