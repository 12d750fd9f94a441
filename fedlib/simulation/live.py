"""One run in progress: its models, its sampler, its costs, and checks of what its sampler returns."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedlib.data.partition import Partition
from fedlib.errors import SamplerError
from fedlib.samplers import Federation, Round, Sampler, Selection, find
from fedlib.samplers.checks import check_attributes, check_memory
from fedlib.settings.schema import Run
from fedlib.simulation.guard import Guarded, Watch
from fedlib.simulation.presence import Answer, Presence
from fedlib.streams import Purpose, stream
from fedlib.training.contract import Executor, Job
from fedlib.world import World

SERVER = 4  # the place of the server's samples in the stream "world"


@dataclass
class Costs:
    """The cost of one run's round, summed over the clients."""

    parameters_down: int = 0
    parameters_up: int = 0
    scalars_up: int = 0
    client_steps: int = 0
    samples_evaluated: int = 0
    server_seconds: float = 0.0


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
            m=self.presence.world.asked(run.m) if self.presence else run.m,
            T=run.T,
            d=layout.n_trainable,
            output_weight=layout.output_weight,
            output_bias=layout.output_bias,
        )
        kind = find(run.method.sampler)
        self.begin_round()
        with self.trying("setup", Watch()):
            self.sampler = kind(**copy.deepcopy(run.method.params))
            check_attributes(self.sampler, kind.__name__)
            check_memory(self.sampler, self.fed, run.method.sampler)
            self.sampler.setup(self.fed, stream(run.seed, "setup"))
            check_state(self.sampler)
            self.rule = run.method.aggregation or self.sampler.aggregation
        self.algorithm = run.method.make_algorithm()
        self.algorithm.setup(self.fed.N, layout.d, layout.n_trainable, self.executor.device)
        self.models = torch.stack(
            [self.executor.initial(stream(run.seed, "init", j)) for j in range(self.algorithm.models)]
        )
        finite = torch.isfinite(self.models).all(0)
        self.constant = (
            None if finite.all() else ~finite
        )  # entries of buffers such as attention masks, never trained
        self.begin_round()

    def begin_round(self) -> None:
        self.costs = Costs()
        self.holds: Counter[int] = Counter()  # models of this round that each client was sent
        self.uploaded: set[int] = set()  # clients whose full update has arrived
        self.asked: dict[int, Answer] = {}  # result of each client's first training of this round
        self.assigned: dict[int, int] = {}  # which of several models a client starts from
        self.questions = 0
        self.received: tuple[Tensor, np.ndarray, Tensor] | None = None  # the model before, clients, updates
        if self.presence:
            self.presence.begin(self.t)

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
        return self.presence is not None and not len(self.presence.here)

    @property
    def done(self) -> bool:
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
        own = getattr(self.sampler.observe, "__func__", None) is not Sampler.observe
        return own and not (self.diverged or self.failed)

    def round(self, purpose: Purpose) -> Round:
        rng = stream(self.run.seed, purpose, self.t)
        return self.presence.round(self.fed, self.t, rng) if self.presence else self.fed.round(self.t, rng)

    def send_model(self, clients: Iterable[int], copies: int) -> None:
        """Count what clients still lack of `copies` vectors: the model, and what the algorithm sends with it."""
        for k in set(map(int, clients)):
            self.costs.parameters_down += max(0, copies - self.holds[k]) * self.executor.layout.sent
            self.holds[k] = max(copies, self.holds[k])

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
            "algorithm": {k: v.cpu() for k, v in self.algorithm.state_dict().items()},
            "sampler": self.sampler.state_dict(),
            "rows": self.rows,
            "diverged": self.diverged,
        } | ({"world": self.presence.state_dict()} if self.presence else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        device = self.executor.device
        self.t, self.rows, self.diverged = state["t"], state["rows"], state["diverged"]
        self.models = state["models"].to(device)
        self.algorithm.load_state_dict({k: v.to(device) for k, v in state["algorithm"].items()})
        self.sampler.load_state_dict(state["sampler"])
        if self.presence:
            self.presence.load_state_dict(state["world"], device)


def presence_of(run: Run, partition: Partition, d: int) -> Presence | None:
    """A run's world; None where everybody is always there."""
    if run.world is None:
        return None
    sizes, local = np.array([len(samples) for samples in partition.train]), run.local
    work = local.epochs * sizes if local.epochs else (local.steps or 0) * np.minimum(local.batch, sizes)
    asked = np.array([len(samples) for samples in partition.asked])
    world = World(run.world, partition.sizes, partition.labels, d, run.seed)
    return Presence(world, run.m, work, asked, local.batch)


def check_clients(live: Live, of: str, clients: Any, least: int = 1) -> np.ndarray:
    """The clients that a selection or a question names, as a separate array.

    Raises:
        SamplerError: they are not whole numbers, are fewer than `least`, or do not exist.
    """
    clients = np.array(clients)
    if clients.ndim != 1 or (len(clients) and not np.issubdtype(clients.dtype, np.integer)):
        raise SamplerError(f"the {of} must be a list of whole numbers")
    if len(clients) < least:
        raise SamplerError(f"the {of} must not be empty")
    if len(clients) and (clients.min() < 0 or clients.max() >= live.fed.N):
        unknown = clients[(clients < 0) | (clients >= live.fed.N)][0]
        raise SamplerError(f"the {of} must be 0 to {live.fed.N - 1}; there is no client {unknown}")
    return clients.astype(int)


def check(live: Live, selection: Any, round: Round | None = None) -> Selection:
    """The selection, if it keeps the sampler's contract, with arrays that the sampler cannot change.

    round: of a run in a world, where a sampler may choose fewer than the round's m, and only those that are available.

    Raises:
        SamplerError: it is not a Selection; it names unknown or repeated clients, too few or too many; or its weights
            or expected draws are unusable.
    """
    if not isinstance(selection, Selection):
        raise SamplerError(f"select must return a Selection, not {type(selection).__name__}")
    draws, m = live.sampler.draws, round.m if round else live.fed.m
    least = 0 if draws == "random" or round else 1
    clients = check_clients(live, "clients of its Selection", selection.clients, least)
    if round and not np.isin(clients, round.available).all():
        absent = np.setdiff1d(clients, round.available)[0]
        raise SamplerError(f"it chose client {absent}, who is absent; choose among round.available")
    if draws != "repeated" and len(np.unique(clients)) < len(clients):
        raise SamplerError("a client was chosen twice; a sampler that allows this sets draws = 'repeated'")
    numbers: dict[str, np.ndarray | None] = {}
    for what, values in (("weights", selection.weights), ("expected", selection.expected)):
        numbers[what] = values = None if values is None else np.array(values)
        if values is not None and (values.shape != clients.shape or not np.isfinite(values).all()):
            raise SamplerError(f"its {what} must be one finite number per draw")
    if (expected := numbers["expected"]) is not None and not (expected > 0).all():
        raise SamplerError(
            "its expected draws must be above zero: each drawn client is expected, and ipw divides by them"
        )
    if draws != "random" and not (len(clients) == m or ((live.sampler.fewer or round) and len(clients) < m)):
        raise SamplerError(
            f"it chose {len(clients)} clients, but m is {m}; a sampler that picks any number sets draws = 'random', "
            "one that may pick fewer sets fewer = True"
        )
    if live.rule == "ipw" and numbers["weights"] is None and expected is None:
        raise SamplerError("it states no expected draws, which aggregation ipw divides by; name another rule")
    return Selection(clients, **numbers, notes=selection.notes)


def check_state(sampler: Sampler) -> None:
    """Raise SamplerError if a sampler keeps a generator: its draws would depend on the order of events."""
    for name, value in vars(sampler).items():
        if isinstance(value, np.random.Generator | np.random.RandomState | random.Random | torch.Generator):
            raise SamplerError(
                f"it keeps a generator of its own, self.{name}; draw from round.rng, or in setup from rng"
            )


def plain(value: Any) -> Any:
    """A numpy or torch value as plain numbers, for JSON.

    Raises:
        TypeError: it is another object, whose text may differ from run to run.
    """
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is neither a number, a text, a list nor a mapping of these")
