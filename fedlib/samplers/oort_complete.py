"""Oort with its system utility, pacer, blacklist and pool: `oort.py` is the part without clocks, as HiCS-FL runs it.

Lai, Zhu, Madhyastha, Chowdhury, "Oort: Efficient Federated Learning via Guided Participant Selection", OSDI 2021
(Algorithm 1), and FedScale's program, from which the defaults are.

1. The statistical utility is n_k sqrt(mean squared loss) over all of a client's samples, as in the paper (`squared`).
   The program squares the loss of one mini-batch only; without `squared`, the mean loss is squared.
2. As in both, the bonus for staleness is sqrt(0.1 ln t / L_k) with L_k the round in which the client last took part. It
   is largest for clients that have not taken part since the beginning.
3. The program is told how long every client takes. Here a duration is known once a client has answered; a client that
   does not answer in time is taken to need at least as long as the slowest that did, and to have the mean utility of
   those that did (as in FedScale's aggregator). Unknown durations are not penalised; without a clock, none is.
4. The pool of the lottery holds the scores above `cut_off` times the best score that is not exploited, and at least
   ten clients per exploited one, as in the program. Where there is no such score, it holds all. (The program stops.)
5. Once all clients that are there were explored, all are exploited; the program would explore its last ones again.
   Where fewer are unexplored than a round explores, it selects fewer than m, as in the program.
6. Selecting more than m and waiting for the first m of them is the world's `ends: first`.
7. FedScale draws the first round at random; here exploration begins with it, as in the paper.
8. Where all clients that are there are on the blacklist, it is set aside for the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from fedlib.samplers.base import (
    Count,
    Federation,
    NotNegative,
    Report,
    Round,
    Sampler,
    Selection,
    Share,
    register,
)
from fedlib.samplers.oort import explore, scaled
from fedlib.samplers.weighted import draw_distinct, log

Percentage = Annotated[float, Field(ge=0, le=100)]
POOL = 10  # clients in the lottery per exploited client, at least


@register("oort_complete", revision=1)
@dataclass
class OortComplete(Sampler):
    """Utility n_k sqrt(mean squared loss) x (T / D_k)^penalty for clients slower than the preferred duration T.

    exploration, decay, exploration_min: share of explored clients, its factor each round, and its least value.
    clip: quantile at which utilities are clipped. cut_off, window: as in `oort`.
    threshold: T is this percentile of the known durations D. Every `pacer_step` rounds the pacer compares the utility
        of exploited clients with that of the `pacer_step` rounds before: a change of at most a tenth raises the
        percentile by `pacer_delta`, one of at least five times lowers it. At 100 no client is penalised.
    blacklist: clients that took part more often are left out, at most a share `blacklisted` of all; null: nobody is.
    squared: whether clients report their mean squared loss.
    """

    asks = frozenset()
    fewer = True
    reads = frozenset({"losses", "seconds", "squared"})
    exploration: Share = 0.9
    decay: Share = 0.98
    exploration_min: Share = 0.3
    clip: Share = 0.9
    cut_off: Share = 0.05
    window: Annotated[float, Field(ge=1)] = 5.0
    threshold: Percentage = 30.0
    penalty: NotNegative = 2.0
    pacer_step: Count = 20
    pacer_delta: Percentage = 5.0
    blacklist: Count | None = None
    blacklisted: Share = 0.3
    squared: bool = True

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.utility = fed.sizes.astype(float)
        self.duration = np.full(fed.N, np.nan)
        self.last = np.zeros(fed.N, dtype=int)  # round in which the client last took part, 0 for never
        self.times = np.zeros(fed.N, dtype=int)
        self.percentile, self.share = self.threshold, self.exploration
        self.exploited, self.history = np.zeros(0, dtype=int), np.zeros(0)

    def select(self, round: Round) -> Selection:
        m, rng = round.m, round.rng
        self.pace(round.t)
        self.share = max(self.share * self.decay, self.exploration_min)
        usable = np.setdiff1d(round.available, self.worn())
        usable = usable if len(usable) else round.available
        explored, new = usable[self.last[usable] > 0], usable[self.last[usable] == 0]
        n_exploit = min(m - int(m * self.share) if len(new) else m, len(explored))
        pool, score = self.lottery(explored, usable, n_exploit, round.t)
        self.exploited = pool[draw_distinct(rng, log(score), n_exploit)]
        n = min(m - n_exploit, len(new))
        first = explore(rng, new, self.utility[new] * self.slowness(new), self.window, n)
        clients = np.concatenate([self.exploited, first])
        return Selection(clients, notes={"explored": len(first), "percentile": self.percentile})

    def lottery(
        self, explored: np.ndarray, usable: np.ndarray, n: int, t: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The explored clients of which n are drawn, and their scores, to which the draws are proportional."""
        if n == 0:
            return explored[:0], np.zeros(0)
        score = self.scores(explored, usable, t)
        order = np.argsort(-score, kind="stable")
        cut = self.cut_off * score[order[min(n, len(order) - 1)]]
        pool = order[(score[order] >= cut) | (np.arange(len(order)) <= POOL * n)]
        return explored[pool], score[pool]

    def scores(self, clients: np.ndarray, usable: np.ndarray, t: int) -> np.ndarray:
        """(n,) utilities plus the bonus for staleness, times the penalty for slowness.

        Utilities are clipped and scaled to [0, 1] over all `usable` clients, of which `clients` are some; that of an
        unexplored client is its size.
        """
        utility = scaled(self.utility[usable], self.clip)[np.searchsorted(usable, clients)]
        bonus = np.sqrt(0.1 * np.log(t) / self.last[clients])
        return abs((utility + bonus) * self.slowness(clients))

    def slowness(self, clients: np.ndarray) -> np.ndarray:
        """(n,) factor (T / D_k)^penalty of clients slower than T; 1 for the others."""
        durations = np.sort(self.duration[~np.isnan(self.duration)])
        if self.percentile >= 100 or not len(durations):
            return np.ones(len(clients))
        preferred = durations[min(int(len(durations) * self.percentile / 100), len(durations) - 1)]
        duration = np.where(np.isnan(self.duration[clients]), preferred, self.duration[clients])
        return np.minimum(1, preferred / np.maximum(duration, 1e-4)) ** self.penalty

    def worn(self) -> np.ndarray:
        """Clients on the blacklist."""
        if self.blacklist is None:
            return np.zeros(0, dtype=int)
        often = np.argsort(-self.times, kind="stable")[: int(self.blacklisted * self.fed.N)]
        return often[self.times[often] > self.blacklist]

    def pace(self, t: int) -> None:
        """Change the percentile if the utility of exploited clients has become flat, or has changed sharply."""
        W = self.pacer_step
        if t < 2 * W or t % W:
            return
        previous, recent = self.history[-2 * W : -W].sum(), self.history[-W:].sum()
        if abs(recent - previous) <= 0.1 * previous:
            self.percentile = min(100.0, self.percentile + self.pacer_delta)
        elif abs(recent - previous) >= 5 * previous:
            self.percentile = max(self.pacer_delta, self.percentile - self.pacer_delta)

    def observe(self, round: Round, report: Report) -> None:
        clients, fed = report.clients, self.fed
        squares = report.squared if self.squared and report.squared is not None else report.losses**2
        utility, duration, last = self.utility.copy(), self.duration.copy(), self.last.copy()
        utility[clients] = fed.sizes[clients] * np.sqrt(np.where(np.isfinite(squares), squares, 0))
        if report.seconds is not None:
            duration[clients] = report.seconds
        missing = np.asarray(report.missing, dtype=int)
        if len(clients):
            utility[missing] = utility[clients].mean()
            if report.seconds is not None:
                duration[missing] = np.fmax(duration[missing], max(report.seconds))
        last[clients], last[missing] = round.t, round.t
        came = np.intersect1d(self.exploited, clients)
        self.history = np.append(self.history, utility[came].mean() if len(came) else 0.0)
        self.times = self.times + np.isin(fed.everyone, clients)
        self.utility, self.duration, self.last = utility, duration, last
