"""A run's settings as frozen, validated objects, in the papers' symbols. `params.py` builds them from `params.yaml`."""

from __future__ import annotations

import json
import math
import pkgutil
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    BeforeValidator,
    Field,
    FieldSerializationInfo,
    SerializeAsAny,
    Strict,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fedlib import algorithms, objectives, samplers
from fedlib.data import schemes, sources
from fedlib.data.schemes import Scheme
from fedlib.digests import HOUSE
from fedlib.digests import address_of as address_of
from fedlib.errors import ConfigError, meant
from fedlib.files import ROOT as ROOT
from fedlib.kinds import (
    Count,
    NotNegative,
    Positive,
    Settings,
    Steps,
    checked,
    first_error,
    optional,
    parameters_of,
    without_defaults,
)
from fedlib.samplers import Aggregation
from fedlib.samplers.checks import check_class
from fedlib.settings import SCALES as SCALES
from fedlib.settings import Scale as Scale
from fedlib.settings.code import Code, code_of
from fedlib.settings.identity import digest_of_value
from fedlib.settings.world import World

OWN = "own:"  # prefix of the names of datasets and models that a program passes to `fedlib.simulate`
MOST_QUESTIONS = 1000


@cache
def model_names() -> tuple[str, ...]:
    """Names of the available models: the files of `fedlib/training/models/`, listed without importing them."""
    return tuple(sorted(file.name for file in pkgutil.iter_modules([str(HOUSE / "training" / "models")])))


def _scheme(spec: Any) -> Scheme:
    """The partition scheme that a mapping names, with its settings."""
    if isinstance(spec, Scheme):
        return spec
    if not isinstance(spec, dict) or not isinstance(spec.get("scheme"), str):
        raise ValueError(
            f"name a scheme, as {{scheme: iid}}; there are {', '.join(sorted(schemes.load_all()))}"
        )
    try:
        return schemes.find(spec["scheme"]).model_validate(spec)
    except ValidationError as error:
        key, message = first_error(error)
        raise ValueError(f"{key}: {message}" if key else message) from None


Partition = Annotated[SerializeAsAny[Scheme], BeforeValidator(_scheme)]


class Local(Settings):
    """A client's local work in a round: its optimiser, its amount of work (steps or epochs) and its objective.

    optimizer: "sgd", "adam", or a function of a module's parameters and the rate that makes a torch optimiser, which
        begins anew in every round.
    lr: also a function of the 1-based round.
    steps, epochs: exactly one of them. Each step draws a fresh batch of `batch` distinct samples; steps may be a
        function of a client's number of samples. Each epoch is a pass over a fresh permutation and keeps the last
        partial batch.
    drop_last: an epoch leaves its last partial batch out; a client with less than a batch keeps it.
    clip: the gradient of a batch's loss is scaled down to this norm, before weight decay and proximal terms are added.
    mu: weight of FedProx's proximal term (mu/2)||w - w_t||^2; also the weight for FedDyn and Moon.
    objective: what a batch's step minimises in place of its loss: a function of `fedlib.objectives.Step`, or the name
        of a registered one with its objective_params.
    lr_decay: {round: factor}, applied from that 1-based round on.
    halve_every: the learning rate is halved after every `halve_every` steps of a round.
    """

    optimizer: Literal["sgd", "adam"] | Callable[..., Any] = "sgd"
    lr: Positive | Callable[[int], float]
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    batch: Steps
    steps: Steps | Callable[[int], int] | None = None
    epochs: Steps | None = None
    mu: NotNegative = 0.0
    lr_decay: dict[Annotated[Count, Strict(False)], Positive] = {}
    halve_every: Count | None = optional()
    drop_last: bool = Field(default=False, exclude_if=lambda value: not value)
    clip: Positive | None = optional()
    objective: str | Callable[[Any], Any] | None = optional()
    objective_params: dict[str, Any] | None = optional()

    @field_serializer("optimizer", "lr", "steps", "objective", when_used="json")
    def _identified(self, value: Any, info: FieldSerializationInfo) -> Any:
        """A function stands in settings as a digest of what it computes."""
        return OWN + digest_of_value(value, f"local.{info.field_name}") if callable(value) else value

    @model_validator(mode="after")
    def _one_amount_of_work(self) -> Local:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        if self.drop_last and self.epochs is None:
            raise ValueError("drop_last is about epochs; with steps, every batch is full")
        if callable(self.optimizer) and (self.halve_every or self.momentum or self.weight_decay):
            raise ValueError(
                "momentum, weight_decay and halve_every belong into an optimizer that is a function"
            )
        if isinstance(self.objective, str):
            parameters = parameters_of(objectives.find(self.objective))
            checked(parameters, self.objective_params or {}, f"objective {self.objective!r}")
        elif self.objective_params is not None:
            raise ValueError("objective_params belong to an objective that is given by its name")
        if self.optimizer == "adam" and self.momentum:
            raise ValueError("momentum is of sgd; adam has its own (betas), so leave momentum out")
        for t in () if callable(self.lr) else (1, *self.lr_decay):
            if not 1e-30 < (rate := self.lr_at(t)) < 1e30:  # models are in single precision
                raise ValueError(f"the learning rate of round {t} is {rate:g}; change lr or lr_decay")
        return self

    @property
    def plain(self) -> bool:
        """Whether each step is w <- w - lr gradient with one learning rate for the whole round."""
        return self.optimizer == "sgd" and not (self.momentum or self.halve_every or self.clip)

    @property
    def by_torch(self) -> bool:
        """Whether only torch itself can do it: an optimiser or objective of the program's own, or clipped gradients."""
        return callable(self.optimizer) or self.clip is not None or self.objective is not None

    def make_objective(self) -> Callable[[Any], Any] | None:
        """What a step minimises in place of the loss, if anything."""
        if isinstance(self.objective, str):
            return objectives.find(self.objective)(**self.objective_params or {})
        return self.objective

    def work(self, n: int) -> tuple[int, int]:
        """How much a client with n samples does in a round: its SGD steps, and the samples of all their batches.

        Raises:
            ConfigError: `steps` is a function that does not return a whole number above 0.
        """
        if self.epochs:
            full = self.drop_last and n >= self.batch
            batches = n // self.batch if full else -(-n // self.batch)
            return self.epochs * batches, self.epochs * (batches * self.batch if full else n)
        steps = self.steps(n) if callable(self.steps) else self.steps
        if not isinstance(steps, int | np.integer) or steps < 1:
            raise ConfigError(f"local.steps returns {steps!r} for {n} samples; it must be a whole number.")
        return int(steps), int(steps) * min(self.batch, n)

    def lr_at(self, t: int) -> float:
        """Learning rate in the 1-based round t."""
        rate = self.lr if isinstance(self.lr, int | float) else float(self.lr(t))
        for start, factor in self.lr_decay.items():
            rate *= factor if t >= start else 1.0
        return rate


