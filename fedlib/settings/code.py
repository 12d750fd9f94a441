"""The version of the code that made a run, as part of its address: changed code never brings back old numbers.

A shipped sampler, scheme, algorithm or model has a revision. Whoever changes what it computes raises the revision;
until then the changed code is unreleased (`released.py`). What is not shipped is identified by a digest of its source.
"""

from __future__ import annotations

import ast
from functools import cache
from typing import Any

from fedlib import algorithms, objectives, released, samplers
from fedlib.data import schemes
from fedlib.digests import HOUSE, digest_of_file
from fedlib.errors import ConfigError, meant

NUMERICS = 2  # part of every run's address: raise it when a change alters a number by more than rounding
WORLD = 1  # revision of worlds with speeds, a trace, or rounds that do not wait for all
MODELS = HOUSE / "training" / "models"
REGISTRIES = {
    "sampler": samplers.registry.REGISTRY,
    "scheme": schemes.base.REGISTRY,
    "algorithm": algorithms.base.REGISTRY,
}

Code = dict[str, int | str]


def version_of_model(name: str) -> int | str:
    """As `Registry.version_of`."""
    revision, code = _model(name)
    if revision is None:
        return digest_of_file(MODELS / f"{name}.py") if code else 0
    return released.version(f"model {name}", revision, code)


@cache
def _model(name: str) -> tuple[int | None, released.Code]:
    """A model's revision, which `REVISION = 1` in its file raises (None: it is not shipped), and what it computes."""
    source = MODELS / f"{name}.py"
    if not source.exists():
        return None, {}
    revision = 0 if f"model {name}" in released.record() else None
    for statement in released.parsed(source).definitions.get("REVISION", []):
        if isinstance(statement, ast.Assign):
            revision = ast.literal_eval(statement.value)
    return revision, released.behaviour(source)


def version_of_objective(name: str) -> int | str:
    """As `Registry.version_of`. A program's own function stands in settings as its digest, which says it all."""
    return 0 if name.startswith("own:") else objectives.version_of(name)


VERSIONS = {
    **{kind: registry.version_of for kind, registry in REGISTRIES.items()},
    "model": version_of_model,
    "objective": version_of_objective,
}


def code_of(settings: Any) -> Code:
    """The revisions and digests of all samplers, schemes, algorithms and models named in the settings.

    Revision 0 is left out, so runs made before there were revisions keep their addresses.
    """
    if isinstance(settings, list):
        settings = dict(enumerate(settings))
    if not isinstance(settings, dict):
        return {}
    versions: Code = {}
    for key, value in settings.items():
        if key in VERSIONS and isinstance(value, str):
            version = VERSIONS[key](value)
            versions |= {f"{key} {value}": version} if version else {}
        elif key == "world" and isinstance(value, dict):
            waits = value.get("ends", {}).get("kind") == "wait"
            versions |= {"world": WORLD} if value.get("speeds") or value.get("trace") or not waits else {}
        elif key != "labels":  # the labels of a study's unit do not affect any number
            versions |= code_of(value)
    return versions


def everything() -> dict[str, tuple[int | None, released.Code]]:
    """All samplers, schemes, algorithms and models of this package: kind and name -> revision (None: none), code."""
    entries: dict[str, tuple[int | None, released.Code]] = {}
    for kind, registry in REGISTRIES.items():
        for name, entry in registry.load_all().items():
            if entry.__module__.startswith("fedlib."):
                revision = registry.revisions.get(name, 0) if registry.shipped(name) else None
                entries[f"{kind} {name}"] = revision, registry.code_of(name)
    models = sorted(path.stem for path in MODELS.glob("[!_]*.py"))
    return entries | {f"model {name}": _model(name) for name in models}


def departures() -> dict[str, str]:
    """What differs from the record of its revision, or has none: kind and name -> a sentence."""
    sentences = {
        key: released.departure(key, revision, code)
        for key, (revision, code) in everything().items()
        if revision is not None
    }
    return {key: sentence for key, sentence in sentences.items() if sentence}


def named(names: list[str]) -> list[str]:
    """Kind and name of each: "md" or "sampler md" -> "sampler md".

    Raises:
        ConfigError: a name is unknown.
    """
    keys = list(everything())
    chosen: list[str] = []
    for name in names:
        fitting = [key for key in keys if name in (key, key.split()[1])]
        if not fitting:
            raise ConfigError(
                f"there is no {name!r} to record; {meant(name, [key.split()[1] for key in keys])}"
            )
        chosen += fitting
    return chosen


def keep(names: list[str]) -> list[str]:
    """Record the code of these (`named`) as that of their revisions; returns them."""
    entries, chosen = everything(), named(names)
    new = {}
    for key in chosen:
        (kind, name), (revision, code) = key.split(), entries[key]
        new[key] = revision or 0, code, VERSIONS[kind](name)
    released.keep(new)
    _model.cache_clear()
    return chosen
