"""Studies: measurements that some figures need in addition to training curves, made once and kept like runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedlib.settings.params import Experiments
    from fedlib.settings.schema import Scale

Unit = dict[str, Any]


def runs_of(
    settings: dict[str, Any], experiments: Experiments, scale: Scale
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The training runs that a study follows: (labels, run) of each, a run as a plain dictionary.

    Settings by which an experiment measures losses less often or ends early do not apply to a study.

    settings: `experiments` {label of the dataset: experiment}, and optionally `settings` and `methods` to keep, and
    `seeds`, how many of each experiment's seeds to take.

    Raises:
        ConfigError: there is no such experiment, setting or method.
    """
    from fedlib.errors import ConfigError, meant

    planned = [one for name in settings["experiments"].values() for one in experiments.runs(name, scale)]
    for kind in ("method", "setting"):
        there = {getattr(one, kind) for one in planned}
        for name in settings.get(f"{kind}s") or []:
            if name not in there:
                raise ConfigError(
                    f"studies: there is no {kind} {name!r} to follow; {meant(name, sorted(there))}"
                )
    for label, experiment in settings["experiments"].items():
        found = experiments.runs(experiment, scale)
        seeds = list(dict.fromkeys(one.run.seed for one in found))[: settings.get("seeds", 1)]
        for one in found:
            if one.run.seed not in seeds or one.method not in settings.get("methods", [one.method]):
                continue
            if one.setting in settings.get("settings", [one.setting]):
                labels = {"data": label, "setting": one.setting, "method": one.method, "seed": one.run.seed}
                evaluate = one.run.evaluate.model_copy(update={"train_every": None})
                run = one.run.model_copy(update={"until": None, "evaluate": evaluate})
                yield labels, run.model_dump(mode="json")
