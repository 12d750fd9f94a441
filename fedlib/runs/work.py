"""Work: what is computed once and kept. A piece of work is a training run, or a measurement of a study.

Both have labels, which tell their rows apart in a table, a dataset, and an address, which follows from everything that
determines their numbers. So both are stored, archived and gathered in the same way. A `Plan` is all the work of an
experiment or study at a scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedlib.errors import ConfigError, meant
from fedlib.runs.studies import Unit
from fedlib.settings.code import NUMERICS, Code, code_of
from fedlib.settings.schema import Run, Scale, address_as_written, address_of, address_of_run

if TYPE_CHECKING:
    import pandas as pd

    from fedlib.settings.params import Experiments

Measure = Callable[..., "pd.DataFrame"]  # (unit, place, halfway) -> its table
LABELS = {"setting": "", "method": "", "seed": 0}  # columns of every table of results
TIMES = ["seconds", "server_seconds"]  # columns that may differ each time


@dataclass(frozen=True, eq=False)
class Work:
    """A training run or a measurement of a study.

    name: of its experiment or study. settings: everything that determines its numbers, as its record has it:
    {"run": ...} or {"unit": ...}. dataset: that it needs, if any. run: if it is one, the run to train. measure: if it
    is a measurement, what makes its table.
    """

    name: str
    labels: dict[str, Any]
    settings: dict[str, Any]
    dataset: str | None
    run: Run | None = None
    measure: Measure | None = None

    def addresses(self, digest: str | None) -> tuple[str, ...]:
        """Its address with a dataset of this digest, and then the one that older stores may have."""
        (settings,) = self.settings.values()
        return addresses(self.name, self.settings, NUMERICS, digest, code_of(settings))

    def address(self, digest: str | None) -> str:
        """Its address with a dataset of this digest."""
        return self.addresses(digest)[0]

    @property
    def columns(self) -> dict[str, Any]:
        """Setting, method and seed, as every table of results has them."""
        return {key: self.labels.get(key, default) for key, default in LABELS.items()}

    @property
    def words(self) -> str:
        """Its labels as text, for messages."""
        if self.run is None:
            return ", ".join(str(label) for label in self.labels.values() if label != "")
        return words(self.columns)


def training(run: Run, experiment: str = "", setting: str = "", method: str = "") -> Work:
    """The work of training a run."""
    labels = {"setting": setting, "method": method, "seed": run.seed}
    return Work(experiment, labels, {"run": run.model_dump(mode="json")}, run.dataset, run=run)


def measurement(study: str, unit: Unit, measure: Measure) -> Work:
    """The work of measuring a unit of a study."""
    return Work(study, unit["labels"], {"unit": unit}, unit.get("dataset"), measure=measure)


@dataclass(frozen=True)
class Plan:
    """All the work of an experiment or study at a scale. archived: see `Experiments.archived`."""

    name: str
    scale: Scale
    work: tuple[Work, ...] = ()
    archived: tuple[str, ...] = ()

    @classmethod
    def of_experiment(cls, name: str, scale: Scale, experiments: Experiments) -> Plan:
        """Raises ConfigError: there is no such experiment, or it cannot be run."""
        work = (
            training(labelled.run, name, labelled.setting, labelled.method)
            for labelled in experiments.runs(name, scale)
        )
        return cls(name, scale, tuple(work), experiments.archived(name))

    def only(
        self,
        methods: Sequence[str] | None = None,
        seeds: Sequence[int] | None = None,
        settings: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
    ) -> Plan:
        """The part with these methods, seeds, settings and data sets (None: all).

        Raises:
            ConfigError: a method, seed, setting or data set is unknown, or nothing has all of them.
        """
        chosen = self.work
        of = {work: {**work.columns, "data set": work.dataset} for work in self.work}
        kinds = (("method", methods), ("setting", settings), ("seed", seeds), ("data set", datasets))
        for key, chosen_labels in kinds:
            labels = dict.fromkeys(of[work][key] for work in self.work)
            for value in chosen_labels or []:
                if value not in labels:
                    raise ConfigError(
                        f"{self.name!r} has no {key} {value!r}; {meant(value, map(str, labels))}"
                    )
            if chosen_labels is not None:
                chosen = tuple(work for work in chosen if of[work][key] in chosen_labels)
        if not chosen:
            raise ConfigError(f"{self.name!r} has no run of these methods, settings, seeds and data sets.")
        return replace(self, work=chosen)


def words(record: dict[str, Any]) -> str:
    """Setting, method and seed in a record, for messages."""
    return ", ".join(filter(None, [record["setting"], record["method"], f"seed {record['seed']}"]))


def labels_of(record: dict[str, Any]) -> dict[str, Any]:
    """The labels of the work that a record describes."""
    if is_measurement(record):
        return record["unit"]["labels"]
    return record.get("labels") or {key: record[key] for key in LABELS if key in record}


def is_measurement(record: dict[str, Any]) -> bool:
    """Whether a record describes a measurement of a study, not a training run."""
    return "unit" in record


def addresses(
    name: str, settings: dict[str, Any], numerics: int, digest: str | None, code: Code
) -> tuple[str, ...]:
    """The address of work, and the one of a time when settings that are written in two ways had two addresses.

    settings: {"run": ...} or {"unit": ...}, and possibly more. digest: of the data. code: see `code_of`.
    """
    if is_measurement(settings):  # its labels do not affect its numbers
        numbers = {key: value for key, value in settings["unit"].items() if key != "labels"}
        made_of = [f"fedlib.studies.{name.partition('_')[2]}", numbers, numerics, digest]
        return (address_of([*made_of, code] if code else made_of),)
    made_by = numerics, digest or "", code
    return address_of_run(settings["run"], *made_by), address_as_written(settings["run"], *made_by)
