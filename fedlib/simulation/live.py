"""One run in progress: its models, its sampler and its costs."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.algorithms import by_size
from fedlib.data.partition import Partition
from fedlib.errors import SamplerError
from fedlib.samplers import Federation, Round, Sampler, find
from fedlib.samplers.checks import check_attributes, check_memory
from fedlib.settings.schema import Run
from fedlib.settings.world import Buffer
from fedlib.simulation.asynchronous import Buffered
from fedlib.simulation.guard import GlobalDraws, Guarded, check_state
from fedlib.simulation.ledger import Costs, Ledger
from fedlib.simulation.presence import Answer, Presence
from fedlib.streams import Purpose, stream
from fedlib.training.contract import Executor, Job
from fedlib.training.objective import mapped
from fedlib.world import LiveWorld

SERVER = 4  # the place of the server's samples in the stream "world"


@dataclass
class Live(Guarded):
    """One run in progress. `failed` says what ended it, if one of its methods raised an error.

    stopped: whether a program ended it before its last round.
    """

    run: Run
    partition: Partition
    executor: Executor
    t: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    diverged: bool = False
    stopped: bool = False

    def __post_init__(self) -> None:
        run, layout = self.run, self.executor.layout
        self.presence = presence_of(run, self.partition, layout.d)
        self.name = f"{run.method.sampler} (seed {run.seed})"
        self.fed = Federation(
            sizes=self.partition.sizes,
            label_counts=self.partition.labels,
            m=self.presence.world.to_select(run.m) if self.presence else run.m,
            T=run.T,
            d=layout.n_trainable,
            output_weight=layout.output_weight,
            output_bias=layout.output_bias,
        )
        kind = find(run.method.sampler)
        self.algorithm = run.method.make_algorithm()
        self.begin_round()
        with self.trying("setup", GlobalDraws()):
            self.sampler = kind(**copy.deepcopy(run.method.params))
            check_attributes(self.sampler, kind.__name__)
            check_memory(self.sampler, self.fed, run.method.sampler)
            if isinstance(self.presence, Buffered):
                self.presence.check_memory(layout.d, 1 + self.algorithm.reads_local)
            self.sampler.setup(self.fed, stream(run.seed, "setup"))
            check_state(self.sampler)
            self.rule = run.method.aggregation or self.sampler.aggregation
            self.algorithm.shares = self.fed.p if by_size(self.rule, self.sampler.draws) else None
        self.algorithm.setup(self.fed.N, layout.d, layout.n_trainable, self.executor.device)
        self.models = torch.stack(
            [self.executor.initial(stream(run.seed, "init", j)) for j in range(self.algorithm.models)]
        )
        finite = torch.isfinite(self.models).all(0)
        self.constant = None if finite.all() else ~finite  # buffers such as attention masks, never trained
        self.begin_round()

    def begin_round(self) -> None:
        self.ledger = Ledger(self.executor.layout.sent)
        self.answers: dict[int, Answer] = {}  # result of each client's first training of this round
        self.assigned: dict[int, int] = {}  # which of several models a client starts from
        self.questions, self.choices = 0, 0  # in this round; `choices`: of who trains next
        self.received: tuple[Tensor, np.ndarray, Tensor] | None = None  # the model before, clients, updates
        if self.presence:
            self.presence.begin(self.t)

    @cached_property
    def server_samples(self) -> np.ndarray:
        """The server's own validation samples: indices into the training set, of samples that no client trains on.

        Raises:
            SamplerError: the setting `validation` is missing, or there are fewer such samples.
        """
        n, owned = self.run.validation, np.concatenate(self.partition.train)
        free = np.setdiff1d(np.arange(len(self.executor.y["train"])), owned)
        if n is None or n > len(free):
            raise SamplerError(
                f"it asks for losses on the server's validation samples; set validation to at most {len(free)}, the "
                "number of training samples that no client trains on, or set holdout to have more of them"
            )
        return np.sort(stream(self.run.seed, "world", SERVER).choice(free, n, replace=False))

    @property
    def deserted(self) -> bool:
        """Whether nobody is there in this round, so that nothing is asked or selected."""
        return self.presence is not None and not len(self.presence.present)

    @property
    def ended(self) -> bool:
        """Whether the run has ended or failed."""
        return self.diverged or self.stopped or self.failed is not None or self.ends()

    def ends(self, *newest: float) -> bool:
        """Whether round t is the run's last. newest: its test accuracy, where its row does not exist yet."""
        if self.t >= self.run.T or self.run.until is None:
            return self.t >= self.run.T
        past = [row.get("test_accuracy", math.nan) for row in self.rows[1:]]
        return self.run.until.ends([*past, *newest])

    @property
    def due(self) -> bool:
        """Whether the model is measured after this round."""
        return self.t % self.run.evaluate.every == 0 or self.t == self.run.T

    @property
    def learns(self) -> bool:
        """Whether the sampler is told what came back: it has an `observe` of its own, and the run goes on."""
        observes = getattr(self.sampler.observe, "__func__", None) is not Sampler.observe
        return observes and not (self.diverged or self.failed)

    def asks(self) -> bool:
        """Whether the sampler must choose clients, once in a round or, where the server is asynchronous, again."""
        if self.failed or not self.presence:
            return not (self.failed or self.choices)
        with self.trying("select"):
            self.questions = 0
            return self.presence.asks(self.choices)
        return False

    def round(self, purpose: Purpose) -> Round:
        repeat = (self.choices,) if purpose == "select" and self.choices else ()
        rng = stream(self.run.seed, purpose, self.t, *repeat)
        return self.presence.round(self.fed, self.t, rng) if self.presence else self.fed.round(self.t, rng)

    def send_model(self, clients: Iterable[int], copies: int) -> None:
        """Count what clients still lack of `copies` vectors: the model, and what the algorithm sends with it."""
        self.ledger.send_model(clients, copies)

    @property
    def costs(self) -> Costs:
        """The costs of this round."""
        return self.ledger.costs

    def job(self, row: int, client: int, draw: int = 0, purpose: Purpose = "local") -> Job:
        """A job that trains a client from row `row` of the stacked models, with its own stream."""
        samples = self.partition.train[client]
        drawn_by = (self.run.seed, purpose, self.t, int(client), draw)
        return Job(
            run=row, samples=samples, source=partial(stream, *drawn_by), draws=(*drawn_by, id(samples))
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "t": self.t,
            "models": self.models.cpu(),
            "algorithm": mapped(Tensor.cpu, self.algorithm.state_dict()),
            "sampler": self.sampler.state_dict(),
            "rows": self.rows,
            "diverged": self.diverged,
        } | ({"world": self.presence.state_dict()} if self.presence else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self.executor.device
        self.t, self.rows, self.diverged = state["t"], state["rows"], state["diverged"]
        self.models = state["models"].to(device)
        self.algorithm.load_state_dict(mapped(lambda t: t.to(device), state["algorithm"]))
        self.sampler.load_state_dict(state["sampler"])
        if self.presence:
            self.presence.load_state_dict(state["world"], device)


def presence_of(run: Run, partition: Partition, d: int) -> Presence | None:
    """A run's world; None where everybody is always there."""
    if run.world is None:
        return None
    sizes, local = np.array([len(samples) for samples in partition.train]), run.local
    work = np.array([local.work(int(n))[1] for n in sizes])
    step = np.minimum(sizes, local.batch)
    measured = np.array([len(samples) for samples in partition.asked])
    world = LiveWorld(run.world, partition.sizes, partition.labels, d, run.seed)
    kind = Buffered if isinstance(run.world.ends, Buffer) else Presence
    return kind(world, run.m, work, step, measured)
