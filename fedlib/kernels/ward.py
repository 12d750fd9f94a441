"""Ward's tree by a compiled nearest-neighbour chain, on a square matrix, whose rows are read as they lie in memory."""

from __future__ import annotations

import numpy as np

from fedlib.kernels.jit import exact


@exact
def ward_merges(D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Merges (N - 1, 2) and their squared heights (N - 1,), in the order of the chain; ties go to the lowest index.

    D: (N, N) squared Euclidean distances, symmetric; overwritten. A cluster is named by its largest member. An N^2
    algorithm (Murtagh 1983); the distances to a new cluster are those of Lance and Williams.
    """
    N = len(D)
    size, merges, heights = np.ones(N), np.empty((N - 1, 2), np.int64), np.empty(N - 1)
    height = np.zeros(
        N
    )  # of each cluster's last merge: rounding must not put a merge below those that it is made of
    left, chain, n, length = np.arange(N), np.empty(N, np.int64), N, 0
    for k in range(N - 1):
        if length == 0:
            chain[0], length = left[0], 1
        while True:
            x = chain[length - 1]
            to, nearest, y = D[x], np.inf, -1
            if length > 1:  # the one before wins ties, so that the chain has no circle
                y = chain[length - 2]
                nearest = to[y]
            for p in range(n):
                i = left[p]
                if to[i] < nearest and i != x:
                    nearest, y = to[i], i
            if length > 1 and y == chain[length - 2]:
                break
            chain[length] = y
            length += 1
        length -= 2
        gone, kept = min(x, y), max(x, y)
        height[kept] = max(nearest, height[gone], height[kept])
        merges[k, 0], merges[k, 1], heights[k] = gone, kept, height[kept]
        a, b = size[gone], size[kept]
        size[kept] = a + b
        place = 0
        for p in range(n):
            if left[p] != gone:
                left[place] = left[p]
                place += 1
        n -= 1
        from_gone, from_kept = D[gone], D[kept]
        for p in range(n):
            i = left[p]
            if i != kept:
                s = size[i]
                apart = ((a + s) * from_gone[i] + (b + s) * from_kept[i] - s * nearest) / (a + b + s)
                from_kept[i] = apart
                D[i, kept] = apart
    return merges, heights