class Evaluate(Settings):
    """What is measured of the global model, every `every` rounds, before round 1, and after the last round.

    test: loss and accuracy on the official test set.
    train: loss of each client on its training part.
    train_every: a multiple of `every`; `train` is then measured only in these rounds, before round 1, and after the
        last round.
    clients: accuracy on the clients' own test parts, where the partition has them.
    """

    every: Count = 1
    test: bool = True
    train: bool = False
    train_every: Count | None = optional()
    clients: bool = False

    @model_validator(mode="after")
    def _measures_something(self) -> Evaluate:
        if not (self.test or self.train or self.clients):
            raise ValueError("nothing is measured; set one of test, train and clients to true")
        if self.train_every and not self.train:
            raise ValueError("train_every needs the training loss; set train: true, or leave train_every out")
        if self.train_every and self.train_every % self.every:
            raise ValueError(
                f"train_every = {self.train_every} must be a multiple of every = {self.every}; change one of them"
            )
        return self


class Until(Settings):
    """A rule that ends a run before T, for experiments that count rounds to a target.

    The run ends after the first round t >= `least` in which the test accuracy is measured, provided that it reached
    `test_accuracy` in this or an earlier round (round 0 does not count).
    """

    test_accuracy: Annotated[float, Field(gt=0, le=1)]
    least: Count = 1

    @model_validator(mode="before")
    @classmethod
    def _no_loss(cls, content: Any) -> Any:
        if isinstance(content, dict) and (losses := sorted(key for key in content if "loss" in str(key))):
            raise ValueError(
                f"a run ends at a test accuracy, not at a level of {losses[0]}; train all T rounds, and compare the "
                "rounds to the loss afterwards"
            )
        return content

    def ends(self, accuracies: Sequence[float]) -> bool:
        """Whether a run ends with round t. accuracies: (t,) test accuracy of rounds 1 to t, NaN where not measured."""
        if len(accuracies) < self.least or math.isnan(accuracies[-1]):
            return False
        return any(accuracy >= self.test_accuracy for accuracy in accuracies)


def _json_or_digest(value: Any, name: str) -> Any:
    """A parameter for records and addresses: what JSON does not know, such as an array, as a digest."""
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return OWN + digest_of_value(value, name)


