"""The arena's rules and its submissions. `arena/rules.md` says what counts.

A submission is a folder `arena/submissions/<name>`: `<name>.py` registers the sampler, `<name>.yaml` describes it, and
`<scale>/<experiment>.parquet` is the sealed archive of its runs. Whoever checks it adds
`arena/checked/<name>/<scale>/<experiment>.parquet`: its runs, and those of the two methods that scores are relative to,
on seeds that were drawn for this check.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from fedlib import measure
from fedlib.errors import ConfigError, StoreError
from fedlib.isolated.process import Limits
from fedlib.isolated.sampler import Isolated
from fedlib.kinds import Count, Positive, Settings, Whole, shortened
from fedlib.runs import archive as archives
from fedlib.runs.sealed import named
from fedlib.runs.work import Plan, words
from fedlib.samplers import Information
from fedlib.settings import reading
from fedlib.settings.params import Experiments, seeds_of
from fedlib.settings.schema import ROOT, SCALES, Scale
from fedlib.settings.sections import valid
from workspace.analysis import submission_file

HOME = ROOT / "arena"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRIAL = "trial {}"  # the label of a trial's runs

SIZES = {".py": 64, ".yaml": 64, ".md": 256, ".parquet": 8192}  # KiB of a submission's files, at most
FOLDER = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 .+-]{0,38}[A-Za-z0-9+])?")
LIKE = str.maketrans("0158", "olsb")  # digits that look like letters
Text = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f$<>{}\\]*$")]
Parameters = dict[str, Any]


class Rules(Settings):
    """What `arena/rules.md` sets; `digest` is that of the whole file."""

    version: Text
    experiment: Text
    scale: Scale
    baseline: Text
    target: Text
    trials: Whole
    tuning_seeds: list[Whole]
    fresh: Count
    reach: Positive
    seconds: Positive
    processor_seconds: Count
    memory: Count
    digest: str

    @classmethod
    def read(cls, path: Path = HOME / "rules.md") -> Rules:
        """Raises ConfigError: the file is missing, or its block of settings is."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror}); get it back from git.") from None
        if not (block := BLOCK.search(text)):
            raise ConfigError(f"{path}: has no block ```yaml with its settings; get it back from git.")
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return valid(cls, reading.parse(block[1].encode(), path.name) | {"digest": digest}, path.name)

    @property
    def stamp(self) -> str:
        """Version and digest, as every row of results has them."""
        return f"{self.version} {self.digest}"

    @property
    def limits(self) -> Limits:
        """What the process of a sampler may use."""
        return Limits(self.seconds, self.processor_seconds, self.memory)


class Description(Settings):
    """What a submission's YAML says.

    rules: version and digest of the rules. name: of the method, for people. paper: where it was published.
    information: what its choices depend on.
    search: for each parameter that was tuned, the values tried. trials: the parameters of each trial.
    parameters: those that are scored.
    """

    rules: Text
    name: str
    paper: Text
    information: Annotated[list[Information | Literal["blind"]], Field(min_length=1)]
    search: dict[str, list[Any]] = {}
    trials: list[Parameters] = []
    parameters: Parameters = {}

    @model_validator(mode="after")
    def _consistent(self) -> Description:
        if not NAME.fullmatch(self.name) or alike(self.name).startswith("trial"):
            raise ValueError(
                "name: take 1 to 40 letters, digits, spaces, and . + -, beginning with a letter or digit, but not trial"
            )
        if "blind" in self.information and len(self.information) > 1:
            raise ValueError("information: blind excludes every other class; take it or the others away")
        for number, trial in enumerate(self.trials, start=1):
            for key, value in trial.items():
                if value not in self.search.get(key, []):
                    raise ValueError(
                        f"trial {number}: {key} = {shortened(value)} is not in the search space; add the value to "
                        f"search.{key}, or take the trial away"
                    )
            if set(trial) != set(self.search):
                lacking = sorted(set(self.search) - set(trial))
                raise ValueError(f"trial {number}: {lacking[0]} is missing; a trial sets every key of search")
        if self.trials and self.parameters not in self.trials:
            raise ValueError(
                f"parameters: {self.parameters} are not those of a trial; write the best trial's"
            )
        return self


