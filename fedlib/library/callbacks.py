"""What a program sees of its runs while they train, and what is kept of each when it ends."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.library.metric import QUALITY, Better, check_better, is_low
from fedlib.runs.store import Store, pack
from fedlib.settings.schema import Run
from fedlib.simulation.live import Live

Keep = Literal["last", "best"]
MOST_METHODS = 4  # of which a progress line says what was measured
KEPT = "kept.npz"  # in a run's folder: its clients' losses and scores, and its weights


@dataclass(frozen=True)
class Running:
    """A run as callbacks see it. settings: all that determines it. better: of a `fedlib.Metric`."""

    method: str
    seed: int
    T: int
    settings: Run
    better: Better | None = None


class Callback:
    """Base class of what is called after every round of every run."""

    def on_round(self, run: Running, row: Mapping[str, Any], model: Callable[[], nn.Module]) -> bool | None:
        """Called with a row of the results, first with that of round 0. True ends this run after the row's round.

        model: makes the global model, in evaluation mode. Rows of rounds that an earlier call of `fedlib.simulate`
        trained come without one: it then raises ConfigError.
        """


@dataclass
class EarlyStop(Callback):
    """Ends a run when a column has not become better for `patience` rounds in which it was measured.

    column: None for accuracy if it is measured, else the first of a program's own metric and the losses.
    better: whether "high" or "low" values are good; None for a loss, an accuracy or a `fedlib.Metric`, which say it.

    Raises:
        ConfigError: patience is no number of rounds, or nothing says which values are good.
    """

    patience: int
    column: str | None = None
    better: Better | None = None
    best: dict[tuple[str, int], tuple[float, int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            raise ConfigError(f"EarlyStop.patience is {self.patience!r}; it must be a number of rounds.")
        if self.better is not None:
            check_better("EarlyStop.better", self.better)

    def on_round(self, run: Running, row: Mapping[str, Any], model: Callable[[], nn.Module]) -> bool | None:
        column, key = self.column or quality_of(row), (run.method, run.seed)
        if row["round"] == 0:
            self.best.pop(key, None)  # of an earlier call
        if self.column and row["round"] and self.column not in row and key not in self.best:
            raise ConfigError(
                f"EarlyStop.column is {self.column!r}, which is not measured; there are {', '.join(row)}."
            )
        if column is None or pd.isna(row.get(column)):
            return None
        low = is_low(column, run.better, self.better)
        value = -row[column] if low else row[column]
        if key not in self.best or value > self.best[key][0]:
            self.best[key] = (value, 0)
            return None
        self.best[key] = (self.best[key][0], self.best[key][1] + 1)
        return self.best[key][1] >= self.patience


@dataclass
class EndAfter(Callback):
    """Ends runs after known rounds: (method, seed) -> round."""

    rounds: Mapping[tuple[str, int], int]

    def on_round(self, run: Running, row: Mapping[str, Any], model: Callable[[], nn.Module]) -> bool:
        return row["round"] >= self.rounds[run.method, run.seed]


def quality_of(row: Mapping[str, Any]) -> str | None:
    """The column that says how good a model is."""
    return next((name for name in QUALITY if pd.notna(row.get(name))), None)


@dataclass
class Watcher:
    """Tells callbacks about every row once, and writes what is kept of a run.

    labels: address -> the runs' labels. lineage: address -> where a run's state is kept for a larger T, if anywhere.
    measure: loss and score of each client of a live run. make: a module of a flat vector.
    """

    labels: Mapping[str, Sequence[Running]]
    lineage: Mapping[str, str | None]
    callbacks: Sequence[Callback]
    keep: Keep | None
    store: Store
    measure: Callable[[Live], dict[str, np.ndarray]]
    make: Callable[[Tensor], nn.Module]
    rows_told: dict[str, int] = field(default_factory=dict)
    initial: dict[str, Tensor] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    ended: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # rows of runs that a callback ended
    measured: dict[str, tuple[str, float]] = field(default_factory=dict)  # column and value, last of all
    cut: dict[str, int] = field(default_factory=dict)  # of these, the rounds whose models are no longer there

    def __call__(self, address: str, live: Live) -> None:
        """Called before the first and after every round of a run."""
        if live.failed:
            return
        if not live.rows:  # the row of round 0 comes together with that of round 1
            self.initial[address] = live.models
        new = live.rows[self.rows_told.get(address, 0) :]
        self.rows_told[address] = len(live.rows)
        for row in new:
            models = self.initial.pop(address, None) if row["round"] == 0 else None
            if row is live.rows[-1] and not live.diverged:
                models = live.models
            self._keep_best(address, row, models)
            if column := quality_of(row):
                self.measured[address] = column, row[column]
            if self._tell(address, row, models):
                live.stopped = row["round"] < live.run.T
                self.ended[address] = live.rows[: row["round"] + 1]
                if models is None and row is not live.rows[-1]:
                    self.cut[address] = row["round"]
                latest, live.models = live.models, live.models if models is None else models
                self._end(address, live)
                live.models = latest
                return
        if live.ended:
            self._end(address, live)

    def latest(self) -> str:
        """What was measured last, a mean over seeds for each method, as the end of a progress line."""
        values: dict[str, list[float]] = {}
        for address, (_, value) in list(self.measured.items()):
            for method in dict.fromkeys(run.method for run in self.labels[address]):
                values.setdefault(method, []).append(value)
        if not values:
            return ""
        column, _ = next(iter(self.measured.values()))
        means = [f"{method} {np.mean(several):.3g}" for method, several in values.items()]
        return f"; {column}: {', '.join(means[:MOST_METHODS])}{', ...' if len(means) > MOST_METHODS else ''}"

    def replay(self, address: str, rounds: pd.DataFrame) -> None:
        """Tell callbacks about a run that was finished before."""
        rows: list[dict[str, Any]] = [dict(row) for row in rounds.to_dict("records")]  # type: ignore[call-overload]
        for row in rows:
            if self._tell(address, row, None):
                self.ended[address] = rows[: row["round"] + 1]
                if row is not rows[-1]:
                    self.cut[address] = row["round"]
                break

    def _tell(self, address: str, row: Mapping[str, Any], models: Tensor | None) -> bool:
        def model() -> nn.Module:
            if models is None:
                raise ConfigError(f"callbacks: the model of round {row['round']} is no longer there.")
            if len(models) > 1:
                raise ConfigError("callbacks: this algorithm has several global models.")
            return self.make(models[0])

        ends = False
        for run in self.labels[address]:
            for callback in self.callbacks:
                dtype = torch.get_default_dtype()
                try:
                    answer = callback.on_round(run, dict(row), model)
                finally:
                    torch.set_default_dtype(dtype)  # whatever it set, the next round computes as usual
                if not (answer is None or isinstance(answer, bool | np.bool_)):
                    raise ConfigError(
                        f"callbacks: {type(callback).__name__}.on_round returned {answer!r}; return True to end the "
                        "run, and otherwise None."
                    )
                ends = ends or bool(answer)
        return ends

    def _keep_best(self, address: str, row: Mapping[str, Any], models: Tensor | None) -> None:
        column = quality_of(row)
        if self.keep != "best" or column is None:
            return
        value = -row[column] if is_low(column, self.labels[address][0].better) else row[column]
        if value > self.best.get(address, -np.inf):
            self.best[address] = value
            if models is not None:
                self.weights[address] = models.cpu().numpy().copy()

    def _end(self, address: str, live: Live) -> None:
        arrays = {} if live.diverged else self.measure(live)
        if self.keep is not None:
            arrays["weights_last"] = live.models.cpu().numpy()
        if address in self.weights:
            arrays["weights_best"] = self.weights[address]
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # ty: ignore[invalid-argument-type]  # no array is named allow_pickle
        write_whole(self.store.folder(address) / KEPT, buffer.getvalue())
        further = self.lineage.get(address)
        if further and live.t == live.run.T and not (live.diverged or live.stopped):
            self.store.save_checkpoint(further, pack(_for_a_larger_T(live)))


def _for_a_larger_T(live: Live) -> dict[str, Any]:
    """A run's state, without what was measured only because its last round was the last."""
    state, evaluate = live.state_dict(), live.run.evaluate
    last = dict(state["rows"][-1])
    if live.t % evaluate.every:
        last = {k: v for k, v in last.items() if not k.startswith(("test_", "train_", "client_accuracy"))}
    elif evaluate.train_every and live.t % evaluate.train_every:
        last = {k: v for k, v in last.items() if not k.startswith("train_")}
    return state | {"rows": [*state["rows"][:-1], last]}


def ends_of(folder: Path, keep: Keep | None) -> dict[str, np.ndarray]:
    """What was kept of a run, with the weights that `keep` names; empty if nothing is there, or it is damaged."""
    try:
        with np.load(folder / KEPT, allow_pickle=False) as arrays:
            names = {name: "weights" if name == f"weights_{keep}" else name for name in arrays}
            return {name: arrays[key] for key, name in names.items() if not name.startswith("weights_")}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return {}
