"""DivFL: clients whose gradients best represent those of all clients, a facility-location problem solved greedily.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via
Submodular Maximization", ICLR 2022, as HiCS-FL uses it as a baseline.

HiCS-FL's code differs from the paper; the settings `gradients` and `greedy` choose between them:
1. The paper takes 1-step gradients at the current model ("one_step", the default). The code takes the full local
   updates of all N clients from the previous round ("previous"), and zeros in the first round.
2. At each step, the code takes the best of a random subset of max(m, floor(0.1 N)) clients ("stochastic"). With
   `candidates` of them, it is the stochastic greedy of Mirzasoleiman et al. (AAAI 2015), whose subset may be smaller.
In both, aggregation is the plain mean, as in HiCS-FL (DivFL weights a client by how many clients it represents). Ties
go to the lowest id. A non-finite gradient counts as zero.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedlib.samplers.base import (
    Asking,
    Count,
    Federation,
    Gradients,
    Round,
    Sampler,
    Selection,
    Updates,
    register,
)
from fedlib.samplers.checks import check_choices

MANY = 1000  # clients beyond which "stochastic" makes no matrix over them
BLOCK, WIDTH = 256, 4096  # clients whose distances are computed together, and to how many others


@register("divfl", revision=0)
@dataclass
class DivFL(Sampler):
    """Choose m clients that greedily minimise sum_k min_{i chosen} |g_k - g_i|.

    candidates: with greedy "stochastic", how many clients are looked at in each step; None for the code's number. With
        more than a thousand clients, "stochastic" needs no N x N distances.

    Raises:
        ValueError: an unknown `gradients` or `greedy`.
    """

    asks = frozenset({Gradients, Updates})
    gradients: Literal["one_step", "previous"] = "one_step"
    greedy: Literal["lazy", "stochastic"] = "lazy"
    candidates: Count | None = None

    def needed(self, fed: Federation) -> int:
        return fed.N * (fed.d // 2 + BLOCK) if self.sparse(fed) else fed.N**2

    def sparse(self, fed: Federation) -> bool:
        """Whether distances are computed when they are needed, and no matrix over the clients is made."""
        return self.greedy == "stochastic" and fed.N > MANY

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        check_choices(self, "divfl", gradients=("one_step", "previous"), greedy=("lazy", "stochastic"))
        if self.candidates and self.greedy == "lazy":
            raise ValueError(
                "sampler 'divfl': candidates needs greedy: stochastic; set it, or leave candidates out."
            )
        if self.gradients == "previous":
            self.D = np.zeros((fed.N, fed.d), np.float32) if self.sparse(fed) else np.zeros((fed.N, fed.N))

    def select(self, round: Round) -> Asking:
        question = Gradients if self.gradients == "one_step" else Updates
        A, G = round.answered(round.available, (yield question(round.available)))
        if not len(A):
            return Selection(round.rng.choice(round.available, round.m, replace=False))
        m, sparse = min(round.m, len(A)), self.sparse(self.fed)
        new = G if sparse else distances(G)
        if self.gradients == "previous":
            latest, places = self.D.copy(), A if sparse else np.ix_(A, A)
            latest[places] = new
            new, self.D = self.D[places], latest
        if self.greedy == "lazy":
            return Selection(A[lazy_greedy(new, m)])
        D = RowsApart(new) if sparse else new
        return Selection(A[stochastic_greedy(D, m, round.rng, self.candidates)])


def distances(G: np.ndarray) -> np.ndarray:
    """Euclidean distances between the rows of G (N, d) -> (N, N) float64, with zero diagonal.

    Computed from the inner products of the rows, summed in float64: exact to about 1e-8 of the norms.
    """
    if len(G) > MANY:
        whole = G.astype(float)
        whole[~np.isfinite(np.vecdot(whole, whole))] = 0
        D = whole @ whole.T  # of so many rows BLAS makes better use
    else:
        from fedlib.kernels.products import products  # here: importing Numba takes a second

        D, *_ = products(G, G, float)
        broken = ~np.isfinite(D.diagonal())
        D[broken] = D[:, broken] = 0
    squares = D.diagonal().copy()
    for rows, mine in zip(blocks(D), blocks(squares), strict=True):
        rows[:] = np.sqrt(np.maximum(mine[:, None] + squares - 2 * rows, 0))
    np.fill_diagonal(D, 0)
    return D


def blocks(rows: np.ndarray) -> list[np.ndarray]:
    """Views of a few rows each, so that what is computed of them stays in the cache."""
    return [rows[start : start + 16] for start in range(0, len(rows), 16)]


def gain(row: np.ndarray, nearest: np.ndarray) -> float:
    """How much a client lowers the objective. row (N,): its distances; nearest (N,): those to the nearest chosen."""
    return float(np.maximum(nearest - row, 0).sum())


def lazy_greedy(D: np.ndarray, m: int) -> np.ndarray:
    """Greedy choice of m clients from the symmetric distances D (N, N) -> (m,) in the order of choice.

    Gains only fall as clients are chosen, so an old gain is an upper bound. The best client is found when its updated
    gain is no less than the old gains of all others (Minoux 1978).
    """
    first = int(D.sum(axis=1).argmin())
    chosen, nearest = [first], D[first]
    gains = np.concatenate([np.maximum(nearest - rows, 0).sum(axis=1) for rows in blocks(D)])
    bounds = [(-g, k) for k, g in enumerate(gains.tolist()) if k != first]
    heapq.heapify(bounds)
    while len(chosen) < m:
        k = heapq.heappop(bounds)[1]
        renewed = (-gain(D[k], nearest), k)
        if bounds and renewed > bounds[0]:
            heapq.heappush(bounds, renewed)
            continue
        chosen.append(k)
        nearest = np.minimum(nearest, D[k])
    return np.array(chosen)


def stochastic_greedy(
    D: np.ndarray | RowsApart, m: int, rng: np.random.Generator, candidates: int | None = None
) -> np.ndarray:
    """Greedy choice among some random remaining clients at each step -> (m,) in the order of choice.

    D: the distances (N, N). candidates: how many are looked at in a step; None for max(m, floor(0.1 N)).
    """
    remaining, size = np.arange(len(D)), candidates or max(m, len(D) // 10)
    nearest, chosen = np.full(len(D), np.inf), []
    for _ in range(m):
        ids = rng.choice(remaining, min(len(remaining), size), replace=False)
        k, row = best_of(D, nearest, ids)
        chosen.append(k)
        nearest = np.minimum(nearest, row)
        remaining = remaining[remaining != k]
    return np.array(chosen)


def best_of(D: np.ndarray | RowsApart, nearest: np.ndarray, candidates: np.ndarray) -> tuple[int, np.ndarray]:
    """The candidate that, added to the chosen clients, gives the lowest objective, and its row of D.

    The first one in case of ties.
    """
    best = (np.inf, -1, nearest)
    for part in np.split(candidates, range(BLOCK, len(candidates), BLOCK)):
        rows = D[part]
        objective = np.minimum(rows, nearest).sum(axis=1)
        if best[1] < 0 or objective.min() < best[0]:
            i = int(objective.argmin())
            best = (objective[i], int(part[i]), rows[i])
    return best[1:]


class RowsApart:
    """The Euclidean distances between the rows of G (N, d), computed in float64 for the rows that are asked for."""

    def __init__(self, G: np.ndarray) -> None:
        self.G, self.finite = G, np.isfinite(np.vecdot(G, G))
        self.squares = np.concatenate(
            [np.vecdot(part, part) for part in map(self._block, range(0, len(G), WIDTH))]
        )

    def __len__(self) -> int:
        return len(self.G)

    def __getitem__(self, clients: np.ndarray) -> np.ndarray:
        """(n, N) of the clients (n,)."""
        rows = self._clean(clients)
        inner = np.hstack([rows @ self._block(start).T for start in range(0, len(self), WIDTH)])
        D = np.sqrt(np.maximum(self.squares[clients][:, None] + self.squares - 2 * inner, 0))
        D[np.arange(len(clients)), clients] = 0
        return D

    def _block(self, start: int) -> np.ndarray:
        return self._clean(slice(start, start + WIDTH))

    def _clean(self, rows: slice | np.ndarray) -> np.ndarray:
        """Rows of G in float64, zeros where one is not finite."""
        part = self.G[rows].astype(float)
        part[~self.finite[rows]] = 0
        return part
