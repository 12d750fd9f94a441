"""HCSFed's theory in numbers: exact variances of its selection schemes, and the effect of its parts as printed.

Song et al., UAI 2023, section 4.1; used by the theory notebook. A scheme draws m_h clients of each cluster h with
replacement, with probabilities p within the cluster. Clients have equal weight 1 / N and fixed updates G (N, d). The
estimate weights a draw by 1 / (N m_h p_k), unless it is the plain mean of the draws. m_h may be any positive real
number, as in the theory.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.datasets import load_digits

from fedlib.data.partition import make
from fedlib.data.schemes.dirichlet import DirichletClients
from fedlib.samplers import Federation, Sampler, Selection, Updates, answered
from fedlib.samplers.hcsfed import allocate


def ask(sampler: Sampler, G: np.ndarray, m: int, rng: np.random.Generator, T: int = 100) -> Selection:
    """The clients that a sampler selects out of N of equal size; updates G (N, d) answer all its questions."""
    N, d = G.shape
    sizes = np.full(N, 100)
    nothing = slice(d, d)
    fed = Federation(sizes, np.full((N, 1), 100), m, T, d, nothing, nothing)
    sampler.setup(fed, rng)

    def answer(question: Any) -> np.ndarray:
        updates = G[question.clients]
        return question.encode(updates) if isinstance(question, Updates) else updates

    return answered(sampler.select(fed.round(1, rng)), answer)


class Population(NamedTuple):
    """Updates G (N, d), the number of each client's cluster (N,), and the cluster sizes (H,)."""

    G: np.ndarray
    labels: np.ndarray
    sizes: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.G.mean(axis=0)

    def members(self, h: int) -> np.ndarray:
        return self.G[self.labels == h]

    @property
    def means(self) -> np.ndarray:
        """W_h (H, d)."""
        return np.array([self.members(h).mean(axis=0) for h in range(len(self.sizes))])

    @property
    def sigma(self) -> np.ndarray:
        """sigma_h (H,), divisor N_h."""
        parts = [self.members(h) for h in range(len(self.sizes))]
        return np.array([np.sqrt(square(part - part.mean(axis=0)).mean()) for part in parts])

    def by_norm(self, noise: np.ndarray | float = 1.0) -> np.ndarray:
        """(N,) equation 6: probabilities within each cluster, proportional to the norms times `noise`."""
        norms = np.linalg.norm(self.G, axis=1) * noise
        return norms / np.bincount(self.labels, norms)[self.labels]

    def uniform(self) -> np.ndarray:
        """(N,) equation 4: 1 / N_h."""
        return 1 / self.sizes[self.labels]


def square(x: np.ndarray) -> np.ndarray:
    """Squared norms along the last axis."""
    return np.sum(np.square(x), axis=-1)


def random_population(rng: np.random.Generator, N: int = 100, H: int = 6, d: int = 5) -> Population:
    """Clusters of unequal size, centre and spread, each with at least two members."""
    labels = np.concatenate(
        [np.arange(H), np.arange(H), rng.choice(H, N - 2 * H, p=rng.dirichlet(np.ones(H)))]
    )
    centres, spread = rng.normal(size=(H, d)), rng.lognormal(0, 1, H)
    G = centres[labels] + spread[labels, None] * rng.normal(size=(N, d))
    return Population(G, labels, np.bincount(labels))


def random_variance(pop: Population, m: float) -> float:
    """V_rand of m independent uniform draws."""
    return float(square(pop.G - pop.mean).mean() / m)


def variance(pop: Population, m_h: np.ndarray, p: np.ndarray) -> float:
    """V of the unbiased estimate sum_h (1 / m_h) sum_draws G_k / (N p_k)."""
    N = len(pop.G)
    single = np.bincount(pop.labels, square(pop.G) / (N**2 * p)) - square(pop.means) * (pop.sizes / N) ** 2
    return float((single / m_h).sum())


