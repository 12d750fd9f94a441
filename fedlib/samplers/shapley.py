"""GreedyFed and S-FedAvg: clients whose updates lowered the loss on the server's own samples, by Shapley values.

Singhal, Pandey, Popovski, "Greedy Shapley Client Selection for Communication-Efficient Federated Learning", 2023
(GreedyFed), and the authors' program; Nagalapatti and Narayanam, "Game of Gradients: Mitigating Irrelevant Clients in
Federated Learning", AAAI 2021 (S-FedAvg), as in that program.

1. The value of a set of updates is minus the loss, on the server's validation samples (the setting `validation`), of
   the model before plus their mean, weighted by sizes. The program's value is 1 minus the loss: the same differences.
2. Rounds with at most `exact` updates are computed over all sets: up to ten that asks for about as many models as
   sampling does. Otherwise GTG-Shapley: permutations in which every update stands first once in a sweep; the rest of a
   permutation counts 0 once its value is within `tolerance` of that of all updates. As in the program, sweeps end when
   each value changed by less than 1 % over the last ten permutations, or after `sweeps`; the program divides by the
   signed value, so that negative ones always pass. A set is measured once.
3. Clients that have never come go first, in random order (in the program by number); where fewer than m of these are
   there, the others are drawn at random, as in the program.
4. S-FedAvg's relevance takes the mean of a client's Shapley values, as in the program. The program divides weights by
   the drawing probabilities in some versions; here they are the sizes.
5. A client whose value is not a finite number keeps what it had.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from fedlib.samplers.base import (
    Asking,
    Count,
    Federation,
    NotNegative,
    Report,
    Round,
    Sampler,
    Selection,
    ServerLosses,
    Share,
    Whole,
    register,
)
from fedlib.samplers.weighted import draw_distinct

CHANGE, WINDOW = 0.01, 10  # values that change by less over so many permutations count as found
Values = Generator[ServerLosses, np.ndarray, np.ndarray]


def worth(losses: np.ndarray) -> np.ndarray:
    """The values of sets with these losses; NaN where a loss is not finite."""
    return np.where(np.isfinite(losses), -losses, np.nan)


def exact_values(n: int) -> Values:
    """Shapley values (n,) of n updates, from the losses of all 2^n sets of them."""
    teams = [[i for i in range(n) if code >> i & 1] for code in range(2**n)]
    value = worth((yield ServerLosses(teams)))
    shapley = np.zeros(n)
    for code, team in enumerate(teams):
        for i in range(n):
            if not code >> i & 1:
                gain = value[code | 1 << i] - value[code]
                shapley[i] += gain / (n * math.comb(n - 1, len(team)))
    return shapley


def sampled_values(
    n: int, tolerance: float, sweeps: int, permute: Callable[[np.ndarray], np.ndarray]
) -> Values:
    """Estimates (n,) from truncated permutations: in a sweep, one for each update that stands first.

    permute: gives a random order of an array.
    """
    everybody = frozenset(range(n))
    nobody, whole = worth((yield ServerLosses([[], sorted(everybody)]))).tolist()
    if math.isnan(whole):
        return np.full(n, np.nan)
    value = {frozenset(): nobody, everybody: whole}
    if abs(whole - nobody) < tolerance:
        return np.zeros(n)
    gains: list[np.ndarray] = []  # of each permutation, what each update added
    means = np.zeros((1, n))
    for _ in range(sweeps):
        orders = [[i, *permute(np.setdiff1d(np.arange(n), i)).tolist()] for i in range(n)]
        last, place, gained = [nobody] * n, [0] * n, np.zeros((n, n))
        for stop in (n // 2, n):  # what is cut off in the first half need not be measured in the second
            going = [i for i in range(n) if abs(whole - last[i]) >= tolerance]
            teams = [frozenset(orders[i][:j]) for i in going for j in range(place[i] + 1, stop + 1)]
            if unknown := [team for team in dict.fromkeys(teams) if team not in value]:
                answers = worth((yield ServerLosses([sorted(team) for team in unknown])))
                value |= dict(zip(unknown, answers.tolist(), strict=True))
            for i in going:
                while place[i] < stop and abs(whole - last[i]) >= tolerance:
                    place[i] += 1
                    reached = value[frozenset(orders[i][: place[i]])]
                    gained[i, orders[i][place[i] - 1]] = reached - last[i]
                    last[i] = reached
        gains.extend(gained)
        means = np.cumsum(gains, axis=0) / np.arange(1, len(gains) + 1)[:, None]
        change = abs(means[-WINDOW:] - means[-1]).mean(axis=0)
        if len(means) >= 2 * WINDOW and (change < CHANGE * abs(means[-1])).all():
            break
    return means[-1]


@dataclass
class Shapley(Sampler):
    """What GreedyFed and S-FedAvg share: the mean Shapley value of each client's updates."""

    asks = frozenset({ServerLosses})
    aggregation = "data_size"
    exact: Whole = 10
    tolerance: NotNegative = 1e-4
    sweeps: Count = 50

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.value, self.times = np.zeros(fed.N), np.zeros(fed.N, dtype=int)

    def observe(self, round: Round, report: Report) -> Asking:
        n = len(report.clients)
        if not n:
            return
        if n <= self.exact:
            shapley = yield from exact_values(n)
        else:
            shapley = yield from sampled_values(n, self.tolerance, self.sweeps, round.rng.permutation)
        value, times = self.value.copy(), self.times.copy()
        for k, gain in zip(report.clients.tolist(), shapley.tolist(), strict=True):
            times[k] += 1
            if math.isfinite(gain):
                value[k] = self.renewed(value[k], gain, int(times[k]))
        self.value, self.times = value, times
        self.learn(np.unique(report.clients))

    def renewed(self, value: float, gain: float, times: int) -> float:
        """A client's value after its times-th Shapley value, `gain`."""
        return ((times - 1) * value + gain) / times

    def learn(self, clients: np.ndarray) -> None:
        """What else follows from the new values of `clients`."""


@register("greedyfed", revision=0)
@dataclass
class GreedyFed(Shapley):
    """Every client once, then the m available ones of the highest value; weights n_k over their sum.

    memory: the share of its old value that a client's value keeps; null: the value is the plain mean.
    exact, tolerance, sweeps: how Shapley values are computed; see above.
    """

    memory: Share | None = None

    def select(self, round: Round) -> Selection:
        A, m = round.rng.permutation(round.available), round.m
        new = A[self.times[A] == 0][:m]
        familiar = A[self.times[A] > 0]
        if not len(new):
            familiar = familiar[np.argsort(-self.value[familiar], kind="stable")]
        return Selection(np.concatenate([new, familiar[: m - len(new)]]))

    def renewed(self, value: float, gain: float, times: int) -> float:
        if self.memory is None or times == 1:
            return super().renewed(value, gain, times)
        return self.memory * value + (1 - self.memory) * gain


@register("s_fedavg", revision=0)
@dataclass
class SFedAvg(Shapley):
    """m distinct clients drawn by softmax(phi); then phi_k = alpha phi_k + beta times the client's mean value."""

    alpha: NotNegative = 0.75
    beta: NotNegative = 0.25

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        self.phi = np.full(fed.N, 1 / fed.N)

    def select(self, round: Round) -> Selection:
        A = round.available
        return Selection(A[draw_distinct(round.rng, self.phi[A], round.m)])

    def learn(self, clients: np.ndarray) -> None:
        phi = self.phi.copy()
        phi[clients] = self.alpha * phi[clients] + self.beta * self.value[clients]
        self.phi = phi
