"""Three different partitions that the literature calls "Dirichlet". For one alpha they give quite different clients.

Each paper's own split is used, and `Partition.describe` shows the result.

Deviations from the authors' programs:
1. All draws come from a generator that depends on the run's seed; their programs use global generators. This matters
   in Clustered Sampling's split at alpha = 0.001. numpy's legacy Dirichlet fails there on some seeds (0/0) and rounds
   shares of 1 down, so that clients of one class receive a stray sample of the last label (1.39 labels per client
   there, 1.30 here).
2. FedCor: label shares are drawn again if no client sizes can use up the whole training set.
3. HiCS-FL: shares are kept as logarithms, so that clients with room left always have a share. The authors' program
   divides 0 by 0 there and gives the whole class to the last client. Each class is cut into equal parts, whatever its
   size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from time import monotonic
from typing import Annotated, Literal

import numpy as np
import scipy  # its submodules load on first use, which keeps reading settings fast
from pydantic import Field, Strict

from fedlib.data.schemes.base import LabelledData, Parts, Scheme, Split, by_label, collect, register
from fedlib.errors import ConfigError
from fedlib.kinds import Count, Positive, optional

ATTEMPTS = 5_000  # of schemes that repeat the draw until the result is acceptable
PATIENCE = 2.0  # seconds of drawing without a word
NEARLY = 0.02  # up to this concentration of a label, most of a client's samples have one label


@register(revision=0)
class DirichletClients(Scheme):
    """Each client draws label shares ~ Dir(alpha), for training and test alike; samples are drawn with replacement.

    Source: Clustered Sampling's code for CIFAR-10, appendix D.1 (HCSFed's balanced split follows it). Counts are
    truncated and the last label receives the remainder, so a single-class client sometimes gets a stray sample of it.

    sizes: [number of clients, samples of each] pairs, in client order. Test sizes are `test_share` of these.
    """

    scheme: Literal["dirichlet_clients"] = "dirichlet_clients"
    alpha: Positive
    sizes: list[Annotated[tuple[Count, Count], Strict(False)]]
    test_share: Annotated[float, Field(gt=0, le=1)] = 0.2

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        K = int(data.y_train.max()) + 1
        sizes = np.repeat([size for _, size in self.sizes], [count for count, _ in self.sizes])
        test_sizes = np.maximum(1, np.rint(self.test_share * sizes)).astype(int)
        shares = rng.dirichlet(np.full(K, self.alpha), size=len(sizes))
        parts = []
        for labels, totals in ((data.y_train, sizes), (data.y_test, test_sizes)):
            counts = np.floor(shares * totals[:, None]).astype(int)
            counts[:, -1] += totals - counts.sum(axis=1)
            pools = [rng.choice(pool, counts[:, k].sum()) for k, pool in enumerate(by_label(labels, K))]
            parts.append(collect(pools, counts))
        return Split(parts[0], parts[1])

    def check(self, N: int) -> None:
        total = sum(count for count, _ in self.sizes)
        if total != N:
            raise ValueError(f"partition.sizes names {total} clients, but N is {N}")

    def planned_sizes(self, N: int, n: int) -> list[tuple[int, float]]:
        return [(count, size) for count, size in self.sizes]

    @property
    def mostly_one_label(self) -> bool:
        return self.alpha <= NEARLY


@register(revision=0)
class DirichletPrior(Scheme):
    """Shares q_k ~ Dir(alpha * class prior), then sizes s_k that use every sample (FedCor, appendix C.2 and its code).

    Client k receives floor(s_k q_ki) samples of label i. The remaining samples go to random clients, one at a time.
    alpha = 0.2 on ten equal classes is 0.02 per class.
    """

    scheme: Literal["dirichlet_prior"] = "dirichlet_prior"
    alpha: Positive

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        y = data.y_train
        total = np.bincount(y)
        present = np.flatnonzero(total)
        prior = total[present] / len(y)
        for _ in attempts("uses up every class"):
            q = rng.dirichlet(self.alpha * prior, size=N)
            size = minimum_norm_sizes(q, prior)
            if size is None:
                continue
            counts = np.zeros((N, len(total)), int)
            counts[:, present] = np.floor(len(y) * size[:, None] * q)
            for label in present:
                leftover = total[label] - counts[:, label].sum()
                counts[:, label] += np.bincount(rng.integers(N, size=leftover), minlength=N)
            if counts.sum(axis=1).min() >= 2:
                return Split(collect([rng.permutation(pool) for pool in by_label(y, len(total))], counts))
        raise ConfigError(
            f"partition.alpha: no draw of {ATTEMPTS} for N = {N} and alpha = {self.alpha} could use up every class and "
            "leave no client empty; raise alpha or N."
        )

    @property
    def mostly_one_label(self) -> bool:
        return self.alpha / 10 <= NEARLY  # alpha times a label's share of the data


@register(revision=0)
class DirichletClasses(Scheme):
    """Split each class over the clients of a group by Dir(alpha), one group per alpha (HiCS-FL, 6.10, and its code).

    Every class is cut into |alphas| consecutive parts, one per group. A client that has reached the average size
    receives no more. A group is drawn again until every client has `min_share` of the average, in training and in test.

    min_size: in place of `min_share`, the least number of training samples, as in NIID-Bench (Li et al., ICDE 2022,
        section 4; its program asks for 10).
    """

    scheme: Literal["dirichlet_classes"] = "dirichlet_classes"
    alphas: Annotated[list[Positive], Field(min_length=1)]
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.2
    min_size: Count | None = optional()

    def split(self, data: LabelledData, N: int, rng: np.random.Generator) -> Split:
        K, G = int(data.y_train.max()) + 1, len(self.alphas)
        n = N // G
        pools = [[np.array_split(pool, G) for pool in by_label(y, K)] for y in (data.y_train, data.y_test)]
        train: Parts = []
        test: Parts = []
        for g, alpha in enumerate(self.alphas):
            mine = [[rng.permutation(pool[g]) for pool in of_set] for of_set in pools]
            available = [np.array([len(pool) for pool in of_set]) for of_set in mine]
            minima = [self.least(of_set.sum(), available[0].sum(), n) for of_set in available]
            for _ in attempts(f"gives each of {n} clients {minima[0]:.0f} training samples"):
                shares = capped_shares(available[0], n, alpha, rng)
                counts = [cumulative_floors(shares, of_set) for of_set in available]
                if all(c.sum(axis=1).min() >= low for c, low in zip(counts, minima, strict=True)):
                    break
            else:
                wanted = (
                    f"{self.min_size} samples" if self.min_size else f"{self.min_share:g} of the average size"
                )
                raise ConfigError(
                    f"partition.alphas: no draw of {ATTEMPTS:,} for alpha = {alpha} gave each of {n} clients at least "
                    f"{wanted}; raise that alpha or the number of alphas, lower N, or set min_size to the least "
                    "number of samples that a client needs (the literature often takes 10)."
                )
            train += collect(mine[0], counts[0])
            test += collect(mine[1], counts[1])
        return Split(train, test, group=np.repeat(np.arange(G), n))

    def least(self, n_set: int, n_train: int, n: int) -> float:
        """How many samples each of n clients needs of a set of n_set; at least one of a set that has any."""
        share = self.min_share if self.min_size is None else self.min_size * n / max(1, n_train)
        return max(1.0, share * n_set / n) if n_set else 0.0

    def check(self, N: int) -> None:
        if N % len(self.alphas):
            raise ValueError(
                f"N = {N} clients cannot be split into equal parts for {len(self.alphas)} alphas"
            )

    @property
    def mostly_one_label(self) -> bool:
        return max(self.alphas) <= NEARLY


def attempts(what: str) -> Iterator[int]:
    """ATTEMPTS draws. After `PATIENCE` seconds, a warning says how long all of them take.

    what: an acceptable draw does it.
    """
    began = monotonic()
    told = False
    for i in range(ATTEMPTS):
        if i and not told and (spent := monotonic() - began) > PATIENCE:
            told = True
            warnings.warn(
                f"partition: none of {i} draws {what} so far; up to {ATTEMPTS:,} are tried, which takes about "
                f"{ATTEMPTS * spent / i:.0f} s.",
                stacklevel=3,
            )
        yield i


def minimum_norm_sizes(q: np.ndarray, prior: np.ndarray) -> np.ndarray | None:
    """The data shares s >= 0 of least ||s||^2 with sum_k s_k q_k = prior, (N,); None if there are none.

    q: (N, K) label shares of the clients. prior: (K,) class shares of the data.
    """
    # The constraint enters as heavily weighted rows of a least-squares problem; it is met to about 1e-8.
    N, weight = len(q), 1e4
    size, _ = scipy.optimize.nnls(
        np.vstack([weight * q.T, np.eye(N)]), np.concatenate([weight * prior, np.zeros(N)])
    )
    return size if np.abs(size @ q - prior).max() < 1e-6 else None


def capped_shares(available: np.ndarray, n: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """(n, K) shares of each class over n clients, ~ Dir(alpha) over those still below the average size."""
    K = len(available)
    # A Gamma(alpha) variate is a Gamma(alpha + 1) variate times U^(1 / alpha); in logarithms nothing underflows.
    logs = np.log(rng.standard_gamma(alpha + 1, (n, K))) + np.log1p(-rng.random((n, K))) / alpha
    shares = np.zeros((n, K))
    sizes = np.zeros(n)
    for label in np.flatnonzero(available):
        room = sizes < available.sum() / n
        weights = np.exp(logs[room, label] - logs[room, label].max())
        shares[room, label] = weights / weights.sum()
        sizes += np.diff(np.floor(np.cumsum(shares[:, label]) * available[label] + 1e-9), prepend=0)
    return shares


def cumulative_floors(shares: np.ndarray, available: np.ndarray) -> np.ndarray:
    """(n, K) counts of each class: its samples are cut at floor(available * cumulative share), so all are used."""
    ends = np.floor(np.cumsum(shares, axis=0) * available + 1e-9).astype(int)
    return np.diff(ends, axis=0, prepend=0)
