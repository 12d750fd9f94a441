"""FedCor's theory in the paper's own terms: Algorithm 1 as printed, Lemma 2, and data with known groups.

Tang et al., CVPR 2022, equations 8-13; used by the theory notebook and the tests. The sampler has its own closed form.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedlib.samplers.fedcor import Likelihood, covariance, train


class Problem(NamedTuple):
    """One selection problem. mu, p: (N,); Sigma: (N, N); alpha: (N,) = a beta^tau."""

    mu: np.ndarray
    Sigma: np.ndarray
    p: np.ndarray
    alpha: np.ndarray


def random_problem(rng: np.random.Generator) -> Problem:
    """N of 5 to 39 clients, a covariance of low rank plus jitter, random shares, counts, beta, mean and scale a."""
    N = int(rng.integers(5, 40))
    X = rng.normal(size=(int(rng.integers(2, 16)), N)) * 10 ** rng.uniform(-1, 1)
    alpha = 10 ** rng.uniform(-1, 1) * rng.uniform(0.5, 1) ** rng.integers(0, 6, N)
    return Problem(rng.normal(size=N), covariance(X, 0.01), rng.dirichlet(np.ones(N)), alpha)


def algorithm_1(problem: Problem, C: int) -> list[int]:
    """The C clients of Algorithm 1, equations 9-11 as printed: predict, compare, condition mean and covariance."""
    mu, Sigma, p, alpha = problem
    remaining = np.arange(len(p))
    chosen: list[int] = []
    for _ in range(C):
        variance = Sigma[remaining, remaining]
        fall = alpha[remaining] * np.sqrt(variance)
        best = int(np.argmin(p @ mu - p @ Sigma[:, remaining] / variance * fall))
        k = remaining[best]
        mu = mu - Sigma[:, k] / variance[best] * fall[best]
        Sigma = Sigma - np.outer(Sigma[:, k], Sigma[k]) / variance[best]
        remaining = np.delete(remaining, best)
        chosen.append(int(k))
    return chosen


def lemma_2(problem: Problem) -> list[int]:
    """The two clients of equations 12 and 13, from sigma_k and the correlations r_ij."""
    _, Sigma, p, alpha = problem
    sigma = np.sqrt(Sigma.diagonal())
    r = Sigma / np.outer(sigma, sigma)
    A = (p * sigma) @ r
    k1 = int(np.argmax(alpha * A))
    rest = np.arange(len(p)) != k1
    second = np.full(len(p), -np.inf)
    second[rest] = (alpha * (A - r[k1] * A[k1]))[rest] / np.sqrt(1 - r[k1, rest] ** 2)
    return [k1, int(np.argmax(second))]


def choose_as_2022(X: np.ndarray, sigma_n: float, p: np.ndarray, alpha: np.ndarray, C: int) -> list[int]:
    """The selection of the code of 2022: noise-free Sigma = X'X, sigma_n^2 in the denominators only."""
    Sigma = X.T @ X
    chosen: list[int] = []
    for _ in range(C):
        variance = np.maximum(Sigma.diagonal(), 0)
        score = alpha * (p @ Sigma) * np.sqrt(variance) / (variance + sigma_n**2)
        score[chosen] = -np.inf
        k = int(np.argmax(score))
        chosen.append(k)
        Sigma = Sigma - np.outer(Sigma[:, k], Sigma[k]) / (variance[k] + sigma_n**2)
    return chosen


def grouped_changes(rng: np.random.Generator, N: int, groups: int, S: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss changes (S, N) that clients of one group share up to noise, and the groups (N,)."""
    group = np.arange(N) % groups
    return rng.normal(size=(S, groups))[:, group] + 0.3 * rng.normal(size=(S, N)), group


def recovery(X: np.ndarray, group: np.ndarray) -> tuple[float, float]:
    """How well embeddings X (d, N) separate the groups: mean cosine within groups, leave-one-out 1-NN accuracy."""
    unit = X / np.linalg.norm(X, axis=0)
    cosine = unit.T @ unit - 2 * np.eye(len(group))
    alike = (group[:, None] == group) & ~np.eye(len(group), dtype=bool)
    return float(cosine[alike].mean()), float((group[cosine.argmax(axis=1)] == group).mean())


def recovered(
    seed: int, likelihood: Likelihood, N: int = 40, groups: int = 8, S: int = 16
) -> tuple[float, float]:
    """`recovery` of embeddings trained for 300 iterations on S grouped samples with a likelihood of the sampler."""
    rng = np.random.default_rng(seed)
    changes, group = grouped_changes(rng, N, groups, S)
    X = rng.normal(size=(15, N)) / np.sqrt(15)
    X, _ = train(X, changes, np.ones(S), np.zeros(N), 0.01, 300, likelihood)
    return recovery(X, group)
