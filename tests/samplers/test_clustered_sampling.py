"""Clustered Sampling: the contract, Proposition 1 on made-up federations, and the structure of both algorithms."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Sampler
from fedlib.samplers.clustered_sampling import (
    ClusteredSimilarity,
    ClusteredSize,
    angles,
    cut_tree,
    draw,
    pour,
    similarity_distributions,
    similarity_matrix,
    size_distributions,
    size_order,
    update_similarity,
    ward_tree,
)

from .contract import SamplerContract, World, federation

sizes_lists = st.lists(st.integers(1, 1000), min_size=1, max_size=30).map(np.array)
draws = st.integers(1, 12)
seeds = st.integers(0, 2**32)
SIZES = np.array([4, 4, 3, 3, 2, 2, 1, 1])


class TestClusteredSize(SamplerContract):
    def make(self) -> Sampler:
        return ClusteredSize()


class TestClusteredSimilarity(SamplerContract):
    def make(self) -> Sampler:
        return ClusteredSimilarity()

    def test_groups_become_the_labels(self) -> None:
        """Clients of the contract's world lie around 3 centres: with m = 3, each draw ends with one of them."""
        world = World(federation(m=3, sizes=np.full(12, 20)))
        last = world.play(self.started(world.fed), 30)[-1]
        assert last.notes["group_sizes"] == [4, 4, 4]
        assert sorted(last.clients % 3) == [0, 1, 2]

    def test_warm_up_draws_as_md_does(self) -> None:
        world = World(federation(m=3, sizes=np.full(12, 20)))
        sampler = ClusteredSimilarity(warmup=2)
        sampler.setup(world.fed, np.random.default_rng(0))
        assert ["group_sizes" in selection.notes for selection in world.play(sampler, 4)] == [
            False,
            False,
            True,
            True,
        ]


@pytest.mark.parametrize("measure", ["l1", "l2"])
@pytest.mark.parametrize("linkage", ["rows", "condensed"])
class TestOtherReadings(SamplerContract):
    @pytest.fixture(autouse=True)
    def _reading(self, measure: str, linkage: str) -> None:
        self.options = {"measure": measure, "linkage": linkage, "filling": "paper", "order": "index"}

    def make(self) -> Sampler:
        return ClusteredSimilarity(**self.options)


def check_proposition_1(r: np.ndarray, sizes: np.ndarray, m: int) -> None:
    assert r.shape == (m, len(sizes))
    assert (r >= 0).all()
    np.testing.assert_allclose(r.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(r.sum(axis=0), m * sizes / sizes.sum(), atol=1e-12)


@given(sizes_lists, draws)
def test_pouring_is_exact(sizes: np.ndarray, m: int) -> None:
    cells, clients, amounts = pour(m * sizes, np.full(m, sizes.sum()))
    assert len(amounts) <= len(sizes) + m - 1
    assert (amounts > 0).all()
    assert (np.bincount(cells, amounts, minlength=m) == sizes.sum()).all()
    assert (np.bincount(clients, amounts, minlength=len(sizes)) == m * sizes).all()


@given(sizes_lists, draws, seeds)
def test_algorithm_1_is_unbiased(sizes: np.ndarray, m: int, seed: int) -> None:
    """Equations 7 and 8, and section 4: a client of Algorithm 1 is in at most floor(m p_i) + 2 distributions."""
    r = size_distributions(sizes, m, size_order(sizes, "random", np.random.default_rng(seed)))
    check_proposition_1(r, sizes, m)
    assert ((r > 0).sum(axis=0) <= m * sizes // sizes.sum() + 2).all()


@given(sizes_lists, draws)
def test_algorithm_1_is_the_paper_s_loop(sizes: np.ndarray, m: int) -> None:
    """The text's loop, in exact fractions: fill the open cell with the client, move on where it is full."""
    order = size_order(sizes, "index", np.random.default_rng(0))
    expected = [[Fraction(0)] * len(sizes) for _ in range(m)]
    cell, room = 0, Fraction(int(sizes.sum()))
    for client in order:
        mass = Fraction(m * int(sizes[client]))
        while mass:
            amount = min(mass, room)
            expected[cell][client] += amount / int(sizes.sum())
            mass, room = mass - amount, room - amount
            if not room:
                cell, room = cell + 1, Fraction(int(sizes.sum()))
    np.testing.assert_allclose(size_distributions(sizes, m, order), np.array(expected, float), atol=1e-15)


def test_balanced_clients_sit_in_one_distribution_each() -> None:
    """N = 100 equal clients, m = 10: each r is 0.1 or 0, each client in one row, so ten distinct clients a round."""
    r = size_distributions(np.full(100, 500), 10, np.random.default_rng(0).permutation(100))
    assert set(r.ravel().tolist()) == {0.0, 0.1}
    assert ((r > 0).sum(axis=0) == 1).all()


@pytest.mark.parametrize(("order", "digits"), [("index", 10.0), ("authors", 7.43), ("random", 6.70)])
def test_ties_decide_how_many_digits_a_round_sees(order: str, digits: float) -> None:
    """100 clients of 500 samples, client i with digit i // 10: the expected number of distinct digits in a round."""
    sizes, rng = np.full(100, 500), np.random.default_rng(0)
    seen = []
    for _ in range(50 if order == "random" else 1):
        r = size_distributions(sizes, 10, size_order(sizes, order, rng))
        of_digit = r.reshape(10, 10, 10).sum(axis=2)
        seen.append((1 - np.prod(1 - of_digit, axis=0)).sum())
    assert np.mean(seen) == pytest.approx(digits, abs=0.02)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=80).map(np.array))
