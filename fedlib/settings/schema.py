"""A run's settings as frozen, validated objects, in the papers' symbols. `params.py` builds them from `params.yaml`."""

from __future__ import annotations

import hashlib
import json
import math
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    Field,
    Strict,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fedlib import samplers
from fedlib.errors import meant
from fedlib.samplers import Aggregation
from fedlib.samplers.base import Count, NotNegative, Positive, Whole
from fedlib.settings.code import Code, code_of
from fedlib.settings.kinds import Settings, optional
from fedlib.settings.parameters import ALGORITHMS, checked, of_sampler, own


def root() -> Path:
    """The repository that this file is part of; for an installed package, the current working directory."""
    repository = Path(__file__).resolve().parents[2]
    return repository if (repository / "params.yaml").exists() else Path.cwd()


ROOT = root()

Scale = Literal["demo", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Dataset = Literal["digits", "mnist", "fmnist", "cifar10", "cifar100", "mini_imagenet"]
OWN = "own:"  # prefix of the names of datasets and models that a program passes to `fedlib.simulate`
Scaling = Literal["unit", "half", "mnist", "cifar", "imagenet"]
Algorithm = Literal["fedavg", "scaffold", "feddyn", "moon", "ifca"]
MOST_QUESTIONS = 1000


@cache
def model_names() -> tuple[str, ...]:
    """Names of the available models: the files of `fedlib/training/models/`, listed without importing them."""
    folder = Path(__file__).resolve().parents[1] / "training" / "models"
    return tuple(sorted(file.name for file in pkgutil.iter_modules([str(folder)])))


class IID(Settings):
    """Equal random parts of the training set."""

    scheme: Literal["iid"] = "iid"


class Shards(Settings):
    """Sort by label, cut into `shards` * N equal shards, give each client `shards` of them (FedCor: 1SPC, 2SPC)."""

    scheme: Literal["shards"] = "shards"
    shards: Count = 2


class OneClass(Settings):
    """One label per client, N / K clients per label, `n` training and `n_test` test samples each (Clustered Sampling).

    permute: number the clients in a random order that depends on the seed. False keeps the paper's order, sorted by
        label. Then a client's id reveals its label to samplers that break ties by id.
    """

    scheme: Literal["one_class"] = "one_class"
    n: Count = 500
    n_test: Count = 80
    permute: bool = True


class DirichletClients(Settings):
    """Each client draws its label shares from Dir(alpha), and its samples from the label pools, with replacement.

    sizes: [number of clients, samples of each] pairs, in client order (Clustered Sampling's CIFAR-10, HCSFed). Test
        sizes are `test_share` of the training sizes, with the same label shares.
    """

    scheme: Literal["dirichlet_clients"] = "dirichlet_clients"
    alpha: Positive
    sizes: list[Annotated[tuple[Count, Count], Strict(False)]]
    test_share: Annotated[float, Field(gt=0, le=1)] = 0.2


class DirichletPrior(Settings):
    """Label shares ~ Dir(alpha * class prior); sizes solve the minimum-norm problem that uses all data (FedCor)."""

    scheme: Literal["dirichlet_prior"] = "dirichlet_prior"
    alpha: Positive


class DirichletClasses(Settings):
    """Each class is split over the clients by Dir(alpha). Several alphas share the data in equal parts (HiCS-FL)."""

    scheme: Literal["dirichlet_classes"] = "dirichlet_classes"
    alphas: Annotated[list[Positive], Field(min_length=1)]
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.2


class Given(Settings):
    """A partition listed in a file, for every seed: `data/partitions/<digest>.json` (see `fedlib/data/given.py`)."""

    scheme: Literal["given"] = "given"
    digest: str


Partition = Annotated[
    IID | Shards | OneClass | DirichletClients | DirichletPrior | DirichletClasses | Given,
    Field(discriminator="scheme"),
]


class Local(Settings):
    """A client's local work in a round: its optimiser, its amount of work (steps or epochs) and its objective.

    steps, epochs: exactly one of them. Each step draws a fresh batch of `batch` distinct samples. Each epoch is a pass
        over a fresh permutation and keeps the last partial batch.
    mu: weight of FedProx's proximal term (mu/2)||w - w_t||^2; also the weight for FedDyn and Moon.
    lr_decay: {round: factor}, applied from that 1-based round on.
    halve_every: the learning rate is halved after every `halve_every` steps of a round.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NotNegative = 0.0
    batch: Count
    steps: Count | None = None
    epochs: Count | None = None
    mu: NotNegative = 0.0
    lr_decay: dict[Annotated[Count, Strict(False)], Positive] = {}
    halve_every: Count | None = optional()

    @model_validator(mode="after")
    def _one_amount_of_work(self) -> Local:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs")
        return self

    @property
    def plain(self) -> bool:
        """Whether each step is w <- w - lr gradient with one learning rate for the whole round."""
        return self.optimizer == "sgd" and not self.momentum and not self.halve_every

    def lr_at(self, t: int) -> float:
        """Learning rate in the 1-based round t."""
        rate = self.lr
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
    def _train_every_is_of_use(self) -> Evaluate:
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

    def ends(self, accuracies: Sequence[float]) -> bool:
        """Whether a run ends with round t. accuracies: (t,) test accuracy of rounds 1 to t, NaN where not measured."""
        if len(accuracies) < self.least or math.isnan(accuracies[-1]):
            return False
        return any(accuracy >= self.test_accuracy for accuracy in accuracies)


class Method(Settings):
    """A sampler with its hyper-parameters, inside a federated algorithm."""

    sampler: str
    params: dict[str, Any] = {}
    algorithm: Algorithm = "fedavg"
    algorithm_params: dict[str, Any] = {}
    aggregation: Aggregation | None = None

    @model_validator(mode="after")
    def _known_and_possible(self) -> Method:
        """Check the names and convert the parameters to their types."""
        if self.sampler not in samplers.SAMPLERS:
            near = meant(self.sampler, sorted(samplers.SAMPLERS))
            raise ValueError(f"unknown sampler {self.sampler!r}; {near}{samplers.unloaded()}")
        of_algorithm = f"algorithm {self.algorithm!r}"
        params = checked(of_sampler(self._class), self.params, f"sampler {self.sampler!r}")
        algorithm_params = checked(ALGORITHMS[self.algorithm], self.algorithm_params, of_algorithm)
        vars(self).update(params=params, algorithm_params=algorithm_params)
        return self

    @property
    def _class(self) -> type[samplers.Sampler]:
        return samplers.find(self.sampler)

    def in_one_form(self) -> dict[str, Any]:
        """As JSON without defaults: the same for all ways of writing the same settings."""
        rule = self._class(**self.params).aggregation
        return self.model_dump(mode="json") | {
            "params": own(of_sampler(self._class), self.params),
            "algorithm_params": own(ALGORITHMS[self.algorithm], self.algorithm_params),
            "aggregation": None if self.aggregation == rule else self.aggregation,
        }


class Run(Settings):
    """One run, fully determined: what is stored and addressed, and never trained twice."""

    dataset: str  # a `Dataset`, or OWN and the program's name for its own data
    scaling: Scaling | None = None  # of the pixels, see `data.SCALINGS`; None: the dataset's own
    partition: Partition
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    model: str  # one of `model_names`, or OWN and the program's name for its own model
    N: Count
    m: Count
    T: Count
    until: Until | None = optional()
    local: Local
    evaluate: Evaluate = Evaluate()
    method: Method
    questions: Count | None = optional()  # that a sampler may ask per round; None: MOST_QUESTIONS
    seed: Whole

    @field_validator("dataset", "model")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        known = model_names() if info.field_name == "model" else get_args(Dataset)
        if name not in known and not name.startswith(OWN):
            raise ValueError(f"unknown {info.field_name} {name!r}; {meant(name, known)}")
        return name

    @model_validator(mode="after")
    def _possible(self) -> Run:
        if self.m > self.N:
            raise ValueError(f"m = {self.m} clients per round are more than there are (N = {self.N})")
        if self.until and self.until.least > self.T:
            raise ValueError(
                f"until.least = {self.until.least} exceeds the number of rounds (T = {self.T}); lower it, or raise T"
            )
        if self.until and not self.evaluate.test:
            raise ValueError("until needs the test accuracy; set evaluate.test: true, or leave until out")
        proximal = self.method.algorithm_params.get("mu", 0.1)
        if self.method.algorithm == "feddyn" and self.local.mu != proximal:
            raise ValueError(
                f"local.mu = {self.local.mu} must be FedDyn's mu = {proximal}, its proximal term; set both equal"
            )
        if self.method.algorithm == "scaffold" and self.local.halve_every:
            raise ValueError("SCAFFOLD takes one learning rate per round; leave local.halve_every out")
        if isinstance(self.partition, DirichletClients):
            total = sum(count for count, _ in self.partition.sizes)
            if total != self.N:
                raise ValueError(f"partition.sizes names {total} clients, but N is {self.N}")
        if isinstance(self.partition, DirichletClasses) and self.N % len(self.partition.alphas):
            raise ValueError(
                f"N = {self.N} clients cannot be split into equal parts for {len(self.partition.alphas)} alphas"
            )
        return self

    def address(self, numerics: int, dataset_digest: str) -> str:
        """Name of this run's folder in the store: a digest of everything that determines its numbers."""
        run = self.model_dump(mode="json")
        return address_of_run(run, numerics, dataset_digest, code_of(run))

    def address_of_before(self, numerics: int, dataset_digest: str) -> str:
        """Its address in older stores, where the same settings, written in two ways, had two addresses."""
        run = self.model_dump(mode="json")
        return address_as_written(run, numerics, dataset_digest, code_of(run))


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
def _one_form(
    method: str, cls: type[samplers.Sampler]
) -> dict[str, Any]:  # depends on the class, which may be defined again
    try:
        return Method.model_validate_json(method).in_one_form()
    except ValidationError:
        return json.loads(method)


def address_of(made_of: Any) -> str:
    """The address of results: a digest of everything that determines their numbers."""
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]
