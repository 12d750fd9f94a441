"""A run in its world: who is there in a round, whose update arrives, what time it is, and the columns that say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import Tensor

from fedlib.algorithms import FedAvg, aggregation_weights
from fedlib.errors import SamplerError
from fedlib.samplers import (
    Aggregation,
    Federation,
    Gradients,
    Report,
    Round,
    Selection,
    TrialLosses,
    Updates,
    read_only,
)
from fedlib.simulation.ledger import Ledger, earlier_draws
from fedlib.training.contract import Executor
from fedlib.world import LiveWorld

FORWARD = 1 / 3  # of the seconds that training on a sample takes, a loss takes (FedScale)


@dataclass
class Answer:
    """The result of one client's local training.

    lr, t: the learning rate and the number of its round. model: which of the run's models it started from.
    local: the client's model after it, of an update that arrives later, where the algorithm reads it
        (`FedAvg.reads_local`).
    """

    update: Tensor
    loss: float
    steps: int
    lr: float
    t: int
    model: int = 0
    local: Tensor | None = None


class InRound(Protocol):
    """What is read of a run in a round: a `Live`."""

    fed: Federation
    executor: Executor
    algorithm: FedAvg
    rule: Aggregation
    models: Tensor
    failed: SamplerError | None
    ledger: Ledger
    choices: int
    answers: dict[int, Answer]


@dataclass
class Flying:
    """An answer on its way: of an earlier round, and arriving at second `at`.

    weight: in its own round; stated: by the sampler. expected: draws of its client, where its selection stated them.
    """

    at: float
    client: int
    answer: Answer
    weight: float
    stated: bool
    expected: float | None


@dataclass
class Presence:
    """What a run's world changes in its rounds. Only `world.time`, `flying` and `counts` last longer than a round.

    m: clients that the server wants in a round. local: (N,) samples that each client trains on in a round; step: in one
        step; measured: (N,) samples on which it measures its loss.
    present: clients that are there. absent: selected, and not there. spent: seconds that questions took. ready,
        uploaded, held: clients that had trained, those that had sent their update, and the models that each had, before
        clients were selected. counts: (N,) updates of each client that arrived.
    """

    flight: ClassVar[type[Flying]] = Flying

    world: LiveWorld
    m: int
    local: np.ndarray
    step: np.ndarray
    measured: np.ndarray
    present: np.ndarray = field(init=False)
    flying: list[Any] = field(default_factory=list)  # `flight`

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.local), dtype=int)
        self.begin(0)

    @property
    def absences(self) -> str:
        return self.world.settings.absences

    def begin(self, t: int) -> None:
        """The state at the start of round t; 0 is the time before the first round."""
        self.t, self.began = t, self.world.time
        awake = self.world.present(t) if t else np.arange(len(self.local))
        self.present = np.setdiff1d(awake, [flying.client for flying in self.flying])
        self.absent: list[int] = []
        self.spent, self.ready, self.uploaded = 0.0, set[int](), set[int]()
        self.held = Counter[int]()
        self.wasted = self.arrived = 0
        self.additions: dict[str, Any] = {}

    def round(self, fed: Federation, t: int, rng: np.random.Generator) -> Round:
        """What the sampler is told of round t."""
        hidden = self.absences == "hidden"
        ids = fed.everyone if hidden else self.present
        m = len(ids) if self.absences == "all" else min(fed.m, len(ids))
        return Round(t, rng, read_only(ids), m, self.world.time + self.spent, silent=hidden)

    def asks(self, choices: int) -> bool:
        """Whether the sampler must choose; choices: how often it has in this round."""
        return not choices and len(self.present) > 0

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
        clients, size, algorithm = question.clients, live.ledger.size, live.algorithm
        new = np.array([int(k) not in live.answers for k in clients])
        down = size * lacking(live.ledger.holds, clients, 1)
        match question:
            case Updates():
                down = size * lacking(live.ledger.holds, clients, algorithm.payload * algorithm.models)
                sent = size if question.parameters is None else question.parameters
                self.take(clients, new * self.local[clients], down, sent + question.scalars)
            case Gradients():
                self.take(clients, self.step[clients], down, size)
            case _:
                if isinstance(question, TrialLosses):
                    train = np.asarray(question.train)
                    self.take(train, self.local[train], size * lacking(live.ledger.holds, train, 1), size)
                    down = np.full(len(clients), size)
                self.take(clients, FORWARD * self.measured[clients], down, 1)

    def take(self, clients: np.ndarray, samples: np.ndarray, down: np.ndarray, sent: int) -> None:
        self.spent += float(self.world.seconds(clients, samples, down, np.full(len(clients), sent)).max())

    # -- the end of a round ------------------------------------------------------------------------------------

    def met(self, live: InRound, selection: Selection) -> Selection:
        """The draws of a selection whose clients are there."""
        came = np.isin(selection.clients, self.present)
        self.absent = np.asarray(selection.clients)[~came].tolist()
        self.ready, self.uploaded = set(live.answers), set(live.ledger.uploaded)
        self.held = live.ledger.holds.copy()
        return part(selection, came)

    def end(
        self, live: InRound, selection: Selection, answers: Sequence[Answer]
    ) -> tuple[Selection, list[Answer]]:
        """The draws whose updates are aggregated in this round, and their answers; moves the clock to its end."""
        clients, world = np.asarray(selection.clients, dtype=int), self.world
        live.ledger.upload_draws(clients.tolist(), live.algorithm.payload)
        seconds = self.seconds(live, clients)
        stays = world.stays(self.t)
        begin = world.time + self.spent
        arrived, length = world.end(
            seconds, self.m, None if stays is None else stays[clients], len(self.absent)
        )
        world.time, self.spent = begin, 0.0
        world.time = (
            begin + length
            if len(clients)
            else world.empty_until(min((late.at for late in self.flying), default=np.inf))
        )
        if not world.time > self.began:
            raise SamplerError(
                f"the clock of its world stands still at {self.began:g} s; a round must last longer than numbers of "
                "this size can tell apart, so let clients be slower, or a deadline later"
            )
        landing = [late for late in self.flying if late.at <= world.time]
        self.flying = [late for late in self.flying if late.at > world.time]
        lost = ~arrived
        if world.settings.late == "keep":
            lost = np.zeros_like(arrived) if stays is None else seconds > stays[clients]
            for i in np.flatnonzero(~(arrived | lost)).tolist():
                self.flying.append(self.late(live, selection, i, answers[i], begin + float(seconds[i])))
        self.wasted = sum(answers[i].steps for i in np.flatnonzero(lost).tolist())
        missing = self.absent + clients[~arrived].tolist()
        whole = joined(part(selection, arrived), landing, live.rule, live.fed.sizes)
        landed = [answer for answer, came in zip(answers, arrived, strict=True) if came]
        landed += [late.answer for late in landing]
        self.arrived = len(whole.clients)
        np.add.at(self.counts, np.asarray(whole.clients, dtype=int), 1)
        ages = [max(0.0, late.at - begin) for late in landing]
        self.additions = {
            "missing": missing,
            "seconds": read_only(np.concatenate([seconds[arrived], ages])),
            "late": [late.client for late in landing],
        }
        return whole, landed

    def seconds(self, live: InRound, clients: np.ndarray) -> np.ndarray:
        """(n,) seconds from the selection until each draw has answered; a client's draws come one after another.

        What was sent or computed for a question is not sent or computed again, as in the ledger.
        """
        size, algorithm = live.ledger.size, live.algorithm
        first = np.array(earlier_draws(clients.tolist()), dtype=int) == 0
        trained = first & np.isin(clients, list(self.ready))
        sent = first & np.isin(clients, list(self.uploaded))
        down = size * first * lacking(self.held, clients, algorithm.payload * algorithm.models)
        samples = np.where(trained, 0, self.local[clients]).astype(float)
        seconds = self.world.seconds(clients, samples, down, size * (algorithm.payload - sent))
        for k in np.unique(clients[~first]):
            seconds[clients == k] = np.cumsum(seconds[clients == k])
        return seconds

    def late(self, live: InRound, selection: Selection, i: int, answer: Answer, at: float) -> Flying:
        """Draw i of a selection, which arrives in a later round, at second `at`."""
        k, expected = int(selection.clients[i]), selection.expected
        answer = detached(live, answer)
        weights = aggregation_weights(live.rule, selection, live.fed.sizes)
        return Flying(
            at=at,
            client=k,
            answer=answer,
            weight=float(weights[i]),
            stated=selection.weights is not None,
            expected=None if expected is None else float(expected[i]),
        )

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
            answer = vars(late.answer)
            flying.append(vars(late) | {"answer": {key: on(value, "cpu") for key, value in answer.items()}})
        return {"time": self.world.time, "counts": self.counts, "flying": flying}

    def load_state_dict(self, state: dict[str, Any], device: Any) -> None:
        self.world.time, self.counts = state["time"], state["counts"]
        for late in state["flying"]:
            answer = Answer(**{key: on(value, device) for key, value in late["answer"].items()})
            self.flying.append(self.flight(**late | {"answer": answer}))


def on(value: Any, device: Any) -> Any:
    """A tensor on a device; any other value unchanged."""
    return value.to(device) if isinstance(value, Tensor) else value


def detached(live: InRound, answer: Answer) -> Answer:
    """An answer that outlives its round: not a part of a larger tensor, and with the local model where that is read."""
    local = live.models[answer.model] + answer.update if live.algorithm.reads_local else None
    return replace(answer, update=answer.update.clone(), local=local)


def together(selections: Sequence[Selection]) -> Selection:
    """All draws of a round, whose sampler chose never, once or again."""
    if len(selections) == 1:
        return selections[0]
    clients = [np.asarray(selection.clients, dtype=int) for selection in selections]
    notes = {key: value for selection in selections for key, value in selection.notes.items()}
    return Selection(np.concatenate([np.zeros(0, int), *clients]), notes=notes)


def lacking(holds: Counter[int], clients: Iterable[int], copies: int) -> np.ndarray:
    """(n,) how many of `copies` model-sized vectors each client has not been sent yet."""
    return np.array([max(0, copies - holds[int(k)]) for k in clients], dtype=int)


def part(selection: Selection, chosen: np.ndarray) -> Selection:
    """Some draws of a selection; chosen: (n,) bool."""
    weights, expected = (
        None if values is None else np.asarray(values)[chosen]
        for values in (selection.weights, selection.expected)
    )
    return Selection(np.asarray(selection.clients, dtype=int)[chosen], weights, expected, selection.notes)


def joined(
    selection: Selection, landing: Sequence[Flying], rule: Aggregation, sizes: np.ndarray
) -> Selection:
    """A selection and the late updates that arrive with it.

    Where the sampler stated weights, each has that of its own round. Otherwise, the rule weights all of them together.
    """
    if not landing:
        return selection
    clients = np.append(selection.clients, [late.client for late in landing]).astype(int)
    weights, expected = selection.weights, selection.expected
    if weights is not None or any(late.stated for late in landing):
        own = aggregation_weights(rule, selection, sizes) if len(selection.clients) else np.zeros(0)
        weights = np.append(own, [late.weight for late in landing])
    draws = np.array([late.expected for late in landing], dtype=float)  # NaN where none are stated
    if np.isnan(draws).any() or (expected is None and len(selection.clients)):
        expected = None
    else:
        expected = np.append(np.zeros(0) if expected is None else expected, draws)
    return Selection(clients, weights, expected, selection.notes)
