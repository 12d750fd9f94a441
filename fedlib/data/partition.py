"""Partitions: the papers' ways to split a dataset over N clients.

"Dirichlet" names three different splits here (`DirichletClients`, `DirichletPrior`, `DirichletClasses`). For one alpha,
they give quite different clients. Each paper's own split is used, and `Partition.describe` shows the result.

Deviations from the authors' programs:
1. All draws come from a generator that depends on the run's seed; their programs use global generators. This matters
   in Clustered Sampling's split at alpha = 0.001. numpy's legacy Dirichlet fails there on some seeds (0/0) and rounds
   shares of 1 down, so that clients of one class receive a stray sample of the last label (1.39 labels per client
   there, 1.30 here).
2. One-class clients are numbered at random (see `OneClass.permute`).
3. FedCor: label shares are drawn again if no client sizes can use up the whole training set.
4. HiCS-FL: shares are kept as logarithms, so that clients with room left always have a share. The authors' program
   divides 0 by 0 there and gives the whole class to the last client. Each class is cut into equal parts, whatever its
   size.
5. Where samples do not divide evenly, `IID` and `Shards` leave the remainder unused, so that sizes are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import pandas as pd
from scipy.optimize import nnls
from scipy.special import entr, softmax

from fedlib.data import given
from fedlib.errors import ConfigError
from fedlib.settings import schema
from fedlib.streams import stream

Parts = list[np.ndarray]
ATTEMPTS = 5_000  # of schemes that repeat the draw until the result is acceptable


class Labelled(Protocol):
    """A dataset's labels: int64 (n,), 0 to K - 1."""

    y_train: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Partition:
    """Each client's samples, for N clients. The parts are lists of N index arrays.

    train: indices into the training set. A sample may occur more than once where the paper draws with replacement.
    holdout: indices into the training set, of samples set aside to measure losses on, or None (FedCor: the last 20 %).
    test: indices into the test set, or None where the paper has no such parts (or `IID` has too few samples).
    labels: (N, K) number of a client's samples by label, including the hold-out part.
    group: (N,) index of the HiCS-FL alpha that the client was drawn with (client ids are in that order), or None.
    """

    train: Parts
    holdout: Parts | None
    test: Parts | None
    labels: np.ndarray
    group: np.ndarray | None = None

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
        owned = (
            self.train
            if self.holdout is None
            else map(np.concatenate, zip(self.train, self.holdout, strict=True))
        )
        table = pd.DataFrame(
            {
                "samples": self.sizes,
                "distinct_samples": [len(np.unique(part)) for part in owned],
                "test_samples": [len(part) for part in self.test] if self.test else 0,
                "classes": self.classes,
                "classes_above_5_percent": (self.shares >= 0.05).sum(axis=1),
                "label_entropy": self.label_entropy,
                "largest_share": self.shares.max(axis=1),
            }
        ).rename_axis("client")
        return table if self.group is None else table.assign(group=self.group)


def make(spec: schema.Partition, dataset: Labelled, N: int, seed: int, holdout: float = 0.0) -> Partition:
    """Split a dataset over N clients according to `spec`. The same seed gives the same partition.

    holdout: share of each client's (shuffled) samples that is set aside; the client trains on the first
        floor((1 - holdout) n_k).

    Raises:
        ConfigError: this dataset does not allow the scheme.
    """
    rng = stream(seed, "partition")
    y, y_test = dataset.y_train, dataset.y_test
    if len(y) < N:
        raise ConfigError(f"N: {N} clients are more than the {len(y)} training samples; lower N.")
    group = kept = None
    match spec:
        case schema.IID():
            train = equal_parts(len(y), N, rng)
            test = equal_parts(len(y_test), N, rng) if len(y_test) >= N else None
        case schema.Shards():
            train, test = shards(y, N, spec.shards, rng), None
        case schema.OneClass():
            train, test = one_class(spec, y, y_test, N, rng)
        case schema.DirichletClients():
            train, test = dirichlet_clients(spec, y, y_test, rng)
        case schema.DirichletPrior():
            train, test = dirichlet_prior(y, N, spec.alpha, rng), None
        case schema.DirichletClasses():
            train, test, group = dirichlet_classes(spec, y, y_test, N, rng)
        case schema.Given():
            train, kept, test = given.load(spec, N, len(y), len(y_test)).values()
    K = int(y.max()) + 1
    labels = np.stack([np.bincount(y[part], minlength=K) for part in train])
    if kept is not None:
        labels += np.stack([np.bincount(y[part], minlength=K) for part in kept])
        if holdout:
            raise ConfigError(f"holdout: {holdout}, but the given partition brings its own; leave it out.")
    elif holdout:
        train, kept = hold_out(train, holdout, rng)
    return Partition(train, kept, test, labels, group)


