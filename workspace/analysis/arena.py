"""The arena: its rules, its submissions, and what everybody's runs come to. `arena/rules.md` says what counts.

A submission is a folder `arena/submissions/<name>`: `<name>.py` registers the sampler, `<name>.yaml` describes it, and
`<scale>/<experiment>.parquet` is the sealed archive of its runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pandas as pd
from pydantic import Field, model_validator

from fedlib import measure
from fedlib.errors import ConfigError, StoreError
from fedlib.kinds import Count, Settings, Whole, shortened
from fedlib.runs import archive as archives
from fedlib.runs.work import Plan
from fedlib.samplers import Sampler
from fedlib.settings import reading
from fedlib.settings.params import Experiments, seeds_of
from fedlib.settings.schema import ROOT, Scale
from fedlib.settings.sections import valid
from workspace.analysis import submitted
from workspace.analysis.profiles import Profiles

HOME = ROOT / "arena"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRIAL = "trial {}"  # the label of a trial's runs

Information = Literal["blind", "losses", "updates", "labels", "validation set", "speeds"]
KINDS: tuple[Information, ...] = get_args(Information)
SEES: dict[str, Information] = {  # sampler of the arena's own methods -> what its choices depend on
    **dict.fromkeys(("uniform", "weighted", "md", "clustered_size", "full", "f3ast", "fedau"), "blind"),
    **dict.fromkeys(("afl", "power_of_choice", "fedcor", "oort"), "losses"),
    **dict.fromkeys(("clustered_similarity", "importance", "hcsfed", "divfl", "hics_fl", "delta"), "updates"),
    **dict.fromkeys(("target", "oracle", "fed_cbs"), "labels"),
}
Text = Annotated[str, Field(min_length=1)]
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
    retrained: Count
    digest: str

    @classmethod
    def read(cls, path: Path = HOME / "rules.md") -> Rules:
        """Raises ConfigError: the file is missing, or its block of settings is."""
        try:
            text = path.read_text()
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


class Description(Settings):
    """What a submission's YAML says.

    rules: version and digest of the rules. name: of the method, for people. paper: where it was published.
    sampler: the name under which the file registers it. information: what its choices depend on.
    search: for each parameter that was tuned, the values tried. trials: the parameters of each trial.
    parameters: those that are scored.
    """

    rules: Text
    name: Text
    paper: Text
    sampler: Text
    information: Annotated[list[Information], Field(min_length=1)]
    search: dict[str, list[Any]] = {}
    trials: list[Parameters] = []
    parameters: Parameters = {}

    @model_validator(mode="after")
    def _consistent(self) -> Description:
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
        rules, folder = rules or Rules.read(), folder.resolve()
        path = folder / f"{folder.name}.yaml"
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; name one below arena/submissions.")
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
        submission = cls(folder, description, rules)
        submission._check_files()
        return submission

    def _check_files(self) -> None:
        allowed = {self.code, self.folder / f"{self.folder.name}.yaml", self.folder / "README.md"}
        if not self.code.is_file():
            raise ConfigError(f"{self.code}: is missing; write the sampler there.")
        for path in sorted(self.folder.rglob("*")):
            inside = path.relative_to(self.folder).parts
            archive = path == archives.path_of(self.rules.experiment, inside[0], self.folder)
            if path.is_file() and path not in allowed and not archive and "__pycache__" not in inside:
                raise ConfigError(f"{path}: is no part of a submission; take it away.")

    @property
    def code(self) -> Path:
        return self.folder / f"{self.folder.name}.py"

    def load(self) -> type[Sampler]:
        """Its sampler; executes its file. Raises ConfigError as `submitted.load`."""
        return submitted.load(self.code, self.description.sampler)

    def archive(self, scale: Scale) -> Path:
        """The file of its runs at a scale."""
        return archives.path_of(self.rules.experiment, scale, self.folder)

    def plan(self, scale: Scale, settings: Experiments) -> Plan:
        """Its runs: the scored ones, and the trials on the tuning seeds.

        Raises:
            ConfigError: its parameters cannot be used, or a tuning seed is also scored.
        """
        spec, seeds = settings.describe(self.rules.experiment, scale), self.rules.tuning_seeds
        if shared := set(seeds_of(spec, self.rules.experiment)) & set(seeds):
            raise ConfigError(f"arena/rules.md: seed {min(shared)} is tuned on and scored; use another one.")
        scored = self._runs(spec, {self.description.name: self.description.parameters}, scale)
        trials = {TRIAL.format(k): trial for k, trial in enumerate(self.description.trials, start=1)}
        if trials:
            tuned = self._runs({**spec, "seeds": seeds}, trials, scale)
            return Plan(scored.name, scale, scored.work + tuned.work, scored.archived)
        return scored

    def _runs(self, spec: dict[str, Any], methods: dict[str, Parameters], scale: Scale) -> Plan:
        sampler = self.description.sampler
        by_name = {label: {**parameters, "sampler": sampler} for label, parameters in methods.items()}
        raw = {"experiments": {self.rules.experiment: {**spec, "methods": by_name}}}
        return Plan.of_experiment(self.rules.experiment, scale, Experiments(raw, f"{self.folder.name}.yaml"))

    def rows(self, scale: Scale) -> pd.DataFrame:
        """The rows of its archive, each with the rules' version and digest (`rules`); its sampler must be loaded.

        Raises:
            StoreError: the archive is missing or not as it was sealed, or was made under other rules.
        """
        path = self.archive(scale)
        if not path.exists():
            raise StoreError(f"{path}: is missing; run: fedlib arena run {self.folder.name} --scale {scale}")
        table = archives.read(self.rules.experiment, scale, self.folder).table
        if "rules" not in table or set(table["rules"]) != {self.rules.stamp}:
            raise StoreError(
                f"{path}: its rows were made under other rules than {self.rules.stamp}; delete it and run the "
                "submission again."
            )
        return table

    def best_trial(self, scale: Scale) -> Parameters:
        """The parameters of the trial with the highest mean accuracy over the tasks; without trials, the paper's."""
        if not self.description.trials:
            return self.description.parameters
        means = accuracies(self.rows(scale)).groupby("method").mean()
        return max(
            enumerate(self.description.trials, start=1), key=lambda trial: means[TRIAL.format(trial[0])]
        )[1]


