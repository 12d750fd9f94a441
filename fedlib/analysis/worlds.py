"""What a method's claim to be better than another comes to in each world: an effect over paired seeds."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from fedlib.analysis.estimators import Effect, outcome

WORDS = {"replicated": "above", "refuted": "below"}


def mean_of(column: str, last: float = 1.0) -> Callable[[pd.DataFrame], float]:
    """A measure of a run: the mean of a column over the last share of its measured rounds, round 0 left out."""

    def measure(run: pd.DataFrame) -> float:
        values = run.loc[run["round"] > 0].sort_values("round")[column].dropna()
        return float(values.iloc[-max(1, round(last * len(values))) :].mean())

    return measure


def against(
    table: pd.DataFrame, base: str, measure: Callable[[pd.DataFrame], float], unit: float = 1.0
) -> pd.DataFrame:
    """One row per (setting, method): the measure minus that of the method `base` in the same setting and seed.

    table: an experiment's results. unit: what a difference is multiplied by (100 for percentage points). Columns:
    difference, low, high (95 % t-interval), seeds, and in words: above, below or undecided, as `estimators.outcome`
    decides at margin 0. The order of settings and methods is that of the table.
    """
    keys = ["setting", "method", "seed"]
    values = table.groupby(keys, sort=False)[list(table)].apply(measure)
    rows = []
    for setting in dict.fromkeys(table["setting"]):
        here = values.loc[setting]
        for method in dict.fromkeys(table.loc[table["setting"] == setting, "method"]):
            if method == base or base not in here:
                continue
            difference = (here[method] - here[base]).dropna() * unit
            effect = Effect.of(difference.to_numpy())
            rows.append(
                {
                    "setting": setting,
                    "method": method,
                    "difference": effect.estimate,
                    "low": effect.low,
                    "high": effect.high,
                    "seeds": effect.n,
                    "in words": WORDS.get(outcome(effect), outcome(effect)),
                }
            )
    return pd.DataFrame(rows)


def grid(effects: pd.DataFrame) -> pd.DataFrame:
    """What `against` gives as a table of methods by settings; a cell says difference, interval and outcome."""

    def cell(row: pd.Series) -> str:
        return f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}] {row['in words']}"

    wide = effects.assign(effect=effects.apply(cell, axis=1)).pivot(index="method", columns="setting")[
        "effect"
    ]
    return wide.loc[list(dict.fromkeys(effects["method"])), list(dict.fromkeys(effects["setting"]))].fillna(
        "not run"
    )
