"""Partitions: which client owns which samples, for training, to measure losses on, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
from scipy.special import entr

from fedlib.data.schemes.base import LabelledData, Parts, Scheme, Split
from fedlib.errors import ConfigError
from fedlib.streams import stream


@dataclass(frozen=True)
class Partition:
    """Each client's samples, for N clients. The parts are lists of N index arrays.

    train: indices into the training set. A sample may occur more than once where the paper draws with replacement.
    holdout: indices into the training set, of samples set aside to measure losses on, or None (FedCor: the last 20 %).
    test: indices into the test set, or None where the paper has no such parts (or `IID` has too few samples).
    labels: (N, K) number of a client's samples by label, including the hold-out part. None where there are no labels:
        all samples then count as of one label.
    group: (N,) index of the HiCS-FL alpha that the client was drawn with (client ids are in that order), or None.
    """

    train: Parts
    holdout: Parts | None = None
    test: Parts | None = None
    labels: np.ndarray = None  # ty: ignore[invalid-assignment]  # made in __post_init__
    group: np.ndarray | None = None

    def __post_init__(self) -> None:
        N = len(self.train)
        if not N:
            raise ConfigError("a partition needs at least one client; its train is empty.")
        for name in ("train", "holdout", "test"):
            parts = getattr(self, name)
            if parts is not None:
                object.__setattr__(self, name, [_indices(part, name, k) for k, part in enumerate(parts)])
                if len(parts) != N:
                    raise ConfigError(
                        f"the partition's {name} has {len(parts)} clients, but its train has {N}."
                    )
        if empty := [k for k, part in enumerate(self.train) if not len(part)]:
            raise ConfigError(
                f"client {empty[0]} of the partition has no training sample; leave the client out."
            )
        sizes = [len(part) for part in self.owned]
        if self.labels is None:
            object.__setattr__(self, "labels", np.array(sizes)[:, None])
        counts = np.asarray(self.labels)
        if counts.ndim != 2 or counts.sum(axis=1).tolist() != sizes:
            raise ConfigError(
                "the partition's labels must count each client's samples by label, (N, K), with its hold-out part; "
                "leave them out where there are no labels."
            )

    def check(self, n_train: int, n_test: int) -> None:
        """Check that a dataset of this size has all samples.

        Raises:
            ConfigError: it has not; the sentence names the client and the sample.
        """
        for name, n in (("train", n_train), ("holdout", n_train), ("test", n_test)):
            for k, part in enumerate(getattr(self, name) or ()):
                if len(part) and (part.min() < 0 or part.max() >= n):
                    wrong = part.min() if part.min() < 0 else part.max()
                    raise ConfigError(
                        f"the partition's {name} of client {k} has sample {wrong}, but there are 0 to {n - 1}."
                    )

    @property
    def owned(self) -> Parts:
        """Each client's samples, including the hold-out part."""
        if self.holdout is None:
            return self.train
        return [np.concatenate(parts) for parts in zip(self.train, self.holdout, strict=True)]

    @cached_property
    def sizes(self) -> np.ndarray:
        """(N,) number of samples n_k of each client, including the hold-out part."""
        return self.labels.sum(axis=1)

    @property
    def p(self) -> np.ndarray:
        """(N,) data shares n_k / sum n."""
        return self.sizes / self.sizes.sum()

    @property
    def shares(self) -> np.ndarray:
        """(N, K) label shares of each client."""
        return self.labels / self.sizes[:, None]

    @property
    def label_entropy(self) -> np.ndarray:
        """(N,) entropy in nats of each client's labels."""
        return entr(self.shares).sum(axis=1)

    @property
    def classes(self) -> np.ndarray:
        """(N,) number of distinct labels of each client."""
        return (self.labels > 0).sum(axis=1)

    @property
    def asked(self) -> Parts:
        """The part on which each client measures its loss when a sampler asks: its hold-out part where it has one."""
        return self.train if self.holdout is None else self.holdout

    @cached_property
    def used(self) -> np.ndarray:
        """Sorted distinct training samples that at least one client trains on."""
        return np.unique(np.concatenate(self.train))

    @cached_property
    def place_in_used(self) -> np.ndarray:
        """Positions in `used` of the clients' training samples, all clients one after another."""
        return np.searchsorted(self.used, np.concatenate(self.train))

    def describe(self) -> pd.DataFrame:
        """One row per client: its sizes and the skew of its labels (entropy in nats, shares in [0, 1])."""
        table = pd.DataFrame(
            {
                "samples": self.sizes,
                "distinct_samples": [len(np.unique(part)) for part in self.owned],
                "test_samples": [len(part) for part in self.test] if self.test else 0,
                "classes": self.classes,
                "classes_above_5_percent": (self.shares >= 0.05).sum(axis=1),
                "label_entropy": self.label_entropy,
                "largest_share": self.shares.max(axis=1),
            }
        ).rename_axis("client")
        return table if self.group is None else table.assign(group=self.group)


def make(spec: Scheme, data: LabelledData, N: int, seed: int, holdout: float = 0.0) -> Partition:
    """Split a dataset over N clients according to `spec`. The same seed gives the same partition.

    holdout: share of each client's (shuffled) samples that is set aside; the client trains on the first
        floor((1 - holdout) n_k).

    Raises:
        ConfigError: this dataset does not allow the scheme.
    """
    rng = stream(seed, "partition")
    y = data.y_train
    if len(y) < N:
        raise ConfigError(f"N: {N} clients are more than the {len(y)} training samples; lower N.")
    split = spec.split(data, N, rng)
    if not isinstance(split, Split) or len(split.train) != N:
        result = f"{len(split.train)} clients" if isinstance(split, Split) else f"a {type(split).__name__}"
        raise ConfigError(
            f"partition: {type(spec).__name__}.split gives {result}; return a Split of N = {N} clients."
        )
    if holdout and split.holdout is not None:
        raise ConfigError(f"holdout: {holdout}, but the given partition brings its own; leave it out.")
    train, holdouts = hold_out(split.train, holdout, rng) if holdout else (split.train, split.holdout)
    part = Partition(train, holdouts, split.test, group=split.group)
    labels = np.stack([np.bincount(y[owned], minlength=int(y.max()) + 1) for owned in part.owned])
    return replace(part, labels=labels)


def _indices(part: Sequence[int] | np.ndarray, name: str, k: int) -> np.ndarray:
    array = np.asarray(part)
    if array.ndim != 1 or (len(array) and not np.issubdtype(array.dtype, np.integer)):
        raise ConfigError(
            f"the partition's {name} of client {k} must be a list of whole numbers, the indices of its samples."
        )
    return array if len(array) else array.astype(np.int64)


def hold_out(parts: Parts, share: float, rng: np.random.Generator) -> tuple[Parts, Parts]:
    """Shuffle each part and split it into its first floor((1 - share) n) samples and the rest (as in FedCor's code).

    Where a client owns a sample several times, distinct samples are split: none is on both sides.
    """
    train, holdouts = [], []
    for k, part in enumerate(parts):
        distinct = np.unique(part)
        if len(distinct) == len(part):
            distinct = part
        cut = int((1 - share) * len(distinct) + 1e-9)  # 0.9 * 10 may be slightly below 9
        if not 0 < cut < len(distinct):
            raise ConfigError(
                f"holdout: {share} of client {k}'s {len(distinct)} samples leaves a part empty; lower N."
            )
        first = np.isin(part, rng.permutation(distinct)[:cut])
        train.append(np.sort(part[first]))
        holdouts.append(np.sort(part[~first]))
    return train, holdouts
