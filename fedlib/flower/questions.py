"""Send a sampler's questions to clients as messages, and count their costs as the engine does."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from fedlib.errors import SamplerError
from fedlib.flower.answers import ASK
from fedlib.flower.records import FlatModel, has, number, only_arrays
from fedlib.flower.wire import Request, Wire, is_count
from fedlib.samplers import Gradients, Losses, Selection, TrialLosses, Updates, answered
from fedlib.simulation.ledger import Ledger

T = TypeVar("T")
LARGEST = float(np.finfo(np.float32).max)  # models are averaged in single precision


@dataclass(frozen=True)
class Metrics:
    """Names of the metrics that the user's own functions return. steps: of a training, where they report it."""

    train_loss: str = "train_loss"
    eval_loss: str = "eval_loss"
    examples: str = "num-examples"
    steps: str = "steps"


@dataclass(frozen=True)
class ClientResult:
    """The result of one client's training: its model (d,), its loss, its steps."""

    flat: np.ndarray
    loss: float
    steps: int


@dataclass
class Asker:
    """The questions of one round, about one global model `arrays` after another.

    config: what every message of the round also contains.
    """

    wire: Wire
    model: FlatModel
    metrics: Metrics
    arrays: ArrayRecord
    config: dict[str, Any]

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.model.d)
        self.ask_about(self.arrays)

    def ask_about(self, arrays: ArrayRecord) -> None:
        """From now on, questions are about this global model, which no client has yet."""
        self.arrays, self.start = arrays, self.model.flat(arrays)
        self.ledger.new_model()
        self.trained: dict[int, ClientResult] = {}  # clients whose complete training result has arrived
        self.encoded_only: set[int] = set()  # clients that have trained but sent only their encoded update

    def converse(self, method: Callable, *arguments: Any) -> Any:
        """Call a sampler's method; if it yields questions, answer them."""
        started, waited = time.perf_counter(), 0.0

        def answer(question: Any) -> np.ndarray:
            nonlocal waited
            asked_at = time.perf_counter()
            rows = self.answer(question)
            waited += time.perf_counter() - asked_at
            return rows

        result = answered(method(*arguments), answer)
        self.ledger.costs.server_seconds += time.perf_counter() - started - waited
        return result

    def answer(self, question: Any) -> np.ndarray:
        """(n, ...) one row per asked client; a client that failed gets the mean of the others.

        Raises:
            SamplerError: it is not a question, or no client answered.
        """
        handlers = {
            Updates: self.updates,
            Gradients: self.gradients,
            Losses: lambda losses: self.losses(losses.clients, self.arrays),
            TrialLosses: self.trial_losses,
        }
        if type(question) not in handlers:
            raise SamplerError(f"the sampler yielded a {type(question).__name__}, which is not a question.")
        rows = handlers[type(question)](question)
        came = [row for row in rows if row is not None]
        if not came:
            raise SamplerError(
                f"no client answered the sampler's {type(question).__name__}{self.wire.reason}."
            )
        otherwise = np.mean(np.stack(came), axis=0)
        return np.stack([otherwise if row is None else row for row in rows])

    # -- one method per kind of question -----------------------------------------------------------------------

    def updates(self, question: Updates) -> list[np.ndarray | None]:
        plain = question.encode is Updates.__dataclass_fields__["encode"].default
        config = {ASK: "train" if plain else "encoded", "purpose": "local"}
        clients = [int(k) for k in question.clients]
        new = [k for k in clients if k not in self.trained]
        self.ledger.send_model(new)
        encoded: dict[int, np.ndarray] = {}

        def receive(k: int, content: RecordDict) -> None:
            if "encoded" not in content.array_records:
                self.arrived(k, content)
                return
            encoded[k] = content["encoded"]["encoded"].numpy()
            self.encoded_only.add(k)
            self.ledger.train(self.steps(content))
            self.ledger.upload([k], question.parameters, question.scalars)

        self.ask([self.request(k, "train", config) for k in new], receive)
        for k in set(clients) & set(self.trained):
            update = self.trained[k].flat - self.start
            encoded[k] = question.encode(update[None, : self.model.n_trained])[0]
        return [encoded.get(k) for k in clients]

    def gradients(self, question: Gradients) -> list[np.ndarray | None]:
        self.ledger.send_model(question.clients)
        config = {ASK: "gradient", "purpose": "question"}

        def receive(k: int, content: RecordDict) -> np.ndarray:
            self.ledger.gradients(1)
            return self.model.flat(only_arrays(content))[: self.model.n_trained]

        return self.ask([self.request(k, "train", config) for k in question.clients], receive)

    def losses(self, clients: Iterable[int], arrays: ArrayRecord) -> list[float | None]:
        """The clients' losses of a model, computed by their own evaluate functions."""
        if arrays is self.arrays:
            self.ledger.send_model(clients)

        def receive(k: int, content: RecordDict) -> float:
            self.ledger.losses(1, int(number(content, self.metrics.examples)))
            return number(content, self.metrics.eval_loss)

        return self.ask([self.request(k, "evaluate", {}, arrays) for k in clients], receive)

    def trial_losses(self, question: TrialLosses) -> list[float | None]:
        self.ledger.send_model(question.train)
        config = {ASK: "train", "purpose": "probe"}
        results = self.ask(
            [self.request(k, "train", config) for k in question.train], lambda k, content: self.read(content)
        )
        trained = [result for result in results if result is not None]
        if not trained:
            return [None] * len(question.clients)
        self.ledger.trial(len(trained), sum(result.steps for result in trained), len(question.clients))
        mean = np.mean([result.flat - self.start for result in trained], axis=0)
        trial = self.model.record(self.start + mean, self.arrays)
        return self.losses(question.clients, trial)

    def ask(self, requests: Sequence[Request], receive: Callable[[int, RecordDict], T]) -> list[T | None]:
        """What `receive` makes of each client's reply; None for clients that failed."""
        replies = zip(requests, self.wire.ask(requests), strict=True)
        return [None if content is None else receive(request.client, content) for request, content in replies]

    # -- training of the selected clients ----------------------------------------------------------------------

    def selected(self, draws: Sequence[tuple[int, int]]) -> list[Request]:
        """Messages to the (client, draw) pairs whose training has not arrived as the answer to a question."""
        self.ledger.send_model(k for k, _ in draws)
        return [
            self.request(k, "train", {ASK: "train", "purpose": "local", "draw": draw})
            for k, draw in draws
            if draw or k not in self.trained
        ]

    def arrived(self, client: int, content: RecordDict, draw: int = 0) -> ClientResult:
        """Count and read a complete training result; the first one of a client is remembered."""
        trained = self.read(content)
        self.ledger.upload_draws([client])
        if draw or client not in self.encoded_only:
            self.ledger.train(trained.steps)
        if not draw:
            self.trained[client] = trained
        return trained

    # -- messages ----------------------------------------------------------------------------------------------

    def request(
        self, client: int, kind: str, config: dict[str, Any], arrays: ArrayRecord | None = None
    ) -> Request:
        names = {"names": list(self.model.trained)} if config.get(ASK) == "encoded" else {}
        config = self.config | {"draw": 0} | names | config
        return Request(int(client), kind, self.arrays if arrays is None else arrays, config)

    def read(self, content: RecordDict) -> ClientResult:
        return ClientResult(
            self.model.flat(only_arrays(content)),
            number(content, self.metrics.train_loss),
            self.steps(content),
        )

    def steps(self, content: RecordDict) -> int:
        return int(number(content, self.metrics.steps, otherwise=0))


