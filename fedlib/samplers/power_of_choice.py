"""The variants of Power-of-Choice that cost less, or less bias: cpow-d, rpow-d and adapow-d.

Cho, Wang, Joshi, "Towards Understanding Biased Client Selection in Federated Learning", AISTATS 2022, section 4. The
method itself, pow-d, is in `loss_based.py`. The paper leaves open what a client that never trained is worth to rpow-d;
here it is worth more than any other, so that each is tried. In adapow-d, d falls from N to m once, after half of the
rounds, as in a public program of others that follows the paper's figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedlib.samplers.base import (
    Asking,
    Count,
    Federation,
    Losses,
    Question,
    Report,
    Round,
    Sampler,
    Selection,
    register,
)
from fedlib.samplers.loss_based import highest
from fedlib.samplers.weighted import draw_distinct, log
from fedlib.streams import stream


@dataclass(frozen=True)
class BatchLosses(Question):
    """Mean loss of the global model on a mini-batch of `batch` distinct samples of each client -> (n,)."""

    reveals = "losses"

    clients: np.ndarray
    batch: int

    @classmethod
    def answer(cls, engine: Any, asked: Sequence[tuple[Any, Any]]) -> list[np.ndarray]:
        """The answers of all runs that ask; a client's batch depends on seed, round and client alone."""
        answers = []
        for run, question in asked:
            parts = []
            for k in question.clients:
                own = run.partition.asked[int(k)]
                rng = stream(run.run.seed, "question", run.t, int(k))
                parts.append(np.sort(rng.choice(own, min(question.batch, len(own)), replace=False)))
            rows = np.concatenate(parts)
            losses, _ = engine.executor.evaluate(run.models[:1], "train", [rows])
            run.send_model(question.clients, 1)
            run.ledger.losses(len(parts), len(rows))
            sums = np.add.reduceat(losses[0], np.cumsum([0, *map(len, parts[:-1])]), dtype=float)
            answers.append(sums / [len(part) for part in parts])
        return answers


def candidates(round: Round, p: np.ndarray, d: int) -> np.ndarray:
    """The d candidates (d,) of a round, drawn one after another by p_k (N,) among those that are there."""
    A = round.available
    return A[draw_distinct(round.rng, log(p[A]), max(d, round.m))]


def check_d(fed: Federation, d: int, name: str) -> None:
    """Raise ValueError unless m <= d <= N."""
    if not fed.m <= d <= fed.N:
        raise ValueError(f"sampler {name!r}: d = {d} must lie between m = {fed.m} and N = {fed.N}.")


@register("cpow_d", revision=0)
@dataclass
class CPowD(Sampler):
    """cpow-d: as pow-d, but each candidate computes its loss on a mini-batch of b samples only.

    batch: b.

    Raises:
        ValueError: d is not between m and N.
    """

    asks = frozenset({BatchLosses})
    d: Count = 10
    batch: Count = 64

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        check_d(fed, self.d, "cpow_d")

    def select(self, round: Round) -> Asking:
        A = candidates(round, self.fed.p, self.d)
        asked, losses = round.answered(A, (yield BatchLosses(A, self.batch)))
        return Selection(highest(asked, losses, round.m))


@register("rpow_d", revision=0)
@dataclass
class RPowD(Sampler):
    """rpow-d: the m of d candidates with the highest loss of their own last training; nobody is asked.

    What a client sends with its update is the mean of its training losses over its local steps.

    Raises:
        ValueError: d is not between m and N.
    """

    asks = frozenset()
    reads = frozenset({"losses"})
    d: Count = 10

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        super().setup(fed, rng)
        check_d(fed, self.d, "rpow_d")
        self.last = np.full(fed.N, np.nan)  # has not trained

    def select(self, round: Round) -> Selection:
        A = candidates(round, self.fed.p, self.d)
        new = np.isnan(self.last[A])
        return Selection(np.concatenate([A[new], highest(A[~new], self.last[A[~new]], round.m)])[: round.m])

    def observe(self, round: Round, report: Report) -> None:
        last = self.last.copy()
        finite = np.isfinite(report.losses)
        last[report.clients[finite]] = report.losses[finite]
        last[report.clients[~finite]] = np.finfo(float).max
        self.last = last


@register("adapow_d", revision=0)
@dataclass
class AdaPowD(Sampler):
    """adapow-d: pow-d that asks everyone in the first half of the rounds, and draws m clients by p_k afterwards."""

    asks = frozenset({Losses})

    def select(self, round: Round) -> Asking:
        if 2 * round.t > self.fed.T:
            return Selection(candidates(round, self.fed.p, round.m))
        asked, losses = round.answered(round.available, (yield Losses(round.available)))
        return Selection(highest(asked, losses, round.m))
