"""Samples in every form that `fedlib.simulate` takes: one or several arrays, datasets, one dataset per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.streams import stream

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
    names = list(x) if isinstance(x, Mapping) else list(range(len(x)))
    arrays = [as_array(part) for part in (x.values() if isinstance(x, Mapping) else x)]
    kinds, columns = [], []
    for name, array in zip(names, arrays, strict=True):
        if array.dtype.kind not in "fiub" or array.ndim == 0:
            raise ConfigError(
                f"{place}[{name!r}] is {array.dtype} {array.shape}; give numbers, one row per sample."
            )
        if len(array) != len(arrays[0]):
            raise ConfigError(
                f"{place}[{name!r}] has {len(array)} samples, but {place}[{names[0]!r}] has {len(arrays[0])}; give one "
                "row per sample."
            )
        kind = "i" if array.dtype.kind == "u" and array.dtype != np.uint8 else array.dtype.kind
        if kind == "i" and np.abs(array).max(initial=0) > EXACT:
            raise ConfigError(
                f"{place}[{name!r}] holds {np.abs(array).max()}; whole numbers must be {EXACT:,} at most."
            )
        column = array.reshape(len(array), -1).astype(np.float32)
        columns.append(column * (np.float32(1) / np.float32(255)) if kind == "u" else column)
        kinds.append(kind)
    keys = tuple(map(str, names)) if isinstance(x, Mapping) else None
    return np.concatenate(columns, 1), Packing(keys, tuple(a.shape[1:] for a in arrays), tuple(kinds))


def as_array(values: Any) -> np.ndarray:
    """Values of any kind of array, tensor or table."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def pair_of(place: str, dataset: Any) -> tuple[Any, Any]:
    """A pair (x, y) of arrays, or a dataset of pairs, as (x, y); y is None for a dataset."""
    if isinstance(dataset, tuple | list) and len(dataset) == 2 and not _is_dataset(dataset):
        return dataset[0], dataset[1]
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or hasattr(dataset, "dtype"):
        raise ConfigError(f"{place} is a {type(dataset).__name__}; give (x, y), or a dataset of such pairs.")
    return dataset, None


def _is_dataset(values: Sequence[Any]) -> bool:
    """Whether a list of two is two samples (x, label), and not samples and targets."""
    return isinstance(values, list) and all(isinstance(v, tuple) and len(v) == 2 for v in values)


Read = Callable[[str, Any, Any], tuple[np.ndarray, np.ndarray]]  # what, x, y -> arrays


@dataclass(frozen=True)
class Owned:
    """Samples with their owners. owner: (n,) places in names."""

    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray
    names: list[Any]


def by_client(argument: str, clients: Any, read: Read) -> Owned:
    """Every client's own dataset, one after another. clients: name -> dataset, or a list of datasets.

    Raises:
        ConfigError: there is no client, one has no samples, or their samples differ in shape or type.
    """
    names = list(clients) if isinstance(clients, Mapping) else list(range(len(clients)))
    if not names:
        raise ConfigError(f"{argument} is empty; give at least one client.")
    parts = []
    for name in names:
        place = f"{argument}[{name!r}]"
        x, y = read(place, *pair_of(place, clients[name]))
        if parts and (x.shape[1:], x.dtype) != (parts[0][0].shape[1:], parts[0][0].dtype):
            raise ConfigError(
                f"{place} has samples {x.dtype} {x.shape[1:]}, but {argument}[{names[0]!r}] has {parts[0][0].dtype} "
                f"{parts[0][0].shape[1:]}; make them the same."
            )
        parts.append((x, y))
    owner = np.repeat(np.arange(len(names)), [len(x) for x, _ in parts])
    return Owned(*(np.concatenate(part) for part in zip(*parts, strict=True)), owner, names)


def put_aside(owner: np.ndarray, share: float, names: Sequence[Any]) -> np.ndarray:
    """(n,) True for `share` of each client's samples, at random but always the same ones.

    Raises:
        ConfigError: a client has too few samples.
    """
    aside = np.zeros(len(owner), bool)
    for k, name in enumerate(names):
        mine = np.flatnonzero(owner == k)
        count = round(share * len(mine))
        if not 0 < count < len(mine):
            raise ConfigError(
                f"client_test: {share} of client {name!r}'s {len(mine)} samples leaves a part empty; give another "
                "share, or leave the client out."
            )
        aside[stream(0, "partition", k).permutation(mine)[:count]] = True
    return aside