@dataclass(frozen=True)
class Submission:
    """A submission's folder and what its YAML says, under the rules."""

    folder: Path
    description: Description
    rules: Rules

    @classmethod
    def open(cls, folder: Path, rules: Rules | None = None) -> Submission:
        """Read a submission. Its sampler is not executed before it is loaded.

        Raises:
            ConfigError: the folder holds something else, or its YAML breaks the rules. The sentence names the file.
        """
        rules, folder = rules or Rules.read(), folder.absolute()
        path = folder / f"{folder.name}.yaml"
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; name one below arena/submissions.")
        check_files(folder, rules)
        description = valid(Description, reading.read(path), path.name)
        if description.rules != rules.stamp:
            raise ConfigError(
                f"{path.name}.rules: {shortened(description.rules)} are not the rules of this arena, {rules.stamp!r}; "
                "read arena/rules.md, and run the submission under them."
            )
        if (trials := len(description.trials)) > rules.trials:
            raise ConfigError(
                f"{path.name}.trials: {trials} are more than the rules' {rules.trials}; take some away."
            )
        return cls(folder, description, rules)

    @property
    def code(self) -> Path:
        return self.folder / f"{self.folder.name}.py"

    @property
    def information(self) -> frozenset[Information]:
        """What its sampler is shown."""
        return frozenset(kind for kind in self.description.information if kind != "blind")

    def load(self) -> type[Isolated]:
        """Its sampler, which runs in processes of its own. Raises ConfigError as `submission_file.registered`."""
        names = dict.fromkeys(
            key for one in (self.description.parameters, *self.description.trials) for key in one
        )
        return submission_file.registered(self.code, self.information, list(names), self.rules.limits)

    def archive(self, scale: Scale) -> Path:
        """The file of its runs at a scale."""
        return archives.path_of(self.rules.experiment, scale, self.folder)

    def plan(self, scale: Scale, settings: Experiments) -> Plan:
        """Its runs: the scored ones, and the trials on the tuning seeds.

        Raises:
            ConfigError: its parameters cannot be used, or a tuning seed is also scored.
        """
        self.load()
        spec, seeds = settings.describe(self.rules.experiment, scale), self.rules.tuning_seeds
        if shared := set(seeds_of(spec, self.rules.experiment)) & set(seeds):
            raise ConfigError(f"arena/rules.md: seed {min(shared)} is tuned on and scored; use another one.")
        scored = self._runs(spec, {self.description.name: self.description.parameters}, scale)
        trials = {TRIAL.format(k): trial for k, trial in enumerate(self.description.trials, start=1)}
        if trials:
            tuned = self._runs({**spec, "seeds": seeds}, trials, scale)
            return Plan(scored.name, scale, scored.work + tuned.work, scored.archived)
        return scored

    def fresh(self, scale: Scale, settings: Experiments, seeds: Sequence[int]) -> Plan:
        """The scored method and the two that scores are relative to, on other seeds."""
        self.load()
        spec = settings.describe(self.rules.experiment, scale)
        references = {name: spec["methods"][name] for name in (self.rules.baseline, self.rules.target)}
        scored = {self.description.name: self.description.parameters}
        return self._runs({**spec, "seeds": list(seeds)}, scored, scale, references)

    def _runs(
        self,
        spec: dict[str, Any],
        methods: dict[str, Parameters],
        scale: Scale,
        others: dict[str, Any] | None = None,
    ) -> Plan:
        sampler = self.folder.name
        by_name = {label: {**parameters, "sampler": sampler} for label, parameters in methods.items()}
        by_name |= others or {}
        raw = {"experiments": {self.rules.experiment: {**spec, "methods": by_name}}}
        return Plan.of_experiment(self.rules.experiment, scale, Experiments(raw, f"{self.folder.name}.yaml"))

    def checked(self, scale: Scale, home: Path | None = None) -> Path:
        """The file of its check at a scale, which whoever merges it adds."""
        root = (home or HOME) / "checked" / self.folder.name
        return archives.path_of(self.rules.experiment, scale, root)

    def rows(self, scale: Scale, settings: Experiments) -> pd.DataFrame:
        """The rows of its archive, each with the rules' version and digest (`rules`).

        Raises:
            StoreError: the archive is missing or not as it was sealed, holds other runs, or is of other rules.
        """
        otherwise = f"run: fedlib arena run {self.folder} --scale {scale}"
        return self.read(self.archive(scale), self.plan(scale, settings), otherwise)

    def fresh_rows(self, scale: Scale, settings: Experiments, home: Path | None = None) -> pd.DataFrame:
        """The rows of its check.

        Raises:
            StoreError: it has not been checked, or its files have changed since.
        """
        path = self.checked(scale, home)
        otherwise = f"run: fedlib arena check {self.folder} --scale {scale} --record"
        if not path.exists():
            raise StoreError(f"{path}: is missing; {otherwise}")
        records = archives.read(self.rules.experiment, scale, path.parents[1]).runs
        seeds = sorted({record.get("seed", 0) for record in records})
        if len(seeds) != self.rules.fresh:
            raise StoreError(f"{path}: has {len(seeds)} seeds instead of {self.rules.fresh}; {otherwise}")
        return self.read(path, self.fresh(scale, settings, seeds), otherwise)

    def read(self, path: Path, plan: Plan, otherwise: str) -> pd.DataFrame:
        """The rows of a file that holds exactly the runs of a plan. otherwise: what to do if it does not.

        Raises:
            StoreError: the file is missing or damaged, or holds something else.
        """
        if not path.exists():
            raise StoreError(f"{path}: is missing; {otherwise}")
        with named(path, f"delete it, then {otherwise}"):
            packed = archives.read(plan.name, plan.scale, path.parents[1])
            check_records(path, packed.runs, plan, otherwise)
            rows, planned = (
                pq.read_metadata(path).num_rows,
                sum(one.run.T + 1 for one in plan.work if one.run),
            )
            if rows != planned:  # before they are read
                raise StoreError(
                    f"{path}: has {rows:,} rows, but its runs have {planned:,}, one before the first round and one "
                    f"after each; delete it, then {otherwise}"
                )
            table = packed.table
            for _, run in table.groupby(["setting", "method", "seed"], sort=False):
                if not np.array_equal(run["round"], np.arange(len(run))):
                    name = words(run.iloc[0].to_dict())
                    raise StoreError(
                        f"{path}: {name} has other rounds than 0 to T; delete it, then {otherwise}"
                    )
            if "rules" not in table or set(table["rules"]) != {self.rules.stamp}:
                raise StoreError(
                    f"{path}: its rows were made under other rules than {self.rules.stamp}; delete it, then {otherwise}"
                )
        return table

    def best_trial(self, scale: Scale, settings: Experiments) -> Parameters:
        """The parameters of the trial with the highest mean accuracy over the tasks; without trials, the paper's."""
        if not self.description.trials:
            return self.description.parameters
        means = accuracies(self.rows(scale, settings)).groupby("method").mean()
        return max(
            enumerate(self.description.trials, start=1), key=lambda trial: means[TRIAL.format(trial[0])]
        )[1]


