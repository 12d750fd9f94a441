"""The result of a simulation: its table, a picture, a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUALITY = (
    "test_accuracy",
    "test_metric",
    "test_loss",
    "train_loss",
)  # what is shown by default: the first of these that was measured


@dataclass(frozen=True)
class Result:
    """The measures of all methods and seeds.

    table: one row per (method, seed, round), with the columns of ARCHITECTURE.md; `test_metric` holds a program's own
        metric. clients: names of the clients 0 to N - 1, if a column gave them.
    """

    table: pd.DataFrame
    clients: list[Any] | None = None

    @property
    def column(self) -> str:
        """What is shown by default: accuracy if it was measured, else a program's own metric, else the loss."""
        return next(column for column in QUALITY if column in self.table and self.table[column].notna().any())

    def _measured(self, column: str | None) -> str:
        column = column or self.column
        if column not in self.table or self.table[column].isna().all():
            there = ", ".join(name for name in self.table if self.table[name].notna().any())
            raise ConfigError(f"column {column!r} was not measured; the table has {there}.")
        return column

    def plot(self, column: str | None = None, **options: Any) -> Figure:
        """One line per method over rounds: the mean over seeds, with a band of one standard deviation.

        column: of the table; None for accuracy if it was measured. options: of `fedlib.drawing.plots.curves`.
        """
        from fedlib.drawing import plots

        plots.style()
        return plots.curves(self.table, self._measured(column), **{"panels": {"": ""}, **options})

    def summary(self, target: float, column: str | None = None, at_most: bool | None = None) -> pd.DataFrame:
        """One row per method, the best first: the cost of reaching a target, as medians over seeds; inf: never.

        target: a value of the column; None for accuracy if it was measured. at_most: whether low values are good; None
            for losses and for a program's own metrics where there is no accuracy.

        Columns: seeds; reached: number of seeds that reached it; rounds; megabytes: sent and received by all clients
        until then; work: their local steps; final: mean of the column over the last fifth of the rounds and all seeds;
        rank: mean over seeds of the rank by rounds, then by final.
        """
        column = self._measured(column)
        low = column != "test_accuracy" if at_most is None else at_most
        reach = measure.rounds_below if low else measure.rounds_to_target
        table = measure.cumulative_cost(self.table)
        alive = table[~table["diverged"].astype(bool)]
        arrived = measure.per_run(alive, column, lambda curve: reach(curve, target))
        final = measure.per_run(alive, column, measure.end_mean)
        diverged = table.groupby(measure.RUN, sort=False)["diverged"].any()
        final[diverged.reindex(final.index).astype(bool)] = np.inf if low else 0.0
        by_method = {"level": "method", "sort": False}
        out = pd.DataFrame({"seeds": arrived.groupby(**by_method).size()})
        out["reached"] = np.isfinite(arrived).groupby(**by_method).sum()
        out["rounds"] = arrived.groupby(**by_method).median()
        spent = table.set_index([*measure.RUN, "round"])
        for cost in ("megabytes", "work"):
            values = [spent[cost].get((*run, rounds), np.inf) for run, rounds in arrived.items()]
            out[cost] = pd.Series(values, arrived.index).groupby(**by_method).median()
        out["final"] = final.groupby(**by_method).mean()
        by_rounds = arrived.groupby(level="seed").rank()
        by_final = (final if low else -final).groupby(level="seed").rank()
        place = (by_rounds * 2 * len(out) + by_final).groupby(level="seed").rank()
        out["rank"] = place.groupby(**by_method).mean()
        return out.sort_values(["rank", "rounds"], kind="stable").rename_axis("method")
