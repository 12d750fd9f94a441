"""HiCS-FL: warm-up, estimate, the two draws, and the branches of the published code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from fedlib.samplers import Report, Sampler
from fedlib.samplers.clustered_sampling import ward_tree
from fedlib.samplers.hics_fl import (
    HiCSFL,
    annealed,
    cluster_means,
    cut,
    distances,
    draw_by_cluster,
    estimated_entropy,
    magnitudes,
    output_layer,
)
from fedlib.streams import stream

from .contract import HIDDEN, D, K, L, SamplerContract, World, federation


class TestPaper(SamplerContract):
    def make(self) -> Sampler:
        return HiCSFL()


class TestPaperWithWeights(SamplerContract):
    def make(self) -> Sampler:
        return HiCSFL(estimate="weight", M=3)


class TestCode(SamplerContract):
    distinct = False  # Clustered Sampling's branch may draw a client twice

    def make(self) -> Sampler:
        return HiCSFL(variant="C", T_s=0.001)


class TestCode0(SamplerContract):
    def make(self) -> Sampler:
        return HiCSFL(variant="C0", T_s=0.001)


class TestCode0OneAlpha(SamplerContract):
    distinct = False

    def make(self) -> Sampler:
        return HiCSFL(variant="C0", several_alphas=False)


def started(fed, **settings) -> HiCSFL:
    sampler = HiCSFL(**settings)
    sampler.setup(fed, stream(0, "setup"))
    return sampler


@pytest.mark.parametrize(("variant", "lengths"), [("P", [5, 5, 2]), ("C", [5, 5])])
def test_warm_up_visits_everybody_once(variant: str, lengths: list[int]) -> None:
    """N = 12, m = 5: three rounds at random in the paper, two in index order in the code (two clients are left out)."""
    fed = federation(m=5)
    sampler = started(fed, variant=variant)
    selections = World(fed).play(sampler, len(lengths))
    assert [len(s.clients) for s in selections] == lengths
    visited = np.concatenate([s.clients for s in selections]).tolist()
    assert len(set(visited)) == len(visited) == sum(lengths)
    assert (visited == list(range(sum(lengths)))) == (variant == "C")
    assert "clusters" in World(fed).play(sampler, 1, start=len(lengths) + 1)[0].notes


def test_what_is_kept_of_an_update() -> None:
    """Bias: the last K numbers. Weight: rows of length L before them; their means are the magnitudes."""
    fed, u = federation(), np.arange(2 * D, dtype=float).reshape(2, D)
    np.testing.assert_array_equal(output_layer(u, fed, "bias"), u[:, -K:])
    both = output_layer(u, fed, "weight")
    np.testing.assert_array_equal(both, u[:, HIDDEN:])
    means = magnitudes(both, K, "weight")
    np.testing.assert_allclose(
        means[0], [u[0, HIDDEN + c * L : HIDDEN + (c + 1) * L].mean() for c in range(K)]
    )


@given(st.integers(1, 20), st.integers(2, 8), st.sampled_from([1e-4, 1e-2, 1.0, 1e3]), st.integers(0, 10_000))
def test_entropy_is_between_0_and_log_k(N: int, classes: int, scale: float, seed: int) -> None:
    H = estimated_entropy(scale * np.random.default_rng(seed).normal(size=(N, classes)), 0.0025)
    assert (H >= 0).all()
    assert (np.log(classes) + 1e-12 >= H).all()


def test_entropy_by_hand() -> None:
    """Equal updates: ln 3. One class ahead by T ln 2: softmax (1/2, 1/4, 1/4), entropy 1.5 ln 2."""
    T = 0.0025
    H = estimated_entropy(np.array([[0.3, 0.3, 0.3], [T * np.log(2), 0, 0], [50, 0, -50]]), T)
    np.testing.assert_allclose(H, [np.log(3), 1.5 * np.log(2), 0], atol=1e-12)


def test_distances_by_hand() -> None:
    u, H = np.array([[1.0, 0], [0, 2.0], [-3, 0], [0, 0]]), np.array([0.0, 0.5, 0.5, 1.0])
    half = np.pi / 2
    angle = np.array([[0, half, 2 * half, 0], [half, 0, half, 0], [2 * half, half, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_allclose(distances(u, H, 10), angle + 10 * np.abs(H[:, None] - H), atol=1e-12)


@given(st.integers(1, 15), st.integers(1, 20), st.booleans(), st.integers(0, 10_000))
def test_cut_gives_m_clusters(N: int, M: int, equal: bool, seed: int) -> None:
    u = np.zeros((N, 3)) if equal else np.random.default_rng(seed).normal(size=(N, 3))
    labels = cut(ward_tree(distances(u, np.zeros(N), 10)), M)
    assert labels.shape == (N,)
    assert set(labels.tolist()) == set(range(min(M, N)))


def test_papers_draw_equals_its_rejection_loop() -> None:
    """Algorithm 1 literally: draw a cluster, draw a client in it, until m distinct ones are there."""
    fed = federation(N=6, m=3, T=10)
    sampler = started(fed, T_s=1.0, M=3, gamma=2.0)
    sampler.updates = np.random.default_rng(5).normal(size=(6, K))
    notes = sampler.select(sampler.fed.round(4, stream(0, "select", 4))).notes
    labels, H = np.array(notes["clusters"]), np.array(notes["entropy"])
    pi = softmax(2.0 * (1 - 4 / 10) * cluster_means(H, labels))
    within = fed.p / np.bincount(labels, fed.p)[labels]
    rng, loops, draws = np.random.default_rng(0), 4000, 600
    literal, ours = np.zeros(6), np.zeros(6)
    for _ in range(loops):
        S: set[int] = set()
        while len(S) < 3:
            members = np.flatnonzero(labels == np.searchsorted(pi.cumsum(), rng.random()))
            S.add(int(members[np.searchsorted(within[members].cumsum(), rng.random())]))
        literal[list(S)] += 1 / loops
    for i in range(draws):
        ours[sampler.select(sampler.fed.round(4, stream(i, "select", 4))).clients] += 1 / draws
    np.testing.assert_allclose(ours, literal, atol=5 * np.sqrt(0.25 / loops + 0.25 / draws))


def test_codes_draw_redraws_full_clusters() -> None:
    """Cluster 0 has nearly all the probability but one member: it comes first, the others fill up from cluster 1."""
    log_pi, labels = np.array([0.0, -50.0]), np.array([1, 0, 1, 1])
    for seed in range(10):
        chosen = draw_by_cluster(np.random.default_rng(seed), log_pi, labels, 3)
        assert 1 in chosen
        assert len(set(chosen.tolist())) == 3


def test_large_gamma_prefers_balanced_clients_and_fades() -> None:
    """Skewed clients' bias updates favour one label, balanced ones' none; after T only the clusters' number counts."""
    fed = federation(N=12, m=2, T=10)
    sampler = started(fed, gamma=20.0, M=2)
    sampler.updates = np.vstack([np.full((6, K), 0.001), np.tile([0.5, -0.25, -0.25], (6, 1))])
    early = [sampler.select(sampler.fed.round(7, stream(s, "select", 7))).clients for s in range(50)]
    late = [sampler.select(sampler.fed.round(15, stream(s, "select", 15))).clients for s in range(50)]
    assert (np.concatenate(early) < 6).all()
    assert 0.3 < (np.concatenate(late) < 6).mean() < 0.7


