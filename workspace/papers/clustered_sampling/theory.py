"""Clustered Sampling's theory, checked on all outcomes of small schemes, and its listings as printed.

Fraboni et al., ICML 2021, sections 3-5 and appendices A-B; used by the theory notebook. r: (m, n) sampling
probabilities, p: (n,) data shares. The schemes are small enough to enumerate all n^m outcomes.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from fedlib.samplers.clustered_sampling import cut_tree, size_distributions, ward_tree


class SamplingScheme(NamedTuple):
    """r (m, n) and p (n,), with the clients' gradients g (n, d) and their estimates z (n, d)."""

    r: np.ndarray
    p: np.ndarray
    g: np.ndarray
    z: np.ndarray


def random_scheme(rng: np.random.Generator) -> SamplingScheme:
    """2 to 5 clients of random sizes, 2 to 4 draws; r satisfies Proposition 1, as a mixture of schemes that do."""
    n, m = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    sizes = rng.integers(1, 30, n)
    parts = [size_distributions(sizes, m, rng.permutation(n)) for _ in range(3)]
    r = np.tensordot(rng.dirichlet([0.3] * 3), parts, axes=1)
    g = rng.normal(size=(n, 3))
    return SamplingScheme(r, sizes / sizes.sum(), g, g + 0.3 * rng.normal(size=(n, 3)))


class Outcomes(NamedTuple):
    """Every outcome of a scheme: its probability (n^m,) and the clients' aggregation weights in it (n^m, n)."""

    probability: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, r: np.ndarray) -> Outcomes:
        m, n = r.shape
        draws = np.array(list(product(range(n), repeat=m)))
        weights = (draws[:, :, None] == np.arange(n)).mean(axis=1)
        return cls(r[np.arange(m), draws].prod(axis=1), weights)

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Expectation of `values` (n^m, ...)."""
        return np.tensordot(self.probability, values, axes=1)

    @property
    def variance(self) -> np.ndarray:
        """(n,) of each client's weight."""
        return self.mean(self.weights**2) - self.mean(self.weights) ** 2

    @property
    def drawn(self) -> np.ndarray:
        """(n,) probability that a client is drawn at all."""
        return self.mean(self.weights > 0)


def identities(scheme: SamplingScheme) -> dict[str, float]:
    """How far each equation of the paper is from equality in one scheme."""
    r, p, g, _ = scheme
    m = len(r)
    clustered, md = Outcomes.of(r), Outcomes.of(np.tile(p, (m, 1)))
    mean, of_draw = p @ g, r @ g
    second = np.sum(p * square(g))
    error = clustered.mean(square(clustered.weights @ g - mean))
    spread = sum(r[k] @ square(g - of_draw[k]) for k in range(m)) / m**2
    gaps = {
        "eq. 12: E w_i = p_i": clustered.mean(clustered.weights) - p,
        "eq. 14: Var_MD w_i = p_i (1 - p_i) / m": md.variance - p * (1 - p) / m,
        "eq. 16: Var_C w_i = sum_k r (1 - r) / m^2": clustered.variance - (r * (1 - r)).sum(axis=0) / m**2,
        "eq. 49: Var_MD - Var_C = (sum_k r^2 - m p_i^2) / m^2": md.variance
        - clustered.variance
        - ((r**2).sum(axis=0) - m * p**2) / m**2,
        "eq. 20: P(i in S_MD) = 1 - (1 - p_i)^m": md.drawn - (1 - (1 - p) ** m),
        "eq. 22: P(i in S_C) = 1 - prod_k (1 - r)": clustered.drawn - (1 - np.prod(1 - r, axis=0)),
        "eq. 39: the error of the mean gradient": error - spread,
        "eq. 40: the same, written out": error - (m * second - square(of_draw).sum()) / m**2,
    }
    return {name: float(np.abs(gap).max()) for name, gap in gaps.items()}


