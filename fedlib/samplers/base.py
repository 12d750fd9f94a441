"""The contract between client selection and the engine: what a sampler is, what it may ask, and what it learns.

A sampler is a small dataclass. Its fields are its hyper-parameters, in the paper's symbols, and `params.yaml` may set
them. Everything else that it sets on itself is its state, which the engine saves and restores::

    @register("power_of_choice")
    @dataclass
    class PowerOfChoice(Sampler):
        '''Cho et al. 2022, Algorithm 1: the m candidates with the highest loss among d.'''
        d: int = 10

        def select(self, round):
            A = round.rng.choice(self.fed.N, self.d, replace=False, p=self.fed.p)
            losses = yield Losses(A)
            return Selection(A[np.argsort(losses)[::-1][: self.fed.m]])

A sampler that needs answers from the clients yields a question and receives the answer. A sampler that needs none
returns its `Selection` like any method. The engine gathers the questions of all runs that advance together, answers
them in one batch, and charges each run for the cost of its questions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from fedlib.kinds import Count, NotNegative, Positive, Share, Whole
from fedlib.samplers.registry import register

__all__ = [
    "Aggregation",
    "Asking",
    "Count",
    "Federation",
    "Gradients",
    "Information",
    "Losses",
    "NotNegative",
    "Positive",
    "Question",
    "Report",
    "Round",
    "Sampler",
    "Selection",
    "ServerLosses",
    "Share",
    "TrialLosses",
    "Updates",
    "Whole",
    "read_only",
    "register",
    "sees",
]

Aggregation = Literal["mean", "data_size", "attrition", "ipw"]
Information = Literal["losses", "updates", "labels", "validation set", "speeds"]


def read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view of `array`: what one sampler is given, other samplers and the engine may hold too."""
    seen = np.asarray(array).view()
    seen.flags.writeable = False
    return seen


@dataclass(frozen=True)
class Federation:
    """What stays the same during a run: the clients, and what the server must do. Arrays are read-only.

    sizes: (N,) training samples of each client.
    label_counts: (N, K) training samples by client and label. A real server does not know them. Only the target sampler
        and the oracle may look: they are references, not methods.
    m: clients (draws) per round. T: rounds of the run.
    d: trained parameters of the model. A sampler sees only these of an update. The statistics of batch normalisation
        are averaged too, but a sampler does not see them: they would drown everything else.
    output_weight, output_bias: positions of the output layer's (K, L) weight and (K,) bias in a flat (d,) update; None
        where the model has no known output layer.
    """

    sizes: np.ndarray
    label_counts: np.ndarray
    m: int
    T: int
    d: int
    output_weight: slice | None
    output_bias: slice | None

    def __post_init__(self) -> None:
        for name in ("sizes", "label_counts"):
            object.__setattr__(self, name, read_only(np.array(getattr(self, name))))

    @property
    def N(self) -> int:
        """Number of clients."""
        return len(self.sizes)

    @property
    def K(self) -> int:
        """Number of classes."""
        return self.label_counts.shape[1]

    @cached_property
    def p(self) -> np.ndarray:
        """(N,) data shares p_k = n_k / sum n."""
        return read_only(self.sizes / self.sizes.sum())

    @property
    def everyone(self) -> np.ndarray:
        """(N,) ids of all clients, 0 to N - 1."""
        return np.arange(self.N)

    def shares(self, clients: np.ndarray) -> np.ndarray:
        """(n,) data shares among `clients` alone: n_k over their sum; p itself for everyone."""
        return self.sizes[clients] / self.sizes[clients].sum()

    def round(self, t: int, rng: np.random.Generator, available: np.ndarray | None = None) -> Round:
        """Round t, in which everyone is there or only the clients `available`."""
        ids = self.everyone if available is None else available
        return Round(t, rng, read_only(ids), min(self.m, len(ids)))


