"""Clustered Sampling: Low-Variance and Improved Representativity for Clients Selection in Federated Learning.

Yann Fraboni, Richard Vidal, Laetitia Kameni, Marco Lorenzi, ICML 2021. Each of the m draws has its own distribution
W_k: r[k, i] is the probability that draw k is client i. Proposition 1: the aggregation is unbiased if every row sums
to 1 (equation 7) and every column to m p_i (equation 8). Algorithm 1 builds such an r from the clients' sizes,
Algorithm 2 from the similarity of their updates.

This module states both as pouring masses into cells (Figures 3 and 4): client i has the mass m n_i, and each draw is a
cell of size M = sum n. Masses are exact integers, so equations 7 and 8 hold exactly before the division by M.

Differences from the printed algorithms:
1. The listing of Algorithm 1 starts at the wrong distribution and assigns a wrong remainder. Line 12 of Algorithm 2
   does not update q_k. Both are repaired here, as in the authors' code.
2. The paper does not say how Algorithm 1's sort breaks ties. Where sizes are equal, this decides the result: `order`.
3. Algorithm 2's tree takes the rows of the similarity matrix as observations, as in the authors' code, and not the
   matrix as distances: `linkage`.
4. The angle to a zero update is 0 and "L2" is squared, as in the authors' code; cosines are clipped to [-1, 1].
5. Algorithm 2 fills cells in the order of the authors' code: lightest group first, clients shuffled within their
   group: `filling`.
6. In Algorithm 2, a client with m p_i >= 1 gets floor(m p_i) draws of its own. The paper's prose says so; the authors'
   code does not do it.
7. A non-finite update leaves the client's representative gradient unchanged.
8. The authors do not say what happens where clients are absent. Here the distributions of a round are those of the
   algorithm for the available clients alone, so that Proposition 1 holds for their weighted mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import scipy  # its submodules load on first use, which keeps reading settings fast
from pydantic import Field

from fedlib.samplers.apart import Apart, squared_apart, tree_of
from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, register
from fedlib.samplers.basic import multinomial

Measure = Literal["arccos", "l2", "l1"]
Linkage = Literal["rows", "condensed"]
Filling = Literal["authors", "paper"]
Order = Literal["random", "index", "authors"]
MANY = 1000  # clients beyond which distances come from inner products, and are renewed where they change


def pour(masses: np.ndarray, rooms: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pour `masses` (n,) one after another into cells with room `rooms` (m,); both are integers with equal totals.

    Returns three arrays (cell, client, amount) that say what went where, with at most n + m - 1 entries each.
    """
    ends, borders = np.cumsum(masses), np.cumsum(rooms)
    cuts = np.union1d(ends, borders)
    starts = np.concatenate([[0], cuts[:-1]])
    filled = cuts > starts
    starts, amounts = starts[filled], (cuts - starts)[filled]
    return np.searchsorted(borders, starts, "right"), np.searchsorted(ends, starts, "right"), amounts


def size_distributions(sizes: np.ndarray, m: int, order: np.ndarray) -> np.ndarray:
    """Algorithm 1: r (m, N) from the clients' integer sizes (N,), poured in the permutation `order` (N,)."""
    M = int(np.sum(sizes))
    cells, clients, amounts = pour(m * sizes[order], np.full(m, M))
    r = np.zeros((m, len(sizes)))
    r[cells, order[clients]] = amounts / M
    return r


def size_order(sizes: np.ndarray, ties: Order, rng: np.random.Generator) -> np.ndarray:
    """Clients by decreasing size. Ties: at random, by index, or as the authors' numpy 1.24 left them."""
    if ties == "authors":
        return introsort(sizes)[::-1]
    first = rng.permutation(len(sizes)) if ties == "random" else np.arange(len(sizes))
    return first[np.argsort(-sizes[first], kind="stable")]


def introsort(values: np.ndarray) -> np.ndarray:
    """Indices (n,) that sort `values` (n,), with ties as numpy 1.24's `argsort` leaves them on a CPU without AVX-512.

    A quicksort with the median of three as pivot, and insertion sort for 17 values or fewer. numpy switches to heap
    sort beyond a recursion depth of 2 log2(n); that is left out, because client sizes never get there.
    """
    order = list(range(len(values)))
    value = [float(v) for v in values]
    todo = [(0, len(order) - 1)]
    while todo:
        low, high = todo.pop()
        if high - low <= 16:
            order[low : high + 1] = sorted(order[low : high + 1], key=value.__getitem__)
            continue
        middle = low + (high - low) // 2
        for a, b in ((low, middle), (middle, high), (low, middle)):
            if value[order[b]] < value[order[a]]:
                order[a], order[b] = order[b], order[a]
        pivot = value[order[middle]]
        order[middle], order[high - 1] = order[high - 1], order[middle]
        i, j = low, high - 1
        while True:
            i, j = i + 1, j - 1
            while value[order[i]] < pivot:
                i += 1
            while pivot < value[order[j]]:
                j -= 1
            if i >= j:
                break
            order[i], order[j] = order[j], order[i]
        order[i], order[high - 1] = order[high - 1], order[i]
        todo += [(low, i - 1), (i + 1, high)]
    return np.array(order, dtype=int)


