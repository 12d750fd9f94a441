"""Methods that train side by side in one setting, and how they stand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedlib import measure
from fedlib.errors import ConfigError
from fedlib.runs.place import Place, Prepared, runs_in_lockstep
from fedlib.settings import params, schema
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from workspace.analysis import tables

Read = Callable[[Run], tuple[pd.DataFrame, Any] | None]
SHARED = {"dataset", "scaling", "partition", "holdout", "model", "N"}  # a method may not change these


class Training:
    """Methods that train side by side in one setting. Each may be added at any time, and added again.

    A run that is finished already is not trained again: its rounds are there at once.

    setting: the keys of a run without method and seed. read: finds the rounds of a finished run (`Finished.read`).
    partitions: seed -> each client's samples. methods: label -> the runs that train. finished: label -> the rounds of
    those that were finished before.

    Raises:
        ConfigError: the setting is impossible. DataError: its dataset is not prepared.
    """

    def __init__(
        self, setting: Mapping[str, Any], seeds: Iterable[int], read: Read = lambda run: None
    ) -> None:
        self.place, self.read = Place.from_environment(), read
        self.setting, self.seeds = dict(setting), list(seeds)
        self.plain = [self._run({"sampler": "uniform"}, seed, "setting") for seed in self.seeds]
        self.supply = Prepared(self.place)
        self.partitions = {run.seed: self.supply.partition(run) for run in self.plain}
        self.methods: dict[str, Lockstep] = {}
        self.finished: dict[str, list[pd.DataFrame]] = {}

    def _run(self, method: Mapping[str, Any], seed: int, label: str) -> schema.Run:
        raw = params.merge(self.setting, params.split_method(dict(method)))
        return params.build(raw, seed, label)

    def enter(self, label: str, method: Mapping[str, Any]) -> None:
        """Add a method, written as in `params.yaml`, from its own round 0. It replaces an older one with this label.

        Raises:
            ConfigError, SamplerError: it is unknown, has unusable parameters, or changes a setting that all share.
        """
        runs = [self._run(method, seed, label) for seed in self.seeds]
        for key in SHARED:
            if getattr(runs[0], key) != getattr(self.plain[0], key):
                raise ConfigError(f"{label}: {key} is shared by all methods here; change it in the setting.")
        finished_runs = {run.seed: self.read(run) for run in runs}
        lacking = [run for run in runs if finished_runs[run.seed] is None]
        self.forget(label)
        if lacking:
            self.methods[label] = runs_in_lockstep(lacking, self.place, self.supply)
        self.finished[label] = [
            rounds[0].assign(method=label, seed=seed) for seed, rounds in finished_runs.items() if rounds
        ]

    def forget(self, label: str) -> None:
        """Remove a method, if it is here."""
        self.methods.pop(label, None)
        self.finished.pop(label, None)

    @property
    def from_archive(self) -> str:
        """What was finished before, in words; empty if nothing was."""
        names = [
            f"{label} ({len(runs)} of {len(self.seeds)} seeds)"
            for label, runs in self.finished.items()
            if runs
        ]
        return f"from the archive or the store, not trained again: {', '.join(names)}" if names else ""

    @property
    def done(self) -> bool:
        """Whether all runs have ended."""
        return not any(method.active for method in self.methods.values())

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds done and rounds planned, summed over all runs. A run that ended early counts only what it did."""
        lives = [live for method in self.methods.values() for live in method.live]
        return sum(live.t for live in lives), sum(live.t if live.ended else live.run.T for live in lives)

    def advance(self) -> None:
        """Train one round of every unfinished run. A method that fails is removed, and its error is raised."""
        for label, method in list(self.methods.items()):
            if method.active:
                try:
                    method.advance()
                except Exception:
                    self.forget(label)
                    raise

    def advance_for(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> None:
        """Train rounds until the time is over (at least one round), all runs are done, or training is stopped."""
        end = time.monotonic() + seconds
        while not self.done:
            self.advance()
            if stopped() or time.monotonic() >= end:
                return

    def results(self) -> pd.DataFrame:
        """The rounds so far as a tidy table (see Results in `ARCHITECTURE.md`); empty before the first round."""
        runs = []
        for label, finished in self.finished.items():
            live = self.methods[label].live if label in self.methods else []
            trained = (
                pd.DataFrame(run.rows).assign(method=label, seed=run.run.seed) for run in live if run.t
            )
            runs += [*finished, *trained]
        if not runs:
            return pd.DataFrame()
        return pd.concat(runs, ignore_index=True).assign(experiment="lab", setting="")


def standings(results: pd.DataFrame, target: float) -> pd.DataFrame:
    """A small arena, one row per method: mean rank over seeds by present accuracy; rounds and bytes to the target."""
    final = measure.per_run(results, "test_accuracy", measure.end_mean, share=0.05)
    table = tables.cost_table(results, target).iloc[:, :3]
    table.insert(0, "mean rank", measure.mean_ranks(final.unstack("method")))
    return table.sort_values("mean rank").round(2).replace(np.inf, "never")