def test_authors_order_sorts(sizes: np.ndarray) -> None:
    order = size_order(sizes, "authors", np.random.default_rng(0))
    assert sorted(order) == list(range(len(sizes)))
    assert (np.diff(sizes[order]) <= 0).all()


@given(sizes_lists, draws, seeds, st.sampled_from(["authors", "paper"]), st.booleans())
def test_algorithm_2_is_unbiased(sizes: np.ndarray, m: int, seed: int, filling: str, unseen: bool) -> None:
    """Equations 7 and 8 for any updates, unseen clients and clients with p_i > 1 / m, who get draws of their own."""
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(len(sizes), 4))
    G[rng.random(len(sizes)) < 0.5 * unseen] = 0
    r, groups = similarity_distributions(sizes, m, ward_tree(similarity_matrix(G, "arccos")), rng, filling)
    check_proposition_1(r, sizes, m)
    assert ((r == 1).sum(axis=0) >= m * sizes // sizes.sum()).all()
    assert sorted(np.concatenate(groups)) == list(range(len(sizes)))


@given(sizes_lists, draws, seeds)
def test_cut_takes_maximal_light_subtrees(sizes: np.ndarray, m: int, seed: int) -> None:
    """Every group weighs at most M, and the subtree above it more."""
    M = max(sizes.sum() // m, sizes.max())
    tree = ward_tree(similarity_matrix(np.random.default_rng(seed).normal(size=(len(sizes), 4)), "arccos"))
    groups = {tuple(group) for group in cut_tree(tree, sizes, M)}
    nodes = [(i,) for i in range(len(sizes))]
    for a, b in tree[:, :2].astype(int):
        nodes.append(tuple(sorted(nodes[a] + nodes[b])))
        if sizes[list(nodes[-1])].sum() > M:
            assert {child for child in (nodes[a], nodes[b]) if sizes[list(child)].sum() <= M} <= groups
    assert all(sizes[list(group)].sum() <= M for group in groups)


def tree_of(*merges: tuple[int, int]) -> np.ndarray:
    return np.array([[a, b, height, 2] for height, (a, b) in enumerate(merges)], dtype=float)


def test_groups_of_a_cell_s_mass_are_the_cells() -> None:
    """Pairs of sizes 4 4, 3 3, 2 2 and 1 1 with m = 2 weigh 16, 12, 8 and 4, a cell 20 = 16 + 4 = 12 + 8."""
    tree = tree_of((6, 7), (4, 5), (2, 3), (0, 1), (8, 11), (9, 10), (12, 13))
    r, groups = similarity_distributions(SIZES, 2, tree, np.random.default_rng(0))
    assert {tuple(group) for group in groups} == {(0, 1, 6, 7), (2, 3, 4, 5)}
    np.testing.assert_array_equal((r > 0).sum(axis=0), 1)


def test_kept_groups_stay_together_and_the_others_fill_up() -> None:
    """Now 16 and 12 are merged first, too heavy for a cell: all pairs are groups, 12 and 16 are kept.

    The authors open with the 12 and pour the 4 first, so that half of the 8 follows it; the paper opens with the 16
    and pours the 8 first, of which half finds room.
    """
    tree = tree_of((6, 7), (4, 5), (2, 3), (0, 1), (10, 11), (8, 12), (9, 13))
    r, groups = similarity_distributions(SIZES, 2, tree, np.random.default_rng(0))
    assert {tuple(group) for group in groups} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    first, second = (4, 5) if r[0, 4] else (5, 4)  # the shuffle decides
    expected = np.array([[0, 0, 6, 6, 0, 0, 2, 2], [8, 8, 0, 0, 0, 0, 0, 0]]) / 20
    expected[0, first] = expected[1, second] = 4 / 20
    np.testing.assert_allclose(r, expected)

    r, _ = similarity_distributions(SIZES, 2, tree, np.random.default_rng(0), "paper")
    np.testing.assert_allclose(r, np.array([[8, 8, 0, 0, 4, 0, 0, 0], [0, 0, 6, 6, 0, 4, 2, 2]]) / 20)


@pytest.mark.parametrize("measure", ["arccos", "l1", "l2"])
def test_changed_rows_alone_give_the_full_matrix(measure: str) -> None:
    """Integer updates, so that sums are exact in any order and the two ways agree to the last bit."""
    rng = np.random.default_rng(0)
    G = rng.integers(-9, 10, size=(40, 300)).astype(np.float32)
    G[:5] = 0
    rho = similarity_matrix(G, measure)
    for _ in range(3):
        changed = rng.choice(40, 6, replace=False)
        G[changed] = rng.integers(-9, 10, size=(6, 300))
        update_similarity(rho, G, changed, measure)
        np.testing.assert_array_equal(rho, similarity_matrix(G, measure))


def test_angles_by_hand() -> None:
    """Right angle, opposite, parallel (where rounding may take the cosine beyond 1), and the zero update."""
    x = np.random.default_rng(0).normal(size=50)
    A = np.array([[1.0, 0], [0, 2], [-3, 0], [0, 0]])
    np.testing.assert_allclose(angles(A[:1], A)[0], [0, np.pi / 2, np.pi, 0])
    assert angles(x[None], 3 * x[None])[0, 0] == pytest.approx(0, abs=1e-7)
    assert (angles(A, A)[3] == 0).all()


@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 10_000))
def test_each_draw_is_numpy_s_choice(m: int, N: int, seed: int) -> None:
    r = np.random.default_rng(seed).dirichlet(np.full(N, 0.3), size=m)
    one_by_one = np.random.default_rng(seed + 1)
    expected = [one_by_one.choice(N, p=row) for row in r]
    np.testing.assert_array_equal(draw(r, np.random.default_rng(seed + 1)), expected)
