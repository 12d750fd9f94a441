"""FedGS: clients that are far apart in a graph of similar clients, and that were selected about equally often.

Wang, Fan, Qi, Jin and others, "FedGS: Federated Graph-Based Sampling with Arbitrary Client Availability", AAAI 2023,
and the authors' program.

1. Two features of clients: `fedgs` knows the label shares (the paper's oracle); `fedgs_updates` asks every client for
   one full update in the first round in which it is there. The program assumes that all are there before round 1, and
   compares the updates of one model.
2. The program solves the quadratic problem with Gurobi for at most 5 seconds, which differs between machines. Here a
   greedy start is improved by the best swap of two clients until no swap helps; ties go by chance. A test compares it
   with all sets.
3. Cosines are scaled to [0, 1] over pairs of different clients; in the program, zeros on the diagonal count, too.
   Clients of which nothing is known yet are as far from the others as clients without a path.
4. alpha, epsilon and sigma2 are the program's defaults; the paper tunes alpha for each data set. The class of the
   program sets other values of epsilon and sigma2, which it does not use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules load on first use

from fedlib.samplers.base import (
    Asking,
    Federation,
    NotNegative,
    Positive,
    Round,
    Sampler,
    Selection,
    Share,
    Updates,
    register,
)

GAIN = 1e-12  # a swap that gains less is none


def distances(features: np.ndarray, epsilon: float, sigma2: float) -> np.ndarray:
    """(n, n) distances of clients with features (n, f): `paths_of` their cosines, scaled to [0, 1]."""
    n = len(features)
    norms = np.sqrt((features**2).sum(axis=1, keepdims=True))
    unit = features / np.where(norms > 0, norms, 1)
    cosines, apart = unit @ unit.T, ~np.eye(n, dtype=bool)
    low, high = cosines.min(where=apart, initial=1), cosines.max(where=apart, initial=-1)
    return paths_of((cosines - low) / (high - low) if high > low else np.zeros((n, n)), epsilon, sigma2)


def paths_of(scaled: np.ndarray, epsilon: float, sigma2: float) -> np.ndarray:
    """(n, n) shortest paths over the longest; 1 where there is no path.

    Clients with a scaled cosine v (n, n) above epsilon have an edge of length exp(-v^2 / sigma2).
    """
    apart = ~np.eye(len(scaled), dtype=bool)
    edges = np.where(apart & (scaled > epsilon), np.exp(-(scaled**2) / sigma2), np.inf)
    paths = scipy.sparse.csgraph.shortest_path(edges, directed=False)
    longest = paths[np.isfinite(paths)].max(initial=0)
    paths = np.where(np.isfinite(paths), paths / (longest or 1), 1)
    return paths * apart


def spread(pairs: Callable[[int], np.ndarray], single: np.ndarray, m: int) -> np.ndarray:
    """m of n indices, ascending, of a high sum of single (n,) and, over pairs of them, of a symmetric matrix (n, n).

    pairs: the matrix's rows (n,), by index; only those of clients that were chosen for a while are asked for. Greedy,
    then the best swap as long as one helps: no swap of two improves the result. Ties go to the first.
    """
    n = len(single)
    rows: dict[int, np.ndarray] = {}
    value = single.astype(float).copy()
    for _ in range(m):
        free = value.copy()
        free[list(rows)] = -np.inf
        k = int(free.argmax())
        rows[k] = pairs(k)
        value = value + rows[k]
    while True:
        members = np.array(sorted(rows), dtype=int)
        outside = np.setdiff1d(np.arange(n), members, assume_unique=True)
        if not len(outside) or not len(members):
            return members
        within = np.stack([rows[k] for k in members.tolist()])
        gain = value[outside] - value[members][:, None] - within[:, outside]
        i, j = np.unravel_index(gain.argmax(), gain.shape)
        if gain[i, j] <= GAIN:
            return members
        leaves, enters = int(members[i]), int(outside[j])
        rows[enters] = pairs(enters)
        value = value + rows[enters] - rows.pop(leaves)


@register("fedgs", revision=0)
@dataclass
class FedGS(Sampler):
    """m available clients of the largest mean distance, less how often they were selected; weights n_k over their sum.

    alpha: weight of the distance against the balance of the numbers of selections.
    epsilon, sigma2: cosines above epsilon make an edge; how fast its length falls.
    """

    needs = frozenset({"labels"})
    asks = frozenset()
    aggregation = "data_size"
    alpha: NotNegative = 0.1
    epsilon: Share = 0.01
    sigma2: Positive = 0.1

    def needed(self, fed: Federation) -> int:
        return 2 * fed.N**2

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.times = np.zeros(fed.N, dtype=int)
        self.H = self.features_known()

    def features_known(self) -> np.ndarray:
        """(N, N) distances before the first round."""
        counts = self.fed.label_counts
        return distances(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), self.epsilon, self.sigma2)

    def select(self, round: Round) -> Selection | Asking:
        m, N = round.m, self.fed.N
        A = round.rng.permutation(round.available)  # so that ties go by chance
        excess = 2 * (self.times[A] - self.times.mean() - m / len(A)) + 1
        weight = self.alpha * 2 / (m * (m - 1)) if m > 1 else 0.0
        clients = A[spread(lambda k: weight * self.H[A[k], A], -excess / max(N - 1, 1), m)]
        self.times = self.times + np.isin(self.fed.everyone, clients)
        return Selection(clients)


@register("fedgs_updates", revision=0)
@dataclass
class FedGSUpdates(FedGS):
    """FedGS with the cosines of clients' updates: each client is asked for one in its first round."""

    needs = frozenset()
    asks = frozenset({Updates})

    def needed(self, fed: Federation) -> int:
        return 2 * fed.N**2 + fed.N * fed.d // 2

    def features_known(self) -> np.ndarray:
        self.features = np.full((self.fed.N, self.fed.d), np.nan, dtype=np.float32)
        return 1 - np.eye(self.fed.N)

    def select(self, round: Round) -> Asking:
        new = round.available[np.isnan(self.features[round.available]).any(axis=1)]
        if len(new):
            clients, updates = round.answered(new, (yield Updates(new)))
            self.features = self.features.copy()
            self.features[clients] = np.where(np.isfinite(updates), updates, 0)
            featured = np.flatnonzero(~np.isnan(self.features).any(axis=1))
            self.H = 1 - np.eye(self.fed.N)
            self.H[np.ix_(featured, featured)] = distances(
                self.features[featured].astype(float), self.epsilon, self.sigma2
            )
        return super().select(round)
