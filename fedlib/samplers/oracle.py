"""The oracle: HiCS-FL's two-level sampling with the true label entropies of the clients.

It comes from HiCS-FL's public code, not from its paper. It is a reference, not a method: it looks at the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its submodules load on first use

from fedlib.samplers.base import (
    Count,
    Federation,
    NotNegative,
    Report,
    Round,
    Sampler,
    Selection,
    register,
)
from fedlib.samplers.clustered_sampling import MANY
from fedlib.samplers.hics_fl import (
    Alike,
    annealed,
    cluster_means,
    cut,
    draw_by_cluster,
    output_layer,
    refreshed,
    tree_of_updates,
)


@register("oracle", revision=0)
@dataclass
class Oracle(Sampler):
    """HiCS-FL's code with true entropies: no warm-up, M clusters, distances from the latest output-layer updates.

    lam, gamma, horizon: as in `hics_fl` (the code takes gamma = 2 on Mini-ImageNet).
    """

    asks = frozenset()
    needs = frozenset({"labels", "output layer"})
    reads = frozenset({"updates"})

    lam: NotNegative = 10.0
    M: Count = 5
    gamma: NotNegative = 4.0
    horizon: Count | None = None

    def needed(self, fed: Federation) -> int:
        return fed.N**2 if fed.N <= MANY else 3 * fed.N**2

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.updates = np.zeros((fed.N, output_layer(np.zeros((1, fed.d)), fed, "weight").shape[1]))
        self.alike = Alike(self.updates) if fed.N > MANY else None

    def state_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().state_dict().items() if key != "alike"}

    def select(self, round: Round) -> Selection:
        fed, A = self.fed, round.available
        everyone = label_entropy(fed.label_counts)
        H = everyone[A]
        labels = cut(tree_of_updates(self.alike, self.updates, everyone, self.lam, A), self.M)
        log_pi = scipy.special.log_softmax(
            self.gamma * annealed(round.t - 1, self.horizon or fed.T) * cluster_means(H, labels)
        )
        drawn = draw_by_cluster(round.rng, log_pi, labels, round.m)
        return Selection(A[drawn], notes={"clusters": labels.tolist()})

    def observe(self, round: Round, report: Report) -> None:
        self.updates = refreshed(self.updates, report, self.fed, "weight")


def label_entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy in nats of each client's labels; counts (N, K) -> (N,). A client without samples has 0."""
    return scipy.special.entr(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).sum(axis=1)
