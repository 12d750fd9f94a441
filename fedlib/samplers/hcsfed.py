"""Fast Heterogeneous Federated Learning with Hybrid Client Selection (HCSFed).

Song, Shen, Gao, Yang, Zhou, Pan, Lou, Zhou, UAI 2023. In each round, the updates are compressed (GC) and clustered by
k-means. Each cluster gets a number of the m places that grows with its size and spread (equation 5). In a cluster,
clients are drawn in proportion to the norm of their compressed update (equation 6).

The text leaves much open (its appendices are not public), and these choices decide the result. Ours:
1. All clients train and send their compressed update before the selection: the listing needs the updates of all.
2. GC has two readings, `gc`. The number of values is d' = round(R d); R = 1 leaves the update unchanged.
3. The spread S_h of equation 5 is the standard deviation, which the paper's equation 8 and Neyman's allocation need.
   The paper prints a squared distance, whose mean over the cluster is twice the variance: variant "P".
4. A cluster without places makes any estimate biased, so every cluster gets a place if m suffices. Variant "P" rounds
   by largest remainders instead.
5. For clients of equal size, Algorithm 2's aggregation is the plain mean, which is biased; it is kept for unequal
   sizes. Variant "U" draws with replacement and divides by the expected number of draws (IPW), as the theory assumes.
   It uses at most m clusters: a cluster without places would be missing from the estimate.
6. Algorithm 1's loop, as printed, never empties its clusters and stops after one pass. Here: plain Lloyd iterations.
7. A non-finite update counts as zero; the results note it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from fedlib.samplers.base import Aggregation, Asking, Federation, Round, Sampler, Selection, Updates, register
from fedlib.samplers.importance import draw_by_norm, norms

GC = Literal["A", "B"]
Variant = Literal["R", "P", "U"]


def compressed_size(d: int, R: float) -> int:
    """d' = round(R d), at least 2 and at most d."""
    return min(max(round(R * d), 2), d)


def compress(G: np.ndarray, R: float, gc: GC) -> np.ndarray:
    """Gradient compression (GC) of updates G (N, d) to X (N, d') float64; R = 1 leaves them unchanged.

    "A": each client groups its own d values and sends the centres of the groups, in ascending order.
    "B": the components are grouped once for all clients, by their values in the mean update. Each client sends its mean
        in each group. Empty groups are left out.
    """
    from fedlib.kernels.lloyd import lloyd_1d  # here: importing Numba takes a second

    k = compressed_size(G.shape[1], R)
    if k == G.shape[1]:
        return G.astype(float)
    if gc == "A":
        return lloyd_1d(np.sort(G, axis=1), k)[0]
    mean = G.mean(axis=0, dtype=float)
    order = np.argsort(mean, kind="stable")
    counts = np.diff(np.unique(lloyd_1d(mean[order][None], k)[1]))
    group = np.empty(len(order), dtype=int)
    group[order] = np.repeat(np.arange(len(counts)), counts)
    return np.stack([np.bincount(group, update) for update in G]) / counts


def kmeans(X: np.ndarray, H: int, rng: np.random.Generator, passes: int = 100) -> np.ndarray:
    """Cluster (N,) in 0 .. H - 1 of each row of X (N, d'), by Lloyd's iterations from H random distinct rows.

    Ties go to the lowest cluster. An empty cluster keeps its centre and may stay empty.
    """
    centres = X[rng.choice(len(X), H, replace=False)]
    labels = np.full(len(X), -1)
    for _ in range(passes):
        new = ((centres**2).sum(axis=1) - X @ (2 * centres).T).argmin(axis=1)
        if (new == labels).all():
            break
        labels = new
        member = (labels == np.arange(H)[:, None]).astype(float)
        counts = member.sum(axis=1, keepdims=True)
        centres = np.where(counts > 0, member @ X / np.maximum(counts, 1), centres)
    return labels


def deviations(X: np.ndarray, labels: np.ndarray, H: int) -> np.ndarray:
    """Standard deviation sigma_h (H,) of the rows of X (N, d') in each cluster; divisor N_h - 1; 0 for a single row."""
    sigma = np.zeros(H)
    for h in range(H):
        members = X[labels == h]
        if len(members) > 1:
            sigma[h] = np.sqrt(((members - members.mean(axis=0)) ** 2).sum() / (len(members) - 1))
    return sigma


def round_places(targets: np.ndarray, m: int, caps: np.ndarray) -> np.ndarray:
    """Whole numbers (H,) <= `caps` (H,) that sum to m, close to `targets` (H,) >= 0, by largest remainders.

    What a cap cuts off goes to the others in proportion to their targets, or to their caps where the targets are all 0.
    If remainders are equal, the larger cap comes first, then the lower index.
    """
    places, free = np.zeros(len(targets), dtype=int), caps > 0
    while True:
        weights = np.where(free, targets if targets[free].any() else caps, 0)
        shares = (m - places.sum()) * weights / (weights.sum() or 1)
        capped = free & (shares > caps)
        if not capped.any():
            break
        places[capped], free = caps[capped], free & ~capped
    places[free] = np.floor(shares[free] + 1e-9)
    remainders = np.where(free & (places < caps), np.round(shares - places, 9), -1)
    best = np.lexsort((np.arange(len(caps)), -caps, -remainders))
    places[best[: m - places.sum()]] += 1
    return places


