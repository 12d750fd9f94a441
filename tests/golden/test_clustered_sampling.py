"""Clustered Sampling against numbers computed by the authors' own program (schema: README.md, section 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedlib.samplers.clustered_sampling import (
    Measure,
    cut_tree,
    similarity_distributions,
    similarity_matrix,
    size_distributions,
    size_order,
    ward_tree,
)

MEASURES: dict[str, Measure] = {"cosine": "arccos", "L1": "l1", "L2": "l2"}
Case = dict[str, Any]


def sizes_of(case: Case) -> np.ndarray:
    """(n,) integer sizes; weights without sample counts to 13 digits."""
    if case["n_samples"]:
        return np.array(case["n_samples"])
    return np.round(np.array(case["weights"]) * 1e13).astype(np.int64)


def gradients_of(case: Case) -> np.ndarray:
    flat = [np.concatenate([np.ravel(layer) for layer in client]) for client in case["gradients"]]
    return np.array(flat, dtype=case["dtype"])


def check_proposition_1(r: np.ndarray, case: Case) -> None:
    assert r.shape == (case["m"], case["n"])
    assert (r >= 0).all()
    np.testing.assert_allclose(r.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(r.mean(axis=0), case["weights"], atol=1e-9)


def members(groups: list) -> set[tuple[int, ...]]:
    return {tuple(sorted(map(int, group))) for group in groups}


@pytest.mark.golden("cs_alg1*.json")
def test_algorithm_1(case: Case) -> None:
    sizes, m = sizes_of(case), case["m"]
    crashed = case["status"] != "ok"
    order = np.array(case["exact_order"] if crashed else case["processing_order"])
    golden = np.array(case["r_exact"] if crashed else case["r"])
    r = size_distributions(sizes, m, order)
    check_proposition_1(r, case)
    np.testing.assert_allclose(r, golden, atol=1e-7)
    own = size_order(sizes, "index", np.random.default_rng(0))
    np.testing.assert_allclose(size_distributions(sizes, m, own)[:, own], golden[:, order], atol=1e-7)


@pytest.mark.golden("cs_similarity*.json")
def test_similarity(case: Case) -> None:
    G = gradients_of(case)
    single = case["dtype"] == "float32"
    for name, matrix in case["matrices"].items():
        golden = np.array(matrix, dtype=float)
        rho = similarity_matrix(G, MEASURES[name])
        known = np.isfinite(golden)  # the authors' arccos may be NaN where rounding takes a cosine beyond 1
        absolute = 1e-5 if single else 1e-7 if name == "cosine" else 0
        np.testing.assert_allclose(rho[known], golden[known], rtol=1e-5 if single else 1e-12, atol=absolute)
        np.testing.assert_allclose(rho[~known] % np.pi, 0, atol=1e-7)
        tree = case["linkage_ward"][name]
        if isinstance(tree, list):
            np.testing.assert_allclose(
                ward_tree(rho)[:, 2], np.array(tree)[:, 2], atol=1e-5 if single else 1e-6
            )


@pytest.mark.golden("cs_alg2*.json")
def test_algorithm_2(case: Case) -> None:
    sizes, m, weights = sizes_of(case), case["m"], np.array(case["weights"])
    tree = np.array(case["linkage_ward"])
    M = sizes.sum()
    if not case["theorem4_applies"] or (m * sizes >= M).any():
        check_large_clients(case)
        return
    assert members(cut_tree(tree, m * sizes, M)) == members(case["groups"])
    heaviest = np.argsort(case["group_mass"])[::-1]
    masses = np.array(case["group_mass"])[heaviest]
    near = np.isclose(masses[:-1], masses[1:], rtol=0, atol=1e-8)
    kept_for_sure = case["kept_set_unambiguous"] and not near[m - 1 : m].any()
    for run in case["runs"]:
        # The legacy generator, which the authors used to shuffle, is asked for permutations alone.
        r, _ = similarity_distributions(sizes, m, tree, np.random.RandomState(run["numpy_seed"]))
        check_proposition_1(r, case)
        for group in [case["groups"][g] for g in heaviest[:m]] if kept_for_sure else []:
            rows = np.flatnonzero((r[:, group] > 0).any(axis=1))
            assert len(rows) == 1
            np.testing.assert_allclose(r[rows[0], group], m * weights[group], atol=1e-7)
        if not near.any():
            np.testing.assert_allclose(r, np.array(run["r"]), atol=1e-7)


def check_large_clients(case: Case) -> None:
    """p_i >= 1/m for some client, where the authors' code is wrong: what the paper asks for."""
    sizes, m = sizes_of(case), case["m"]
    r, _ = similarity_distributions(sizes, m, np.array(case["linkage_ward"]), np.random.default_rng(0))
    check_proposition_1(r, case)
    assert ((r == 1).sum(axis=0) >= m * sizes // sizes.sum()).all()


@pytest.mark.golden("cs_alg2*.json")
def test_tree_of_the_gradients(case: Case) -> None:
    """From gradients to tree: heights, and where they do not tie, the merges themselves."""
    golden = np.array(case["linkage_ward"])
    tree = ward_tree(similarity_matrix(gradients_of(case), MEASURES[case["distance"]]))
    np.testing.assert_allclose(tree[:, 2], golden[:, 2], atol=1e-5 if case["dtype"] == "float32" else 1e-6)
    if not case["linkage_height_ties"]:
        np.testing.assert_array_equal(np.sort(tree[:, :2]), np.sort(golden[:, :2]))
