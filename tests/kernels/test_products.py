"""Inner products: NumPy's, whatever the shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.kernels.products import WIDTH, products


@given(st.integers(0, 23), st.integers(1, 23), st.integers(1, 700), st.integers(0, 10_000))
def test_products_are_numpy_s(n: int, N: int, d: int, seed: int) -> None:
    """Integers, whose sums are exact in any order; blocks with rows and columns to spare."""
    rng = np.random.default_rng(seed)
    A, B = (rng.integers(-9, 10, (rows, d)).astype(np.float32) for rows in (n, N))
    for dtype in (np.float32, float):
        for X in (A, B):
            inner, x, b = products(X, B, dtype)
            np.testing.assert_array_equal(inner, X @ B.T)
            np.testing.assert_array_equal(x, np.vecdot(X, X))
            np.testing.assert_array_equal(b, np.vecdot(B, B))


@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-7), (float, 1e-14)])
def test_sums_are_as_exact_as_asked_for(dtype: type, error: float) -> None:
    G = np.random.default_rng(0).normal(1, 1, size=(12, 50 * WIDTH)).astype(np.float32)
    exact = G.astype(float) @ G.astype(float).T
    inner, squares, _ = products(G, G, dtype)
    np.testing.assert_allclose(inner, exact, rtol=error)
    np.testing.assert_allclose(squares, exact.diagonal(), rtol=error)
    np.testing.assert_array_equal(inner, products(G, G.copy(), dtype)[0])


def test_a_row_that_is_not_finite_spoils_its_own_products_alone() -> None:
    G = np.ones((12, 300), np.float32)
    G[3, 5], G[7, 1] = np.nan, np.inf
    others = np.delete(np.arange(12), [3, 7])
    inner, *_ = products(G, G, float)
    assert not np.isfinite(inner[[3, 7]]).any()
    assert (inner[np.ix_(others, others)] == 300).all()