def hold_out(parts: Parts, share: float, rng: np.random.Generator) -> tuple[Parts, Parts]:
    """Shuffle each part and split it into its first floor((1 - share) n) samples and the rest (as in FedCor's code)."""
    train, kept = [], []
    for k, part in enumerate(parts):
        cut = int((1 - share) * len(part) + 1e-9)  # 0.9 * 10 may be slightly below 9
        if not 0 < cut < len(part):
            raise ConfigError(
                f"holdout: {share} of client {k}'s {len(part)} samples leaves a part empty; lower N."
            )
        shuffled = rng.permutation(part)
        train.append(np.sort(shuffled[:cut]))
        kept.append(np.sort(shuffled[cut:]))
    return train, kept


def equal_parts(n: int, N: int, rng: np.random.Generator) -> Parts:
    """N equal random parts of n samples."""
    return list(np.sort(rng.permutation(n)[: n // N * N].reshape(N, -1)))


def shards(y: np.ndarray, N: int, per_client: int, rng: np.random.Generator) -> Parts:
    """Sort by label, cut into per_client * N equal shards, deal them at random (FedCor, section 5: 1SPC and 2SPC)."""
    total = per_client * N
    if total > len(y):
        raise ConfigError(
            f"partition.shards: {per_client} shards for each of {N} clients are more than the {len(y)} training "
            "samples; lower shards or N."
        )
    length = len(y) // total
    cut = np.argsort(y, kind="stable")[: total * length].reshape(total, length)
    return list(np.sort(cut[rng.permutation(total)].reshape(N, per_client * length)))


def one_class(
    spec: schema.OneClass, y: np.ndarray, y_test: np.ndarray, N: int, rng: np.random.Generator
) -> tuple[Parts, Parts]:
    """N / K clients per label, each with the next samples of it in file order (Clustered Sampling, section 6)."""
    K = int(y.max()) + 1
    if N % K:
        raise ConfigError(
            f"partition.scheme: one_class needs N to be a multiple of the {K} classes, but N is {N}."
        )
    per_label = N // K
    client = rng.permutation(N) if spec.permute else np.arange(N)
    out = []
    for labels, size, key in ((y, spec.n, "n"), (y_test, spec.n_test, "n_test")):
        parts: Parts = [np.empty(0, np.int64)] * N
        for label, pool in enumerate(by_label(labels, K)):
            if per_label * size > len(pool):
                raise ConfigError(
                    f"partition.{key}: {per_label} clients of label {label} cannot have {size} samples each: there are "
                    f"{len(pool)}; lower it to {len(pool) // per_label} or less."
                )
            for j in range(per_label):
                parts[client[label * per_label + j]] = pool[j * size : (j + 1) * size]
        out.append(parts)
    return out[0], out[1]


def dirichlet_clients(
    spec: schema.DirichletClients, y: np.ndarray, y_test: np.ndarray, rng: np.random.Generator
) -> tuple[Parts, Parts]:
    """Each client draws shares ~ Dir(alpha), for training and test alike; samples are drawn with replacement.

    Source: Clustered Sampling's code for CIFAR-10, appendix D.1 (HCSFed's balanced split follows it). Counts are
    truncated and the last label receives the remainder, so a single-class client sometimes gets a stray sample of it.
    """
    K = int(y.max()) + 1
    sizes = np.repeat([size for _, size in spec.sizes], [count for count, _ in spec.sizes])
    shares = rng.dirichlet(np.full(K, spec.alpha), size=len(sizes))
    out = []
    for labels, wanted in ((y, sizes), (y_test, np.maximum(1, np.rint(spec.test_share * sizes)).astype(int))):
        counts = np.floor(shares * wanted[:, None]).astype(int)
        counts[:, -1] += wanted - counts.sum(axis=1)
        drawn = [rng.choice(pool, counts[:, k].sum()) for k, pool in enumerate(by_label(labels, K))]
        out.append(collect(drawn, counts))
    return out[0], out[1]


def dirichlet_prior(y: np.ndarray, N: int, alpha: float, rng: np.random.Generator) -> Parts:
    """Shares q_k ~ Dir(alpha * class prior), then sizes s_k that use every sample (FedCor, appendix C.2 and its code).

    Client k receives floor(s_k q_ki) samples of label i. The remaining samples go to random clients, one at a time.
    alpha = 0.2 on ten equal classes is 0.02 per class.
    """
    total = np.bincount(y)
    present = np.flatnonzero(total)
    prior = total[present] / len(y)
    for _ in range(ATTEMPTS):
        q = rng.dirichlet(alpha * prior, size=N)
        size = minimum_norm_sizes(q, prior)
        if size is None:
            continue
        counts = np.zeros((N, len(total)), int)
        counts[:, present] = np.floor(len(y) * size[:, None] * q)
        for label in present:
            counts[:, label] += np.bincount(
                rng.integers(N, size=total[label] - counts[:, label].sum()), minlength=N
            )
        if counts.sum(axis=1).min() >= 2:
            return collect([rng.permutation(pool) for pool in by_label(y, len(total))], counts)
    raise ConfigError(
        f"partition.alpha: no draw of {ATTEMPTS} for N = {N} and alpha = {alpha} could use up every class and leave no "
        "client empty; raise alpha or N."
    )


def minimum_norm_sizes(q: np.ndarray, prior: np.ndarray) -> np.ndarray | None:
    """The s >= 0 of least ||s||^2 with sum_k s_k q_k = prior; None if there is none.

    q: (N, K) label shares of the clients. prior: (K,) class shares of the data. s: (N,) data shares.
    """
    # The constraint enters as heavily weighted rows of a least-squares problem; it is met to about 1e-8.
    N, weight = len(q), 1e4
    size, _ = nnls(np.vstack([weight * q.T, np.eye(N)]), np.concatenate([weight * prior, np.zeros(N)]))
    return size if np.abs(size @ q - prior).max() < 1e-6 else None


def dirichlet_classes(
    spec: schema.DirichletClasses, y: np.ndarray, y_test: np.ndarray, N: int, rng: np.random.Generator
) -> tuple[Parts, Parts, np.ndarray]:
    """Split each class over the clients of a group by Dir(alpha), one group per alpha (HiCS-FL, 6.10, and its code).

    Every class is cut into |alphas| consecutive parts, one per group. A client that has reached the average size
    receives no more. A group is drawn again until every client has `min_share` of the average, in training and in test.
    """
    K, G = int(y.max()) + 1, len(spec.alphas)
    n = N // G
    pools = [[np.array_split(pool, G) for pool in by_label(labels, K)] for labels in (y, y_test)]
    train: Parts = []
    test: Parts = []
    for g, alpha in enumerate(spec.alphas):
        mine = [[rng.permutation(pool[g]) for pool in of_set] for of_set in pools]
        available = [np.array([len(pool) for pool in of_set]) for of_set in mine]
        least = [spec.min_share * of_set.sum() / n for of_set in available]
        for _ in range(ATTEMPTS):
            shares = capped_shares(available[0], n, alpha, rng)
            counts = [cumulative_floors(shares, of_set) for of_set in available]
            if all(c.sum(axis=1).min() >= max(1, low) for c, low in zip(counts, least, strict=True)):
                break
        else:
            raise ConfigError(
                f"partition.alphas: no draw of {ATTEMPTS} for alpha = {alpha} gave each of {n} clients at least "
                f"{spec.min_share:g} of the average size; raise that alpha or the number of alphas, or lower N or "
                "min_share."
            )
        train += collect(mine[0], counts[0])
        test += collect(mine[1], counts[1])
    return train, test, np.repeat(np.arange(G), n)


def capped_shares(available: np.ndarray, n: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """(n, K) shares of each class over n clients, ~ Dir(alpha) over those still below the average size."""
    K = len(available)
    # A Gamma(alpha) variate is a Gamma(alpha + 1) variate times U^(1 / alpha); in logarithms nothing underflows.
    logs = np.log(rng.standard_gamma(alpha + 1, (n, K))) + np.log1p(-rng.random((n, K))) / alpha
    shares = np.zeros((n, K))
    sizes = np.zeros(n)
    for label in np.flatnonzero(available):
        room = sizes < available.sum() / n
        shares[room, label] = softmax(logs[room, label])
        sizes += np.diff(np.floor(np.cumsum(shares[:, label]) * available[label] + 1e-9), prepend=0)
    return shares


def cumulative_floors(shares: np.ndarray, available: np.ndarray) -> np.ndarray:
    """(n, K) counts of each class: its samples are cut at floor(available * cumulative share), so all are used."""
    ends = np.floor(np.cumsum(shares, axis=0) * available + 1e-9).astype(int)
    return np.diff(ends, axis=0, prepend=0)


def by_label(y: np.ndarray, K: int) -> Parts:
    """K arrays with the indices of each label, in file order."""
    return np.split(np.argsort(y, kind="stable"), np.cumsum(np.bincount(y, minlength=K))[:-1])


def collect(pools: Sequence[np.ndarray], counts: np.ndarray) -> Parts:
    """Deal each label's pool out in client order. counts: (N, K) samples per client -> N sorted index arrays."""
    pieces = [np.split(pool, np.cumsum(counts[:, k]))[:-1] for k, pool in enumerate(pools)]
    return [np.sort(np.concatenate(part)) for part in zip(*pieces, strict=True)]