def check_records(path: Path, records: Sequence[dict[str, Any]], plan: Plan, otherwise: str) -> None:
    """Check that a file's records are exactly those of the planned runs, made by this sampler's file.

    Raises:
        StoreError: they are not.
    """
    found = {words(record): record for record in records}
    expected = {work.words: work for work in plan.work}
    for label in sorted(expected.keys() ^ found.keys()):
        verb = "lacks" if label in expected else "holds, without being asked,"
        raise StoreError(f"{path}: {verb} {label}; delete it, then {otherwise}")
    for label, record in found.items():
        if record["address"] != expected[label].address(record["data"]["digest"]):
            raise StoreError(
                f"{path}: {label} was made with other settings or by another sampler's file; delete it, then "
                f"{otherwise}"
            )


def check_files(folder: Path, rules: Rules) -> None:
    """Check that a folder holds what a submission may hold, before any of it is read.

    Raises:
        ConfigError: a file is missing, is no part of a submission, is no plain file, or is too large.
    """
    if not FOLDER.fullmatch(folder.name):
        raise ConfigError(
            f"{folder}: its name must be at most 40 small letters, digits and _, and begin with a letter; rename it."
        )
    code = folder / f"{folder.name}.py"
    allowed = {code, folder / f"{folder.name}.yaml", folder / "README.md"}
    if not code.is_file():
        raise ConfigError(f"{code}: is missing; write the sampler there.")
    for path in (folder, *sorted(folder.rglob("*"))):
        inside = path.relative_to(folder).parts
        if path.is_symlink():
            raise ConfigError(f"{path}: is a link; put the file itself there.")
        if path.is_dir() and (not inside or (len(inside) == 1 and inside[0] in SCALES)):
            continue
        archive = len(inside) == 2 and path == archives.path_of(rules.experiment, inside[0], folder)
        if not path.is_file() or not (path in allowed or archive):
            raise ConfigError(f"{path}: is no part of a submission; take it away.")
        if path.stat().st_size > 1024 * SIZES[path.suffix]:
            raise ConfigError(f"{path}: is larger than {SIZES[path.suffix]} KiB; make it smaller.")


def alike(name: str) -> str:
    """What two names have in common that people would take for the same."""
    return "".join(filter(str.isalnum, name.casefold())).translate(LIKE)


def check_name(submission: Submission, settings: Experiments, home: Path | None = None) -> None:
    """Check that nothing else in the arena has a submission's name.

    Raises:
        ConfigError: a method of the arena or another submission has it, or one that looks the same.
    """
    where = f"{submission.folder.name}.yaml.name: {submission.description.name!r}"
    for method in settings.describe(submission.rules.experiment, submission.rules.scale)["methods"]:
        if alike(method) == alike(submission.description.name):
            raise ConfigError(f"{where} is, or looks like, a method of the arena, {method!r}; rename it.")
    for path in sorted(((home or HOME) / "submissions").glob("*/*.yaml")):
        if path.parent.name == submission.folder.name or not path.is_file():
            continue
        name = None
        with suppress(ConfigError):  # of the other one, which is told when that is opened
            name = reading.read(path).get("name")
        if isinstance(name, str) and alike(name) == alike(submission.description.name):
            raise ConfigError(f"{where} is, or looks like, the name of {path.parent}; rename it.")


def accuracies(results: pd.DataFrame) -> pd.Series:
    """What is scored of every run, the mean test accuracy over its measured rounds: by (setting, method, seed)."""
    return measure.per_run(results, "test_accuracy", measure.area)
