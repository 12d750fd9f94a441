"""FedGS: the graph against plain loops, and the swaps against all sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Sampler
from fedlib.samplers.fedgs import FedGS, FedGSUpdates, distances, spread

from .contract import SamplerContract, World, federation


class TestFedGS(SamplerContract):
    def make(self) -> Sampler:
        return FedGS(alpha=1.0)


class TestFedGSUpdates(SamplerContract):
    def make(self) -> Sampler:
        return FedGSUpdates()


def floyd(features: np.ndarray, epsilon: float, sigma2: float) -> np.ndarray:
    """The authors' loops, the diagonal left out of the scaling."""
    n = len(features)
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    cosine = {
        (i, j): features[i] @ features[j] / np.sqrt((features[i] @ features[i]) * (features[j] @ features[j]))
        for i, j in pairs
    }
    low, high = min(cosine.values()), max(cosine.values())
    path = np.full((n, n), np.inf)
    for i, j in pairs:
        v = (cosine[i, j] - low) / (high - low)
        if v > epsilon:
            path[i, j] = np.exp(-(v**2) / sigma2)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if i != j:
                    path[i, j] = min(path[i, j], path[i, k] + path[k, j])
    longest = path[np.isfinite(path)].max()
    path = np.where(np.isfinite(path), path / longest, 1)
    np.fill_diagonal(path, 0)
    return path


@given(st.integers(0, 10**6), st.floats(0, 0.9))
def test_distances_against_the_authors_loops(seed: int, epsilon: float) -> None:
    features = np.random.default_rng(seed).random((7, 3)) + 0.01
    assert distances(features, epsilon, 0.1) == pytest.approx(floyd(features, epsilon, 0.1))


def test_clients_without_a_path_and_equal_clients_are_far() -> None:
    """Two groups of equal clients with nothing in common: 0 within, the longest between."""
    H = distances(np.repeat(np.eye(2), 2, axis=0), 0.01, 0.1)
    assert H[0, 2] == H[1, 3] == 1
    assert H[0, 1] == H[2, 3] == 1, "the only finite length is also the longest"
    assert (distances(np.ones((3, 2)), 0.01, 0.1) == 1 - np.eye(3)).all()


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_no_swap_improves_and_the_best_set_is_near(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    pairs, single = rng.random((8, 8)), rng.normal(size=8)
    pairs = (pairs + pairs.T) * (1 - np.eye(8))

    def value(members: tuple[int, ...]) -> float:
        return single[list(members)].sum() + pairs[np.ix_(members, members)].sum() / 2

    found = tuple(spread(pairs.__getitem__, single, m).tolist())
    assert len(set(found)) == m
    for leaving in found:
        for coming in set(range(8)) - set(found):
            assert value(tuple(sorted({*found, coming} - {leaving}))) <= value(found) + 1e-9
    best = max(map(value, combinations(range(8), m)))
    worst = min(map(value, combinations(range(8), m)))
    assert value(found) >= best - 0.35 * (best - worst) - 1e-9


def test_clients_of_different_labels_and_equally_often() -> None:
    fed = federation(N=12, m=3)
    sampler = FedGS(alpha=1.0)
    sampler.setup(fed, np.random.default_rng(0))
    counts = np.zeros(12)
    for selection in World(fed).play(sampler, 40):
        counts[selection.clients] += 1
        assert len({k % 3 for k in selection.clients.tolist()}) == 3, "client k holds mostly label k mod 3"
    assert counts.max() - counts.min() <= 2


def test_updates_are_asked_for_once() -> None:
    fed = federation()
    sampler = FedGSUpdates()
    sampler.setup(fed, np.random.default_rng(0))
    world = World(fed, available=lambda t: np.arange(6) if t == 1 else np.arange(12))
    asked = []
    answer = world.answer
    world.answer = lambda question: asked.append(question.clients.tolist()) or answer(question)
    world.play(sampler, 3)
    assert asked == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    assert np.allclose(sampler.H, sampler.H.T)
    same, other = sampler.H[0, 3], sampler.H[0, 1]
    assert same < other, "clients 0 and 3 have one label"