def test_gamma_falls_to_0_at_its_horizon() -> None:
    assert [annealed(t, 4) for t in (0, 1, 4, 9)] == [1, 0.75, 0, 0]
    fed = federation(N=12, m=2, T=10)
    for horizon, balanced in ((None, True), (7, False)):  # round 7 is the first after the warm-up
        sampler = started(fed, gamma=100.0, M=2, horizon=horizon)
        sampler.updates = np.vstack([np.full((6, K), 0.001), np.tile([0.5, -0.25, -0.25], (6, 1))])
        drawn = np.concatenate(
            [sampler.select(sampler.fed.round(7, stream(s, "select", 7))).clients for s in range(40)]
        )
        assert (drawn < 6).all() == balanced


@pytest.mark.parametrize(
    ("settings", "renewed"),
    [
        ({"variant": "P"}, True),
        ({"variant": "C"}, False),
        ({"variant": "C0"}, False),
        ({"variant": "C", "several_alphas": False}, True),
    ],
)
def test_code_keeps_updates_of_the_warm_up_only(settings: dict, renewed: bool) -> None:
    fed = federation()
    sampler = started(fed, **settings)
    World(fed).play(sampler, 3)  # N / m = 3 rounds of warm-up
    before = sampler.updates
    update = np.random.default_rng(0).normal(size=(1, fed.d)).astype(np.float32)
    sampler.observe(sampler.fed.round(4, stream(0, "observe", 4)), Report(np.array([2]), update, np.zeros(1)))
    assert np.array_equal(sampler.updates[2], output_layer(update, fed, sampler.of)[0]) == renewed
    np.testing.assert_array_equal(np.delete(sampler.updates, 2, 0), np.delete(before, 2, 0))


