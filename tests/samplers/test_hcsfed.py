"""HCSFed: the contract in all variants, and each step of the selection by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from fedlib.errors import ConfigError
from fedlib.kernels.lloyd import lloyd_1d
from fedlib.samplers import Sampler
from fedlib.samplers.hcsfed import (
    HCSFed,
    allocate,
    compress,
    deviations,
    kmeans,
    round_places,
)
from fedlib.settings.schema import Method

from .contract import D, SamplerContract, World, federation
from .test_importance import check_unbiased

OPTIONS = {
    "R, GC-A": {},
    "R, GC-B": {"gc": "B"},
    "P, GC-A": {"variant": "P"},
    "P, GC-B": {"variant": "P", "gc": "B"},
    "U, GC-A": {"variant": "U"},
    "U, GC-B": {"variant": "U", "gc": "B", "H": 3},
    "clusters": {"gc": "B", "reallocation": False, "importance": False},
    "clusters, raw updates": {"R": 1.0, "reallocation": False, "importance": False},
    "clusters and re-allocation": {"gc": "B", "importance": False},
    "clusters and importance": {"gc": "B", "reallocation": False},
    "importance": {"H": 1},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
class TestHCSFed(SamplerContract):
    @pytest.fixture(autouse=True)
    def _variant(self, options: dict) -> None:
        self.options = options

    def make(self) -> Sampler:
        return HCSFed(**{"R": 0.5, "H": 4} | self.options)

    def test_places_sum_to_m(self) -> None:
        world = World(federation(m=5))
        for selection in world.play(self.started(world.fed), 5):
            assert sum(selection.notes["places"]) == 5
            assert sum(selection.notes["cluster_sizes"]) == 12


@pytest.mark.parametrize("H", [3, 10])  # m is 4
def test_unbiased_variant(H: int) -> None:
    sampler = HCSFed(gc="B", R=0.5, H=H, variant="U")
    sampler.setup(federation(), np.random.default_rng(0))
    assert (sampler.aggregation, sampler.draws) == ("ipw", "repeated")
    check_unbiased(sampler)


@pytest.mark.parametrize(("options", "sent"), [({}, round(0.2 * D)), ({"gc": "B"}, D), ({"R": 1.0}, D)])
def test_what_a_client_uploads(options: dict, sent: int) -> None:
    sampler = HCSFed(**{"R": 0.2} | options)
    sampler.setup(federation(), np.random.default_rng(0))
    question = next(sampler.select(sampler.fed.round(1, np.random.default_rng(0))))
    assert (question.parameters, len(question.clients)) == (sent, 12)


@pytest.mark.parametrize("params", [{"R": 10}, {"R": 0}, {"H": 0}, {"gc": "C"}, {"variant": "Q"}])
def test_impossible_settings_are_named(params: dict) -> None:
    with pytest.raises(ConfigError, match=f"sampler 'hcsfed': {next(iter(params))}: Input should be"):
        Method(sampler="hcsfed", params=params)


def test_notes_who_diverged() -> None:
    world = World(
        federation(), change=lambda updates, clients: np.where(clients[:, None] == 3, np.nan, updates)
    )
    sampler = HCSFed(R=0.5, H=4)
    sampler.setup(world.fed, np.random.default_rng(0))
    selection = world.ask(sampler.select(sampler.fed.round(1, np.random.default_rng(0))))
    assert selection.notes["not_finite"] == [3]


# -- compression


def plain_lloyd_1d(values: np.ndarray, k: int) -> np.ndarray:
    centres = values[((np.arange(k) + 0.5) * len(values) / k).astype(int)].astype(float)
    for _ in range(30):
        group = (values[:, None] > (centres[1:] + centres[:-1]) / 2).sum(axis=1)
        centres = np.array(
            [values[group == j].mean() if (group == j).any() else centres[j] for j in range(k)]
        )
    return centres


@given(st.integers(1, 4), st.integers(2, 40), st.integers(0, 2**32), st.booleans())
def test_prefix_sums_give_plain_lloyd(n: int, d: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    values = np.sort(rng.integers(-3, 4, (n, d)) if ties else rng.normal(size=(n, d)), axis=1).astype(
        np.float32
    )
    k = int(rng.integers(2, d + 1))
    centres, borders = lloyd_1d(values, k)
    for i, row in enumerate(values):
        np.testing.assert_allclose(centres[i], plain_lloyd_1d(row.astype(float), k), atol=1e-6)
    assert (np.diff(borders) >= 0).all()
    assert (np.diff(centres, axis=1) >= 0).all()


def test_gc_a_by_hand() -> None:
    """Two clients of four values, two centres: {0, 1} and {8, 9}, wherever they stand."""
    G = np.array([[9, 0, 1, 8], [1, 9, 8, 0]], dtype=np.float32)
    np.testing.assert_allclose(compress(G, 0.5, "A"), [[0.5, 8.5], [0.5, 8.5]])


def test_gc_b_by_hand() -> None:
    """The mean update is 1 5 1.5 5.5, its groups are components {0, 2} and {1, 3}: a client's means over them."""
    G = np.array([[0, 4, 1, 6], [2, 6, 2, 5]], dtype=np.float32)
    np.testing.assert_allclose(compress(G, 0.5, "B"), [[0.5, 5], [2, 5.5]])


