"""One-dimensional k-means of sorted values, compiled: HCSFed's clients do it on every update."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def lloyd_1d(values: np.ndarray, k: int, passes: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """k-means of each sorted row of `values` (n, d), k > 1 -> centres (n, k), ascending, and borders (n, k + 1).

    Group j of row i is values[i, borders[i, j] : borders[i, j + 1]]. Starts at quantiles; an empty group keeps its
    centre.
    """
    n, d = values.shape
    centres, borders = np.empty((n, k)), np.empty((n, k + 1), np.int64)
    sums, shifted = np.zeros(d + 1), np.zeros(k + 1, np.bool_)
    for i in range(n):
        row, centre, border = values[i], centres[i], borders[i]
        for p in range(d):
            sums[p + 1] = sums[p] + row[p]
        for j in range(k):
            centre[j] = row[int((j + 0.5) * d / k)]
            border[j] = j * d // k
        border[k] = d
        for t in range(passes):
            for j in range(1, k):  # a border lies where it was, or near
                middle, p = (centre[j - 1] + centre[j]) / 2, border[j]
                while p < d and row[p] <= middle:
                    p += 1
                while p > 0 and row[p - 1] > middle:
                    p -= 1
                shifted[j] = t == 0 or p != border[j]
                border[j] = p
            moved = False
            for j in range(k):
                first, last = border[j], border[j + 1]
                if (shifted[j] or shifted[j + 1]) and first < last:
                    centre[j] = (sums[last] - sums[first]) / (last - first)
                    moved = True
            if not moved:
                break
    return centres, borders
