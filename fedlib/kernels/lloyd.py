"""Compiled one-dimensional k-means of sorted values: HCSFed's clients run it on every update."""

from __future__ import annotations

import numpy as np

from fedlib.kernels.jit import exact


@exact
def lloyd_1d(values: np.ndarray, k: int, passes: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """k-means of each sorted row of `values` (n, d), k > 1 -> centres (n, k), ascending, and borders (n, k + 1).

    Group j of row i is values[i, borders[i, j] : borders[i, j + 1]]. The iterations start at quantiles. An empty group
    keeps its centre.
    """
    n, d = values.shape
    centres, borders = np.empty((n, k)), np.empty((n, k + 1), np.int64)
    sums, shifted, moved = np.zeros(d + 1), np.zeros(k + 1, np.bool_), np.empty(k, np.bool_)
    for i in range(n):
        row, centre, border = values[i], centres[i], borders[i]
        for p in range(d):
            sums[p + 1] = sums[p] + row[p]
        for j in range(k):
            centre[j] = row[int((j + 0.5) * d / k)]
        border[:k], border[k] = 0, d
        moved[:] = True
        for t in range(passes):
            for j in range(1, k):
                shifted[j] = False
                if moved[j - 1] or moved[j]:  # few groups, after the first passes
                    middle, low, high = (centre[j - 1] + centre[j]) / 2, border[j - 1], d
                    while low < high:
                        p = (low + high) // 2
                        if row[p] <= middle:
                            low = p + 1
                        else:
                            high = p
                    shifted[j] = t == 0 or low != border[j]
                    border[j] = low
            for j in range(k):
                first, last = border[j], border[j + 1]
                moved[j] = (shifted[j] or shifted[j + 1]) and first < last
                if moved[j]:
                    centre[j] = (sums[last] - sums[first]) / (last - first)
            if not moved.any():
                break
    return centres, borders
