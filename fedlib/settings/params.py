"""`params.yaml`: its experiments, studies and artifacts, and the runs that they define.

An experiment is written once, in the papers' symbols. A run's settings are resolved in this order, later ones win: the
experiment, its entry for the scale, the grid's setting, the method. A misspelt key or an impossible value is reported
in one sentence that names its place. Only this module reads `params.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlib.errors import ConfigError, meant
from fedlib.files import check_code
from fedlib.kinds import shortened
from fedlib.settings.reading import read
from fedlib.settings.schema import ROOT, SCALES, Run, Scale
from fedlib.settings.sections import SEEDS, Study, check, mapping, valid

PARAMS = ROOT / "params.yaml"


@dataclass(frozen=True)
class Labelled:
    """A run, and the names under which an experiment shows it."""

    experiment: str
    setting: str
    method: str
    run: Run


OPTIONAL = {  # what the key `archive` may list -> the column that the archive then keeps
    "clients": "clients",
    "notes": "notes",
    "first_notes": "notes",  # only the first of each run
    "local_loss": "local_loss",
    "local_loss_std": "local_loss_std",
}
RESERVED = {"archive", "title", "paper", "seeds", "grid", "methods", "scales"}


class Experiments:
    """The experiments, studies and artifacts of `params.yaml`."""

    def __init__(self, raw: dict[str, Any], source: str = "params.yaml") -> None:
        self.raw, self.source = raw, source
        unknown = set(raw) - {"scale", "experiments", "studies", "artifacts"}
        if unknown:
            raise ConfigError(f"{source}: unknown key {sorted(map(str, unknown))[0]!r} at the top level.")
        check(raw, source)

    @property
    def scale(self) -> Scale:
        """The scale that the file sets: demo, cpu or paper."""
        scale = self.raw.get("scale", "demo")
        if scale not in SCALES:
            raise ConfigError(f"{self.source}: scale is {scale!r}; it must be demo, cpu or paper.")
        return scale

    def scale_of(self, name: Any) -> Scale:
        """The scale of this name; None: the one that the file sets.

        Raises:
            ConfigError: there is no such scale.
        """
        if name is not None and name not in SCALES:
            raise ConfigError(f"scale: there is no scale {name!r}; {meant(name, SCALES)}")
        return name or self.scale

    @property
    def names(self) -> list[str]:
        """Names of the experiments."""
        return list(mapping(self.raw.get("experiments"), f"{self.source}: experiments"))

    @property
    def artifacts(self) -> dict[str, list[str]]:
        """The artifacts: name -> the experiments and studies whose results it shows."""
        entries = mapping(self.raw.get("artifacts"), f"{self.source}: artifacts")
        return {name: (entry or {}).get("experiments", []) for name, entry in entries.items()}

    def describe(self, experiment: str, scale: Scale | None = None) -> dict[str, Any]:
        """The experiment's raw settings at a scale: title, paper, seeds, grid, methods and the run's own keys."""
        if experiment not in self.names:
            names = [*self.names, *self.studies]
            raise ConfigError(f"{self.source}: no experiment {experiment!r}; {meant(experiment, names)}")
        return self._at_scale("experiments", experiment, scale, {*Run.model_fields, *RESERVED})

    @property
    def studies(self) -> list[str]:
        """Names of the studies."""
        return list(mapping(self.raw.get("studies"), f"{self.source}: studies"))

    def study(self, name: str, scale: Scale | None = None) -> dict[str, Any]:
        """A study's raw settings at a scale (see `fedlib/runs/studies.py`)."""
        if name not in self.studies:
            raise ConfigError(f"{self.source}: no study {name!r}; {meant(name, self.studies)}")
        return self._at_scale(
            "studies", name, scale, {*(self.raw["studies"][name] or ()), *Study.model_fields}
        )

    def _at_scale(self, section: str, name: str, scale: Scale | None, keys: set[str]) -> dict[str, Any]:
        """An entry's settings at a scale; checks what `scales` holds, including scales that are not in use.

        keys: that a scale may change.
        """
        scale = self.scale_of(scale)
        where = f"{self.source}: {section}.{name}"
        base = dict(mapping(self.raw[section][name], where))
        scales = mapping(base.pop("scales", None), f"{where}.scales")
        allowed = sorted(keys - {"scales"})
        for scale_name, changes in scales.items():
            if scale_name not in SCALES:
                raise ConfigError(f"{where}.scales: no scale {scale_name!r}; there are {', '.join(SCALES)}.")
            for key in mapping(changes, f"{where}.scales.{scale_name}"):
                if key not in allowed:
                    raise ConfigError(f"{where}.scales.{scale_name}: no key {key!r}; {meant(key, allowed)}")
        place = f"{where}.scales.{scale}"
        return merge(base, mapping(scales.get(scale), place), place)

    def archived(self, name: str) -> tuple[str, ...]:
        """The `OPTIONAL` columns that the archive keeps of an experiment. A study does not list its columns: ()."""
        if name in self.studies:
            return ()
        columns = self.describe(name).get("archive", [])
        if not isinstance(columns, list) or not all(
            isinstance(column, str) and column in OPTIONAL for column in columns
        ):
            raise ConfigError(
                f"{self.source}: experiments.{name}.archive must be a list of {', '.join(OPTIONAL)} "
                f"(given: {columns!r})."
            )
        return tuple(columns)

    def runs(self, experiment: str, scale: Scale | None = None) -> list[Labelled]:
        """Every run of an experiment at a scale: settings x methods x seeds.

        A setting of the grid may also change `methods`: change a method's parameters, add a method, remove one (null),
        or keep only some (a list). A setting, and a method, may have `seeds` of its own.
        """
        spec = self.describe(experiment, scale)
        where = f"{self.source}: experiments.{experiment}"
        methods = mapping(spec.get("methods"), f"{where}.methods")
        if not methods:
            raise ConfigError(f"{where}.methods is missing; name at least one method.")
        base = {k: v for k, v in spec.items() if k not in RESERVED} | {"methods": methods}
        of_all, labelled = seeds_of(spec, where), []
        for setting, changes in (mapping(spec.get("grid"), f"{where}.grid") or {"": {}}).items():
            place = f"{where}.{setting}" if setting else where
            raw = merge(base, mapping(changes, place), place)
            of_setting = seeds_of({"seeds": raw.pop("seeds")}, place) if "seeds" in raw else of_all
            methods = mapping(raw.pop("methods", None), f"{place}.methods")
            if not methods:
                raise ConfigError(f"{place}.methods is empty; name at least one method.")
            for label, method in methods.items():
                if label.startswith("_"):
                    raise ConfigError(f"{place}.methods: {label!r} begins with _, and legends leave it out.")
                merged = merge(raw, split_method(mapping(method, f"{place}.{label}")))
                own = merged.pop("seeds", None)
                seeds = of_setting if own is None else seeds_of({"seeds": own}, f"{place}.{label}")
                extreme = (
                    min(seeds) if min(seeds) < 0 else max(seeds)
                )  # if it is within bounds, so are the others
                checked = build(merged, extreme, f"{place}.{label}")
                for seed in seeds:
                    run = checked.model_copy(update={"seed": seed})
                    labelled.append(Labelled(experiment=experiment, setting=setting, method=label, run=run))
        return labelled


