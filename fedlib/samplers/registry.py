"""The registry of samplers: the shipped ones, and those from files beside them, installed packages and notebooks.

A file that cannot be loaded only affects users of its samplers.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from fedlib.samplers.sources import HOUSE, digest_of, file_of, place_of

GROUP = "fedlib.samplers"  # entry points of installed packages: modules that register samplers
SHIPPED = {  # file -> sampler -> revision. Raise the revision when a sampler's choices change: its old runs then have
    # another address. A sampler that is not listed here is identified by a digest of its source.
    "basic": {"uniform": 0, "md": 0, "target": 0, "full": 0},
    "clustered_sampling": {"clustered_size": 0, "clustered_similarity": 0},
    "divfl": {"divfl": 0},
    "fedcor": {"fedcor": 0},
    "hcsfed": {"hcsfed": 0},
    "hics_fl": {"hics_fl": 0},
    "importance": {"importance": 0, "importance_mean": 0},
    "loss_based": {"afl": 0, "power_of_choice": 0},
    "oort": {"oort": 0},
    "oracle": {"oracle": 0},
    "weighted": {"weighted": 0},
}
REVISIONS = {name: revision for names in SHIPPED.values() for name, revision in names.items()}
HOMES = {name: file for file, names in SHIPPED.items() for name in names}

SAMPLERS: dict[str, type] = {}
PROBLEMS: dict[str, str] = {}  # file or package that could not be loaded -> why
CONTESTED: dict[str, str] = {}  # sampler that two files register -> message that names both
_DIGESTS: dict[type, str] = {}
S = TypeVar("S", bound=type)


class NameTaken(ValueError):
    """Two samplers are registered as `name`."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


def register(name: str) -> Callable[[S], S]:
    """Class decorator: make a sampler known to `params.yaml`, the command line and the arena under `name`.

    A class that is defined again, for example when a notebook cell is run again, replaces its earlier version.

    Raises:
        NameTaken: another sampler has that name.
    """

    def add(cls: S) -> S:
        other = SAMPLERS.get(name)
        same = other and (other.__module__, other.__qualname__) == (cls.__module__, cls.__qualname__)
        taken = "" if other is None or same else place_of(other)
        if name in HOMES and cls.__module__ != f"{__package__}.{HOMES[name]}":
            taken = str(HOUSE / f"{HOMES[name]}.py")
        if taken:
            raise NameTaken(
                f"sampler {name!r} is registered twice, by {taken} and by {place_of(cls)}; rename one.", name
            )
        if name not in REVISIONS and file_of(cls):
            _DIGESTS[cls] = digest_of(cls)  # taken now: the file may change later, this class does not
        SAMPLERS[name] = cls
        cls.name = name
        return cls

    return add


def version_of(name: str) -> int | str:
    """The version of a sampler's code: the revision of a shipped sampler, else a digest of its source.

    Raises:
        ValueError: there is no such sampler.
    """
    if name in REVISIONS:
        return REVISIONS[name]
    cls = find(name)
    return _DIGESTS.get(cls) or digest_of(cls)


def find(name: str) -> type:
    """The sampler class registered under `name`.

    Raises:
        ValueError: no sampler has that name, or two have it.
    """
    load_all()
    if name in CONTESTED:
        raise NameTaken(CONTESTED[name], name)
    if name not in SAMPLERS:
        raise ValueError(f"there is no sampler {name!r}.{unloaded()}")
    return SAMPLERS[name]


def unloaded() -> str:
    """What could not be loaded and why, to append to an error message; empty where everything loaded."""
    load_all()
    return "".join(f" {place} could not be loaded: {why}." for place, why in PROBLEMS.items())


@cache
def load_all() -> dict[str, type]:
    """Import all files of this folder and all entry points, once. `PROBLEMS` then says what could not be loaded."""
    for module in pkgutil.iter_modules([str(HOUSE)]):
        with _noted(str(HOUSE / f"{module.name}.py")):
            importlib.import_module(f"{__package__}.{module.name}")
    for point in entry_points(group=GROUP):
        with _noted(f"{point.value} of the installed package {point.dist.name if point.dist else '?'}"):
            point.load()
    return SAMPLERS


@contextmanager
def _noted(place: str) -> Iterator[None]:
    try:
        yield
    except NameTaken as error:
        CONTESTED[error.name] = PROBLEMS[place] = str(error)
    except (Exception, SystemExit) as error:
        PROBLEMS[place] = f"{type(error).__name__}: {error}"
