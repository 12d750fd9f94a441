"""HiCS-FL: two-level sampling of clusters and clients by the label heterogeneity seen in the output layer's update.

Chen and Vikalo, "Accelerating Non-IID Federated Learning via Heterogeneity-Guided Client Sampling": the
estimate (equation 7), the distance (equation 9), the two-level sampling (equation 10) and Algorithm 1.

There are three variants. P is the paper as written, C the published code, C0 the code just before it. C differs from P:
1. The estimate uses the row means of the output weight's update instead of the bias update, and the angle is taken
   over weight and bias together (`estimate`: the better estimate with Adam, so P may use it too).
2. The warm-up takes floor(N / m) rounds over the clients in index order; the paper's takes ceil(N / m) in random order.
3. Where the partition mixes several alphas (`several_alphas`), only updates from the warm-up are kept.
4. If the variance of the estimates is 0.1 or more, clients are drawn by Algorithm 2 of Clustered Sampling on the
   distances of equation 9, and M and gamma play no part. C0 does this where the partition has one alpha.
   The paper mentions no such switch.
5. Clients are drawn uniformly in their cluster, and a full cluster is drawn again. In the paper, clients are drawn by
   p_k, and a client that was drawn already is drawn again.
6. gamma^t = gamma (T - t + 1) / T; the paper's is gamma (1 - t / T). Both are 0 beyond T.
Where clients are absent (the authors do not say), the clusters are those of the available clients. A warm-up round
takes the next clients of its order that are available, or, where none is left, draws as later rounds do; an update
never received is zero, which looks most balanced.
In all variants, Ward's tree takes the rows of the distance matrix as observations, as in the code (the paper does not
say); the softmax subtracts its maximum; and a non-finite update is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy  # its submodules load on first use

from fedlib.samplers.apart import Apart
from fedlib.samplers.base import (
    Count,
    Federation,
    NotNegative,
    Positive,
    Report,
    Round,
    Sampler,
    Selection,
    register,
)
from fedlib.samplers.checks import check_choices
from fedlib.samplers.clustered_sampling import MANY, angles, draw, similarity_distributions, ward_tree
from fedlib.samplers.weighted import draw_distinct, log

Estimate = Literal["bias", "weight"]


@register("hics_fl", revision=0)
@dataclass
class HiCSFL(Sampler):
    """HiCS-FL. Defaults: the paper's for FMNIST; CIFAR-10 and Mini-ImageNet have T_s 0.0015.

    variant: P, C0 or C; see the module docstring.
    T_s: temperature of the estimate.
    lam: the paper's lambda, the weight of the entropies' difference in the distance.
    M: number of clusters; None for m.
    gamma: the paper's gamma^0.
    horizon: rounds over which gamma falls to 0; None for T.
    estimate: None for the variant's own.
    within: how P draws in a cluster: by p_k or, as the code does, uniformly.
    several_alphas: whether the partition mixes concentrations. C and C0 read this from their settings.
    order: order of the clients in the warm-up; None for the variant's own. The code's index order is the order of the
        partition's alpha groups, which no server knows.
    refresh: whether updates are renewed after the warm-up; None for the variant's own.

    Raises:
        ValueError: `variant`, `estimate` or `within` is unknown, or the model has no known output layer.
    """

    asks = frozenset()
    needs = frozenset({"output layer"})
    reads = frozenset({"updates"})

    variant: Literal["P", "C0", "C"] = "P"
    T_s: Positive = 0.0025
    lam: NotNegative = 10.0
    M: Count | None = None
    gamma: NotNegative = 4.0
    horizon: Count | None = None
    estimate: Estimate | None = None
    within: Literal["share", "uniform"] = "share"
    several_alphas: bool = True
    order: Literal["index", "random"] | None = None
    refresh: bool | None = None

    fewer = True  # in the last round of the warm-up, where m does not divide N

    def needed(self, fed: Federation) -> int:
        return fed.N**2 if fed.N <= MANY else 3 * fed.N**2

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        check_choices(self, "hics_fl", variant=("P", "C0", "C"), within=("share", "uniform"))
        if self.estimate is not None:
            check_choices(self, "hics_fl", estimate=("bias", "weight"))
        if fed.output_bias is None:
            raise ValueError(
                "sampler 'hics_fl' reads the update of the output layer, but the model names none: set its attribute "
                "output_layer to the name of the torch.nn.Linear with bias that computes its scores."
            )
        at_random = self.paper if self.order is None else self.order == "random"
        self.warmup_order = rng.permutation(fed.N) if at_random else fed.everyone
        self.updates = np.zeros((fed.N, output_layer(np.zeros((1, fed.d)), fed, self.of).shape[1]))
        self.alike = Alike(self.updates) if fed.N > MANY else None

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "alike"}

    @property
    def draws(self) -> Literal["distinct", "repeated"]:  # ty: ignore[incompatible-property-override]  # by variant
        return "distinct" if self.paper else "repeated"  # Clustered Sampling draws independently

    @property
    def paper(self) -> bool:
        """Whether this is variant P, the paper as written."""
        return self.variant == "P"

    @property
    def of(self) -> Estimate:
        """The part of the update that the estimate uses."""
        return self.estimate or ("bias" if self.paper else "weight")

    def warming_up(self, t: int) -> bool:
        """Whether the 1-based round t belongs to the warm-up."""
        N, m = self.fed.N, self.fed.m
        return t <= (-(-N // m) if self.paper else N // m)

    def select(self, round: Round) -> Selection:
        fed, t, A, m = self.fed, round.t, round.available, round.m
        if self.warming_up(t) and len(left := self.warmup_order[np.isin(self.warmup_order, A)]):
            self.warmup_order = self.warmup_order[~np.isin(self.warmup_order, left[:m])]
            return Selection(left[:m])
        everyone = estimated_entropy(magnitudes(self.updates, fed.K, self.of), self.T_s)
        H, tree = everyone[A], tree_of_updates(self.alike, self.updates, everyone, self.lam, A)
        labels = cut(tree, self.M or m)
        notes = {"entropy": np.round(H, 6).tolist(), "clusters": labels.tolist()}
        T = self.horizon or fed.T
        if self.paper:
            pi = scipy.special.log_softmax(self.gamma * annealed(t, T) * cluster_means(H, labels))
            weight = fed.p[A] if self.within == "share" else np.ones(len(A))
            within = weight / np.bincount(labels, weight)[labels]
            return Selection(A[draw_distinct(round.rng, pi[labels] + log(within), m)], notes=notes)
        if self.hierarchical(H):
            pi = scipy.special.log_softmax(self.gamma * annealed(t - 1, T) * cluster_means(H, labels))
            drawn = draw_by_cluster(round.rng, pi, labels, m)
            return Selection(A[drawn], notes=notes | {"branch": "hierarchical"})
        r, _ = similarity_distributions(fed.sizes[A], m, tree, round.rng)
        return Selection(A[draw(r, round.rng)], notes=notes | {"branch": "clustered_sampling"})

    def hierarchical(self, H: np.ndarray) -> bool:
        """Which branch the code takes: True for the clusters of this module, False for Clustered Sampling."""
        return bool(H.var() < 0.1) if self.variant == "C" else self.several_alphas

    def observe(self, round: Round, report: Report) -> None:
        refresh = self.paper or not self.several_alphas if self.refresh is None else self.refresh
        if refresh or self.warming_up(round.t):
            self.updates = refreshed(self.updates, report, self.fed, self.of)


def output_layer(updates: np.ndarray, fed: Federation, of: Estimate) -> np.ndarray:
    """The part of full updates (n, d) that is kept: the output bias (n, K), or weight and bias (n, K L + K)."""
    bias = updates[:, fed.output_bias]
    return bias if of == "bias" else np.hstack([updates[:, fed.output_weight], bias])


def refreshed(kept: np.ndarray, report: Report, fed: Federation, of: Estimate) -> np.ndarray:
    """The kept updates (N, .), with the finite updates of the selected clients replaced by their new ones."""
    new, usable = kept.copy(), np.isfinite(report.updates).all(axis=1)
    new[report.clients[usable]] = output_layer(report.updates[usable], fed, of)
    return new


def magnitudes(updates: np.ndarray, K: int, of: Estimate) -> np.ndarray:
    """One number per class from kept updates (N, .): the bias update, or the row means of the weight's -> (N, K)."""
    return updates if of == "bias" else updates[:, :-K].reshape(len(updates), K, -1).mean(axis=2)


