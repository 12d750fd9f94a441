"""FedCor: client selection with a Gaussian process over the clients' loss changes.

Tang, Ning, Wang, Sun, Wang, Li, Chen, "FedCor: Correlation-Based Active Client Selection Strategy for
Heterogeneous Federated Learning", CVPR 2022. This module implements the posterior selection (Algorithm 1, equations
9-11) and its schedule (Algorithm 2, equations 14-17). GPyTorch provides the process, its likelihood and its posterior,
in float64. The gradient of the likelihood is computed in closed form.

Where the paper leaves a choice open or the authors' code differs (e is the 0-based round, t - 1):
1. Sigma = X'X + sigma_n^2 I. The paper has no sigma_n, but without it more than d choices divide by zero. The code
   of 2022 adds it only to the denominators of the selection. The choices agree where sigma_k is at least thirty
   times sigma_n, as in trained embeddings (about 1.4).
2. Rounds 0..warmup choose uniformly: one round more than the paper states, as in the code.
3. The paper weights an older sample by gamma^(age in updates) and states neither gamma nor M. There are two schedules:
   "2022" follows the code nearest to publication, with the paper's mu = 0. The first sample is taken in round
   `gpr_begin` (at the end of a shorter warm-up). Training takes 150 iterations in each warm-up round and 100 at each
   update. During the warm-up it uses the last M dt + 1 samples, weighted gamma^age; later the last M + 1 samples,
   weighted gamma^(dt age). The code's default of `gpr_begin` was 10; in November 2022 the authors set it to 0, as in
   the paper's text. With 10, their code also anneals alpha in rounds 0 to 9, which is left out here.
   "head" follows the README of 2023. Samples are taken from round 0. Training takes 1000 iterations once, at the end
   of the warm-up, and 100 at each update. It uses the samples of the last `window` rounds, weighted
   gamma^(age in rounds), and their weighted mean as the prior mean.
4. In an update round the code selects first, then resets alpha and trains; the paper updates first. The difference is
   a shift by one round. We follow the code.
5. mu and the scale of alpha never influence the choice (the theory notebook shows it), so neither is kept.
6. A sample with a non-finite value is ignored.
7. Where clients are absent (the paper does not say), the choice is among the available ones, and a sample takes the
   mean loss change of the others for a client that was absent.
HiCS-FL's code of this baseline differs in three ways. Its sample is the loss change of the update round itself (probe
"own"). It draws by p_k wherever it draws at random. It fits the likelihood of client 0 alone (likelihood
"loo_upstream": a leave-one-out sum over as many clients as there are samples, which is one).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from fedlib.kernels.threads import one_thread
from fedlib.samplers import linear_process
from fedlib.samplers.base import (
    Asking,
    Count,
    Federation,
    Losses,
    Positive,
    Report,
    Round,
    Sampler,
    Selection,
    Share,
    TrialLosses,
    Whole,
    register,
)
from fedlib.samplers.checks import check_choices
from fedlib.samplers.linear_process import LinearProcess
from fedlib.samplers.weighted import draw_distinct, log

if TYPE_CHECKING:
    import torch
    from gpytorch.distributions import MultivariateNormal
    from gpytorch.kernels import Kernel

Likelihood = Literal["mml", "loo_upstream"]


class Schedule(NamedTuple):
    """begin: 0-based round of the first sample. warmup, later: iterations of each training in and after the warm-up."""

    begin: int
    warmup: int
    later: int


MANY = 500  # clients beyond which no matrix over them is made (`linear_process.py`), and nothing of each is noted
SCHEDULES = {"2022": Schedule(10, 150, 100), "head": Schedule(0, 1000, 100)}


@register("fedcor", revision=0)
@dataclass
class FedCor(Sampler):
    """FedCor. Defaults: the paper's FMNIST settings; CIFAR-10 has warmup 20, dt 50, beta 0.9, gamma 0.97.

    warmup: last 0-based round of uniform selection.
    dt: rounds between updates of the process.
    beta: factor by which a client's alpha shrinks each time the client is selected.
    gamma: discount of older samples.
    M: number of older samples that an update re-uses.
    d: dimension of the clients' embeddings.
    sigma_n: standard deviation of the noise added to the process.
    schedule, likelihood, probe: see the module docstring.
    window: number of past rounds that schedule "head" uses.
    gpr_begin: 0-based round of the first sample; None for the schedule's own.

    Raises:
        ValueError: `schedule`, `likelihood` or `probe` is unknown.
    """

    asks = frozenset({Losses, TrialLosses})
    warmup: Whole = 15
    dt: Count = 10
    beta: Annotated[float, Field(gt=0, le=1)] = 0.95
    gamma: Share = 0.8
    M: Count = 1
    d: Annotated[int, Field(ge=1, le=10_000)] = 15
    sigma_n: Positive = 0.01
    schedule: Literal["2022", "head"] = "2022"
    window: Count = 100
    likelihood: Likelihood = "mml"
    probe: Literal["extra", "own"] = "extra"
    gpr_begin: Whole | None = None

    def needed(self, fed: Federation) -> int:
        return fed.N**2 if fed.N <= MANY else fed.N * (6 * self.d + fed.m)

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        choices = {"schedule": SCHEDULES, "likelihood": ("mml", "loo_upstream"), "probe": ("extra", "own")}
        check_choices(self, "fedcor", **choices)
        self.X = rng.standard_normal((self.d, fed.N)) / np.sqrt(self.d)
        self.alpha = np.ones(fed.N)
        self.changes, self.rounds = np.zeros((0, fed.N)), np.zeros(0, dtype=int)  # samples, oldest first
        self.losses, self.losses_at = np.zeros(fed.N), -1  # of all clients at the start of round `losses_at`

    def select(self, round: Round) -> Asking:
        fed, e = self.fed, round.t - 1
        A, m = round.available, round.m
        unknown = self.losses_at != e or not np.isfinite(self.losses[A]).all()
        if self.samples_itself(e) and unknown:
            self.losses, self.losses_at = self.of_all(A, (yield Losses(A))), e
        if e <= self.warmup or (self.probe == "own" and self.updates(e)):
            return Selection(self.at_random(round))
        if fed.N > MANY:
            return Selection(A[linear_process.choose(self.X[:, A], self.sigma_n, fed.p[A], self.alpha[A], m)])
        Sigma = covariance(self.X, self.sigma_n)[np.ix_(A, A)]
        clients = A[choose(Sigma, fed.p[A], self.alpha[A], m)]
        notes = {"alpha": np.round(self.alpha, 6).tolist()}
        if e == self.warmup + 1:
            notes["embedding"] = np.round(self.X.T, 6).tolist()
        return Selection(clients, notes=notes)

    def observe(self, round: Round, report: Report) -> Asking:
        fed, e, A = self.fed, round.t - 1, round.available
        if len(A) and self.samples_itself(e):
            after = self.of_all(A, (yield Losses(A)))
            change = after - self.losses
            self.losses, self.losses_at = after, e + 1
        elif len(A) and self.updates(e):
            before = self.of_all(A, (yield Losses(A)))
            change = self.of_all(A, (yield TrialLosses(self.at_random(round), A))) - before
        else:
            if e > self.warmup:
                chosen = np.isin(fed.everyone, report.clients)
                self.alpha = np.where(chosen, self.beta * self.alpha, self.alpha)
            return
        if e > self.warmup:
            self.alpha = np.ones(fed.N)
        if len(A) < fed.N or round.silent:
            finite = np.isfinite(change)
            change = np.where(finite, change, change[finite].mean() if finite.any() else np.nan)
        if np.isfinite(change).all():
            self.learn(e, change)

    def of_all(self, clients: np.ndarray, values: np.ndarray) -> np.ndarray:
        """(N,) the values (n,) of `clients`; NaN for the other clients."""
        full = np.full(self.fed.N, np.nan)
        full[clients] = values
        return full

    def updates(self, e: int) -> bool:
        """Whether round e, after the warm-up, updates the process."""
        return e > self.warmup and e % self.dt == 0

    def samples_itself(self, e: int) -> bool:
        """Whether the loss change that round e itself causes is a sample."""
        begin = SCHEDULES[self.schedule].begin if self.gpr_begin is None else self.gpr_begin
        return min(begin, self.warmup) <= e <= self.warmup or (self.probe == "own" and self.updates(e))

    def at_random(self, round: Round) -> np.ndarray:
        """(m,) distinct available clients: drawn by p_k with probe "own", uniformly otherwise."""
        if self.probe == "own":
            return round.available[draw_distinct(round.rng, log(self.fed.p[round.available]), round.m)]
        return round.rng.choice(round.available, round.m, replace=False)

    def learn(self, e: int, change: np.ndarray) -> None:
        """Add the sample `change` (N,) of round e and train the embedding on the retained samples."""
        rounds, changes = np.append(self.rounds, e), np.vstack([self.changes, change])
        keep, weights = retained(rounds, e, self)
        self.rounds, self.changes = rounds[keep], changes[keep]
        if self.schedule == "head" and e < self.warmup:
            return
        mean = weights @ self.changes / weights.sum() if self.schedule == "head" else np.zeros(self.fed.N)
        plan = SCHEDULES[self.schedule]
        iterations = plan.warmup if e <= self.warmup else plan.later
        X, _ = train(self.X, self.changes, weights, mean, self.sigma_n, iterations, self.likelihood)
        if np.isfinite(X).all():
            self.X = X


def retained(rounds: np.ndarray, e: int, by: FedCor) -> tuple[np.ndarray, np.ndarray]:
    """Which samples are kept in round e. rounds (S,): of the samples, oldest first -> indices (n,), weights (n,)."""
    age = np.arange(len(rounds))[::-1]
    if by.schedule == "head":
        keep = np.flatnonzero(rounds >= e - by.window)
        return keep, by.gamma ** (e - rounds[keep]).astype(float)
    keep = np.flatnonzero(age <= (by.M * by.dt if e <= by.warmup else by.M))
    step = 1 if e <= by.warmup else by.dt
    return keep, by.gamma ** (step * age[keep]).astype(float)


def covariance(X: np.ndarray, sigma_n: float) -> np.ndarray:
    """Sigma (N, N) = X'X + sigma_n^2 I, from the embeddings X (d, N)."""
    return X.T @ X + sigma_n**2 * np.eye(X.shape[1])


