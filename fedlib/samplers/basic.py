"""Samplers that need no learning: uniform, MD and target sampling, and full participation.

Sources: McMahan et al. 2017 (uniform); Li et al. 2020 (MD); Fraboni et al. 2021, Clustered Sampling, sections 2.2 (MD)
and 6 ("target"). Clustered Sampling pairs uniform sampling with the aggregation rule ATTRITION (its equation 3); other
papers take the plain mean. Each experiment names its rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Federation, Round, Sampler, Selection, register


@register("uniform", revision=0)
@dataclass
class Uniform(Sampler):
    """m distinct clients, all equally likely (FedAvg's "random")."""

    asks = frozenset()

    def select(self, round: Round) -> Selection:
        n, m = len(round.available), round.m
        return Selection(round.rng.choice(round.available, m, replace=False), expected=np.full(m, m / n))


@register("md", revision=0)
@dataclass
class MD(Sampler):
    """m independent draws with replacement; client k has probability p_k (multinomial distribution sampling)."""

    asks = frozenset()
    draws = "repeated"

    def select(self, round: Round) -> Selection:
        return multinomial(self.fed, round)


def multinomial(fed: Federation, round: Round) -> Selection:
    """m independent draws with replacement among the available clients, in proportion to their sizes."""
    p = fed.shares(round.available)
    drawn = round.rng.choice(len(p), round.m, p=p)
    return Selection(round.available[drawn], expected=round.m * p[drawn])


@register("target", revision=0)
@dataclass
class Target(Sampler):
    """One client per label, drawn uniformly among the clients that mostly hold it (Clustered Sampling, Figure 1).

    This is a reference, not a method: it looks at the clients' labels. A label whose clients are all absent is left
    out of the round.

    Raises:
        ValueError: m differs from the number of labels that are some client's most frequent one.
    """

    asks = frozenset()
    needs = frozenset({"labels"})

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        found = len(np.unique(self.labels))
        if found != fed.m:
            raise ValueError(
                f"sampler 'target' draws one client per label: set m = {found} instead of m = {fed.m}."
            )

    @property
    def labels(self) -> np.ndarray:
        """(N,) each client's most frequent label."""
        return self.fed.label_counts.argmax(axis=1)

    def select(self, round: Round) -> Selection:
        labels = self.labels[round.available]
        blocks = [round.available[labels == label] for label in np.unique(labels)][: round.m]
        clients = np.array([round.rng.choice(block) for block in blocks])
        return Selection(clients, expected=np.array([1 / len(block) for block in blocks]))


@register("full", revision=0)
@dataclass
class Full(Sampler):
    """Every client in every round, whatever m is: the aggregation that all sampling schemes estimate."""

    asks = frozenset()
    aggregation = "data_size"
    draws = "random"  # N clients, not m

    def select(self, round: Round) -> Selection:
        return Selection(round.available, expected=np.ones(len(round.available)))
