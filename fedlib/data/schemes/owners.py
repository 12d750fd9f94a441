"""The partition that a dataset brings with it: every sample belongs to the client that its data name."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedlib.data.schemes.base import LabelledData, Scheme, Split, register
from fedlib.errors import ConfigError


@register(revision=0)
class Owners(Scheme):
    """Each client has its own samples (`Kind.owners`), for training and for tests; the same for every seed."""

    scheme: Literal["owners"] = "owners"

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        train, test = getattr(data, "owner_train", None), getattr(data, "owner_test", None)
        if train is None or test is None:
            raise ConfigError("partition: the dataset names no owners of its samples; choose another scheme.")
        if (found := int(train.max()) + 1) != N:
            raise ConfigError(f"N: the dataset has {found} clients, not {N}; set N: {found}.")
        mine, tests = ([np.flatnonzero(owner == k) for k in range(N)] for owner in (train, test))
        return Split(mine, tests)