def seeds_of(spec: dict[str, Any], where: str) -> list[int]:
    """The list of seeds: `seeds: 5` means 0 to 4; a list is used as it is."""
    seeds = spec.get("seeds", 5)
    listed = list(range(min(seeds, SEEDS + 1))) if type(seeds) is int else seeds
    whole = isinstance(listed, list) and all(type(seed) is int for seed in listed)
    if not whole or not 0 < len(listed) <= SEEDS or len(set(listed)) < len(listed):
        raise ConfigError(
            f"{where}.seeds must be a number of seeds or a list without repeats, {SEEDS:,} at most "
            f"(given: {shortened(seeds)})."
        )
    return listed


def split_method(method: dict[str, Any]) -> dict[str, Any]:
    """Convert a method as written (parameters beside the sampler's name) to the keys of `Run` that it sets.

    A method may also override any key of the run (`local: {mu: 0.1}`, `m: 20`), and have `seeds` of its own.
    """
    of_method = {"sampler", "algorithm", "algorithm_params", "aggregation"}
    of_run = {*Run.model_fields, "seeds"} - {"method"}
    inner = {k: v for k, v in method.items() if k in of_method}
    inner["params"] = {k: v for k, v in method.items() if k not in of_method | of_run}
    return {"method": inner} | {k: v for k, v in method.items() if k in of_run}


def build(raw: dict[str, Any], seed: int, place: str) -> Run:
    """A run from its raw settings. Raises ConfigError with the place of the first error."""
    if "seed" in raw:
        raise ConfigError(f"{place}.seed: an experiment lists its seeds under one key; move it to `seeds`.")
    return valid(Run, {**raw, "seed": seed}, place)


def merge(base: dict[str, Any], changes: dict[str, Any], place: str = PARAMS.name) -> dict[str, Any]:
    """`base` updated with `changes`, recursively for dictionaries.

    A partition or method that names another scheme or sampler replaces the old one completely. None removes a key. A
    list in place of a dictionary keeps only the listed keys.

    Raises:
        ConfigError: a list is empty or names a key that does not exist.
    """
    merged = dict(base)
    for key, value in changes.items():
        old, inner = merged.get(key), f"{place}.{key}"
        if value is None:
            merged.pop(key, None)
        elif isinstance(old, dict) and isinstance(value, list):
            merged[key] = _selected(old, value, inner)
        elif isinstance(old, dict) and isinstance(value, dict) and not _another_kind(old, value):
            merged[key] = merge(old, value, inner)
        else:
            merged[key] = value
    return merged


def _selected(old: dict[str, Any], names: list[Any], place: str) -> dict[str, Any]:
    if not names:
        raise ConfigError(f"{place} keeps nothing; name at least one of {', '.join(old)}.")
    for name in names:
        if not isinstance(name, str) or name not in old:
            raise ConfigError(f"{place} keeps {name!r}, which does not exist; there are {', '.join(old)}.")
    return {key: value for key, value in old.items() if key in names}


def _another_kind(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return any(k in new and k in old and new[k] != old[k] for k in ("scheme", "sampler"))


def load(path: Path = PARAMS) -> Experiments:
    """Read `params.yaml`.

    Raises:
        ConfigError: the code is another clone's, or the file is missing or unreadable (see `reading.py`), or has
            unknown keys at its top level.
    """
    if path == PARAMS:
        check_code()
    experiments = Experiments(read(path), path.name)
    if not experiments.names:
        raise ConfigError(f"{path.name}: experiments is missing or empty; name at least one experiment.")
    return experiments