def estimated_entropy(magnitude: np.ndarray, T_s: float) -> np.ndarray:
    """Equation 7: entropy in nats of softmax(magnitude / T_s); magnitude (N, K) -> (N,)."""
    return scipy.special.entr(scipy.special.softmax(magnitude / T_s, axis=1)).sum(axis=1)


def distances(updates: np.ndarray, H: np.ndarray, lam: float) -> np.ndarray:
    """Equation 9: angle between the updates (N, .), 0 to a zero update, plus lambda |H_u - H_k| -> (N, N)."""
    angle = angles(updates, updates)
    np.fill_diagonal(angle, 0)
    return angle + lam * np.abs(H[:, None] - H)


class Alike:
    """Equation 9's distances of many clients: who has a new update or entropy gets new ones.

    updates: (N, .) kept updates, before the first round.
    """

    def __init__(self, updates: np.ndarray) -> None:
        N = len(updates)
        self.apart, self.updates, self.H = Apart(np.zeros((N, N)), np.arange(N)), updates, np.full(N, np.nan)

    def tree(self, updates: np.ndarray, H: np.ndarray, lam: float, A: np.ndarray) -> np.ndarray:
        """Ward's tree of the clients A; updates and H are those of everyone."""
        changed = np.flatnonzero((updates != self.updates).any(axis=1) | (H != self.H))
        if len(changed):
            angle = angles(updates[changed], updates)
            self.apart.renew(changed, angle + lam * np.abs(H[changed][:, None] - H))
        self.updates, self.H = updates, H
        return self.apart.tree(A)


