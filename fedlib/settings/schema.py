"""A run's settings as frozen, validated objects, in the papers' symbols; `params.py` makes them of `params.yaml`."""

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
from fedlib.samplers import Aggregation
from fedlib.samplers.base import Count, NotNegative, Positive, Whole
from fedlib.settings.code import Code, code_of
from fedlib.settings.errors import ConfigError as ConfigError
from fedlib.settings.errors import meant
from fedlib.settings.kinds import Settings, optional
from fedlib.settings.parameters import ALGORITHMS, checked, of_sampler, own


def root() -> Path:
    """The repository that this is part of; for an installed package, the folder that the program was started in."""
    repository = Path(__file__).resolve().parents[2]
    return repository if (repository / "params.yaml").exists() else Path.cwd()


ROOT = root()

Scale = Literal["demo", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Dataset = Literal["digits", "mnist", "fmnist", "cifar10", "cifar100", "mini_imagenet"]
OWN = "own:"  # what the names of datasets and models begin with that a program hands over
Scaling = Literal["unit", "half", "mnist", "cifar", "imagenet"]
Algorithm = Literal["fedavg", "scaffold", "feddyn", "moon", "ifca"]
MOST_QUESTIONS = 1000


@cache
def model_names() -> tuple[str, ...]:
    """The models that there are: the files of `fedlib/training/models/`, known without importing one."""
    folder = Path(__file__).resolve().parents[1] / "training" / "models"
    return tuple(sorted(file.name for file in pkgutil.iter_modules([str(folder)])))


class IID(Settings):
    """Equal random parts of the training set."""

    scheme: Literal["iid"] = "iid"


class Shards(Settings):
    """Sort by label, cut in `shards` * N equal shards, deal `shards` to each client (FedCor's 1SPC and 2SPC)."""

    scheme: Literal["shards"] = "shards"
    shards: Count = 2


class OneClass(Settings):
    """One label a client, N / K clients a label, `n` training and `n_test` test samples each (Clustered Sampling).

    permute: number the clients in a random order of the seed; False keeps the paper's order, sorted by label, in which
    client ids tell samplers that break ties by id which label a client has.
    """

    scheme: Literal["one_class"] = "one_class"
    n: Count = 500
    n_test: Count = 80
    permute: bool = True


class DirichletClients(Settings):
    """Each client draws its label shares from Dir(alpha) and its samples, with replacement, from the label pools.

    sizes: [number of clients, samples each] pairs, in client order (Clustered Sampling's CIFAR-10, HCSFed). Test
    sizes are `test_share` of the training sizes and follow the same label shares.
    """

    scheme: Literal["dirichlet_clients"] = "dirichlet_clients"
    alpha: Positive
    sizes: list[Annotated[tuple[Count, Count], Strict(False)]]
    test_share: Annotated[float, Field(gt=0, le=1)] = 0.2


class DirichletPrior(Settings):
    """Label shares ~ Dir(alpha * class prior), sizes from the minimum-norm programme that uses all data (FedCor)."""

    scheme: Literal["dirichlet_prior"] = "dirichlet_prior"
    alpha: Positive


class DirichletClasses(Settings):
    """Each class is dealt over the clients by Dir(alpha); several alphas share the data in equal parts (HiCS-FL)."""

    scheme: Literal["dirichlet_classes"] = "dirichlet_classes"
    alphas: Annotated[list[Positive], Field(min_length=1)]
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.2


class Given(Settings):
    """Clients as a file lists them, for every seed: `data/partitions/<digest>.json` (`fedlib/data/given.py`)."""

    scheme: Literal["given"] = "given"
    digest: str


Partition = Annotated[
    IID | Shards | OneClass | DirichletClients | DirichletPrior | DirichletClasses | Given,
    Field(discriminator="scheme"),
]


class Local(Settings):
    """What a client does in a round: its optimiser, its amount of work (steps or epochs) and its objective.

    With `steps`, each step draws a fresh batch of `batch` distinct samples; with `epochs`, each epoch is a pass over a
    fresh permutation, the last partial batch kept. mu: FedProx's (mu/2)||w - w_t||^2, and FedDyn's and Moon's weight.
    lr_decay: {round: factor}, applied from that 1-based round on. halve_every: the learning rate is halved after every
    so many steps of a round.
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
        """Whether a step is w <- w - lr gradient, with one learning rate for the whole round."""
        return self.optimizer == "sgd" and not self.momentum and not self.halve_every

    def lr_at(self, t: int) -> float:
        """Learning rate of 1-based round t."""
        rate = self.lr
        for start, factor in self.lr_decay.items():
            rate *= factor if t >= start else 1.0
        return rate


class Evaluate(Settings):
    """What is measured of the global model, every `every` rounds (and before round 1, and after the last).

    test: the official test set. train: per-client loss on the training parts; with `train_every`, a multiple of
    `every`, in these rounds alone (and before round 1, and after the last). clients: accuracy on the clients' own test
    parts, where the partition has them.
    """

    every: Count = 1
    test: bool = True
    train: bool = False
    train_every: Count | None = optional()
    clients: bool = False

    @model_validator(mode="after")
    def _train_every_is_of_use(self) -> Evaluate:
        if self.train_every and not self.train:
            raise ValueError(
                "train_every is for the training loss; set train: true, or leave train_every out"
            )
        if self.train_every and self.train_every % self.every:
            raise ValueError(
                f"train_every = {self.train_every} must be a multiple of every = {self.every}; change one of them"
            )
        return self


class Until(Settings):
    """Ends a run before T, where rounds to a target are counted.

    It ends after the first round t >= `least` in which the test accuracy is measured and has reached `test_accuracy`,
    then or in an earlier round (round 0 left out).
    """

    test_accuracy: Annotated[float, Field(gt=0, le=1)]
    least: Count = 1

    def ends(self, accuracies: Sequence[float]) -> bool:
        """Whether a run ends with round t; accuracies: (t,) test accuracy of rounds 1 to t, NaN where not measured."""
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
        """Its parameters become of their kinds."""
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
        """As JSON, without what equals a default: the same for all ways of writing the same."""
        rule = self._class(**self.params).aggregation
        return self.model_dump(mode="json") | {
            "params": own(of_sampler(self._class), self.params),
            "algorithm_params": own(ALGORITHMS[self.algorithm], self.algorithm_params),
            "aggregation": None if self.aggregation == rule else self.aggregation,
        }


class Run(Settings):
    """One run, fully determined: what is stored, addressed and never trained twice."""

    dataset: str  # a `Dataset`, or OWN and what a program calls its own
    scaling: Scaling | None = None  # of the pixels, see `data.SCALINGS`; None: the dataset's own
    partition: Partition
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    model: str  # of `model_names`, or OWN and so on
    N: Count
    m: Count
    T: Count
    until: Until | None = optional()
    local: Local
    evaluate: Evaluate = Evaluate()
    method: Method
    questions: Count | None = optional()  # that a sampler may ask in a round; None: MOST_QUESTIONS
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
            raise ValueError(f"m = {self.m} clients a round is more than there are (N = {self.N})")
        if self.until and self.until.least > self.T:
            raise ValueError(
                f"until.least = {self.until.least} is more than there are rounds (T = {self.T}); lower it, or raise T"
            )
        if self.until and not self.evaluate.test:
            raise ValueError("until waits for a test accuracy; set evaluate.test: true, or leave until out")
        proximal = self.method.algorithm_params.get("mu", 0.1)
        if self.method.algorithm == "feddyn" and self.local.mu != proximal:
            raise ValueError(
                f"local.mu = {self.local.mu} must be FedDyn's mu = {proximal}, its proximal term; set both alike"
            )
        if self.method.algorithm == "scaffold" and self.local.halve_every:
            raise ValueError("SCAFFOLD takes one learning rate a round; leave local.halve_every out")
        if isinstance(self.partition, DirichletClients):
            total = sum(count for count, _ in self.partition.sizes)
            if total != self.N:
                raise ValueError(f"partition.sizes names {total} clients, N is {self.N}")
        if isinstance(self.partition, DirichletClasses) and self.N % len(self.partition.alphas):
            raise ValueError(
                f"N = {self.N} clients cannot be shared by {len(self.partition.alphas)} alphas in equal parts"
            )
        return self

    def address(self, numerics: int, dataset_digest: str) -> str:
        """Name of this run's folder in the store: a digest of all that determines its numbers."""
        run = self.model_dump(mode="json")
        return address_of_run(run, numerics, dataset_digest, code_of(run))

    def address_of_before(self, numerics: int, dataset_digest: str) -> str:
        """Where it stands in stores from when settings that are written in two ways had two addresses."""
        run = self.model_dump(mode="json")
        return address_as_written(run, numerics, dataset_digest, code_of(run))


def address_of_run(run: dict[str, Any], numerics: int, dataset_digest: str, code: Code) -> str:
    """`Run.address` of a run as a record holds it, in whatever form that was written; code: see `code_of`."""
    return address_as_written(canonical(run), numerics, dataset_digest, code)


def address_as_written(run: dict[str, Any], numerics: int, dataset_digest: str, code: Code) -> str:
    """The address of settings in the form that they have: that of stores from when forms told runs apart."""
    made_of = {"run": run, "numerics": numerics, "data": dataset_digest}
    return address_of(made_of | {"code": code} if code else made_of)


def canonical(run: dict[str, Any]) -> dict[str, Any]:
    """A run's settings, as a record holds them, in the form in which equal settings are equal.

    4 and 4.0, and a default that is written out or left out, are the same. The settings of a sampler or parameter that
    is no more stay as they are.
    """
    method = run["method"]
    cls = samplers.SAMPLERS.get(method["sampler"])
    return {**run, "method": _one_form(json.dumps(method, sort_keys=True), cls) if cls else method}


@cache
def _one_form(
    method: str, cls: type[samplers.Sampler]
) -> dict[str, Any]:  # of a class that may be defined anew
    try:
        return Method.model_validate_json(method).in_one_form()
    except ValidationError:
        return json.loads(method)


def address_of(made_of: Any) -> str:
    """Under which results are kept: a digest of all that determines their numbers."""
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]
