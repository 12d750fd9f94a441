"""Ward's tree of many clients, of whose similarities few change in a round.

The tree takes the rows of the similarity matrix as observations. If n rows and columns change, so do N n terms of the
sums of squares that the other distances are: renewing these takes N^2 n operations, all distances from the start N^3.
"""

from __future__ import annotations

import numpy as np
import scipy  # its submodules load on first use


class Apart:
    """A similarity matrix rho (N, N), symmetric with zero diagonal, and the squared distances between its rows.

    The distances are exact to about 1e-7 of the rows' norms, and 0 where both rows are zero. order: in which the
    clients enter the tree, a permutation (N,).
    """

    def __init__(self, rho: np.ndarray, order: np.ndarray) -> None:
        self.rho, self.order, self.place = rho, order, np.argsort(order)
        self.squared: np.ndarray | None = None  # in this order; None until they are needed
        if not rho.any():
            self.squared = np.zeros_like(rho)

    def renew(self, changed: np.ndarray, rows: np.ndarray) -> None:
        """Set the rows and columns `changed` (n,), all distinct, of rho to `rows` (n, N)."""
        before = self.rho[:, changed]
        self.rho[:, changed] = rows.T
        self.rho[changed] = rows
        self.rho[changed, changed] = 0
        if 10 * len(changed) > len(self.rho):
            self.squared = None
        if self.squared is None or not len(changed):
            return
        before, now = before[self.order], self.rho[:, changed][self.order]
        more, one = (now**2 - before**2).sum(1), np.ones(len(now))
        left, right = np.c_[-2 * now, 2 * before, more, one], np.c_[now, before, one, more]
        squared = scipy.linalg.blas.dgemm(  # in place: the transpose lies in memory as BLAS wants it
            1.0, left, right, beta=1.0, c=self.squared.T, trans_b=True, overwrite_c=True
        ).T
        norms = np.vecdot(self.rho, self.rho)
        own = (norms[changed][:, None] + norms - 2 * self.rho[changed] @ self.rho)[:, self.order]
        places = self.place[changed]
        squared[places], squared[:, places] = own, own.T
        self.squared = squared

    def tree(self, clients: np.ndarray) -> np.ndarray:
        """Ward's tree, in scipy's format, of clients in the order: all, or those that are there."""
        if len(clients) < len(self.rho):
            return tree_of(squared_apart(self.rho[np.ix_(clients, clients)]))
        if self.squared is None:
            self.squared = squared_apart(self.rho[np.ix_(self.order, self.order)])
        return tree_of(self.squared.copy())


def squared_apart(rho: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances between the rows of rho (N, N), from their inner products -> (N, N)."""
    squared = rho @ rho.T
    norms = squared.diagonal().copy()
    squared *= -2
    squared += norms
    squared += norms[:, None]
    return squared


def tree_of(squared: np.ndarray) -> np.ndarray:
    """Ward's tree (N - 1, 4) in scipy's format from squared distances (N, N), which are overwritten."""
    from fedlib.kernels.ward import ward_merges  # here: importing Numba takes a second

    np.maximum(squared, 0, out=squared)
    merges, heights = ward_merges(squared)
    N, order = len(squared), np.argsort(heights, kind="stable")
    tree = np.empty((N - 1, 4))
    tree[:, 2] = np.sqrt(heights[order])
    node, sizes = list(range(N)), [1] * N  # the node that a cluster, named by its largest member, is now
    for i, (gone, kept) in enumerate(merges[order].tolist()):
        a, b = sorted((node[gone], node[kept]))
        sizes.append(sizes[a] + sizes[b])
        tree[i, 0], tree[i, 1], tree[i, 3] = a, b, sizes[-1]
        node[kept] = N + i
    return tree