def test_branches_of_the_code() -> None:
    """C: hierarchical if the estimates' variance is below 0.1; C0: if there are several alphas."""
    spread, equal = np.array([0.0, 1.0, 0.0, 1.0]), np.full(4, 0.7)
    assert not HiCSFL(variant="C").hierarchical(spread)
    assert HiCSFL(variant="C").hierarchical(equal)
    assert HiCSFL(variant="C0").hierarchical(spread)
    assert not HiCSFL(variant="C0", several_alphas=False).hierarchical(equal)
    fed = federation()
    for settings, branch in (({"variant": "C"}, "clustered_sampling"), ({"variant": "C0"}, "hierarchical")):
        sampler = started(fed, T_s=0.001, **settings)
        sampler.updates[:6] = np.random.default_rng(0).normal(size=(6, K * L + K))
        assert sampler.select(sampler.fed.round(4, stream(0, "select", 4))).notes["branch"] == branch


def test_a_client_with_nearly_all_data_is_nearly_always_drawn_from_its_cluster() -> None:
    fed = replace(federation(m=1), sizes=np.r_[10**6, np.ones(11, dtype=int)])
    sampler = started(fed, M=1)
    drawn = [sampler.select(sampler.fed.round(13, stream(s, "select", 13))).clients[0] for s in range(50)]
    assert drawn == [0] * 50
    sampler = started(fed, M=1, within="uniform")
    drawn = [sampler.select(sampler.fed.round(13, stream(s, "select", 13))).clients[0] for s in range(200)]
    assert set(drawn) == set(range(fed.N))


def test_unknown_variant_is_named() -> None:
    with pytest.raises(ValueError, match="variant is 'D'; it must be one of P, C0, C"):
        started(federation(), variant="D")
    with pytest.raises(ValueError, match="within is 'p'; it must be one of share, uniform"):
        started(federation(), within="p")
    with pytest.raises(ValueError, match="estimate is 'x'; it must be one of bias, weight"):
        started(federation(), estimate="x")


def test_the_codes_annealing_lags_a_round_behind_the_papers() -> None:
    """In the last round the paper draws all clusters alike, the code still the one of highest mean entropy."""
    fed = federation(N=6, m=1, T=7)
    chosen = {}
    for variant in ("P", "C0"):
        sampler = started(fed, variant=variant, T_s=1.0, M=3, gamma=1e5)
        sampler.updates = np.random.default_rng(5).normal(size=sampler.updates.shape)
        draws = [sampler.select(sampler.fed.round(7, stream(seed, "select", 7))) for seed in range(40)]
        labels, H = (np.array(draws[0].notes[key]) for key in ("clusters", "entropy"))
        chosen[variant] = {int(labels[draw.clients[0]]) for draw in draws}
        top = int(cluster_means(H, labels).argmax())
    assert chosen["P"] == {0, 1, 2}
    assert chosen["C0"] == {top}
