"""A run in its world: who is there in a round, whose update arrives, what time it is, and the columns that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedlib.algorithms import FedAvg
from fedlib.errors import SamplerError
from fedlib.samplers import Federation, Gradients, Report, Round, Selection, TrialLosses, Updates, read_only
from fedlib.simulation.ledger import Ledger, earlier_draws
from fedlib.training.contract import Executor
from fedlib.world import LiveWorld

FORWARD = 1 / 3  # of the seconds that training on a sample takes, a loss takes (FedScale)


@dataclass
class Answer:
    """The result of one client's local training."""

    update: Tensor
    loss: float
    steps: int


class InRound(Protocol):
    """What is read of a run in a round: a `Live`."""

    fed: Federation
    executor: Executor
    algorithm: FedAvg
    failed: SamplerError | None
    ledger: Ledger
    answers: dict[int, Answer]
    assigned: dict[int, int]


@dataclass
class Flying:
    """An answer on its way: of an earlier round, and arriving at second `at`.

    model: which of the run's models its client trained. weight, expected: of its selection, where that stated them.
    """

    at: float
    client: int
    model: int
    answer: Answer
    weight: float
    expected: float


@dataclass
class Presence:
    """What a run's world changes in its rounds. Only `world.time`, `flying` and `counts` last longer than a round.

    m: clients that the server wants in a round. local: (N,) samples that each client trains on in a round; measured:
        (N,) samples on which it measures its loss; batch: samples of one step.
    present: clients that are there. absent: selected, and not there. spent: seconds that questions took. ready: clients
        that trained for a question, before they were selected. counts: (N,) updates of each client that arrived.
    """

    world: LiveWorld
    m: int
    local: np.ndarray
    measured: np.ndarray
    batch: int
    present: np.ndarray = field(init=False)
    flying: list[Flying] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.local), dtype=int)
        self.begin(0)

    @property
    def absences(self) -> str:
        return self.world.settings.absences

    def begin(self, t: int) -> None:
        """The state at the start of round t; 0 is the time before the first round."""
        awake = self.world.present(t) if t else np.arange(len(self.local))
        self.present = np.setdiff1d(awake, [flying.client for flying in self.flying])
        self.absent: list[int] = []
        self.spent, self.ready, self.uploaded = 0.0, set[int](), set[int]()
        self.wasted = self.arrived = 0
        self.additions: dict[str, Any] = {}

    def round(self, fed: Federation, t: int, rng: np.random.Generator) -> Round:
        """What the sampler is told of round t."""
        hidden = self.absences == "hidden"
        ids = fed.everyone if hidden else self.present
        m = len(ids) if self.absences == "all" else min(fed.m, len(ids))
        return Round(t, rng, read_only(ids), m, self.world.time + self.spent, silent=hidden)

    # -- questions ---------------------------------------------------------------------------------------------

    def check_named(self, clients: np.ndarray, role: str) -> None:
        """Raises SamplerError where a sampler that sees who is there names somebody else."""
        absent = np.setdiff1d(clients, self.present)
        if self.absences != "hidden" and len(absent):
            raise SamplerError(f"the {role} must be among round.available; client {absent[0]} is absent")

    def reached(self, question: Any) -> Any:
        """The part of a question that reaches its clients; None where it reaches nobody."""
        for name in ("train", "clients"):
            if hasattr(question, name):
                clients = np.asarray(getattr(question, name), dtype=int)
                question = replace(question, **{name: clients[np.isin(clients, self.present)]})
                if not len(getattr(question, name)):
                    return None
        return question

    def complete(self, live: InRound, question: Any, answer: np.ndarray | None) -> np.ndarray | None:
        """The answer to the whole `question`, with NaN for absent clients, from those that were reached."""
        if not hasattr(question, "clients"):
            return answer
        came = np.isin(question.clients, self.present)
        if came.all() or live.failed:
            return answer
        if answer is None:
            row = np.zeros((1, live.fed.d), dtype=np.float32)
            empty = question.encode(row) if isinstance(question, Updates) else row
            shape = empty.shape[1:] if isinstance(question, Updates | Gradients) else ()
            return np.full((len(came), *shape), np.nan)
        rows = np.full((len(came), *answer.shape[1:]), np.nan, dtype=np.result_type(answer, np.float32))
        rows[came] = answer
        return rows

    def wait_for(self, live: InRound, question: Any) -> None:
        """Add the seconds until the last client has answered a question. Call before it is answered."""
        if not hasattr(question, "clients"):
            return
        clients, d = question.clients, live.executor.layout.d
        down = np.array([0 if live.ledger.holds[int(k)] else d for k in clients])
        new = np.array([int(k) not in live.answers for k in clients])
        match question:
            case Updates():
                sent = d if question.parameters is None else question.parameters
                self.take(clients, new * self.local[clients], down, sent + question.scalars)
            case Gradients():
                self.take(clients, np.full(len(clients), self.batch), down, d)
            case _:
                if isinstance(question, TrialLosses):
                    train, full = np.asarray(question.train), np.full(len(question.train), d)
                    self.take(train, self.local[train], full, d)
                    down = np.full(len(clients), d)
                self.take(clients, FORWARD * self.measured[clients], down, 1)

    def take(self, clients: np.ndarray, samples: np.ndarray, down: np.ndarray, sent: int) -> None:
        self.spent += float(self.world.seconds(clients, samples, down, np.full(len(clients), sent)).max())

    # -- the end of a round ------------------------------------------------------------------------------------

    def met(self, live: InRound, selection: Selection) -> Selection:
        """The draws of a selection whose clients are there."""
        came = np.isin(selection.clients, self.present)
        self.absent = np.asarray(selection.clients)[~came].tolist()
        self.ready, self.uploaded = set(live.answers), set(live.ledger.uploaded)
        return part(selection, came)

    def end(
        self, live: InRound, selection: Selection, answers: Sequence[Answer]
    ) -> tuple[Selection, list[Answer]]:
        """The draws whose updates are aggregated in this round, and their answers; moves the clock to its end."""
        clients, world = np.asarray(selection.clients, dtype=int), self.world
        size = live.executor.layout.d * live.algorithm.payload
        first = np.array(earlier_draws(clients.tolist()), dtype=int) == 0
        trained = first & np.isin(clients, list(self.ready))
        sent = first & np.isin(clients, list(self.uploaded))
        samples = np.where(trained, 0, self.local[clients]).astype(float)
        down = np.where(first & ~trained, size * live.algorithm.models, 0)
        seconds = world.seconds(clients, samples, down, np.where(sent, 0, size))
        for k in np.unique(clients[~first]):  # one after another
            seconds[clients == k] = np.cumsum(seconds[clients == k])
        arrived, length = world.end(seconds, self.m)
        begin = world.time + self.spent
        world.time = begin + (length if len(clients) else world.empty())
        self.spent = 0.0
        landing = [flying for flying in self.flying if flying.at <= world.time]
        self.flying = [flying for flying in self.flying if flying.at > world.time]
        late = np.flatnonzero(~arrived)
        missing = self.absent + clients[late].tolist()
        if world.settings.late == "keep":
            weights, expected = selection.weights, selection.expected
            for i in late.tolist():
                k = int(clients[i])
                self.flying.append(
                    Flying(
                        at=begin + float(seconds[i]),
                        client=k,
                        model=live.assigned.get(k, 0),
                        answer=answers[i],
                        weight=0.0 if weights is None else float(weights[i]),
                        expected=1.0 if expected is None else float(expected[i]),
                    )
                )
        else:
            self.wasted = sum(answers[i].steps for i in late.tolist())
        whole = joined(part(selection, arrived), landing)
        landed = [answer for answer, came in zip(answers, arrived, strict=True) if came]
        landed += [flying.answer for flying in landing]
        live.assigned |= {flying.client: flying.model for flying in landing}
        self.arrived = len(whole.clients)
        np.add.at(self.counts, np.asarray(whole.clients, dtype=int), 1)
        ages = [max(0.0, flying.at - begin) for flying in landing]
        self.additions = {
            "missing": missing,
            "seconds": read_only(np.concatenate([seconds[arrived], ages])),
            "late": [flying.client for flying in landing],
        }
        return whole, landed

    def report(self, report: Report) -> Report:
        """The report with what the world adds."""
        return replace(report, **self.additions)

    def row(self) -> dict[str, Any]:
        """The columns that a world adds to the results."""
        self.world.time += self.spent  # of questions after the aggregation
        self.spent = 0.0
        squares = int((self.counts**2).sum())
        return {
            "clock": self.world.time,
            "available": len(self.present),
            "arrived": self.arrived,
            "wasted_steps": self.wasted,
            "jain": float(self.counts.sum()) ** 2 / (len(self.counts) * squares) if squares else np.nan,
            "coverage": float((self.counts > 0).mean()),
        }

    def state_dict(self) -> dict[str, Any]:
        flying = []
        for late in self.flying:
            answer = vars(late.answer) | {"update": late.answer.update.cpu()}
            flying.append(vars(late) | {"answer": answer})
        return {"time": self.world.time, "counts": self.counts, "flying": flying}

    def load_state_dict(self, state: dict[str, Any], device: Any) -> None:
        self.world.time, self.counts = state["time"], state["counts"]
        self.flying = [Flying(**late | {"answer": Answer(**late["answer"])}) for late in state["flying"]]
        for late in self.flying:
            late.answer.update = late.answer.update.to(device)


def part(selection: Selection, chosen: np.ndarray) -> Selection:
    """Some draws of a selection; chosen: (n,) bool."""
    weights, expected = (
        None if values is None else np.asarray(values)[chosen]
        for values in (selection.weights, selection.expected)
    )
    return Selection(np.asarray(selection.clients, dtype=int)[chosen], weights, expected, selection.notes)


def joined(selection: Selection, landing: Sequence[Flying]) -> Selection:
    """A selection and the late updates that arrive with it, each with the weight of its own round."""
    if not landing:
        return selection
    clients = np.append(selection.clients, [flying.client for flying in landing]).astype(int)
    weights, expected = selection.weights, selection.expected
    if weights is not None:
        weights = np.append(weights, [flying.weight for flying in landing]).astype(float)
    if expected is not None:
        expected = np.append(expected, [flying.expected for flying in landing]).astype(float)
    return Selection(clients, weights, expected, selection.notes)
