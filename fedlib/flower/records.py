"""Convert between a model as Flower sends it (arrays by name) and as samplers see it (one flat vector)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict

STATISTICS = ("running_mean", "running_var")  # of normalisation: averaged, but samplers do not see them


def flatten(record: ArrayRecord, names: Sequence[str]) -> np.ndarray:
    """The named arrays as one (d,) float32 vector."""
    return np.concatenate([record[name].numpy().ravel().astype(np.float32) for name in names])


def only_arrays(content: RecordDict) -> ArrayRecord:
    """The only record of arrays in a reply.

    Raises:
        ValueError: there is none, or more than one.
    """
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ValueError(
            f"a reply to a train message must hold one ArrayRecord; this one holds {len(records)}."
        )
    return records[0]


def all_metrics(content: RecordDict) -> dict[str, Any]:
    """All metrics of a reply, by name."""
    return {name: value for record in content.metric_records.values() for name, value in record.items()}


def has(content: RecordDict, key: str) -> bool:
    """Whether a reply has a metric."""
    return key in all_metrics(content)


def number(content: RecordDict, key: str, otherwise: float | None = None) -> float:
    """A metric of a reply.

    Raises:
        ValueError: it is missing, and no default is given.
    """
    metrics = all_metrics(content)
    if key in metrics:
        return float(metrics[key])
    if otherwise is None:
        raise ValueError(f"a reply has no metric {key!r}, only {sorted(metrics)}; name it in the strategy.")
    return otherwise


@dataclass(frozen=True)
class FlatModel:
    """Position of each array of a model in its flat (d,) vector.

    shapes: of the arrays by name, in the order of the vector. trained: the names that are trained.
    output: names of the output layer's weight and bias.

    Trained arrays come first; the last of them are the output layer's (K, L) weight and (K,) bias. Then come the
    statistics of normalisation. Integer arrays have no position: they stay as the server has them.
    """

    shapes: dict[str, tuple[int, ...]]
    trained: tuple[str, ...]
    output: tuple[str, str] | None

    @classmethod
    def of(cls, record: ArrayRecord, output: tuple[str, str] | None = None) -> FlatModel:
        """output: names of the output layer's weight and bias; None: the last two trained arrays, if their shapes fit.

        Raises:
            ValueError: the model has no array with a name from `output`.
        """
        arrays = {name: array.numpy() for name, array in record.items()}
        floating = [name for name, a in arrays.items() if np.issubdtype(a.dtype, np.floating)]
        statistics = [name for name in floating if name.endswith(STATISTICS)]
        trained = [name for name in floating if name not in statistics]
        if output is None and len(trained) > 1:
            weight, bias = (arrays[name].shape for name in trained[-2:])
            if len(weight) == 2 and bias == weight[:1]:
                output = (trained[-2], trained[-1])
        for name in output or ():
            if name not in trained:
                raise ValueError(
                    f"output: the model has no trained array {name!r}; it has {', '.join(trained)}."
                )
        trained = [name for name in trained if name not in (output or ())] + list(output or ())
        return cls({name: arrays[name].shape for name in (*trained, *statistics)}, tuple(trained), output)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arrays."""
        return tuple(self.shapes)

    @property
    def d(self) -> int:
        """Length of the flat vector."""
        return sum(map(math.prod, self.shapes.values()))

    @property
    def n_trained(self) -> int:
        """Number of trained values, which come first in the flat vector."""
        return sum(math.prod(self.shapes[name]) for name in self.trained)

    @property
    def output_shape(self) -> tuple[int, int]:
        """(K, L) of the output layer's weight, (0, 0) where no output layer is known."""
        if not self.output:
            return 0, 0
        K, L = self.shapes[self.output[0]]
        return K, L

    @property
    def output_weight(self) -> slice:
        """Position of the output layer's weight."""
        K, L = self.output_shape
        return slice(self.n_trained - K - K * L, self.n_trained - K)

    @property
    def output_bias(self) -> slice:
        """Position of the output layer's bias."""
        return slice(self.n_trained - self.output_shape[0], self.n_trained)

    def flat(self, record: ArrayRecord) -> np.ndarray:
        """(d,) float32 vector of a record."""
        return flatten(record, self.names)

    def record(self, flat: np.ndarray, like: ArrayRecord) -> ArrayRecord:
        """The arrays of the vector `flat` (d,), in the order and with the types of `like`."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])[:-1]
        parts = zip(self.shapes.items(), np.split(flat, ends), strict=True)
        arrays = {name: Array(part.reshape(shape).astype(like[name].dtype)) for (name, shape), part in parts}
        return ArrayRecord({name: arrays.get(name, array) for name, array in like.items()})
