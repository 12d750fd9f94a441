"""One run in progress: its models, its sampler, what it has cost, and what its sampler may and may not do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.data.partition import Partition
from fedlib.samplers import Federation, Round, Selection, find
from fedlib.settings.schema import Run
from fedlib.simulation.algorithms import make_algorithm
from fedlib.streams import Purpose, stream
from fedlib.training.contract import Executor, Job


class SamplerError(ValueError):
    """A sampler broke its contract; the message names it and says how."""


@dataclass
class Costs:
    """What one run's round cost, all clients together."""

    parameters_down: int = 0
    parameters_up: int = 0
    scalars_up: int = 0
    client_steps: int = 0
    samples_evaluated: int = 0
    server_seconds: float = 0.0


@dataclass
class Answer:
    """What one client's local training gave."""

    update: Tensor
    loss: float
    steps: int


@dataclass
class Live:
    """One run in progress."""

    run: Run
    partition: Partition
    executor: Executor
    t: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    diverged: bool = False

    def __post_init__(self) -> None:
        run, layout = self.run, self.executor.layout
        self.name = f"{run.method.sampler} (seed {run.seed})"
        self.fed = Federation(
            sizes=self.partition.sizes,
            label_counts=self.partition.labels,
            m=run.m,
            T=run.T,
            d=layout.n_trainable,
            output_weight=layout.output_weight,
            output_bias=layout.output_bias,
        )
        self.sampler = find(run.method.sampler)(**run.method.params)
        try:
            self.sampler.setup(self.fed, stream(run.seed, "setup"))
        except ValueError as error:
            raise SamplerError(f"{self.name}, setup: {error}") from error
        self.rule = run.method.aggregation or self.sampler.aggregation
        self.algorithm = make_algorithm(run.method.algorithm, run.method.algorithm_params)
        self.algorithm.setup(self.fed.N, layout.d, layout.n_trainable, self.executor.device)
        self.models = torch.stack(
            [self.executor.initial(stream(run.seed, "init", j)) for j in range(self.algorithm.models)]
        )
        self.begin_round()

    def begin_round(self) -> None:
        self.costs = Costs()
        self.holds: Counter[int] = Counter()  # how much each client was sent of this round's model, in models
        self.uploaded: set[int] = set()  # clients whose full update has arrived
        self.asked: dict[int, Answer] = {}  # what each client's first training of this round gave
        self.assigned: dict[int, int] = {}  # which of several models a client starts from

    @property
    def done(self) -> bool:
        return self.diverged or self.ends()

    def ends(self, *newest: float) -> bool:
        """Whether round t is the run's last; newest: its test accuracy, where its row is not there yet."""
        if self.t >= self.run.T or self.run.until is None:
            return self.t >= self.run.T
        past = [row.get("test_accuracy", math.nan) for row in self.rows[1:]]
        return self.run.until.ends([*past, *newest])

    @property
    def due(self) -> bool:
        """Whether the model is measured after this round."""
        return self.t % self.run.evaluate.every == 0 or self.t == self.run.T

    def round(self, purpose: Purpose) -> Round:
        return Round(self.t, stream(self.run.seed, purpose, self.t))

    def send_model(self, clients: Iterable[int], copies: int) -> None:
        """Count what the clients lack of `copies`: the model, and what an algorithm sends beside it."""
        for k in set(map(int, clients)):
            self.costs.parameters_down += max(0, copies - self.holds[k]) * self.executor.layout.d
            self.holds[k] = max(copies, self.holds[k])

    def job(self, row: int, client: int, draw: int = 0, purpose: Purpose = "local") -> Job:
        """Training of a client from row `row` of the stacked models, with its own stream."""
        samples = self.partition.train[client]
        drawn_by = (self.run.seed, purpose, self.t, int(client), draw)
        return Job(run=row, samples=samples, rng=stream(*drawn_by), draws=(*drawn_by, id(samples)))

    def state_dict(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "models": self.models.cpu(),
            "algorithm": {k: v.cpu() for k, v in self.algorithm.state_dict().items()},
            "sampler": self.sampler.state_dict(),
            "rows": self.rows,
            "diverged": self.diverged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self.executor.device
        self.t, self.rows, self.diverged = state["t"], state["rows"], state["diverged"]
        self.models = state["models"].to(device)
        self.algorithm.load_state_dict({k: v.to(device) for k, v in state["algorithm"].items()})
        self.sampler.load_state_dict(state["sampler"])


def refuse(live: Live, what: str) -> SamplerError:
    """What to raise of a sampler that broke its contract in this round."""
    return SamplerError(f"{live.name}, round {live.t}: {what}.")


def check_clients(live: Live, of: str, clients: Any, least: int = 1) -> np.ndarray:
    """The clients that a selection or a question names, as an array.

    Raises:
        SamplerError: they are not whole numbers, fewer than `least`, or unknown.
    """
    clients = np.asarray(clients)
    if clients.ndim != 1 or (len(clients) and not np.issubdtype(clients.dtype, np.integer)):
        raise refuse(live, f"the {of} must be a list of whole numbers")
    if len(clients) < least:
        raise refuse(live, f"the {of} must not be empty")
    if len(clients) and (clients.min() < 0 or clients.max() >= live.fed.N):
        unknown = clients[(clients < 0) | (clients >= live.fed.N)][0]
        raise refuse(live, f"the {of} must be 0 to {live.fed.N - 1}; there is no client {unknown}")
    return clients


def check(live: Live, selection: Any) -> Selection:
    """The selection, if it keeps the sampler's contract.

    Raises:
        SamplerError: it is no Selection, or names unknown or repeated clients, no client, or unusable weights.
    """
    if not isinstance(selection, Selection):
        raise refuse(live, f"select must return a Selection, not {type(selection).__name__}")
    least = 0 if live.sampler.draws == "random" else 1
    clients = check_clients(live, "clients of its Selection", selection.clients, least)
    if live.sampler.draws != "repeated" and len(np.unique(clients)) < len(clients):
        raise refuse(live, "a client was chosen twice; a sampler that means it says draws = 'repeated'")
    for what, values in (("weights", selection.weights), ("expected", selection.expected)):
        if values is not None and (np.shape(values) != clients.shape or not np.isfinite(values).all()):
            raise refuse(live, f"its {what} must be one finite number a draw")
    if live.rule == "ipw" and selection.weights is None and selection.expected is None:
        raise refuse(live, "it states no expected draws for aggregation ipw to divide by; name another rule")
    return selection


def plain(value: Any) -> Any:
    """Numpy values as JSON."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)
