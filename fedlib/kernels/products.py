"""Compiled inner products of clients' updates: BLAS is slower for rows this long and this few."""

from __future__ import annotations

import numpy as np

from fedlib.kernels.jit import compiled

WIDTH = 2048  # bytes of a row in a block of columns: a hundred such rows stay in a core's cache
LINE = 64  # bytes of a cache line: products are a quarter faster where blocks start at one


def products(
    A: np.ndarray, B: np.ndarray, dtype: np.dtype | type
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inner products of the rows of A (n, d) and B (N, d), and their squared norms -> (n, N), (n,), (N,) float64.

    Sums are in `dtype` within a block of columns and in float64 over the blocks. Half the work if B is A.
    """
    symmetric = B is A
    a = zeros(len(A), dtype)
    b = a if symmetric else zeros(len(B), dtype)
    sums, squares_a = np.zeros((len(a), len(b))), np.zeros(len(A))
    squares_b = squares_a if symmetric else np.zeros(len(B))
    add_products(A, B, symmetric, a, b, sums, squares_a, squares_b)
    sums = sums[: len(A), : len(B)]
    return np.tril(sums) + np.tril(sums, -1).T if symmetric else sums, squares_a, squares_b


def zeros(rows: int, dtype: np.dtype | type) -> np.ndarray:
    """A block of zeros with `rows` rows or a few more, which starts at a cache line."""
    size = -(-rows // 10) * 10 * WIDTH  # 5 rows are multiplied with 2 at a time
    room = np.zeros(size + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + size].view(dtype).reshape(-1, WIDTH // np.dtype(dtype).itemsize)


@compiled
def add_products(A, B, symmetric, a, b, sums, squares_a, squares_b):
    """sums += A B' (its lower triangle if symmetric), and add the rows' squares; a and b hold one block of each."""
    d, width = A.shape[1], a.shape[1]
    for start in range(0, d, width):
        w = min(width, d - start)
        copy(A, start, w, a, squares_a)
        if not symmetric:
            copy(B, start, w, b, squares_b)
        for k in range(0, len(A), 5):  # 5 x 2 sums at a time: more would not fit into 16 registers
            v0, v1, v2, v3, v4 = a[k], a[k + 1], a[k + 2], a[k + 3], a[k + 4]
            for s in range(0, k + 5 if symmetric else len(B), 2):
                x, y = b[s], b[s + 1]
                p0 = p1 = p2 = p3 = p4 = q0 = q1 = q2 = q3 = q4 = a.dtype.type(0)
                for j in range(w):
                    p0 += v0[j] * x[j]
                    p1 += v1[j] * x[j]
                    p2 += v2[j] * x[j]
                    p3 += v3[j] * x[j]
                    p4 += v4[j] * x[j]
                    q0 += v0[j] * y[j]
                    q1 += v1[j] * y[j]
                    q2 += v2[j] * y[j]
                    q3 += v3[j] * y[j]
                    q4 += v4[j] * y[j]
                for i, (p, q) in enumerate(((p0, q0), (p1, q1), (p2, q2), (p3, q3), (p4, q4))):
                    sums[k + i, s] += p
                    sums[k + i, s + 1] += q


@compiled
def copy(A, start, w, block, squares):
    """Copy columns `start` to `start + w` of A into the block, and add their squares to `squares`."""
    for i in range(len(A)):
        row, to, total = A[i, start : start + w], block[i], block.dtype.type(0)
        for j in range(w):
            to[j] = row[j]
            total += to[j] * to[j]
        squares[i] += total