class Method(Settings):
    """A sampler with its hyper-parameters, inside a federated algorithm."""

    sampler: str
    params: dict[str, Any] = {}
    algorithm: str = "fedavg"
    algorithm_params: dict[str, Any] = {}
    aggregation: Aggregation | None = None

    @field_serializer("params", "algorithm_params", when_used="json")
    def _as_json(self, params: dict[str, Any]) -> dict[str, Any]:
        return {key: _json_or_digest(value, key) for key, value in params.items()}

    @model_validator(mode="after")
    def _known_and_possible(self) -> Method:
        """Check the names and convert the parameters to their types."""
        check_class(self._class)
        vars(self).update(
            params=checked(parameters_of(self._class), self.params, f"sampler {self.sampler!r}"),
            algorithm_params=checked(
                parameters_of(algorithms.find(self.algorithm)),
                self.algorithm_params,
                f"algorithm {self.algorithm!r}",
            ),
        )
        return self

    @property
    def _class(self) -> type[samplers.Sampler]:
        return samplers.find(self.sampler)

    def make_algorithm(self) -> algorithms.FedAvg:
        """The algorithm with its parameters."""
        return algorithms.find(self.algorithm)(**self.algorithm_params)

    def in_one_form(self) -> dict[str, Any]:
        """As JSON without defaults: the same for all ways of writing the same settings."""
        rule = self._class(**self.params).aggregation
        return self.model_dump(mode="json") | {
            "params": without_defaults(parameters_of(self._class), self.params),
            "algorithm_params": without_defaults(
                parameters_of(algorithms.find(self.algorithm)), self.algorithm_params
            ),
            "aggregation": None if self.aggregation == rule else self.aggregation,
        }


class Run(Settings):
    """One run, fully determined: what is stored and addressed, and never trained twice."""

    dataset: str  # one of `sources.KINDS`, or OWN and the program's name for its own data
    scaling: str | None = None  # of the pixels, one of `SCALINGS`; None: the dataset's own
    partition: Partition
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    model: str  # one of `model_names`, or OWN and the program's name for its own model
    N: Count
    m: Count
    T: Count
    until: Until | None = optional()
    local: Local
    evaluate: Evaluate = Evaluate()
    world: World | None = optional()  # None: everybody is always there, and time is counted in rounds
    validation: Count | None = optional()  # samples that only the server has: no client trains on them
    method: Method
    questions: Count | None = optional()  # that a sampler may ask per round; None: MOST_QUESTIONS
    seed: Annotated[int, Field(ge=0, le=2**53)]  # exact in every language

    @field_validator("dataset", "scaling", "model")
    @classmethod
    def _registered(cls, name: str | None, info: ValidationInfo) -> str | None:
        key = str(info.field_name)
        names = {"dataset": sources.KINDS, "scaling": sources.SCALINGS, "model": model_names()}[key]
        handed = key != "scaling" and str(name).startswith(OWN)
        if name is not None and name not in names and not handed:
            raise ValueError(f"unknown {key} {name!r}; {meant(name, names)}")
        return name

    @model_validator(mode="after")
    def _possible(self) -> Run:
        if self.m > self.N:
            raise ValueError(f"m = {self.m} clients per round are more than there are (N = {self.N})")
        for name, limit, meaning in (("warmup", self.T, "rounds (T"), ("H", self.N, "clients (N")):
            if isinstance(value := self.method.params.get(name), int) and value > limit:
                raise ValueError(f"{name} = {value} exceeds the number of {meaning} = {limit}); lower it")
        if self.until and self.until.least > self.T:
            raise ValueError(
                f"until.least = {self.until.least} exceeds the number of rounds (T = {self.T}); lower it, or raise T"
            )
        if self.until and not self.evaluate.test:
            raise ValueError("until needs the test accuracy; set evaluate.test: true, or leave until out")
        self.method.make_algorithm().check(self.local)
        self.partition.check(self.N)
        return self

    def address(self, numerics: int, dataset_digest: str) -> str:
        """Name of this run's folder in the store: a digest of everything that determines its numbers."""
        run = self.model_dump(mode="json")
        return address_of_run(run, numerics, dataset_digest, code_of(run))


def address_of_run(run: dict[str, Any], numerics: int, dataset_digest: str, code: Code) -> str:
    """`Run.address` for a run from a record, however the record writes its settings. code: see `code_of`."""
    return address_as_written(canonical(run), numerics, dataset_digest, code)


def address_as_written(run: dict[str, Any], numerics: int, dataset_digest: str, code: Code) -> str:
    """The address of settings exactly as they are written, for older stores, where the way of writing mattered."""
    made_of = {"run": run, "numerics": numerics, "data": dataset_digest}
    return address_of(made_of | {"code": code} if code else made_of)


def canonical(run: dict[str, Any]) -> dict[str, Any]:
    """A run's settings from a record, in canonical form: equal settings give equal results.

    4 and 4.0 are the same; so are a default that is written out and one that is left out. Settings of a sampler or
    parameter that no longer exists stay as they are.
    """
    method = run["method"]
    cls = samplers.SAMPLERS.get(method["sampler"])
    return {**run, "method": _one_form(json.dumps(method, sort_keys=True), cls) if cls else method}


@cache
def _one_form(method: str, cls: type[samplers.Sampler]) -> dict[str, Any]:
    # the class is an argument because it may be defined again
    try:
        return Method.model_validate_json(method).in_one_form()
    except ValidationError:
        return json.loads(method)
