"""DivFL: clients whose gradients best represent those of all clients, a facility-location problem solved greedily.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes, "Diverse Client Selection for Federated Learning via
Submodular Maximization", ICLR 2022, as HiCS-FL uses it as a baseline.

HiCS-FL's code differs from the paper; the settings `gradients` and `greedy` choose between them:
1. The paper takes 1-step gradients at the current model ("one_step", the default). The code takes the full local
   updates of all N clients from the previous round ("previous"), and zeros in the first round.
2. At each step, the code takes the best of a random subset of max(m, floor(0.1 N)) clients ("stochastic").
In both, aggregation is the plain mean, as in HiCS-FL (DivFL weights a client by how many clients it represents). Ties
go to the lowest id. A non-finite gradient counts as zero.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedlib.samplers.base import Asking, Federation, Gradients, Round, Sampler, Selection, Updates, register


@register("divfl", revision=0)
@dataclass
class DivFL(Sampler):
    """Choose m clients that greedily minimise sum_k min_{i chosen} |g_k - g_i|.

    Raises:
        ValueError: an unknown `gradients` or `greedy`.
    """

    asks = frozenset({Gradients, Updates})
    gradients: Literal["one_step", "previous"] = "one_step"
    greedy: Literal["lazy", "stochastic"] = "lazy"

    def needed(self, fed: Federation) -> int:
        return fed.N**2

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        known = {"gradients": ("one_step", "previous"), "greedy": ("lazy", "stochastic")}
        for key, options in known.items():
            if getattr(self, key) not in options:
                raise ValueError(
                    f"sampler 'divfl': {key} is {getattr(self, key)!r}; it must be {' or '.join(options)}."
                )
        if self.gradients == "previous":
            self.D = np.zeros((fed.N, fed.N))

    def select(self, round: Round) -> Asking:
        question = Gradients if self.gradients == "one_step" else Updates
        A, G = round.answered(round.available, (yield question(round.available)))
        if not len(A):
            return Selection(round.rng.choice(round.available, round.m, replace=False))
        D, m = distances(G), min(round.m, len(A))
        if self.gradients == "previous":
            known, pairs = self.D.copy(), np.ix_(A, A)
            known[pairs] = D
            D, self.D = self.D[pairs], known
        return Selection(
            A[lazy_greedy(D, m) if self.greedy == "lazy" else stochastic_greedy(D, m, round.rng)]
        )


def distances(G: np.ndarray) -> np.ndarray:
    """Euclidean distances between the rows of G (N, d) -> (N, N) float64, with zero diagonal.

    Computed from the inner products of the rows, summed in float64: exact to about 1e-8 of the norms.
    """
    from fedlib.kernels.products import products  # here: importing Numba takes a second

    inner, *_ = products(G, G, float)
    broken = ~np.isfinite(inner.diagonal())
    inner[broken] = inner[:, broken] = 0
    squares = inner.diagonal()
    D = np.sqrt(np.maximum(squares[:, None] + squares - 2 * inner, 0))
    np.fill_diagonal(D, 0)
    return D


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
    bounds = [(-g, k) for k, g in enumerate(np.maximum(nearest - D, 0).sum(axis=1).tolist()) if k != first]
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


def stochastic_greedy(D: np.ndarray, m: int, rng: np.random.Generator) -> np.ndarray:
    """Greedy choice among max(m, floor(0.1 N)) random remaining clients at each step -> (m,) in the order of choice."""
    left = np.arange(len(D))
    nearest, chosen = np.full(len(D), np.inf), []
    for _ in range(m):
        candidates = rng.choice(left, min(len(left), max(m, len(D) // 10)), replace=False)
        k = best_of(D, nearest, candidates)
        chosen.append(k)
        nearest = np.minimum(nearest, D[k])
        left = left[left != k]
    return np.array(chosen)


def best_of(D: np.ndarray, nearest: np.ndarray, candidates: np.ndarray) -> int:
    """The candidate that, added to the chosen clients, gives the lowest objective; the first one in case of ties."""
    return int(candidates[np.minimum(D[candidates], nearest).sum(axis=1).argmin()])