def tree_of_updates(
    alike: Alike | None, updates: np.ndarray, H: np.ndarray, lam: float, A: np.ndarray
) -> np.ndarray:
    """Ward's tree of the clients A from everyone's kept updates (N, .) and entropies (N,)."""
    if alike:
        return alike.tree(updates, H, lam, A)
    return ward_tree(distances(updates[A], H[A], lam))


def cut(tree: np.ndarray, M: int) -> np.ndarray:
    """Labels 0 .. M - 1 of the clients (N,) when the tree (N - 1, 4) is cut into M clusters (N clusters if M > N)."""
    N = len(tree) + 1
    node = list(range(2 * N - 1))  # the node to which each node belongs after the first N - M merges
    for i, (a, b) in reversed(list(enumerate(tree[: max(N - M, 0), :2].astype(int).tolist()))):
        node[a] = node[b] = node[N + i]
    return np.unique(node[:N], return_inverse=True)[1]


def annealed(t: int, T: int) -> float:
    """gamma^t / gamma^0: falls linearly from 1 at t = 0 to 0 at t = T and stays 0."""
    return max(0.0, 1 - t / T)


def cluster_means(H: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(M,) mean of H (N,) over the members of each cluster."""
    return np.bincount(labels, H) / np.bincount(labels)


def draw_by_cluster(rng: np.random.Generator, log_pi: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    """The code's draw -> (n,). It draws n times a cluster that is not full, by exp(log_pi) (M,), and then distinct
    clients uniformly in each cluster.
    """
    room = np.bincount(labels)
    counts = np.zeros_like(room)
    for _ in range(n):
        chosen = draw_distinct(rng, np.where(counts < room, log_pi, -np.inf), 1)
        counts[chosen] += 1
    return np.concatenate(
        [rng.choice(np.flatnonzero(labels == g), counts[g], replace=False) for g in np.flatnonzero(counts)]
    )