def plain(pop: Population, m: float) -> np.ndarray:
    """m_h = m N_h / N."""
    return m * pop.sizes / pop.sizes.sum()


def neyman(pop: Population, m: float, S: np.ndarray) -> np.ndarray:
    """Equation 5: m_h = m N_h S_h / sum N_h S_h."""
    return m * pop.sizes * S / (pop.sizes @ S)


SCHEMES = (
    "random",
    "clusters",
    "re-allocation",
    "HCSFed",
)  # Theorem 1, from the largest variance to the smallest


def variances(pop: Population, m: float) -> dict[str, float]:
    """The variances of Theorem 1, by `SCHEMES`, with S_h = sigma_h and the norms of the updates themselves."""
    places = neyman(pop, m, pop.sigma)
    values = (
        random_variance(pop, m),
        variance(pop, plain(pop, m), pop.uniform()),
        variance(pop, places, pop.uniform()),
        variance(pop, places, pop.by_norm()),
    )
    return dict(zip(SCHEMES, values, strict=True))


def without_replacement(pop: Population, m: float) -> tuple[float, float]:
    """V_rand and V_cluster (plain allocation) of draws without replacement."""
    N, share = len(pop.G), m / len(pop.G)
    rand = (1 - share) / m * square(pop.G - pop.mean).sum() / (N - 1)
    S2 = pop.sigma**2 * pop.sizes / (pop.sizes - 1)
    cluster = (1 - share) * ((pop.sizes / N) ** 2 * S2 / plain(pop, m)).sum()
    return float(rand), float(cluster)


def mean_error(pop: Population, m_h: np.ndarray, p: np.ndarray) -> float:
    """Mean squared error of the plain mean of the draws (equation 3), bias included; m_h whole numbers, 0 allowed."""
    m = m_h.sum()
    H = len(pop.sizes)
    first = np.array([np.bincount(pop.labels, p * x, minlength=H) for x in pop.G.T]).T
    second = np.bincount(pop.labels, p * square(pop.G), minlength=H)
    bias = m_h @ first / m - pop.mean
    return float(square(bias) + (m_h * (second - square(first))).sum() / m**2)


def equation_7(pop: Population, m: float) -> float:
    """V_rand - V_cluster - sum_h N_h ||W_h - W||^2 / (m N)."""
    term = pop.sizes @ square(pop.means - pop.mean) / (m * len(pop.G))
    return random_variance(pop, m) - variance(pop, plain(pop, m), pop.uniform()) - term


def equation_8(pop: Population, m: float, S_h: np.ndarray, S: float) -> float:
    """V_cluster - V_cludiv - sum_h N_h (S_h - S)^2 / (m N), with the places of equation 5 for S_h."""
    term = pop.sizes @ (S_h - S) ** 2 / (m * len(pop.G))
    cluster = variance(pop, plain(pop, m), pop.uniform())
    return cluster - variance(pop, neyman(pop, m, S_h), pop.uniform()) - term


def equation_9_terms(pop: Population) -> np.ndarray:
    """(H,) the printed gain of each cluster: (sum ||G_i||)^2 / N_h * sum (I_i - 1 / N_h)^2."""
    norms, share = np.linalg.norm(pop.G, axis=1), pop.by_norm()
    total = np.bincount(pop.labels, norms)
    return total**2 / pop.sizes * np.bincount(pop.labels, (share - pop.uniform()) ** 2)


def one_draw(pop: Population, p: np.ndarray) -> np.ndarray:
    """(H,) variance of one draw in each cluster, weighted by 1 / (N_h p_k)."""
    return np.bincount(pop.labels, square(pop.G) / (pop.sizes[pop.labels] ** 2 * p)) - square(pop.means)


