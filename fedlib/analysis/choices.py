"""What the papers leave open, or their sources disagree on: a module a paper, with the readings that were run.

Choices were written down from the papers and the authors' code, not from results; numbers come from results alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.claims import number
from fedlib.analysis.tables import reach

NOT_RUN = "not run"
PRINTED = "printed"


@dataclass(frozen=True)
class Choice:
    """One thing left open.

    sources: what the paper, its code or another text says. taken: the reading of the pages. readings: (setting,
    method) -> the reading's name, in the order shown. target: test accuracy to count rounds to, by setting; where there
    is none, training losses are compared. printed: the paper's number by (setting, method). bears_on: artifacts whose
    claims depend on it. across: setting -> (what it reads, as which), where settings are the readings: methods then
    stand beside each other, under the names in `readings`.
    """

    title: str
    sources: str
    taken: str
    experiment: str
    readings: Mapping[tuple[str, str], str]
    bears_on: tuple[str, ...]
    target: Mapping[str, float] = field(default_factory=dict)
    printed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    across: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def table(self, results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """A row a (setting, reading): seeds, what it gives (mean over seeds, lowest to highest), what is printed.

        With `across` a row a reading and a column a method: rounds to the target. Empty where none has been run.
        Curves are compared over the rounds that all runs have: of a setting, or without targets of all settings.
        """
        nothing = pd.DataFrame({"setting": [], "method": [], "seed": [], "round": []})
        table = results.get(self.experiment, nothing)
        table = table[table["setting"].isin([setting for setting, _ in self.readings])]
        end = {s: measure.common_end(runs if self.target else table) for s, runs in table.groupby("setting")}
        there = dict(list(table.groupby(["setting", "method"], sort=False)))
        if not there.keys() & self.readings.keys():
            return pd.DataFrame()
        rows = []
        for (setting, method), reading in self.readings.items():
            row = {"setting": setting, "reading": reading, "seeds": NOT_RUN}
            if (setting, method) in there:
                runs = [run for _, run in there[setting, method].groupby("seed")]
                row |= {"seeds": str(len(runs))} | self._found(setting, runs, end[setting])
            if self.printed:
                row[PRINTED] = self.printed.get((setting, method), "")
            rows.append(row)
        if self.across:
            return self._crossed(rows)
        return pd.DataFrame(rows).fillna("").set_index(["setting", "reading"])

    def _crossed(self, rows: list[dict[str, str]]) -> pd.DataFrame:
        cells: dict[tuple[str, str], dict[str, str]] = {}
        seeds: dict[tuple[str, str], set[int]] = {}
        for row in rows:
            what, reading = self.across[row["setting"]]
            if row.get(PRINTED):
                cells.setdefault((what, PRINTED), {})[row["reading"]] = row[PRINTED]
            cells.setdefault((what, reading), {})[row["reading"]] = row.get("rounds", NOT_RUN)
            if "rounds" in row:
                seeds.setdefault((what, reading), set()).add(int(row["seeds"]))
        goal = self.target[rows[0]["setting"]]
        table = pd.DataFrame(cells).T.fillna("").rename_axis([f"rounds to {100 * goal:g} %", "reading"])
        table["seeds"] = [reach(np.sort(list(seeds[key])), "") if key in seeds else "" for key in table.index]
        return table

    def _found(self, setting: str, runs: list[pd.DataFrame], end: int) -> dict[str, str]:
        def over_seeds(
            column: str, statistic: measure.Statistic, scale: float = 1.0, **options: float
        ) -> str:
            curves = [measure.curve(run[run["round"] <= end], column, end) for run in runs]
            values = [scale * statistic(curve, **options) for curve in curves]
            return spread(np.array(values))

        if setting not in self.target:
            return {
                "mean training loss": over_seeds("train_loss", measure.area),
                "final training loss": over_seeds("train_loss", measure.end_mean),
            }
        goal = self.target[setting]
        table = pd.concat(runs)
        arrived = measure.per_run(table, "test_accuracy", measure.rounds_to_target, target=goal)
        rounds, unreached = np.sort(arrived), f"{measure.followed(table, arrived)}+"
        middle = float(np.median(rounds))
        median = unreached if np.isinf(middle) else number(middle)
        spanned = reach(rounds, unreached)
        return {
            "target": f"{100 * goal:g} %",
            "rounds": median if median == spanned else f"{median} ({spanned})",
            "final accuracy (%)": over_seeds("test_accuracy", measure.end_mean, 100, share=0.05),
        }


@dataclass(frozen=True)
class Studied:
    """One thing left open whose readings a study measures side by side.

    found: the study's table -> a row a reading. The rest as in `Choice`.
    """

    title: str
    sources: str
    taken: str
    experiment: str
    found: Callable[[pd.DataFrame], pd.DataFrame]
    bears_on: tuple[str, ...]

    def table(self, results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        """What each reading gives; empty where none has been measured."""
        return self.found(results[self.experiment]) if self.experiment in results else pd.DataFrame()


def spread(values: np.ndarray) -> str:
    """Mean over seeds, and the lowest to the highest of several: "1.234 (1.1\u20131.4)"; diverged where infinite."""
    mean = float(values.mean())
    text = "diverged" if math.isinf(mean) else "not measured" if math.isnan(mean) else f"{mean:.4g}"
    return (
        f"{text} ({values.min():.4g}\u2013{values.max():.4g})"
        if len(values) > 1 and math.isfinite(mean)
        else text
    )


def grid(settings: list[str], methods: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """`Choice.readings`: the same methods, with the readings' names, in every setting."""
    return {(setting, method): reading for setting in settings for method, reading in methods.items()}