def inequalities(scheme: SamplingScheme) -> dict[str, float]:
    """How much the right side of each inequality (left <= right) exceeds the left where it is tightest."""
    r, p, g, z = scheme
    m = len(r)
    clustered, md = Outcomes.of(r), Outcomes.of(np.tile(p, (m, 1)))
    mean, of_draw = p @ g, r @ g
    second = np.sum(p * square(g))
    B_md, B_cl = (second - square(mean)) / m, second / m - square(of_draw).sum() / m**2
    beta2, kappa2 = 1.0, second - square(mean)  # of Assumption 3, as small as it allows
    bound = 3 * np.sum(p * square(z - g)) + 3 * square(mean) + 3 / m * (beta2 * square(mean) + kappa2)
    slacks = {
        "eq. 17: Var_C w_i <= Var_MD w_i": md.variance - clustered.variance,
        "eq. 23: P(i in S_MD) <= P(i in S_C)": clustered.drawn - md.drawn,
        "eq. 56 as printed: P(i in S_C) <= P(i in S_MD)": md.drawn - clustered.drawn,
        "eq. 42-43: B_Cl <= B_MD": B_md - B_cl,
        "Lemma 5, eq. 25, clustered sampling": bound - clustered.mean(square(clustered.weights @ z)),
        "Lemma 5, eq. 25, MD sampling": bound - md.mean(square(md.weights @ z)),
    }
    return {name: float(np.min(slack)) for name, slack in slacks.items()}


def square(x: np.ndarray) -> np.ndarray:
    """Squared norms along the last axis."""
    return np.sum(np.square(x), axis=-1)


def fedavg_step(p: np.ndarray, m: int) -> np.ndarray:
    """(n,) expected weight of each client's update under equation 3, over all subsets of m clients."""
    subsets = [[i in subset for i in range(len(p))] for subset in combinations(range(len(p)), m)]
    return np.mean(subsets, axis=0) * p


def proposition_1(r: np.ndarray | None, sizes: np.ndarray) -> bool:
    """Whether r (m, n) satisfies equations 7 and 8; r is None if there is no result."""
    if r is None:
        return False
    p = sizes / sizes.sum()
    rows, columns = np.allclose(r.sum(axis=1), 1), np.allclose(r.sum(axis=0), len(r) * p)
    return bool(rows and columns and (r >= 0).all())


def algorithm_1(sizes: np.ndarray, m: int, start: int = 1, repaired: bool = False) -> np.ndarray | None:
    """Algorithm 1's loop, line by line, over `sizes` in descending order -> r (m, n); None if it exceeds the rows.

    start: initial k in line 3 (printed: 1, although the first row that line 13 addresses is 0). repaired: line 13
    assigns the rest of the client instead of everything in the row so far.
    """
    M = int(sizes.sum())
    r = np.zeros((m + 1, len(sizes)))
    k, q, b_before = start, 0, 0
    for i, size in enumerate(sizes):
        q += m * int(size)
        a, b = divmod(q, M)
        crossed = a > k
        if crossed:
            r[k, i] = M - b_before
            r[k + 1 : a, i] = M
        r[a, i] = b if crossed or not repaired else b - b_before
        k, b_before = a, b
    return None if r[m].any() else r[:m] / M


def algorithm_2(sizes: np.ndarray, m: int, groups: list[np.ndarray]) -> np.ndarray | None:
    """Algorithm 2's lines 4-19 as printed -> r (m, n); None if it runs out of distributions."""
    M = int(sizes.sum())
    groups = sorted(groups, key=lambda group: -sizes[group].sum())
    r = np.zeros((m, len(sizes)))
    for k, group in enumerate(groups[:m]):
        r[k, group] = m * sizes[group]
    q = r.sum(axis=1)
    k = 0
    for i in np.concatenate([*groups[m:], np.empty(0, dtype=int)]):
        u = m * sizes[i]
        while u > 0:
            if k == m:
                return None
            a, b = divmod(q[k] + u, M)
            if a == 0:
                r[k, i] = b  # line 12: the remainder of q_k + u_i; q_k does not change
                break
            r[k, i] = M - q[k]
            u, k = u - r[k, i], k + 1
    return r / M


def similar_groups(
    sizes: np.ndarray, m: int, rng: np.random.Generator
) -> tuple[np.ndarray, list[np.ndarray]]:
    """A Ward tree of random clients, and its groups of mass at most M (Algorithm 2, lines 2-3)."""
    points = rng.normal(size=(len(sizes), 3))
    tree = ward_tree(np.linalg.norm(points[:, None] - points, axis=2))
    return tree, cut_tree(tree, m * sizes, int(sizes.sum()))


def distinct(r: np.ndarray) -> float:
    """Expected number of distinct clients in a round."""
    return float((1 - np.prod(1 - r, axis=0)).sum())