@pytest.mark.parametrize("gc", ["A", "B"])
def test_full_rate_leaves_updates_alone(gc: str) -> None:
    G = np.random.default_rng(0).normal(size=(5, 30)).astype(np.float32)
    np.testing.assert_array_equal(compress(G, 1.0, gc), G)


def test_gc_b_keeps_groups_of_always_equal_components() -> None:
    """Components that are 0 for everybody (black pixels) share a group and leave others empty: fewer columns."""
    G = np.random.default_rng(0).normal(size=(6, 100)).astype(np.float32)
    G[:, 20:] = 0
    X = compress(G, 0.5, "B")
    assert X.shape[1] < 50
    assert np.isfinite(X).all()


# -- clusters and places


def test_kmeans_is_lloyd_s() -> None:
    """scikit-learn from the same initial rows finds the same clusters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) + 2 * rng.integers(0, 3, size=(60, 1))
    start = X[np.random.default_rng(7).choice(60, 4, replace=False)]
    theirs = KMeans(4, init=start, n_init=1, max_iter=100, tol=0, algorithm="lloyd").fit(X).labels_
    np.testing.assert_array_equal(kmeans(X, 4, np.random.default_rng(7)), theirs)


def test_deviations_by_hand() -> None:
    """Two points at distance 2: (1 + 1) / (2 - 1), so sqrt(2); one point and no point: 0."""
    X = np.array([[0.0, 0], [2, 0], [5, 5]])
    np.testing.assert_allclose(deviations(X, np.array([0, 0, 1]), 3), [np.sqrt(2), 0, 0])


@given(st.data())
def test_places(data: st.DataObject) -> None:
    """They sum to m within the cluster sizes, and where no size binds they are the targets but for rounding."""
    H = data.draw(st.integers(1, 8))
    sizes = np.array(data.draw(st.lists(st.integers(0, 9), min_size=H, max_size=H).filter(any)))
    S = np.array(data.draw(st.lists(st.floats(0, 10, width=16), min_size=H, max_size=H)))
    m = data.draw(st.integers(1, int(sizes.sum())))
    for at_least_one in (False, True):
        places = allocate(sizes, S, m, at_least_one)
        assert places.sum() == m
        assert ((places >= 0) & (places <= sizes)).all()
        weights = sizes * S if (sizes * S).any() else sizes
        targets = m * weights / weights.sum()
        if at_least_one and (sizes > 0).sum() <= m:
            assert (places[sizes > 0] > 0).all()
        elif (targets <= sizes).all():
            assert (abs(places - targets) < 1 + 1e-9).all()


def test_places_by_hand() -> None:
    """N_h S_h = 12 3 0 and m = 5 give the targets 4 1 0; one each first leaves 2 places, both for the first."""
    sizes, S = np.array([6, 3, 1]), np.array([2.0, 1, 0])
    assert allocate(sizes, S, 5, at_least_one=False).tolist() == [4, 1, 0]
    assert allocate(sizes, S, 5, at_least_one=True).tolist() == [3, 1, 1]
    assert allocate(sizes, np.zeros(3), 5, at_least_one=False).tolist() == [
        3,
        2,
        0,
    ]  # 3, 1.5, 0.5: larger first
    assert allocate(np.array([2, 8, 0]), np.array([9.0, 0, 9]), 6, at_least_one=False).tolist() == [2, 4, 0]


def test_rounding_breaks_ties_by_size_then_index() -> None:
    assert round_places(np.array([1.5, 1.5, 1.0]), 4, np.array([5, 6, 6])).tolist() == [1, 2, 1]
    assert round_places(np.array([0.5, 0.5]), 1, np.array([3, 3])).tolist() == [1, 0]
