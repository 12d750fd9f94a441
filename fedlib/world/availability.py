"""Who is there in each round: availability = rate x process x pattern, or a recorded trace.

Every client has a latent uniform number u_k(t) and is there where u_k(t) < p_k(t). The process is how u moves; its
marginal is uniform in every round, so a client is there with probability p_k(t) under each process.

Sources of the formulas: MIFA (Gu et al., NeurIPS 2021), FedAU (Wang and Ji, ICLR 2024), FedAWE (Xiang et al., NeurIPS
2024), and the simulators FLGo and F3AST, whose rates also change how many clients are there. Here the mean is fixed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
import scipy  # its submodules load on first use

from fedlib.errors import DataError
from fedlib.settings import world as settings
from fedlib.streams import stream

RATE, PROCESS, SHOCKS = 0, 1, 5  # places in the stream "world"
TICKS = (
    10**6
)  # in a second: the moments of a trace are whole numbers, so that none falls between two intervals


def availability(world: settings.World, sizes: np.ndarray, label_counts: np.ndarray, seed: int) -> np.ndarray:
    """Probabilities (period, N) that a client is there; round t uses row t mod period, and the mean is `world.mean`.

    p_k(t) = min(1, max(least, c rate_k pattern_k(t))), with one c for all clients and rounds.

    Raises:
        DataError: no c reaches the mean, or clients that come once in a cycle would be there for less than a round.
    """
    with np.errstate(over="ignore"):
        rates = rate(world.rate, sizes, label_counts, stream(seed, "world", RATE))
    raw = rates * pattern(world.pattern, label_counts)
    p = scaled(raw, world.mean, world.least)
    if isinstance(world.process, settings.Cyclic) and world.shocks is None:
        check_cycles(p.max(axis=0), world.process.length)
    return p


def check_cycles(p: np.ndarray, length: int) -> None:
    """Check that clients that are there with probability p (N,) are so for a round in every `length`, or never.

    Raises:
        DataError: they are there for less, so that most of them would never come.
    """
    rare = (p > 0) & (p * length < 1 - 1e-9)
    if rare.any():
        enough = int(np.ceil(1 / p[rare].min() - 1e-9))
        raise DataError(
            f"world: {rare.sum()} of {len(p)} clients would be there for less than one round in every {length}, and "
            f"most of them never; set process.length to {enough} or more, or raise mean or least."
        )


def scaled(raw: np.ndarray, mean: float, minimum: float) -> np.ndarray:
    """min(1, max(minimum, c raw)) with c such that the mean over all entries is `mean`; raw >= 0, of any shape.

    Raises:
        DataError: too many entries are 0, or they differ by more than numbers can.
    """

    def clipped(c: float) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.minimum(1, np.maximum(minimum, c * raw))

    reachable = np.where(raw > 0, 1, minimum).mean()
    if reachable < mean:
        raise DataError(
            f"world: a mean availability of {mean} cannot be reached, because {(raw == 0).mean():.0%} of clients and "
            f"rounds have a rate of 0; set mean to {reachable:.3g} or less, or raise least."
        )
    low, high = 0.0, 1.0
    while clipped(high).mean() < mean and high < 1e300:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if clipped(middle).mean() < mean else (low, middle)
    result = clipped(high)
    if not np.isclose(result.mean(), mean, rtol=0, atol=1e-6):
        raise DataError(
            f"world: clients' rates differ so much that the mean becomes {result.mean():.3g} instead of {mean}; bring "
            "rate.beta or rate.sigma nearer to 0."
        )
    return result


def rate(kind: settings.Rate, sizes: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(N,) how often each client is there, up to a factor. labels: (N, K) counts."""
    N, K = labels.shape
    match kind:
        case settings.Equal():
            return np.ones(N)
        case settings.BySize():
            return np.exp(kind.beta * np.log(sizes / sizes.max()))
        case settings.LogNormal():
            return rng.lognormal(0, kind.sigma, N)
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    if kind.weights == "rank":
        weights = np.arange(K) / max(K - 1, 1)
    elif kind.weights == "halves":
        weights = rng.random(K) * np.where(np.arange(K) < K / 2, 1, 0.5)
    else:
        weights = rng.dirichlet(np.full(K, kind.alpha))
    return shares @ weights


def pattern(kind: settings.Pattern | None, labels: np.ndarray) -> np.ndarray:
    """(period, 1 or N) factor of the rates in each round of a period. labels: (N, K) counts."""
    match kind:
        case None:
            return np.ones((1, 1))
        case settings.Sine():
            t = np.arange(kind.period)
            return np.maximum(0, kind.depth * np.sin(2 * np.pi * t / kind.period) + 1 - kind.depth)[:, None]
        case settings.Staircase():
            return np.repeat([1, kind.low], kind.steps)[:, None]
    common = labels >= 0.1 * labels.sum(axis=1, keepdims=True)
    K = labels.shape[1]
    first, last = common.argmax(axis=1), K - 1 - common[:, ::-1].argmax(axis=1)
    place = (np.arange(kind.period)[:, None] + 0.5) / kind.period
    inside = (first / K <= place) & (place < (last + 1) / K)
    return kind.beta * inside + 1 - kind.beta


def latent(process: settings.Process, N: int, seed: int) -> Iterator[np.ndarray]:
    """u (N,) of rounds 1, 2, ...: uniform on [0, 1) in every round, independent between clients."""
    u = stream(seed, "world", PROCESS, 0).random(N)
    t = 0
    while True:
        t += 1
        rng = stream(seed, "world", PROCESS, t)
        if isinstance(process, settings.Cyclic):
            yield (u + t / process.length) % 1
            continue
        redraws = 1.0 if isinstance(process, settings.Bernoulli) else 1 / process.stay
        fresh = rng.random((2, N))
        u = np.where(fresh[0] < redraws, fresh[1], u)
        yield u


