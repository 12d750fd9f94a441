"""What a sampler is: the contract between client selection and the engine.

A sampler is a small dataclass. Its fields are its hyper-parameters, in the paper's symbols; they are what
`params.yaml` may set. Everything else that it sets on itself is its state, which the engine saves and restores::

    @register("power_of_choice")
    @dataclass
    class PowerOfChoice(Sampler):
        '''Cho et al. 2022, Algorithm 1: the m candidates with the highest loss among d.'''
        d: int = 10

        def select(self, round):
            A = round.rng.choice(self.fed.N, self.d, replace=False, p=self.fed.p)
            losses = yield Losses(A)
            return Selection(A[np.argsort(losses)[::-1][: self.fed.m]])

A sampler that must ask the clients something *yields the question* and receives the answer; one that asks nothing
returns its `Selection` like any method. The engine gathers the questions of all runs that advance together, answers
them in one batch, and charges each run for what its questions cost.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from fedlib.samplers.registry import register

__all__ = [
    "Aggregation",
    "Asking",
    "Federation",
    "Gradients",
    "Losses",
    "Question",
    "Report",
    "Round",
    "Sampler",
    "Selection",
    "TrialLosses",
    "Updates",
    "read_only",
    "register",
]

Aggregation = Literal["mean", "data_size", "attrition", "ipw"]

# Kinds of parameters.
Count = Annotated[int, Field(ge=1, le=10**9)]
Whole = Annotated[int, Field(ge=0, le=10**9)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def read_only(array: np.ndarray) -> np.ndarray:
    """The same numbers, not to be written to: what one sampler is given, others and the engine may hold too."""
    seen = np.asarray(array).view()
    seen.flags.writeable = False
    return seen


@dataclass(frozen=True)
class Federation:
    """What stays the same over a run: who the clients are, and what is asked of the server. Arrays are read-only.

    sizes: (N,) training samples of each client.
    label_counts: (N, K) training samples by client and label. No real server knows them: only the target sampler
        and the oracle, which are references and not methods, may look.
    m: clients (draws) a round. T: rounds of the run. d: trained parameters of the model, which are what a sampler sees
        of an update: without batch normalisation's statistics, which are averaged but would drown all else.
    output_weight, output_bias: where the output layer's (K, L) weight and (K,) bias lie in a flat (d,) update; None
        where the model has no output layer that is known.
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
        return len(self.sizes)

    @property
    def K(self) -> int:
        return self.label_counts.shape[1]

    @cached_property
    def p(self) -> np.ndarray:
        """(N,) data shares p_k = n_k / sum n."""
        return read_only(self.sizes / self.sizes.sum())

    @property
    def everyone(self) -> np.ndarray:
        return np.arange(self.N)


@dataclass(frozen=True)
class Round:
    """One round: its 1-based number t and its own generator (the same however the run is executed)."""

    t: int
    rng: np.random.Generator


# Questions. Each is answered at the current global model: in `select` the one that the round starts from, in
# `observe` the one that it ended with.


@dataclass(frozen=True)
class Updates:
    """The updates that `clients` would send after full local training from the global model -> (n, d) float32.

    A client that is asked and then selected trains once: its work is not repeated and not charged twice.
    parameters, scalars: what each client actually uploads (default: all d parameters); a compressed update of d'
    values sends `parameters=d'`, a norm sends `parameters=0, scalars=1`.
    encode: what each client makes of its update before it sends it, row by row: (n, d) -> (n, ...), the answer. Its
    time is the clients', not the server's.
    """

    clients: np.ndarray
    parameters: int | None = None
    scalars: int = 0
    encode: Callable[[np.ndarray], np.ndarray] = lambda updates: updates


@dataclass(frozen=True)
class Gradients:
    """One-step gradients: the mean gradient of one mini-batch of each of `clients` -> (n, d) float32."""

    clients: np.ndarray


@dataclass(frozen=True)
class Losses:
    """Mean loss of the global model on each client's data -> (n,).

    Measured on the client's hold-out part where the partition keeps one, else on its training part.
    """

    clients: np.ndarray


@dataclass(frozen=True)
class TrialLosses:
    """Losses of `clients` after `train` were trained from the global model and plainly averaged -> (n,).

    The trial model is thrown away. FedCor's way to obtain a sample of loss changes between its updates.
    """

    train: np.ndarray
    clients: np.ndarray


Question = Updates | Gradients | Losses | TrialLosses


@dataclass(frozen=True)
class Selection:
    """Who trains this round, and how what they send is weighed.

    clients: (n,) ids, one entry a draw; a client that is drawn twice trains twice, independently.
    weights: (n,) weight of each draw's update, new = old + sum_k weights_k * update_k; they need not sum to 1 (what
        is missing stays on the old model). None leaves it to the run's aggregation rule.
    expected: (n,) expected number of draws of each drawn client under the scheme that drew it; the rule IPW divides
        by it. None where the scheme does not define it.
    notes: numbers worth keeping (cluster sizes, estimates); they reach the results as they are.
    """

    clients: np.ndarray
    weights: np.ndarray | None = None
    expected: np.ndarray | None = None
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What came back from the selected clients, one entry a draw, in the order of the selection; arrays are read-only.

    clients: (n,); updates: (n, d) float32; losses: (n,) mean training loss over the last local epoch (or over all
    steps where the work is counted in steps).
    missing: clients that were selected and from which nothing came: never in the engine, in a real system now and then.
    """

    clients: np.ndarray
    updates: np.ndarray
    losses: np.ndarray
    missing: Sequence[int] = ()


Asking = Generator[Question, np.ndarray, Any]


@dataclass
class Sampler:
    """Base of all samplers: hyper-parameters are dataclass fields, state is whatever else it sets on itself."""

    aggregation: ClassVar[Aggregation] = "mean"  # the rule of its paper; an experiment may name another
    draws: ClassVar[Literal["distinct", "repeated", "random"]] = "distinct"
    # m clients, in "repeated" some perhaps more than once; "random": another number, which may be zero
    fewer: ClassVar[bool] = False  # whether it may choose fewer than m, as where a pass over all clients ends
    needs: ClassVar[frozenset[Literal["labels", "output layer"]]] = (
        frozenset()
    )  # what not every federation can tell

    def setup(self, fed: Federation, rng: np.random.Generator) -> None:
        """Called once before round 1. Extend it to prepare state; call super first."""
        self.fed = fed

    def select(self, round: Round) -> Selection | Asking:
        """Choose this round's clients."""
        raise NotImplementedError

    def observe(self, round: Round, report: Report) -> None | Asking:
        """Learn from what the chosen clients sent; may ask too, now at the new global model."""

    def state_dict(self) -> dict[str, Any]:
        """All that it keeps between rounds: arrays, numbers, strings, and lists or dicts of them."""
        settings = {f.name for f in fields(self)} | {"fed"}
        return {k: v for k, v in vars(self).items() if k not in settings}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
