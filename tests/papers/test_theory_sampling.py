"""The arithmetic of Clustered Sampling's and HCSFed's theory pages: against enumeration, and on cases by hand."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from workspace.papers.clustered_sampling import theory as theory_cs
from workspace.papers.hcsfed import theory as theory_hcsfed
from workspace.papers.hcsfed.theory import Population, square


@pytest.fixture
def population() -> Population:
    """Five clients in clusters of 2 and 3."""
    G = np.random.default_rng(0).normal(size=(5, 2))
    return Population(G, np.array([0, 1, 0, 1, 1]), np.array([2, 3]))


def estimates(
    pop: Population, m_h: list[int], p: np.ndarray, unbiased: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Every outcome's probability, and its aggregated update."""
    draws = [np.flatnonzero(pop.labels == h) for h in (0, 1) for _ in range(m_h[h])]
    probabilities, values = [], []
    for outcome in product(*draws):
        clients = np.array(outcome)
        expected = np.array(m_h)[pop.labels[clients]] * p[clients]
        weights = 1 / (5 * expected) if unbiased else np.full(len(clients), 1 / len(clients))
        probabilities.append(p[clients].prod())
        values.append(weights @ pop.G[clients])
    return np.array(probabilities), np.array(values)


def test_variance_is_that_of_all_outcomes(population: Population) -> None:
    p = population.by_norm()
    probability, values = estimates(population, [1, 2], p, unbiased=True)
    np.testing.assert_allclose(probability @ values, population.mean)
    expected = probability @ square(values - population.mean)
    assert theory_hcsfed.variance(population, np.array([1, 2]), p) == pytest.approx(expected)


@pytest.mark.parametrize("places", [[1, 2], [0, 2]])
def test_error_of_the_plain_mean_is_that_of_all_outcomes(population: Population, places: list[int]) -> None:
    p = population.by_norm()
    probability, values = estimates(population, places, p, unbiased=False)
    expected = probability @ square(values - population.mean)
    assert theory_hcsfed.mean_error(population, np.array(places), p) == pytest.approx(expected)


def test_distinct_draws(population: Population) -> None:
    """V_rand over all pairs of the five clients; it and V_cluster vanish where all take part."""
    pairs = np.array([population.G[list(pair)].mean(axis=0) for pair in combinations(range(5), 2)])
    rand, _ = theory_hcsfed.without_replacement(population, 2)
    assert rand == pytest.approx(square(pairs - population.mean).mean())
    np.testing.assert_allclose(theory_hcsfed.without_replacement(population, 5), 0, atol=1e-15)


def test_schemes_satisfy_the_equations() -> None:
    scheme = theory_cs.random_scheme(np.random.default_rng(1))
    assert max(theory_cs.identities(scheme).values()) < 1e-12
    broken = scheme._replace(r=np.roll(scheme.r, 1, axis=1))  # right rows, wrong columns
    assert theory_cs.identities(broken)["eq. 12: E w_i = p_i"] > 1e-3


def test_algorithm_1_by_hand() -> None:
    """Sizes 2 1 1, m = 2, M = 4: client 0 fills row 0, the others share row 1."""
    sizes = np.array([2, 1, 1])
    np.testing.assert_allclose(theory_cs.algorithm_1(sizes, 2, 0, repaired=True), [[1, 0, 0], [0, 0.5, 0.5]])
    assert not theory_cs.proposition_1(theory_cs.algorithm_1(sizes, 2), sizes)


def test_algorithm_2_by_hand() -> None:
    """Sizes 2 2 1 1, m = 2, M = 6, all clients alone: rows begin with 4 each, clients 2 and 3 bring 2 each.

    Sizes 3 1 1 1: row 0 is full, row 1 begins with 2, and line 12 gives client 2 all that lies in it then, 4.
    """
    one_each = [np.array([i]) for i in range(4)]
    r = theory_cs.algorithm_2(np.array([2, 2, 1, 1]), 2, one_each)
    np.testing.assert_allclose(r * 6, [[4, 0, 2, 0], [0, 4, 0, 2]])
    sizes = np.array([3, 1, 1, 1])
    r = theory_cs.algorithm_2(sizes, 2, one_each)
    assert r[1, 2] * 6 == pytest.approx(4)
    assert not theory_cs.proposition_1(r, sizes)


def test_listed_clusters_are_never_emptied() -> None:
    """100 clients are members once after the first pass; those that change their cluster then count twice."""
    G = np.random.default_rng(0).normal(size=(100, 3))
    members, first, last = theory_hcsfed.algorithm_1(G, 6, np.random.default_rng(1))
    assert members[0] == 100
    assert members[-1] > 100
    assert last < first