def choose(Sigma: np.ndarray, p: np.ndarray, alpha: np.ndarray, m: int) -> np.ndarray:
    """Algorithm 1: choose m clients; each lowers the expected loss most, given those before -> (m,) in order.

    Sigma: (N, N); p, alpha: (N,). Each step takes argmax_k alpha_k (sum_i p_i Sigma_ik) / sqrt(Sigma_kk), and then
    conditions Sigma on the choice. Ties go to the lowest id; variances below 1e-12 count as 1e-12.
    """
    remaining = np.ones(len(p), dtype=bool)
    chosen = np.zeros(m, dtype=int)
    for i in range(m):
        chosen[i] = k = int(np.where(remaining, scores(Sigma, p, alpha), -np.inf).argmax())
        remaining[k] = False
        Sigma = condition(Sigma, k)
    return chosen


def scores(Sigma: np.ndarray, p: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """(N,) decrease of the expected loss if the loss of client k falls by alpha_k standard deviations (equation 10)."""
    return alpha * (p @ Sigma) / np.sqrt(np.maximum(Sigma.diagonal(), 1e-12))


def condition(Sigma: np.ndarray, k: int) -> np.ndarray:
    """Posterior covariance (N, N) once the loss change of client k is known (equation 11)."""
    return Sigma - np.outer(Sigma[:, k], Sigma[k]) / max(Sigma[k, k], 1e-12)


@cache
def linear_kernel() -> Kernel:
    """The homogeneous linear kernel x'y. It is created on first use, because importing GPyTorch takes seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # raised inside linear_operator
        from gpytorch.kernels import LinearKernel
    kernel = LinearKernel().double().requires_grad_(False)
    kernel.variance = 1.0
    return kernel


def prior(X: torch.Tensor, mean: torch.Tensor, sigma_n: float) -> MultivariateNormal:
    """The process at all clients: N(mean, X'X + sigma_n^2 I). X: (d, N) float64; mean: (N,)."""
    import torch

    kernel = linear_kernel()
    from gpytorch.distributions import MultivariateNormal

    noise = sigma_n**2 * torch.eye(X.shape[1], dtype=X.dtype)
    return MultivariateNormal(mean, kernel(X.mT).to_dense() + noise)


def log_likelihood(process: MultivariateNormal | LinearProcess, values: torch.Tensor) -> torch.Tensor:
    """Exact log marginal likelihood (equation 15) of each sample of loss changes; values (S, N) -> (S,)."""
    from gpytorch.settings import fast_computations

    if isinstance(process, LinearProcess):
        return process.log_likelihood(values)
    with fast_computations(log_prob=False):  # the Cholesky factor is already computed
        return process.log_prob(values)


def log_likelihood_gradient(
    process: MultivariateNormal | LinearProcess, values: torch.Tensor, weights: torch.Tensor, X: torch.Tensor
) -> torch.Tensor:
    """Gradient of weights (S,) @ log_likelihood with respect to X (d, N), the embeddings of the process -> (d, N).

    Closed form: Rasmussen and Williams 2006, equation 5.9. Differentiating the Cholesky factor takes three times as
    long.
    """
    if isinstance(process, LinearProcess):
        return process.log_likelihood_gradient(values, weights)
    precision = process.precision_matrix
    solved = (values - process.mean) @ precision
    return X @ ((weights * solved.mT) @ solved - weights.sum() * precision)


def log_leave_one_out(
    process: MultivariateNormal | LinearProcess, values: torch.Tensor, clients: int
) -> torch.Tensor:
    """Sum over the first `clients` clients of log p(own value | all other values); values (S, N) -> (S,)."""
    from torch.distributions import Normal

    if isinstance(process, LinearProcess):
        return process.log_leave_one_out(values, clients)
    precision = process.precision_matrix
    variance = 1 / precision.diagonal()
    mean = values - (values - process.mean) @ precision * variance
    return Normal(mean, variance.sqrt()).log_prob(values)[:, :clients].sum(-1)


def posterior(
    process: MultivariateNormal, observed: torch.Tensor, values: torch.Tensor
) -> MultivariateNormal:
    """The process given the values (n,) of the clients `observed` (n,), whose variances become 0."""
    from gpytorch.distributions import MultivariateNormal
    from linear_operator import to_linear_operator

    Sigma, mean = process.covariance_matrix, process.mean
    cross = Sigma[:, observed]
    gain = to_linear_operator(cross[observed]).solve(cross.mT).mT
    return MultivariateNormal(
        mean + gain @ (values - mean[observed]), to_linear_operator(Sigma - gain @ cross.mT)
    )


def train(
    X: np.ndarray,
    changes: np.ndarray,
    weights: np.ndarray,
    mean: np.ndarray,
    sigma_n: float,
    iterations: int,
    likelihood: Likelihood = "mml",
) -> tuple[np.ndarray, float]:
    """Train the embeddings, starting from X, with Adam (lr 0.01) on -sum_s weights_s log p(changes_s).

    X: (d, N); changes: (S, N); weights: (S,); mean: (N,).
    Returns the new X (d, N) and the objective before the last step.
    """
    import torch
    from gpytorch.settings import lazily_evaluate_kernels
    from torch.optim.adam import adam  # the class imports torch's compiler, which takes seconds

    embedding = torch.tensor(X, dtype=torch.float64, requires_grad=likelihood != "mml")
    values, w, mu = (torch.tensor(a, dtype=torch.float64) for a in (changes, weights, mean))
    moments, squares, step = torch.zeros_like(embedding), torch.zeros_like(embedding), torch.zeros(())
    settings: dict[str, Any] = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
    step_of_adam = partial(adam, amsgrad=False, maximize=False, **settings)
    objective, linear = torch.tensor(torch.nan), X.shape[1] > MANY
    with one_thread(), lazily_evaluate_kernels(False):  # each kernel matrix is needed in full
        for _ in range(iterations):
            process = LinearProcess(embedding, mu, sigma_n) if linear else prior(embedding, mu, sigma_n)
            if likelihood == "mml":
                gradient = -log_likelihood_gradient(process, values, w, embedding)
            else:
                objective = -(w @ log_leave_one_out(process, values, clients=1))
                (gradient,) = torch.autograd.grad(objective, embedding)
            with torch.no_grad():
                step_of_adam([embedding], [gradient], [moments], [squares], [], [step])
        if likelihood == "mml" and iterations:
            objective = -(w @ log_likelihood(process, values))
    return embedding.detach().numpy(), objective.item()
