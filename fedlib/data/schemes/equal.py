"""Partitions into equal parts: at random, by shards of sorted labels, or one label per client.

Deviations from the authors' programs: one-class clients are numbered at random (see `OneClass.permute`). Where samples
do not divide evenly, `IID` and `Shards` leave the remainder unused, so that sizes are equal.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedlib.data.schemes.base import LabelledData, Parts, Scheme, Split, by_label, register
from fedlib.errors import ConfigError
from fedlib.kinds import Count


@register(revision=0)
class IID(Scheme):
    """Equal random parts of the training set."""

    scheme: Literal["iid"] = "iid"

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        def parts(n: int) -> Parts:
            return list(np.sort(rng.permutation(n)[: n // N * N].reshape(N, -1)))

        train, n_test = parts(len(data.y_train)), len(data.y_test)
        return Split(train, parts(n_test) if n_test >= N else None)


@register(revision=0)
class Shards(Scheme):
    """Sort by label, cut into `shards` * N equal shards, deal each client `shards` (FedCor, section 5: 1SPC, 2SPC)."""

    scheme: Literal["shards"] = "shards"
    shards: Count = 2

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        y, total = data.y_train, self.shards * N
        if total > len(y):
            raise ConfigError(
                f"partition.shards: {self.shards} shards for each of {N} clients are more than the {len(y)} training "
                "samples; lower shards or N."
            )
        length = len(y) // total
        cut = np.argsort(y, kind="stable")[: total * length].reshape(total, length)
        return Split(list(np.sort(cut[rng.permutation(total)].reshape(N, self.shards * length))))

    @property
    def mostly_one_label(self) -> bool:
        return self.shards == 1


@register(revision=0)
class OneClass(Scheme):
    """One label per client, N / K clients per label, each with the next samples of it in file order.

    Source: Clustered Sampling, section 6.

    n, n_test: training and test samples of each client.
    permute: number the clients in a random order that depends on the seed. False keeps the paper's order, sorted by
        label. Then a client's id reveals its label to samplers that break ties by id.
    """

    scheme: Literal["one_class"] = "one_class"
    n: Count = 500
    n_test: Count = 80
    permute: bool = True

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        K = int(data.y_train.max()) + 1
        if N % K:
            raise ConfigError(
                f"partition.scheme: one_class needs N to be a multiple of the {K} classes, but N is {N}."
            )
        per_label = N // K
        client = rng.permutation(N) if self.permute else np.arange(N)
        sets = []
        for labels, size, key in ((data.y_train, self.n, "n"), (data.y_test, self.n_test, "n_test")):
            parts: Parts = [np.empty(0, np.int64)] * N
            for label, pool in enumerate(by_label(labels, K)):
                if per_label * size > len(pool):
                    raise ConfigError(
                        f"partition.{key}: {per_label} clients of label {label} cannot have {size} samples each: there "
                        f"are {len(pool)}; lower it to {len(pool) // per_label} or less."
                    )
                for j in range(per_label):
                    parts[client[label * per_label + j]] = pool[j * size : (j + 1) * size]
            sets.append(parts)
        return Split(sets[0], sets[1])

    def planned_sizes(self, N: int, n: int) -> list[tuple[int, float]]:
        return [(N, self.n)]

    @property
    def mostly_one_label(self) -> bool:
        return True