def submissions(rules: Rules, home: Path = HOME) -> Iterator[Submission]:
    """Every submission under these rules, by name. Raises ConfigError as `Submission.open`."""
    for path in sorted((home / "submissions").glob("*/*.yaml")):
        if reading.read(path).get("rules") == rules.stamp:
            yield Submission.open(path.parent, rules)


def accuracies(results: pd.DataFrame) -> pd.Series:
    """What is scored of every run, the mean test accuracy over its measured rounds: by (setting, method, seed)."""
    return measure.per_run(results, "test_accuracy", measure.area)


def scored(
    methods: pd.DataFrame, scale: Scale, rules: Rules, settings: Experiments, home: Path = HOME
) -> tuple[Profiles, pd.DataFrame]:
    """The scores of the arena's methods and of every submission that has run at a scale, and what each may see.

    methods: the table of the rules' experiment.

    Raises:
        Missing: the scores are not defined. StoreError, ConfigError: a submission is not as it should be.
    """
    runs, parts = settings.runs(rules.experiment, scale), [accuracies(methods)]
    information: dict[str, str] = {
        labelled.method: SEES.get(labelled.run.method.sampler, "") for labelled in runs
    }
    for submission in submissions(rules, home):
        if not submission.archive(scale).exists():
            continue
        name = submission.description.name
        if name in set(methods["method"]):
            raise ConfigError(
                f"{submission.folder.name}.yaml.name: {name!r} is a method of the arena; rename it."
            )
        submission.load()
        rows = submission.rows(scale)
        parts.append(accuracies(rows[rows["method"] == name]))
        information[name] = ", ".join(submission.description.information)
    profiles = Profiles.of(pd.concat(parts), rules.baseline, rules.target)
    board = profiles.table()
    return profiles, board.assign(
        information=[information.get(name, "") for name in board.index], rules=rules.stamp
    )
