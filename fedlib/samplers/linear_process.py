"""FedCor's Gaussian process for many clients, without any matrix over them: its kernel X'X + sigma_n^2 I is linear.

With the embeddings X (d, N) and A = X X' + sigma_n^2 I (d, d), the inverse of the covariance is
(I - X' A^-1 X) / sigma_n^2 (Woodbury), and its determinant is |A| sigma_n^(2 (N - d)). Everything is exact; only the
rounding differs from `fedcor.py`. A round takes time in proportion to N d (d + m).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def choose(X: np.ndarray, sigma_n: float, p: np.ndarray, alpha: np.ndarray, m: int) -> np.ndarray:
    """`fedcor.choose` for Sigma = X'X + sigma_n^2 I -> (m,) clients in order. X: (d, N); p, alpha: (N,)."""
    N = X.shape[1]
    share = (X @ p) @ X + sigma_n**2 * p  # p Sigma
    variance = (X**2).sum(axis=0) + sigma_n**2  # the diagonal of Sigma
    remaining, chosen = np.ones(N, dtype=bool), np.zeros(m, dtype=int)
    columns = np.zeros((m, N))  # of each choice in the covariance that it met, over the root of its variance
    for i in range(m):
        score = alpha * share / np.sqrt(np.maximum(variance, 1e-12))
        chosen[i] = k = int(np.where(remaining, score, -np.inf).argmax())
        remaining[k] = False
        column = X[:, k] @ X - columns[:i, k] @ columns[:i]
        column[k] += sigma_n**2
        columns[i] = column / math.sqrt(max(column[k], 1e-12))
        share = share - columns[i] * (share[k] / math.sqrt(max(column[k], 1e-12)))
        variance = variance - columns[i] ** 2
    return chosen


class LinearProcess:
    """N(mean, X'X + sigma_n^2 I) at all clients. X: (d, N) float64; mean: (N,)."""

    def __init__(self, X: Tensor, mean: Tensor, sigma_n: float) -> None:
        import torch

        self.X = X.clone()  # a step of training may change X in place
        self.mean, self.noise = mean, sigma_n**2
        self.factor = torch.linalg.cholesky(X @ X.mT + self.noise * torch.eye(len(X), dtype=X.dtype))
        self.solved = torch.cholesky_solve(X, self.factor)  # A^-1 X, (d, N)

    def times_precision(self, values: Tensor) -> Tensor:
        """Values less the mean, times the inverse of the covariance; (S, N) -> (S, N)."""
        residual = values - self.mean
        return (residual - (residual @ self.X.mT) @ self.solved) / self.noise

    def log_likelihood(self, values: Tensor) -> Tensor:
        """`fedcor.log_likelihood`; values (S, N) -> (S,)."""
        (d, N), residual = self.X.shape, values - self.mean
        determinant = 2 * self.factor.diagonal().log().sum() + (N - d) * math.log(self.noise)
        square = (residual * self.times_precision(values)).sum(-1)
        return -(square + determinant + N * math.log(2 * math.pi)) / 2

    def log_likelihood_gradient(self, values: Tensor, weights: Tensor) -> Tensor:
        """`fedcor.log_likelihood_gradient`; values (S, N), weights (S,) -> (d, N)."""
        scaled = self.times_precision(values)
        return (self.X @ (weights * scaled.mT)) @ scaled - weights.sum() * self.solved

    def log_leave_one_out(self, values: Tensor, clients: int) -> Tensor:
        """`fedcor.log_leave_one_out`; values (S, N) -> (S,)."""
        from torch.distributions import Normal

        first = slice(clients)
        variance = self.noise / (1 - (self.X[:, first] * self.solved[:, first]).sum(0))
        mean = values[:, first] - self.times_precision(values)[:, first] * variance
        return Normal(mean, variance.sqrt()).log_prob(values[:, first]).sum(-1)
