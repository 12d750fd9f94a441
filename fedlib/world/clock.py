"""A run's world: who is there, how long clients take, and which updates arrive before a round ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy  # its submodules load on first use

from fedlib.errors import DataError
from fedlib.settings import world as settings
from fedlib.streams import stream
from fedlib.world.availability import TICKS, Recorded, availability, latent, read_csv, shaken

SPEED, TIES, LEAVE = 2, 3, 6  # places in the stream "world"
BITS = 32  # of a parameter
ROUND = 1.0  # seconds of an answer where there are no speeds, and of a round in which nobody is there


def ticks(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * TICKS)


@dataclass
class LiveWorld:
    """The world of a run; a function of its settings, the partition and the seed, not of the sampler.

    sizes: (N,) samples of each client; label_counts: (N, K). parameters: of the model, for the time to send it.
    time: seconds since the start. Only time is state.

    Raises:
        DataError: a file of the world cannot be used, or its mean availability cannot be reached.
    """

    settings: settings.World
    sizes: np.ndarray
    label_counts: np.ndarray
    parameters: int
    seed: int
    time: float = 0.0
    _t: int = field(default=0, init=False, repr=False)  # the round of the latent numbers _u

    def __post_init__(self) -> None:
        N, world = len(self.sizes), self.settings
        self.trace = Recorded(world.trace, N) if world.trace else None
        self.p = availability(world, self.sizes, self.label_counts, self.seed)
        if world.speeds:
            self.per_sample, self.downlink, self.uplink = self.speeds(world.speeds)

    @property
    def rates(self) -> np.ndarray:
        """(N,) share of the time that each client is there."""
        if self.trace:
            return self.trace.share()
        return np.broadcast_to(self.p, (len(self.p), len(self.sizes))).mean(0)

    def present(self, t: int) -> np.ndarray:
        """Ids of the clients that are there at the start of round t, ascending."""
        if self.trace:
            return np.flatnonzero(self.trace.present(self.time))
        if self.settings.slot:
            t = 1 + ticks(self.time) // ticks(self.settings.slot)
        return np.flatnonzero(self.latent(t) < self.p[t % len(self.p)])

    def next_change(self) -> float:
        """The next second at which somebody may come; infinite where all are always there."""
        if self.trace:
            return self.trace.next_change(self.time)
        if not self.settings.slot:
            return np.inf
        slot = ticks(self.settings.slot)
        return (ticks(self.time) // slot + 1) * slot / TICKS

    def latent(self, t: int) -> np.ndarray:
        """(N,) the clients' latent numbers in round t."""
        if not 0 < self._t <= t:
            self._us, self._t = latent(self.settings.process, len(self.sizes), self.seed), 0
            if self.settings.shocks:
                self._us = shaken(self.settings.shocks, self._us, self.seed)
        while self._t < t:
            self._u, self._t = next(self._us), self._t + 1
        return self._u

    def stays(self, t: int, asked: int = 0) -> np.ndarray | None:
        """(N,) seconds after which clients leave that are selected in round t, now; None where none leaves.

        asked: how often the sampler was asked before in this round.
        """
        if (leave := self.settings.leave) is None:
            return None
        if leave.seconds is None and self.trace:
            return self.trace.stays(self.time)
        where = (t, asked) if asked else (t,)
        return stream(self.seed, "world", LEAVE, *where).exponential(leave.seconds or 0.0, len(self.sizes))

    def to_select(self, m: int) -> int:
        """How many clients the server selects in order to get m."""
        ends = self.settings.ends
        wanted_clients = int(np.ceil(round(ends.c * m, 9))) if isinstance(ends, settings.First) else m
        return min(wanted_clients, len(self.sizes))

    # -- time --------------------------------------------------------------------------------------------------

    def speeds(self, spec: settings.Speeds) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Seconds per sample, and kbit/s down and up, of every client: three arrays (N,)."""
        N, rng = len(self.sizes), stream(self.seed, "world", SPEED)
        if spec.file and spec.sha256:
            columns = ("client", "seconds_per_sample", "kbit_down", "kbit_up")
            table = read_csv(spec.file, spec.sha256, columns, N).sort_values("client")
            if table["client"].tolist() != list(range(N)) or (table[list(columns[1:])] <= 0).any(axis=None):
                raise DataError(
                    f"{spec.file}: it needs one row for each of the {N} clients, with numbers above 0."
                )
            return tuple(table[name].to_numpy() for name in columns[1:])  # type: ignore[return-value]
        noise, connection = rng.standard_normal((2, N))
        fast = spec.rho * self.normal_scores(spec.of) + np.sqrt(1 - spec.rho**2) * noise
        kbit = spec.kbit * np.exp(spec.kbit_sigma * connection)
        return spec.seconds * np.exp(-spec.sigma * fast), kbit, kbit

    def normal_scores(self, order: str) -> np.ndarray:
        """(N,) normal quantiles of the clients' ranks; ties are broken at random."""
        labels = self.label_counts / np.maximum(self.label_counts.sum(axis=1, keepdims=True), 1)
        values = {
            "availability": self.rates,
            "size": self.sizes,
            "entropy": scipy.special.entr(labels).sum(axis=1),
        }
        ties = stream(self.seed, "world", TIES).random(len(self.sizes))
        rank = np.empty(len(self.sizes))
        rank[np.lexsort((ties, np.round(values[order], 12)))] = np.arange(len(self.sizes))
        return scipy.special.ndtri((rank + 0.5) / len(rank))

    def seconds(
        self, clients: np.ndarray, samples: np.ndarray, down: np.ndarray, up: np.ndarray
    ) -> np.ndarray:
        """(n,) seconds in which `clients` receive, compute and send. samples: trained on; down, up: parameters."""
        clients = np.asarray(clients, dtype=int)
        if not self.settings.speeds:
            return np.full(len(clients), ROUND)
        sent = BITS / 1000 * (down / self.downlink[clients] + up / self.uplink[clients])
        return samples * self.per_sample[clients] + sent

    def end(
        self, seconds: np.ndarray, m: int, stays: np.ndarray | None = None, absent: int = 0
    ) -> tuple[np.ndarray, float]:
        """Which draws arrive (n,) in a round in which they take `seconds` (n,), and after how many seconds it ends.

        m: draws that the server wants. stays: (n,) seconds after which their clients leave; who leaves earlier does not
        answer. absent: how many selected clients are not there.
        """
        ends = self.settings.ends
        answers = np.ones(len(seconds), dtype=bool) if stays is None else seconds <= stays
        settled = seconds if stays is None else np.minimum(seconds, stays)  # whether a client answers
        length = float(settled.max(initial=0.0))
        if isinstance(ends, settings.Deadline):
            unseen = self.settings.absences == "hidden" and (absent or not answers.all())
            length = ends.seconds if unseen else min(length, ends.seconds)
        elif isinstance(ends, settings.First) and answers.sum() >= m:
            length = float(np.sort(seconds[answers])[m - 1])
        arrived = answers & (seconds <= length)
        if isinstance(ends, settings.First):
            arrived[np.argsort(np.where(answers, seconds, np.inf), kind="stable")[m:]] = False
        return arrived, length

    def empty_until(self, landing: float = np.inf) -> float:
        """The second at which a round ends in which nobody is selected. landing: when the next late update arrives."""
        if isinstance(self.settings.ends, settings.Deadline):
            return self.time + self.settings.ends.seconds
        return min(self.trace.next_change(self.time), landing) if self.trace else self.time + ROUND
