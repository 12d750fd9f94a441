"""What `params.yaml` may hold besides the settings of runs: names, artifacts, studies.

Names of experiments, studies and artifacts become file names and command arguments. They consist of letters, digits,
`_` and `-`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field, ValidationError

from fedlib.errors import ConfigError, meant
from fedlib.kinds import Settings, one_sentence, shortened

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,79}")
Model = TypeVar("Model", bound=BaseModel)
SECTIONS = ("experiments", "studies", "artifacts")
SEEDS = 10_000  # at most, per experiment

Seeds = Annotated[int, Field(ge=1, le=SEEDS)]


class ArtifactEntry(Settings):
    """A page, with the experiments and studies whose results it shows."""

    experiments: list[str] = []


class Study(Settings):
    """The keys of every study. A study that needs more defines a subclass in its module.

    experiments: {label of the dataset: experiment}.
    settings, methods: which of them the study covers; None for all.
    seeds: how many of each experiment's seeds.
    """

    title: str = ""
    paper: str = ""
    experiments: dict[str, str] = Field(default={}, min_length=1, validate_default=False)
    settings: Annotated[list[str], Field(min_length=1)] | None = None
    methods: Annotated[list[str], Field(min_length=1)] | None = None
    seeds: Seeds = 1


class Headings(BaseModel, strict=True, extra="ignore"):
    """An experiment's descriptive keys."""

    title: str = ""
    paper: str = ""


def check(raw: Mapping[str, Any], source: str) -> None:
    """Check that all names are safe, all headings are text, and all artifacts refer to existing experiments or studies.

    Raises:
        ConfigError: one of them is not.
    """
    sections = {name: mapping(raw.get(name), f"{source}: {name}") for name in SECTIONS}
    for section, entries in sections.items():
        for name in entries:
            if not NAME.fullmatch(name):
                raise ConfigError(
                    f"{source}: {section}: {name[:80]!r} is not a valid name; use letters, digits, _ and -."
                )
    for section in ("experiments", "studies"):
        for name, entry in sections[section].items():
            place = f"{source}: {section}.{name}"
            headings = valid(Headings, mapping(entry, place), place)
            if headings.paper and not NAME.fullmatch(headings.paper):
                raise ConfigError(
                    f"{place}.paper: {headings.paper!r} is not a valid name; use letters, digits, _."
                )
    names = [*sections["experiments"], *sections["studies"]]
    for name, entry in sections["artifacts"].items():
        place = f"{source}: artifacts.{name}"
        for opened in valid(ArtifactEntry, mapping(entry, place), place).experiments:
            if opened not in names:
                raise ConfigError(f"{place}.experiments: {opened!r} does not exist; {meant(opened, names)}")


def valid(model: type[Model], settings: Mapping[str, Any], place: str) -> Model:
    """The settings as an instance of `model`.

    Raises:
        ConfigError: they are invalid; the message is one sentence that names the place and the key.
    """
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        raise one_sentence(error, place) from None


def mapping(value: Any, place: str) -> dict[str, Any]:
    """`value` if it is a mapping with text keys. None, which YAML makes of an empty entry, gives an empty mapping."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{place} must hold a mapping of settings (given: {shortened(value)}).")
    return value
