"""What a simulation gave: its table, a picture, a summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.settings.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUALITY = (
    "test_accuracy",
    "test_metric",
    "test_loss",
    "train_loss",
)  # what is shown, the first that was measured


@dataclass(frozen=True)
class Result:
    """What was measured of all methods and seeds.

    table: a row a (method, seed, round), with the columns of ARCHITECTURE.md; `test_metric` is what a metric of one's
    own gave. clients: who the clients 0 to N - 1 are, where a column said so.
    """

    table: pd.DataFrame
    clients: list[Any] | None = None

    @property
    def column(self) -> str:
        """What is shown: accuracy where there is one, else one's own metric, else the loss."""
        return next(column for column in QUALITY if column in self.table and self.table[column].notna().any())

    def plot(self, column: str | None = None, **options: Any) -> Figure:
        """A line a method over rounds, its mean over seeds, with a band of one standard deviation.

        column: of the table, None for accuracy where there is one. options: of `fedlib.pages.plots.curves`.
        """
        from fedlib.pages import plots

        plots.style()
        return plots.curves(self.table, column or self.column, **{"panels": {"": ""}, **options})

    def summary(self, target: float, column: str | None = None, at_most: bool | None = None) -> pd.DataFrame:
        """A row a method, the best first: what it took to reach a target, medians over seeds; inf: never.

        target: of the column, None for accuracy where there is one. at_most: whether low values are good; None for
            those of losses and metrics of one's own where there is no accuracy.

        Columns: seeds; reached: how many of them did; rounds; megabytes, sent and received by all clients together
        until then; work, their local steps; final: the column's mean over the last fifth of the rounds, over all seeds;
        rank: mean over seeds of the rank by rounds, then by final.
        """
        column = column or self.column
        if column not in self.table or self.table[column].isna().all():
            raise ConfigError(f"summary: {column!r} was not measured; the table has {', '.join(self.table)}.")
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