def dissimilarity(A: np.ndarray, B: np.ndarray, measure: Measure) -> np.ndarray:
    """Pairwise dissimilarity of updates: the rows of A (n, d) against those of B (N, d) -> (n, N) float64.

    arccos: the angle in [0, pi], 0 if either is zero; l1: sum of |differences|; l2: sum of squared differences.
    """
    if measure == "arccos":
        return angles(A, B)
    metric = "cityblock" if measure == "l1" else "sqeuclidean"
    cdist = scipy.spatial.distance.cdist  # called for blocks, because it copies them to float64
    return np.concatenate([cdist(A, B[i : i + 16], metric) for i in range(0, len(B), 16)], axis=1)


def angles(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Angles in radians between the rows of A (n, d) and of B (N, d), 0 where either is zero -> (n, N).

    Products are summed in the inputs' dtype: with float32, angles below about 0.001 are noise.
    """
    from fedlib.kernels.products import products  # here: importing Numba takes a second

    inner, a, b = products(A, B, np.result_type(A, B))
    scale = np.sqrt(np.outer(a, b))
    cosine = np.divide(inner, scale, out=np.ones_like(inner), where=scale > 0)
    return np.arccos(np.clip(cosine, -1, 1), dtype=float)


def similarity_matrix(G: np.ndarray, measure: Measure) -> np.ndarray:
    """Similarity matrix rho (N, N), with zero diagonal, of the representative gradients G (N, d)."""
    rho = np.zeros((len(G), len(G)))
    update_similarity(rho, G, np.arange(len(G)), measure)
    return rho


def update_similarity(rho: np.ndarray, G: np.ndarray, changed: np.ndarray, measure: Measure) -> None:
    """Update rho (N, N) in place after the rows `changed` of G (N, d) changed. Cost: O(|changed| N d)."""
    rows = dissimilarity(G[changed], G, measure)
    rho[:, changed] = rows.T
    rho[changed] = rows
    np.fill_diagonal(rho, 0)


def ward_tree(rho: np.ndarray, linkage: Linkage = "rows") -> np.ndarray:
    """Ward's tree of the clients, in scipy's format (N - 1, 4), from their similarity matrix rho (N, N)."""
    if len(rho) == 1:
        return np.empty((0, 4))
    distance = scipy.spatial.distance
    if linkage == "rows" and len(rho) > MANY:
        return tree_of(squared_apart(rho))
    distances = distance.squareform(rho, checks=False) if linkage == "condensed" else distance.pdist(rho)
    return scipy.cluster.hierarchy.linkage(distances, "ward")


def cut_tree(tree: np.ndarray, masses: np.ndarray, M: int) -> list[np.ndarray]:
    """The largest subtrees of mass <= M, as arrays of clients. Each client's mass must be <= M."""
    mass = masses.tolist()
    groups = {i: [i] for i in range(len(mass))}
    for a, b in tree[:, :2].astype(int).tolist():
        mass.append(mass[a] + mass[b])
        if mass[-1] <= M:
            groups[len(mass) - 1] = groups.pop(a) + groups.pop(b)
    return [np.sort(group) for group in groups.values()]


def similarity_distributions(
    sizes: np.ndarray, m: int, tree: np.ndarray, rng: np.random.Generator, filling: Filling = "authors"
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Algorithm 2: r (m, N) and the groups of clients, from the clients' integer sizes (N,) and a tree of the clients.

    Each of the m heaviest groups opens a cell. The clients of the other groups are poured into the room that is left.
    The draws of large clients (m p_i >= 1) come first.
    """
    M = int(np.sum(sizes))
    whole, masses = np.divmod(m * sizes, M)
    r = np.zeros((m, len(sizes)), dtype=np.int64)
    large = np.repeat(np.arange(len(sizes)), whole)
    r[np.arange(len(large)), large] = M
    groups = cut_tree(tree, masses, M)
    free = r[len(large) :]
    if len(free) == 0:
        return r / M, groups
    groups.sort(key=lambda group: masses[group].sum())
    opening, pouring = groups[-len(free) :], groups[: -len(free)]
    if filling == "paper":
        opening, pouring = opening[::-1], pouring[::-1]
    else:
        pouring = [rng.permutation(group) for group in pouring]
    for cell, group in zip(free, opening, strict=True):
        cell[group] = masses[group]
    poured = np.concatenate([*pouring, np.empty(0, dtype=int)])
    cells, clients, amounts = pour(masses[poured], M - free.sum(axis=1))
    free[cells, poured[clients]] += amounts
    return r / M, groups


def draw(r: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one client from each row of r (m, N) -> (m,)."""
    borders = np.cumsum(r, axis=1)
    return (borders / borders[:, -1:] <= rng.random((len(r), 1))).sum(axis=1)


@register("clustered_size", revision=0)
@dataclass
class ClusteredSize(Sampler):
    """Algorithm 1: draws stratified by sample size, with the same distributions in every round.

    order: how ties between equal sizes are broken: at random (one permutation per run), by index, or as in the authors'
        runs. Where clients are numbered by label, the latter two reveal the labels to the sampler.
    """

    asks = frozenset()
    draws = "repeated"
    order: Order = "random"

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.ranking = size_order(fed.sizes, self.order, rng)

    def select(self, round: Round) -> Selection:
        A, m = round.available, round.m
        ranking = np.searchsorted(A, self.ranking[np.isin(self.ranking, A)])
        places_drawn = draw(size_distributions(self.fed.sizes[A], m, ranking), round.rng)
        return Selection(A[places_drawn], expected=m * self.fed.shares(A)[places_drawn])


@register("clustered_similarity", revision=0)
@dataclass
class ClusteredSimilarity(Sampler):
    """Algorithm 2: draws stratified by the similarity of the clients' latest updates, at no extra communication.

    measure, linkage, filling: see the module docstring.
    order: clients enter the tree in a random order (one permutation per run) or by index. Zero updates tie, so an order
        by label would reveal the labels in the first rounds.
    warmup: rounds of MD sampling at the start (10 in HiCS-FL's code of this baseline).
    """

    asks = frozenset()
    reads = frozenset({"updates"})
    draws = "repeated"
    measure: Measure = "arccos"
    linkage: Linkage = "rows"
    filling: Filling = "authors"
    order: Literal["random", "index"] = "random"
    warmup: Annotated[int, Field(ge=0)] = 0

    def needed(self, fed: Federation) -> int:
        return (fed.N**2 if fed.N <= MANY else 3 * fed.N**2) + fed.N * fed.d // 2

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.places = rng.permutation(fed.N) if self.order == "random" else np.arange(fed.N)
        self.G = np.zeros((fed.N, fed.d), dtype=np.float32)
        self.rho = np.zeros((fed.N, fed.N))
        self.follow()

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "apart"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.follow()

    def follow(self) -> None:
        """Keep the distances between the rows of rho, which are no state, where renewing them pays."""
        self.apart = Apart(self.rho, self.places) if self.linkage == "rows" and self.fed.N > MANY else None

    def tree(self, places: np.ndarray) -> np.ndarray:
        """Ward's tree of the clients `places`, in this order."""
        return (
            self.apart.tree(places)
            if self.apart
            else ward_tree(self.rho[np.ix_(places, places)], self.linkage)
        )

    def select(self, round: Round) -> Selection:
        m = round.m
        if round.t <= self.warmup:
            return multinomial(self.fed, round)
        places = self.places[np.isin(self.places, round.available)]
        tree = self.tree(places)
        r, groups = similarity_distributions(self.fed.sizes[places], m, tree, round.rng, self.filling)
        places_drawn = draw(r, round.rng)
        notes = {"group_sizes": sorted((len(group) for group in groups), reverse=True)}
        return Selection(
            places[places_drawn], expected=m * self.fed.shares(places)[places_drawn], notes=notes
        )

    def observe(self, round: Round, report: Report) -> None:
        usable = np.isfinite(np.vecdot(report.updates, report.updates))
        self.G[report.clients[usable]] = report.updates[usable]  # a client drawn twice keeps its last update
        changed = np.unique(report.clients[usable])
        if self.apart:
            self.apart.renew(changed, dissimilarity(self.G[changed], self.G, self.measure))
        else:
            update_similarity(self.rho, self.G, changed, self.measure)
