"""Studies: measurements that some figures need in addition to training curves, made once and kept like runs.

A study is a module with two functions. `units(settings, experiments, scale)` yields its units, each a plain dictionary
of everything that determines its numbers, with `labels` for display. `measure(unit, place, halfway)` turns a unit into
a table and, if that takes long, reports its progress to `halfway`. A unit is measured once: its table is kept under
the digest of the unit without its labels. A killed study resumes where it stopped. All tables together are
`data/results/<scale>/<study>.parquet`, described by `<study>.json`.

The settings are in `params.yaml` under `studies`, as `<paper>_<module>`. A study that trains takes its runs from the
experiments there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedlib.errors import ConfigError, meant

if TYPE_CHECKING:
    from fedlib.settings.params import Experiments
    from fedlib.settings.schema import Scale

Unit = dict[str, Any]  # a measurement: `labels`, and everything that determines its numbers


def units_of(settings: dict[str, Any], experiments: Experiments, scale: Scale, *keys: str) -> Iterator[Unit]:
    """A unit for each training run that a study follows: `labels`, `dataset`, `run` (a dictionary), and its settings.

    Settings by which an experiment measures losses less often or ends early do not apply to a study.

    settings: `experiments` {label of the dataset: experiment}, and optionally `settings` and `methods` to keep, and
    `seeds`, how many of each experiment's seeds to take. keys: of the settings that each unit has too.

    Raises:
        ConfigError: there is no such experiment, setting or method.
    """
    planned = {label: experiments.runs(name, scale) for label, name in settings["experiments"].items()}
    for kind in ("method", "setting"):
        names = sorted({getattr(labelled, kind) for runs in planned.values() for labelled in runs})
        for name in settings.get(f"{kind}s") or []:
            if name not in names:
                raise ConfigError(f"studies: there is no {kind} {name!r} to follow; {meant(name, names)}")
    for data, runs in planned.items():
        seeds = list(dict.fromkeys(labelled.run.seed for labelled in runs))[: settings.get("seeds", 1)]
        for labelled in runs:
            method, setting, run = labelled.method, labelled.setting, labelled.run
            if (
                run.seed in seeds
                and method in settings.get("methods", [method])
                and setting in settings.get("settings", [setting])
            ):
                labels = {"data": data, "setting": setting, "method": method, "seed": run.seed}
                evaluate = run.evaluate.model_copy(update={"train_every": None})
                run = run.model_copy(update={"until": None, "evaluate": evaluate})
                unit = {"labels": labels, "dataset": run.dataset, "run": run.model_dump(mode="json")}
                yield unit | {key: settings[key] for key in keys}
