"""`params.yaml` as frozen, validated objects; nothing else reads that file.

An experiment is written once, in the papers' symbols. What a run is made of is resolved in this order, later wins:
the experiment, its entry for the scale, the grid's setting, the method. A misspelt key or an impossible value is one
sentence that names where it stands.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from fedlib import samplers
from fedlib.samplers import Aggregation

ROOT = Path(__file__).resolve().parent.parent
PARAMS = ROOT / "params.yaml"

Scale = Literal["demo", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Dataset = Literal["digits", "mnist", "fmnist", "cifar10", "cifar100", "mini_imagenet"]
ModelName = Literal[
    "logistic",
    "mlp",
    "fedcor_mlp",
    "cs_cnn",
    "fedcor_cnn",
    "hics_fmnist_cnn",
    "hics_cifar10_cnn",
    "hics_cifar_cnn",
    "resnet18_head",
]
Scaling = Literal["unit", "half", "mnist", "cifar", "imagenet"]
Algorithm = Literal["fedavg", "scaffold", "feddyn", "moon", "ifca"]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class ConfigError(ValueError):
    """A setting that cannot be used; the message is one sentence for the person who wrote it."""


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


def optional() -> Any:
    """A key of a run that is no part of its record and address where it is not set: older ones stay as they are."""
    return Field(default=None, exclude_if=lambda value: value is None)


class IID(Settings):
    """Equal random parts of the training set."""

    scheme: Literal["iid"]


class Shards(Settings):
    """Sort by label, cut in `shards` * N equal shards, deal `shards` to each client (FedCor's 1SPC and 2SPC)."""

    scheme: Literal["shards"]
    shards: Count = 2


class OneClass(Settings):
    """One label a client, N / K clients a label, `n` training and `n_test` test samples each (Clustered Sampling).

    permute: number the clients in a random order of the seed; False keeps the paper's order, sorted by label, in which
    client ids tell samplers that break ties by id which label a client has.
    """

    scheme: Literal["one_class"]
    n: Count = 500
    n_test: Count = 80
    permute: bool = True


class DirichletClients(Settings):
    """Each client draws its label shares from Dir(alpha) and its samples, with replacement, from the label pools.

    sizes: [number of clients, samples each] pairs, in client order (Clustered Sampling's CIFAR-10, HCSFed). Test
    sizes are `test_share` of the training sizes and follow the same label shares.
    """

    scheme: Literal["dirichlet_clients"]
    alpha: Positive
    sizes: list[tuple[Count, Count]]
    test_share: Annotated[float, Field(gt=0, le=1)] = 0.2


class DirichletPrior(Settings):
    """Label shares ~ Dir(alpha * class prior), sizes from the minimum-norm programme that uses all data (FedCor)."""

    scheme: Literal["dirichlet_prior"]
    alpha: Positive


class DirichletClasses(Settings):
    """Each class is dealt over the clients by Dir(alpha); several alphas share the data in equal parts (HiCS-FL)."""

    scheme: Literal["dirichlet_classes"]
    alphas: Annotated[list[Positive], Field(min_length=1)]
    min_share: Annotated[float, Field(ge=0, lt=1)] = 0.2


Partition = Annotated[
    IID | Shards | OneClass | DirichletClients | DirichletPrior | DirichletClasses,
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
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    batch: Count
    steps: Count | None = None
    epochs: Count | None = None
    mu: Annotated[float, Field(ge=0)] = 0.0
    lr_decay: dict[Count, Positive] = {}
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
    def _known_sampler(self) -> Method:
        if self.sampler not in samplers.SAMPLERS:
            raise ValueError(
                f"unknown sampler {self.sampler!r}; there are {', '.join(sorted(samplers.SAMPLERS))}"
            )
        cls = samplers.SAMPLERS[self.sampler]
        known = cls.__dataclass_fields__
        for key in self.params:
            if key not in known:
                raise ValueError(
                    f"sampler {self.sampler!r} has no parameter {key!r}; it has {', '.join(known) or 'none'}"
                )
        try:
            _adapter(cls).validate_python(self.params)
        except ValidationError as error:
            first = error.errors()[0]
            where = [f"sampler {self.sampler!r}", *map(str, first["loc"][:1])]
            raise ValueError(": ".join([*where, first["msg"]])) from None
        return self


@cache
def _adapter(cls: type[samplers.Sampler]) -> TypeAdapter:
    return TypeAdapter(cls)


class Run(Settings):
    """One run, fully determined: what is stored, addressed and never trained twice."""

    dataset: Dataset
    scaling: Scaling | None = None  # of the pixels, see `data.SCALINGS`; None: the dataset's own
    partition: Partition
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    model: ModelName
    N: Count
    m: Count
    T: Count
    until: Until | None = optional()
    local: Local
    evaluate: Evaluate = Evaluate()
    method: Method
    seed: Annotated[int, Field(ge=0)]

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
        return address_of_run(self.model_dump(mode="json"), numerics, dataset_digest)


def address_of_run(run: dict[str, Any], numerics: int, dataset_digest: str) -> str:
    """`Run.address` of a run as a record holds it."""
    return address_of({"run": run, "numerics": numerics, "data": dataset_digest})


def address_of(made_of: Any) -> str:
    """Under which results are kept: a digest of all that determines their numbers."""
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


class Labelled(Settings):
    """A run and the names under which an experiment shows it."""

    experiment: str
    setting: str
    method: str
    run: Run


RESERVED = {"title", "paper", "seeds", "grid", "methods", "scales"}


class Experiments:
    """The experiments and artifacts of `params.yaml`."""

    def __init__(self, raw: dict[str, Any], source: str = "params.yaml") -> None:
        self.raw, self.source = raw, source
        unknown = set(raw) - {"scale", "experiments", "studies", "artifacts"}
        if unknown:
            raise ConfigError(f"{source}: unknown key {sorted(unknown)[0]!r} at the top level.")

    @property
    def scale(self) -> Scale:
        scale = self.raw.get("scale", "demo")
        if scale not in SCALES:
            raise ConfigError(f"{self.source}: scale is {scale!r}; it must be demo, cpu or paper.")
        return scale

    @property
    def names(self) -> list[str]:
        return list(mapping(self.raw.get("experiments"), f"{self.source}: experiments"))

    @property
    def artifacts(self) -> dict[str, dict[str, Any]]:
        return mapping(self.raw.get("artifacts"), f"{self.source}: artifacts")

    def describe(self, experiment: str, scale: Scale | None = None) -> dict[str, Any]:
        """The experiment's raw settings at a scale: title, paper, seeds, grid, methods and the run's own keys."""
        if experiment not in self.names:
            raise ConfigError(
                f"{self.source}: no experiment {experiment!r}; there are {', '.join(self.names)}."
            )
        where = f"{self.source}: experiments.{experiment}"
        base = dict(mapping(self.raw["experiments"][experiment], where))
        scales = mapping(base.pop("scales", None), f"{where}.scales")
        for name in scales:
            if name not in SCALES:
                raise ConfigError(f"{where}.scales: no scale {name!r}; there are {', '.join(SCALES)}.")
        scale = scale or self.scale
        place = f"{where}.scales.{scale}"
        return merge(base, mapping(scales.get(scale), place), place)

    @property
    def studies(self) -> list[str]:
        return list(mapping(self.raw.get("studies"), f"{self.source}: studies"))

    def study(self, name: str, scale: Scale | None = None) -> dict[str, Any]:
        """A study's raw settings at a scale (`fedlib.studies`)."""
        if name not in self.studies:
            raise ConfigError(f"{self.source}: no study {name!r}; there are {', '.join(self.studies)}.")
        base = dict(self.raw["studies"][name])
        return merge(base, base.pop("scales", {}).get(scale or self.scale, {}))

    def runs(self, experiment: str, scale: Scale | None = None) -> list[Labelled]:
        """Every run of an experiment at a scale, settings x methods x seeds.

        A setting of the grid may change `methods` too: give one other parameters, add one, drop one (null), or keep
        some (a list).
        """
        spec = self.describe(experiment, scale)
        where = f"{self.source}: experiments.{experiment}"
        methods = mapping(spec.get("methods"), f"{where}.methods")
        if not methods:
            raise ConfigError(f"{where}.methods is missing; name at least one method.")
        base = {k: v for k, v in spec.items() if k not in RESERVED} | {"methods": methods}
        out = []
        for setting, changes in (mapping(spec.get("grid"), f"{where}.grid") or {"": {}}).items():
            place = f"{where}.{setting}" if setting else where
            raw = merge(base, mapping(changes, place), place)
            methods = mapping(raw.pop("methods", None), f"{place}.methods")
            if not methods:
                raise ConfigError(f"{place}.methods is empty; name at least one method.")
            for label, method in methods.items():
                own = merge(raw, split_method(mapping(method, f"{place}.{label}")))
                for seed in seeds_of(spec, where):
                    run = build(own, seed, f"{place}.{label}")
                    out.append(Labelled(experiment=experiment, setting=setting, method=label, run=run))
        return out

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


def mapping(value: Any, place: str) -> dict[str, Any]:
    """`value` if it is a mapping with text as keys; None, which YAML makes of nothing, is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{place} must hold a mapping of settings (given: {value!r}).")
    return value


def seeds_of(spec: dict[str, Any], where: str) -> list[int]:
    """`seeds: 5` is 0 to 4; a list is taken as it is."""
    seeds = spec.get("seeds", 5)
    listed = list(range(seeds)) if type(seeds) is int else seeds
    whole = isinstance(listed, list) and all(type(seed) is int for seed in listed)
    if not whole or not listed or len(set(listed)) < len(listed):
        raise ConfigError(f"{where}.seeds must be a number of seeds or a list, each once (given: {seeds!r}).")
    return listed


def split_method(method: dict[str, Any]) -> dict[str, Any]:
    """A method as written, with the sampler's parameters beside its name -> the keys of `Run` that it sets.

    A method may also override any key of the run (`local: {mu: 0.1}`, `m: 20`).
    """
    own = {"sampler", "algorithm", "algorithm_params", "aggregation"}
    of_run = set(Run.model_fields) - {"method"}
    inner = {k: v for k, v in method.items() if k in own}
    inner["params"] = {k: v for k, v in method.items() if k not in own | of_run}
    return {"method": inner} | {k: v for k, v in method.items() if k in of_run}


def build(raw: dict[str, Any], seed: int, place: str) -> Run:
    if "seed" in raw:
        raise ConfigError(f"{place}.seed: an experiment names its seeds together; move it to `seeds`.")
    try:
        return Run(**{**raw, "seed": seed})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        given = "" if isinstance(first.get("input"), dict) else f" (given: {first['input']!r})"
        raise ConfigError(f"{place}{'.' + key if key else ''}: {message}{given}.") from None


def merge(base: dict[str, Any], changes: dict[str, Any], place: str = PARAMS.name) -> dict[str, Any]:
    """`base` with `changes` laid over it, dictionary by dictionary.

    A partition or a method that names another scheme or sampler replaces the old one whole; None removes a key; a list
    laid over a dictionary keeps the keys that it names.

    Raises:
        ConfigError: a list that names what is not there, or nothing.
    """
    out = dict(base)
    for key, value in changes.items():
        old, inner = out.get(key), f"{place}.{key}"
        if value is None:
            out.pop(key, None)
        elif isinstance(old, dict) and isinstance(value, list):
            out[key] = _kept(old, value, inner)
        elif isinstance(old, dict) and isinstance(value, dict) and not _another_kind(old, value):
            out[key] = merge(old, value, inner)
        else:
            out[key] = value
    return out


def _kept(old: dict[str, Any], names: list[Any], place: str) -> dict[str, Any]:
    if not names:
        raise ConfigError(f"{place} keeps nothing; name at least one of {', '.join(old)}.")
    for name in names:
        if not isinstance(name, str) or name not in old:
            raise ConfigError(f"{place} keeps {name!r}, which is not there; there are {', '.join(old)}.")
    return {key: value for key, value in old.items() if key in names}


def _another_kind(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return any(k in new and k in old and new[k] != old[k] for k in ("scheme", "sampler"))


def load(path: Path = PARAMS) -> Experiments:
    """Read `params.yaml`.

    Raises:
        ConfigError: the file is missing, is no YAML, or holds unknown keys at its top level.
    """
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path.name} is missing; run from the project's folder.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name} is not valid YAML: {str(error).splitlines()[0]}.") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path.name} must hold a mapping of settings.")
    return Experiments(raw, path.name)
