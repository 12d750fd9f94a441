"""The training time of a run, by the seconds that finished runs took: where there are any, no speed is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pandas as pd

from fedlib.runs.work import LABELS, Plan, Work
from fedlib.settings.schema import Run

# which runs are alike, from the closest on
LIKE = (["name", "setting", "method"], ["name", "method"], ["name"])
SHAPE = ["dataset", "model", "batch"]


class Spent:
    """What finished runs took.

    finished: plans, each with the tidy table of what is finished of it. steps: the SGD steps that all clients of a run
    will do (`cost.steps`).
    """

    def __init__(self, finished: Iterable[tuple[Plan, pd.DataFrame]], steps: Callable[[Run], float]) -> None:
        self.steps = steps
        rows = []
        for plan, table in finished:
            runs = {tuple(work.columns.values()): work for work in plan.work if work.run}
            for labels, rounds in table.groupby([*LABELS], sort=False) if len(table) else ():
                if work := runs.get(labels):
                    took = rounds[["seconds", "client_steps"]].sum().tolist()
                    rows.append([*_kind(work), int(rounds["round"].max()), *took])
        columns = ["name", "setting", "method", *SHAPE, "rounds", "seconds", "steps"]
        self.runs = pd.DataFrame(rows, columns=columns)

    def seconds(self, work: Work) -> float | None:
        """Estimated seconds of a run; None if no run of its dataset, model and batch size is finished.

        By the seconds of a round of runs that are alike: of the same method in the same setting, of the method in the
        experiment, or of the experiment; else by the seconds of a client's step. A run that ends at a target is taken
        to end when those do.
        """
        run = work.run
        if run is None:
            return None
        kind = pd.Series(_kind(work), index=self.runs.columns[:6])
        for keys in LIKE:
            alike = self.runs[(self.runs[keys] == kind[keys]).all(axis=1)]
            if alike["rounds"].sum():
                rounds = min(run.T, alike["rounds"].mean()) if run.until else run.T
                return float(rounds * alike["seconds"].sum() / alike["rounds"].sum())
        alike = self.runs[(self.runs[SHAPE] == kind[SHAPE]).all(axis=1)]
        if not alike["steps"].sum():
            return None
        return float(self.steps(run) * alike["seconds"].sum() / alike["steps"].sum())


def _kind(work: Work) -> list[object]:
    assert work.run is not None
    shape = [work.run.dataset, work.run.model, work.run.local.batch]
    return [work.name, work.labels["setting"], work.labels["method"], *shape]