@dataclass(frozen=True)
class Round:
    """One round: its 1-based number t and its own generator, which does not depend on how the run is executed.

    available: ids of the clients that the server may select, ascending; everyone where nobody is ever absent, and where
        the server does not see who is absent. Read-only. Never empty in `select`; in `observe`, late updates may arrive
        in a round in which nobody is there.
    m: how many it selects: fewer than the federation's m where fewer are available, and all that are available in a
        world where all of them train.
    time: seconds since the start of the run, on the clock of its world; 0 without a world.
    silent: whether clients that are asked may not answer. Their answer is then NaN (see `answered`).
    """

    t: int
    rng: np.random.Generator
    available: np.ndarray
    m: int
    time: float = 0.0
    silent: bool = False

    def answered(self, clients: np.ndarray, answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The asked clients (n,) that answered, and their answers (n, ...): all of them, unless clients may be silent.

        Only the absences of a world count: a client that diverged has answered, with numbers that are not finite.
        """
        if not self.silent:
            return clients, answers
        came = ~np.isnan(answers.reshape(len(answers), -1)).all(axis=1)
        return clients[came], answers[came]


class Question:
    """What a sampler may ask. Each kind is a frozen dataclass; its fields say what is asked, and of whom (`clients`).

    A question is answered at the current global model: in `select`, the model that the round starts from; in `observe`,
    the model that the round ended with.
    reveals: the class of information that an answer belongs to. method: of the engine, which answers it.
    """

    reveals: ClassVar[Information] = "updates"
    method: ClassVar[str]

    @classmethod
    def answer(cls, engine: Any, asked: Sequence[tuple[Any, Any]]) -> list[Any]:
        """The answer to each question, and its costs. A kind that the engine does not know overrides this.

        engine: the `simulation.engine.Lockstep` in which the runs advance. asked: (run, question) pairs, where a run is
        a `simulation.live.Live`: `run.models`, `run.partition`, `run.costs`, `run.send_model`.
        """
        return getattr(engine, cls.method)(asked)


@dataclass(frozen=True)
class Updates(Question):
    """The updates that `clients` would send after full local training from the global model -> (n, d) float32.

    A client that is asked and then selected trains once: its work is neither repeated nor charged twice.
    parameters, scalars: what each client uploads (default: all d parameters). A compressed update of d' values has
        `parameters=d'`; a norm has `parameters=0, scalars=1`.
    encode: (n, d) -> (n, ...), row by row: what each client computes from its update and sends instead of it. The
        result is the answer to the question. Its time counts as the clients', not the server's.
    """

    method = "updates"

    clients: np.ndarray
    parameters: int | None = None
    scalars: int = 0
    encode: Callable[[np.ndarray], np.ndarray] = lambda updates: updates


@dataclass(frozen=True)
class Gradients(Question):
    """One-step gradients: the mean gradient of one mini-batch of each of `clients` -> (n, d) float32."""

    method = "gradients"

    clients: np.ndarray


@dataclass(frozen=True)
class Losses(Question):
    """Mean loss of the global model on each client's data -> (n,).

    It is measured on the client's hold-out part where the partition keeps one, and on its training part otherwise.
    """

    reveals = "losses"
    method = "losses"

    clients: np.ndarray


@dataclass(frozen=True)
class TrialLosses(Question):
    """Losses of `clients` at a trial model: `train` are trained from the global model and plainly averaged -> (n,).

    The trial model is thrown away. Between its updates, FedCor obtains a sample of loss changes in this way.
    """

    reveals = "losses"
    method = "trial_losses"

    train: np.ndarray
    clients: np.ndarray


@dataclass(frozen=True)
class ServerLosses(Question):
    """Mean loss on the server's own validation samples of mean models -> (n,), in `observe` only.

    teams: n lists of positions in the report. Each is answered for the model that the round began with plus the
        average of these positions' updates, weighted by the clients' sizes; for an empty list, that model itself.
    The run's setting `validation` says how many samples the server has.
    """

    reveals = "validation set"
    method = "server_losses"

    teams: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Selection:
    """Which clients train this round, and how their updates are weighted.

    clients: (n,) ids, one entry per draw. A client that is drawn twice trains twice, independently.
    weights: (n,) weight of each draw's update: new = old + sum_k weights_k * update_k. They need not sum to 1; the
        missing share stays on the old model. None: the run's aggregation rule decides.
    expected: (n,) expected number of draws of each drawn client under the sampling scheme. The rule IPW divides by it.
        None where the scheme does not define it.
    notes: numbers worth keeping (cluster sizes, estimates); they are stored in the results as they are.
    """

    clients: np.ndarray
    weights: np.ndarray | None = None
    expected: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What the selected clients sent, one entry per draw, in the order of the selection. Arrays are read-only.

    clients: (n,) ids.
    updates: (n, d) float32.
    losses: (n,) mean training loss over the last local epoch, or over all steps where the work is counted in steps.
    missing: selected clients of which nothing arrived in this round: absent, or too late. None without a world.
    seconds: (n,) from the start of the round until the update arrived. None where there is no clock.
    squared: (n,) mean over each client's training samples of the squared loss, at the model that the round began with.
        Only for samplers with `squared` among their `reads`.
    late: clients among `clients` whose update was trained in an earlier round, where late updates are kept.
    """

    clients: np.ndarray
    updates: np.ndarray
    losses: np.ndarray
    missing: Sequence[int] = ()
    seconds: np.ndarray | None = None
    squared: np.ndarray | None = None
    late: Sequence[int] = ()


Asking = Generator[Question, np.ndarray, Any]


@dataclass
class Stateful:
    """Fields of the dataclass are parameters; the other attributes are state, which the engine saves and restores."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that is kept between rounds: arrays, tensors, numbers, strings, and lists or dicts of them."""
        settings = {f.name for f in fields(self)} | {"fed"}
        return {k: v for k, v in vars(self).items() if k not in settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; `setup` was called before."""
        vars(self).update(state)


def answered(result: Any, answer: Callable[[Any], Any]) -> Any:
    """What a sampler's method returned; if it yields questions, `answer(question)` answers each."""
    if not isinstance(result, Generator):
        return result
    try:
        question = next(result)
        while True:
            question = result.send(answer(question))
    except StopIteration as stop:
        return stop.value


@dataclass
class Sampler(Stateful):
    """Base class of all samplers: dataclass fields are hyper-parameters, all other attributes are state."""

    aggregation: ClassVar[Aggregation] = "mean"  # its paper's rule; an experiment may set another
    draws: ClassVar[Literal["distinct", "repeated", "random"]] = "distinct"
    # "distinct": m different clients; "repeated": m draws, a client may be drawn again; "random": any number, even zero
    fewer: ClassVar[bool] = False  # may it choose fewer than m, as at the end of a pass over all clients?
    needs: ClassVar[frozenset[Literal["labels", "output layer"]]] = frozenset()
    # knowledge that not every federation has
    reads: ClassVar[frozenset[Literal["losses", "updates", "seconds", "squared"]]] = frozenset()
    # what its choices depend on in a report; "seconds" is the clock, too, and "squared" costs extra to make
    asks: ClassVar[frozenset[type[Question]] | None] = None
    # the questions that it may yield, which the engine then checks; None: not stated, any

    def needed(self, fed: Federation) -> int:
        """Numbers of 8 bytes that a round needs at least: what exceeds the memory is refused before it starts."""
        return 0

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        """Prepare the state. Called once before round 1; an override calls super first."""
        self.fed = fed

    def select(self, round: Round) -> Selection | Asking:
        """Choose this round's clients."""
        raise NotImplementedError

    def observe(self, round: Round, report: Report) -> None | Asking:
        """Learn from what the chosen clients sent. May ask questions too, answered at the new global model."""


READ: dict[str, Information] = {
    "losses": "losses",
    "squared": "losses",
    "updates": "updates",
    "seconds": "speeds",
}  # what a sampler reads -> what it sees by it


def sees(sampler: type[Sampler] | Sampler) -> frozenset[Information]:
    """What a sampler's choices depend on beside the clients' sizes and who trained before, as it declares.

    It follows from the questions that it `asks`, and from what it `needs` and `reads`. One that sees nothing is blind;
    one that does not state its questions may ask any.
    """
    questions = (Losses, Updates, ServerLosses) if sampler.asks is None else sampler.asks
    labels: set[Information] = {"labels"} if "labels" in sampler.needs else set()
    return frozenset({q.reveals for q in questions} | {READ[what] for what in sampler.reads} | labels)
