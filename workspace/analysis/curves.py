"""What FedCor's and HiCS-FL's tables and figures share: panels, when their runs arrive, and rows for a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pandas as pd

from fedlib import measure
from fedlib.measure import Missing, common_end, followed
from workspace.analysis.arrivals import Arrivals
from workspace.analysis.readings import planned


@dataclass(frozen=True)
class Panel:
    """One panel of a figure: a setting of an experiment, and the target accuracy of the paper's table.

    T: rounds for which the paper follows a run to the target.
    """

    experiment: str
    setting: str
    target: float = 0.0
    T: int = 0

    def arrivals(self, results: Mapping[str, pd.DataFrame]) -> tuple[pd.Series, int]:
        """First round at the target by (method, seed), inf if never, and the last round that decides it (`followed`).

        Raises:
            Missing: the panel has no runs.
        """
        table = results[self.experiment] if self.experiment in results else pd.DataFrame({"setting": []})
        table = table[table["setting"] == self.setting]
        if table.empty:
            raise Missing(f"{self.experiment} {self.setting} has not been run at this scale")
        rounds = measure.arrivals(table, self.target)
        return rounds.droplevel("setting"), followed(table, rounds)

    def sides(self, results: Mapping[str, pd.DataFrame], methods: Iterable[str]) -> dict[str, Arrivals]:
        """When the runs of each method arrive that has any in this panel, with all its seeds that are judged."""
        table = results.get(self.experiment, pd.DataFrame({"setting": [], "method": []}))
        for plan in planned():
            table = plan.seen(table) if len(table) and plan.experiment == self.experiment else table
        groups = dict(list(table[table["setting"] == self.setting].groupby("method", sort=False)))
        return {m: Arrivals.of(groups[m], "test_accuracy", self.target) for m in methods if m in groups}


def aimed(panels: Mapping[str, Panel], target: float | None) -> dict[str, Panel]:
    """The panels with another target; None: with their own."""
    return {
        name: panel if target is None else replace(panel, target=target) for name, panel in panels.items()
    }


def smoother(
    smoothing: int | None, own: Callable[[pd.Series], pd.Series] | None = None
) -> Callable[[pd.Series], pd.Series] | None:
    """A notebook's `smoothing`: the centred mean over so many rounds, at most a quarter of the run; None: `own`."""
    if not smoothing:
        return own if smoothing is None else None
    return lambda curve: measure.rolling(curve, min(smoothing // 2, int(curve.index.max()) // 8))


def shown(results: Mapping[str, pd.DataFrame], experiments: Mapping[str, str]) -> pd.DataFrame:
    """Rows for a figure over several experiments: label -> experiment becomes the setting "label setting".

    Experiments without results are left out; if none has any, the lookup of the first one raises. The rounds are those
    that all runs of the experiment have; some runs are longer, for its table.
    """
    names = {label: name for label, name in experiments.items() if name in results}
    tables = []
    for label, name in (names or dict(list(experiments.items())[:1])).items():
        table = results[name]
        table = table[table["round"] <= common_end(table)]
        tables.append(table.assign(setting=[f"{label} {s}".strip() for s in table["setting"]]))
    return pd.concat(tables, ignore_index=True)


def compared(table: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Rows of the settings in which two of the methods have been run; all where no setting has two.

    A curve alone shows no comparison.
    """
    ran = table[table["method"].isin(methods)].groupby("setting")["method"].nunique()
    several = ran.index[ran > 1]
    return table[table["setting"].isin(several)] if len(several) else table


def arrivals(
    results: Mapping[str, pd.DataFrame], panels: Mapping[str, Panel], methods: list[str]
) -> pd.Series:
    """First round at each panel's target by (setting, method, seed), on the seeds that all its methods have.

    Methods and panels that have not been run are left out.

    Raises:
        Missing: nothing has been run.
    """
    chosen = {}
    for name, panel in panels.items():
        with suppress(Missing):
            rounds = panel.arrivals(results)[0]
            rounds = rounds[rounds.index.isin(methods, level="method")]
            methods_with = rounds.groupby("seed").transform("size")
            shared = rounds[methods_with == rounds.index.unique("method").size]
            if len(shared):
                chosen[name] = shared
    if not chosen:
        names = dict.fromkeys(panel.experiment for panel in panels.values())
        raise Missing(f"none of {', '.join(methods)} has been run in {', '.join(names)}")
    return pd.concat(chosen, names=["setting", "method", "seed"])
