"""What decides HCSFed's Table 1: the aggregation rule or the selection, and whether re-allocation acts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.papers.hcsfed.printed import COLUMNS, PRINTED
from fedlib.samplers.hcsfed import allocate

SETTINGS = {f"{column}, alpha = 0.1": column for column in COLUMNS}
METHODS = {
    "HCSFed-R (GC-B)": "HCSFed",
    "HCSFed-R (GC-B), H = 5": "HCSFed, H = 5",
    "Random": "Random, plain mean",
    "Random, attrition": "Random, attrition",
    "SCAFFOLD": "SCAFFOLD, plain mean",
    "SCAFFOLD, attrition": "SCAFFOLD, attrition",
}


def rule_or_selection(results: pd.DataFrame, column: str = "client_accuracy") -> pd.DataFrame:
    """Median rounds to 80 % at alpha = 0.1 under the plain mean and attrition; a row a method, a column a setting.

    results: the tidy table of Table 1's experiment. column: the accuracy that is measured. A run that does not arrive
    counts as one round more than it has. What has not been run is nan.
    """
    table = results[results["setting"].isin(SETTINGS) & results["method"].isin(METHODS)]
    rounds = measure.per_run(table, column, measure.rounds_to_target, target=0.8)
    cap = int(table["round"].max())
    medians = rounds.clip(upper=cap + 1).groupby(["method", "setting"]).median().unstack("setting")
    found = medians.reindex(index=list(METHODS), columns=list(SETTINGS)).rename(
        index=METHODS, columns=SETTINGS
    )
    found.loc["HCSFed, printed"] = PRINTED["HCSFed"]
    found.loc["Random, printed"] = PRINTED["Random"]
    return found.rename_axis(index="method", columns=None)


def said(found: pd.DataFrame) -> str:
    """The finding in a sentence, from the numbers of `rule_or_selection`; "" where they have not been run."""
    rows = [found.loc[name] for name in ("HCSFed", "Random, plain mean", "Random, attrition")]
    if any(row.isna().any() for row in rows):
        return ""
    ours, mean, attrition = (", ".join(f"{v:g}" for v in row) for row in rows)
    share = float(np.median(rows[1] / rows[0]))
    belongs = "the aggregation rule's, not the selection's" if share < 1.25 else "partly the selection's"
    return (
        f"With alpha = 0.1 and the clients' own test accuracy HCSFed needs {ours} rounds (median over seeds; printed: "
        f"{', '.join(map(str, PRINTED['HCSFed']))}). Random selection with attrition, where absent clients keep the "
        f"old model, needs {attrition}; the very same random selection with the plain mean needs {mean}, "
        f"{share:.2f} times HCSFed's (median over the columns). The printed speed-up is {belongs}."
    )


def reallocated(m: int, H: int, draws: int = 1000, seed: int = 0) -> float:
    """Share of random clusters (H of them, N = 100) in which equation 5 gives some cluster more than one place."""
    rng = np.random.default_rng(seed)
    acts = 0
    for _ in range(draws):
        sizes = np.bincount(rng.integers(H, size=100 - H), minlength=H) + 1
        acts += allocate(sizes, rng.uniform(0.1, 2, H), m, at_least_one=True).max() > 1
    return acts / draws