def allocate(sizes: np.ndarray, S: np.ndarray, m: int, at_least_one: bool) -> np.ndarray:
    """Places m_h (H,) of clusters with `sizes` N_h and spreads S_h, close to m N_h S_h / sum N_h S_h (equation 5).

    If all S_h are 0, places are in proportion to N_h. at_least_one: each non-empty cluster gets one place first, if
    there are at most m of them.
    """
    weights = sizes * S if (sizes * S).any() else sizes
    targets = m * weights / weights.sum()
    first = (sizes > 0).astype(int)
    if not at_least_one or first.sum() > m:
        return round_places(targets, m, sizes)
    return first + round_places(np.maximum(targets - first, 0), m - first.sum(), sizes - first)


@register("hcsfed", revision=0)
@dataclass
class HCSFed(Sampler):
    """Hybrid selection: compressed updates, clusters, places by spread, draws by norm.

    gc, R: the compression and its rate d' / d. A client uploads d' values under "A". Under "B" it uploads all d,
        because the mean update that defines the groups belongs to this round.
    H: number of clusters (default: the largest of the 5 .. 10 that the paper studies).
    variant: "R" repaired; "P" as printed; "U" unbiased (see the module docstring).
    reallocation: places by spread. Without it, places are in proportion to cluster sizes, by largest remainders.
    importance: draws by norm. Without it, draws are uniform. H = 1 is importance sampling alone; R = 1 without both is
        plain cluster sampling on raw updates.
    """

    asks = frozenset({Updates})
    gc: GC = "A"
    R: Annotated[float, Field(gt=0, le=1)] = 0.1
    H: Annotated[int, Field(ge=1)] = 10
    variant: Variant = "R"
    reallocation: bool = True
    importance: bool = True

    def needed(self, fed: Federation) -> int:
        return fed.N * fed.d // 2

    @property
    def aggregation(self) -> Aggregation:  # ty: ignore[incompatible-property-override]  # by variant
        return "ipw" if self.variant == "U" else "mean"

    @property
    def draws(self) -> Literal["distinct", "repeated"]:  # ty: ignore[incompatible-property-override]  # by variant
        return "repeated" if self.variant == "U" else "distinct"

    def select(self, round: Round) -> Asking:
        A = round.available
        if self.gc == "A":
            sent = compressed_size(self.fed.d, self.R)
            X = yield Updates(A, parameters=sent, encode=self.encode)
        else:
            X = yield Updates(A, parameters=self.fed.d)
        A, X = round.answered(A, X)
        if not len(A):
            return Selection(A)
        N, m = len(A), min(round.m, len(A))
        finite = np.all(np.isfinite(X), axis=1)
        broken = np.flatnonzero(~finite)
        if len(broken):
            X = np.where(finite[:, None], X, 0)
        if self.gc == "B":
            X = compress(X, self.R, "B")
        length = norms(X)
        labels = kmeans(X, min(self.H, N, m if self.variant == "U" else N), round.rng)
        sizes = np.bincount(labels, minlength=self.H)
        S = self.spread(X, labels, length.max())
        places = allocate(sizes, S, m, at_least_one=self.reallocation and self.variant != "P")
        draws = [
            self.draw(round.rng, np.flatnonzero(labels == h), length, places[h])
            for h in np.flatnonzero(places)
        ]
        notes = {"cluster_sizes": sizes.tolist(), "places": places.tolist(), "spreads": S.tolist()}
        if len(broken):
            notes["not_finite"] = A[broken].tolist()
        clients = A[np.concatenate([places for places, _ in draws])]
        closed_form = self.variant == "U" or not self.importance
        expected = np.concatenate([expected for _, expected in draws]) if closed_form else None
        return Selection(clients, expected=expected, notes=notes)

    def encode(self, G: np.ndarray) -> np.ndarray:
        """What the clients send under "A"; a non-finite update (a row of G) gives nan."""
        finite = np.isfinite(G).all(axis=1)
        X = np.full((len(G), compressed_size(G.shape[1], self.R)), np.nan)
        X[finite] = compress(G[finite], self.R, "A")
        return X

    def spread(self, X: np.ndarray, labels: np.ndarray, longest: float) -> np.ndarray:
        """Spreads S_h (H,); equal for all clusters without re-allocation."""
        if not self.reallocation:
            return np.ones(self.H)
        sigma = deviations(X, labels, self.H)
        sigma[sigma < 1e-7 * longest] = 0  # below the rounding of float32 updates
        return 2 * sigma**2 if self.variant == "P" else sigma

    def draw(
        self, rng: np.random.Generator, members: np.ndarray, length: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """n of a cluster's `members`, and the expected number of draws of each of them.

        Without replacement and with unequal norms, that number has no closed form, and the value is meaningless.
        """
        weights = length[members] if self.importance else np.ones(len(members))
        p = weights / weights.sum() if weights.any() else np.full(len(members), 1 / len(members))
        repeated = self.variant == "U"
        places = rng.choice(len(members), n, p=p) if repeated else draw_by_norm(rng, p, n)
        return members[places], n * p[places]