def shaken(shocks: settings.Shocks, us: Iterator[np.ndarray], seed: int) -> Iterator[np.ndarray]:
    """Latent numbers `us` (N,) of rounds 1, 2, ... with a part that all clients share: uniform in every round."""
    a = 1 - 1 / shocks.stay
    z = stream(seed, "world", SHOCKS, 0).standard_normal()
    for t, u in enumerate(us, 1):
        z = a * z + np.sqrt(1 - a**2) * stream(seed, "world", SHOCKS, t).standard_normal()
        normal = scipy.special.ndtri(np.clip(u, 1e-16, 1 - 1e-16))
        yield scipy.special.ndtr(np.sqrt(shocks.rho) * z + np.sqrt(1 - shocks.rho) * normal)


def read_csv(file: str, sha256: str, columns: tuple[str, ...], N: int) -> pd.DataFrame:
    """A CSV file of one world: its `columns`, with clients 0 to N - 1.

    Raises:
        DataError: the file is missing or another one, lacks a column, or holds something else than numbers.
    """
    path = Path(file)
    if not path.is_file():
        raise DataError(f"{file}: there is no such file; `world` names it.")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise DataError(
            f"{file}: its sha256 is {digest}, not {sha256}; if the file is right, write that in `world`."
        )
    return parsed(file, content, columns, N)


@cache
def parsed(file: str, content: bytes, columns: tuple[str, ...], N: int) -> pd.DataFrame:
    """The table of `read_csv`; runs of one world share it."""
    try:
        table = pd.read_csv(BytesIO(content))
        if not isinstance(table.index, pd.RangeIndex):
            raise ValueError("its rows have more fields than its first line")
        if missing := [name for name in columns if name not in table]:
            raise ValueError(f"it lacks {', '.join(missing)}")
        table = table[list(columns)].astype(float)
    except ValueError as error:
        words = str(error).splitlines()[0]
        raise DataError(
            f"{file}: it needs the columns {', '.join(columns)}, all numbers ({words})."
        ) from None
    clients = table["client"]
    if not (np.isfinite(table).all(axis=None) and ((clients % 1 == 0) & clients.between(0, N - 1)).all()):
        raise DataError(
            f"{file}: clients must be whole numbers from 0 to {N - 1}, and no field may be empty or infinite."
        )
    return table


class Recorded:
    """A trace: who is there at which second. It repeats after its last `to`, the period.

    clients, begins, ends: (n,) intervals, in ticks, sorted by client and begin. Those of one client do not touch.
    """

    def __init__(self, trace: settings.Trace, N: int) -> None:
        table = read_csv(trace.file, trace.sha256, ("client", "from", "to"), N).sort_values(
            ["client", "from"]
        )
        if not len(table) or N * table["to"].max() * TICKS >= 2**62:
            raise DataError(f"{trace.file}: it needs rows, and seconds since its start, not dates.")
        clients, begins, ends = (
            np.round(table[name].to_numpy() * ticks).astype(np.int64)
            for name, ticks in (("client", 1), ("from", TICKS), ("to", TICKS))
        )
        if (begins < 0).any() or (ends <= begins).any():
            raise DataError(f"{trace.file}: in each row, 0 <= from < to, by a microsecond at least.")
        same_client = clients[1:] == clients[:-1]
        if (wrong := same_client & (begins[1:] < ends[:-1])).any():
            k = clients[1:][wrong][0]
            raise DataError(f"{trace.file}: two intervals of client {k} overlap; join them to one.")
        begin, end = np.ones((2, len(clients)), dtype=bool)
        begin[1:] = end[:-1] = ~(same_client & (begins[1:] == ends[:-1]))
        self.clients, self.begins, self.ends = clients[begin], begins[begin], ends[end]
        self.N, self.period = N, int(ends.max())
        self._starts = self.clients * self.period + self.begins
        self._comes = np.unique(begins)

    def intervals_at(self, time: float) -> tuple[int, np.ndarray]:
        """The tick in the period, and the interval (N,) in which each client is there then, or -1."""
        moment = round(time * TICKS) % self.period
        everyone = np.arange(self.N)
        place = np.searchsorted(self._starts, everyone * self.period + moment, "right") - 1
        inside = (place >= 0) & (self.clients[place] == everyone) & (moment < self.ends[place])
        return moment, np.where(inside, place, -1)

    def present(self, time: float) -> np.ndarray:
        """(N,) bool: who is there at a second."""
        return self.intervals_at(time)[1] >= 0

    def stays(self, time: float) -> np.ndarray:
        """(N,) seconds for which each client will still be there; 0 for absent ones."""
        moment, place = self.intervals_at(time)
        remaining = np.where(place >= 0, self.ends[place] - moment, 0) / TICKS
        first = np.searchsorted(self.clients, np.arange(self.N)).clip(max=len(self.clients) - 1)
        goes_on = (place >= 0) & (self.ends[place] == self.period) & (self.begins[first] == 0)
        always = goes_on & (self.ends[first] == self.period)
        return np.where(always, np.inf, remaining + np.where(goes_on, self.ends[first], 0) / TICKS)

    def share(self) -> np.ndarray:
        """(N,) share of the time that each client is there."""
        return np.bincount(self.clients, self.ends - self.begins, self.N) / self.period

    def next_change(self, time: float) -> float:
        """The next second after `time` at which somebody comes."""
        laps, moment = divmod(round(time * TICKS), self.period)
        later = int(np.searchsorted(self._comes, moment, "right"))
        comes = self._comes[later] if later < len(self._comes) else self.period + self._comes[0]
        return (laps * self.period + int(comes)) / TICKS
