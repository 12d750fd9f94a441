"""The contract of partition schemes: settings that split a dataset over N clients.

A scheme is one class in a file of this folder, or in your program. Its fields are the keys that `params.yaml` may set,
with types and bounds; `split` does the work::

    @register()
    class EveryNth(Scheme):
        '''Client k has the samples k, k + N, k + 2 N, ...'''

        scheme: Literal["every_nth"] = "every_nth"

        def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
            return Split([np.arange(k, len(data.y_train), N) for k in range(N)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from fedlib.kinds import Settings
from fedlib.registry import Registry

Parts = list[np.ndarray]
REGISTRY = Registry("scheme", "fedlib.data.schemes", group="fedlib.schemes")
find, version_of, load_all = REGISTRY.find, REGISTRY.version_of, REGISTRY.load_all


class LabelledData(Protocol):
    """A dataset's labels: int64 (n,), 0 to K - 1. Some datasets have owners, too (`schemes/owners.py`)."""

    @property
    def y_train(self) -> np.ndarray: ...
    @property
    def y_test(self) -> np.ndarray: ...


class Split(NamedTuple):
    """The samples of N clients.

    train: N arrays of indices into the training set. test: the same of the test set, or None where there are no parts.
    holdout: the same of training samples that are set aside, or None.
    group: (N,) index of the group that a client was drawn with, or None.
    """

    train: Parts
    test: Parts | None = None
    holdout: Parts | None = None
    group: np.ndarray | None = None


class Scheme(Settings):
    """Base class of partition schemes. scheme: its name, which is the default of this field."""

    scheme: str

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        """Split a dataset over N clients. All randomness comes from `rng`.

        Raises:
            ConfigError: this dataset cannot be split so; the sentence names the key to change.
        """
        raise NotImplementedError

    def check(self, N: int) -> None:
        """Raise ValueError where no dataset can be split so over N clients. Called before any data is read."""

    def planned_sizes(self, N: int, n: int) -> Sequence[tuple[int, float]]:
        """(clients, training samples of each) pairs to plan with, for n training samples."""
        return [(N, n / N)]

    @property
    def mostly_one_label(self) -> bool:
        """Whether most samples of most clients have one label."""
        return False


S = TypeVar("S", bound=type[Scheme])


def register(revision: int | None = None) -> Callable[[S], S]:
    """Class decorator: make a scheme known to `params.yaml` by the default of its field `scheme`.

    revision: of shipped schemes only. Raise it when the scheme's clients change: its old runs then have
        another address.

    Raises:
        NameTaken: another scheme has that name.
    """

    def add(cls: S) -> S:
        return REGISTRY.register(cls.model_fields["scheme"].default, revision)(cls)

    return add


def by_label(y: np.ndarray, K: int) -> Parts:
    """K arrays with the indices of each label, in file order."""
    return np.split(np.argsort(y, kind="stable"), np.cumsum(np.bincount(y, minlength=K))[:-1])


def collect(pools: Sequence[np.ndarray], counts: np.ndarray) -> Parts:
    """Deal each label's pool out in client order. counts: (N, K) samples per client -> N sorted index arrays."""
    pieces = [np.split(pool, np.cumsum(counts[:, k]))[:-1] for k, pool in enumerate(pools)]
    return [np.sort(np.concatenate(part)) for part in zip(*pieces, strict=True)]
