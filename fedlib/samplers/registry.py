"""The registry of samplers: the shipped ones, and those from files beside them, installed packages and notebooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fedlib.registry import Registry

REGISTRY = Registry("sampler", "fedlib.samplers", group="fedlib.samplers")
REVISIONS = REGISTRY.revisions
S = TypeVar("S", bound=type)
find, version_of = REGISTRY.find, REGISTRY.version_of
unloaded, load_all = REGISTRY.unloaded, REGISTRY.load_all


def register(name: str, revision: int | None = None) -> Callable[[S], S]:
    """Class decorator: make a sampler known to `params.yaml`, the command line and the arena under `name`.

    revision: of shipped samplers only. Raise it when the sampler's choices change: its old runs then have another
    address. A sampler without a revision is identified by a digest of its source.

    Raises:
        NameTaken: another sampler has that name.
    """

    def add(cls: S) -> S:
        cls.name = name  # ty: ignore[missing-attribute]  # every sampler has one
        return REGISTRY.register(name, revision)(cls)

    return add