def aggregation_errors(pop: Population, m: int) -> dict[str, float]:
    """Mean squared error relative to random selection: HCSFed's rounded places and norms, with mean and with IPW."""
    random = random_variance(pop, m)
    deviations = pop.sigma * np.sqrt(pop.sizes / (pop.sizes - 1))
    p = pop.by_norm()
    printed = allocate(pop.sizes, 2 * deviations**2, m, at_least_one=False)
    remainders = allocate(pop.sizes, deviations, m, at_least_one=False)
    repaired = allocate(pop.sizes, deviations, m, at_least_one=True)
    return {
        "HCSFed as printed, mean": mean_error(pop, printed, p) / random,
        "sigma_h, largest remainders, mean": mean_error(pop, remainders, p) / random,
        "sigma_h, one place each, mean": mean_error(pop, repaired, p) / random,
        "sigma_h, one place each, IPW": variance(pop, repaired, p) / random,
        "plain clusters, one place each, IPW": variance(
            pop, allocate(pop.sizes, np.ones(len(pop.sizes)), m, at_least_one=True), pop.uniform()
        )
        / random,
    }


def algorithm_1(X: np.ndarray, H: int, rng: np.random.Generator) -> tuple[list[int], float, float]:
    """Algorithm 1's loop, whose sets are never emptied, until its centres stop moving.

    Returns the number of memberships after each pass (there are N clients), and the sum of squared distances to the
    nearest centre after one pass, where the printed test stops, and at the end.
    """
    centres = X[rng.choice(len(X), H, replace=False)]
    members: list[list[int]] = [[] for _ in range(H)]
    counts, errors = [], []
    while True:
        distance = square(X[:, None] - centres)
        for k, h in enumerate(distance.argmin(axis=1)):
            if k not in members[h]:
                members[h].append(k)
        new = np.array(
            [X[group].mean(axis=0) if group else c for group, c in zip(members, centres, strict=True)]
        )
        counts.append(sum(map(len, members)))
        errors.append(float(square(X[:, None] - new).min(axis=1).sum()))
        if (new == centres).all():
            return counts, errors[0], errors[-1]
        centres = new


def digits_updates(alpha: float, rounds: int, N: int = 50, seed: int = 0) -> np.ndarray:
    """Updates (N, 650) of logistic regression on scikit-learn's digits, after `rounds` rounds of full participation.

    Clients have 40 samples with label shares from Dir(alpha) and take 20 SGD steps of batch 10 at rate 0.05.
    """
    x, y = load_digits(return_X_y=True)
    x = np.hstack([x / 16, np.ones((len(x), 1))])
    spec = DirichletClients(scheme="dirichlet_clients", alpha=alpha, sizes=[(N, 40)])
    parts = make(spec, SimpleNamespace(y_train=y, y_test=y), N, seed).train
    rng = np.random.default_rng(seed)
    model = np.zeros((x.shape[1], 10))
    for _ in range(rounds + 1):
        local = np.tile(model, (N, 1, 1))
        for _ in range(20):
            batch = np.array([rng.choice(part, 10, replace=False) for part in parts])
            error = softmax(x[batch] @ local, axis=2) - np.eye(10)[y[batch]]
            local -= 0.05 / 10 * x[batch].transpose(0, 2, 1) @ error
        G = (local - model).reshape(N, -1)
        model = local.mean(axis=0)
    return G


def relative_error(sampler: Sampler, G: np.ndarray, m: int, rng: np.random.Generator, times: int) -> float:
    """Mean squared error of a sampler's aggregated update (clients of equal size) relative to m uniform draws."""
    errors = []
    for _ in range(times):
        chosen = ask(sampler, G.astype(np.float32), m, rng)
        if sampler.aggregation == "ipw":
            assert chosen.expected is not None
            estimate = (1 / (len(G) * chosen.expected)) @ G[chosen.clients]
        else:
            estimate = G[chosen.clients].mean(axis=0)
        errors.append(square(estimate - G.mean(axis=0)))
    N = len(G)
    random = square(G - G.mean(axis=0)).sum() / (N - 1) * (1 - m / N) / m  # of m distinct clients
    return float(np.mean(errors) / random)