def problem(request: Request, content: RecordDict, model: FlatModel, metrics: Metrics) -> str:
    """What is wrong with a client's reply, as a clause; empty if it can be used."""
    if request.kind == "evaluate":
        numbers, counted = [number(content, metrics.eval_loss)], metrics.examples
    else:
        record = content.array_records.get("encoded") or only_arrays(content)
        arrays = {name: array.numpy() for name, array in record.items()}
        for name, shape in model.shapes.items() if "encoded" not in arrays else ():
            if name not in arrays:
                return f"its model has no array {name!r}"
            if arrays[name].shape != shape:
                return f"its array {name!r} has shape {arrays[name].shape}, not {shape}"
        if any(a.dtype.kind == "f" and not (np.abs(a) <= LARGEST).all() for a in arrays.values()):
            return "its model holds values that are not finite in single precision"
        numbers, counted = [], metrics.steps if has(content, metrics.steps) else ""
        if request.config.get(ASK) == "train":
            numbers.append(number(content, metrics.train_loss))
    numbers += [number(content, counted)] if counted else []
    if not np.isfinite(numbers).all():
        return "its metrics are not finite"
    if counted and not is_count(number(content, counted)):
        return f"its {counted} is {number(content, counted):g}, and must be a whole number from 0"
    return ""


def only(selection: Selection, came: Sequence[bool]) -> Selection:
    """The selection, with only the draws that returned a result."""
    rows = np.asarray(came, dtype=bool)
    weights, expected = (
        None if values is None else np.asarray(values)[rows]
        for values in (selection.weights, selection.expected)
    )
    return dataclasses.replace(selection, clients=selection.clients[rows], weights=weights, expected=expected)
