"""Mostly the clients whose last reported loss was highest. An example of a submission; no paper proposes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import Federation, Report, Round, Sampler, Selection, Share, register


@register("last_loss")
@dataclass
class LastLoss(Sampler):
    """A share `explore` of the m clients at random, the others by the loss of their own last training.

    Nothing is asked: a client that trains reports its mean training loss. One that has never trained comes first.
    """

    asks = frozenset()
    reads = frozenset({"losses"})

    explore: Share = 0.5

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.loss = np.full(fed.N, np.inf)

    def select(self, round: Round) -> Selection:
        shuffled = round.rng.permutation(round.available)
        explored = int(np.ceil(self.explore * round.m))
        rest = shuffled[explored:]
        highest = rest[np.argsort(-self.loss[rest], kind="stable")]
        return Selection(np.concatenate([shuffled[:explored], highest[: round.m - explored]]))

    def observe(self, round: Round, report: Report) -> None:
        self.loss[report.clients] = report.losses
