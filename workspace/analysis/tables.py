"""Tables in the papers' layout: rounds to a target and speed-ups, ours next to the printed ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib import measure


def median_cell(cap: int) -> Callable[[np.ndarray], str]:
    """A table cell in HCSFed's format: the median over seeds, "200+" if it is above the cap."""
    return lambda rounds: f"{cap}+" if np.median(rounds) > cap else f"{np.median(rounds):g}"


def mean_cell(rounds: np.ndarray) -> str:
    """A table cell in FedCor's format: mean and standard deviation over seeds, N/A if a seed never arrives."""
    if np.isinf(rounds).any():
        return f"N/A ({np.isinf(rounds).sum()} of {len(rounds)})"
    return f"{rounds.mean():.1f} ± {rounds.std(ddof=1):.1f}" if len(rounds) > 1 else f"{rounds[0]:.1f}"


def short_cell(cap: int, rounds: np.ndarray) -> str:
    """`mean_cell` for runs shorter than the paper's, in which a seed that has not arrived is not yet N/A."""
    return f"{cap}+" if np.isinf(rounds).any() else mean_cell(rounds)


def rounds_table(
    values: pd.Series, printed: Mapping[tuple[str, str], str], cell: Callable[[np.ndarray], str] = mean_cell
) -> pd.DataFrame:
    """Rounds to a target, ours next to the printed: `values` by (setting, method, seed), inf if never.

    -> one row per method; for each setting the columns "ours" (`cell` of the seeds' rounds), "seeds" (lowest to
    highest) and, if anything is printed, "paper": the paper's cell by (setting, method).

    Raises:
        Missing: there are no values.
    """
    if values.empty:
        raise measure.Missing("nothing that this table shows has been run")
    settings, methods = (list(dict.fromkeys(values.index.get_level_values(level))) for level in (0, 1))
    runs = {key: np.sort(group.to_numpy()) for key, group in values.groupby(level=[0, 1])}
    table = pd.DataFrame(index=pd.Index(methods, name="method"))
    for s in settings:
        available = {m: runs[s, m] for m in methods if (s, m) in runs}
        table[s, "ours"] = pd.Series({m: cell(seeds) for m, seeds in available.items()})
        table[s, "seeds"] = pd.Series({m: reach(seeds) for m, seeds in available.items()})
        if printed:
            table[s, "paper"] = pd.Series({m: printed.get((s, m), "") for m in methods}, dtype=str)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table.fillna("not run")


def reach(rounds: np.ndarray, never: str = "never") -> str:
    """The lowest and the highest of sorted rounds; `never` if the target is not reached."""
    ends = [never if np.isinf(end) else f"{end:.0f}" for end in (rounds[0], rounds[-1])]
    return ends[0] if ends[0] == ends[1] else "\u2013".join(ends)


def speed_up_cell(ratio: float, bound: bool, digits: int = 1) -> str:
    """A speed-up (`measure.speed_up`) in HCSFed's format: ">" before a lower bound, "-" if there is none."""
    return "-" if math.isnan(ratio) else f"{'>' * bound}{ratio:.{digits}f}"


def speed_ups(
    rounds: pd.Series, columns: Sequence[str], base: str, printed: Mapping[tuple[str, str], str], cap: int
) -> pd.DataFrame:
    """Speed-up over `base` of every method, ours next to the printed.

    rounds: by (setting, method, seed), inf if never; printed: the paper's by (setting, method).

    Raises:
        Missing: `base` has been run in none of the settings `columns`.
    """
    runs = {key: group.to_numpy() for key, group in rounds.groupby(level=[0, 1])}
    available = [c for c in columns if (c, base) in runs]
    if not available:
        raise measure.Missing(f"{base} has not been run")
    methods = list(dict.fromkeys(rounds.index.get_level_values("method")))
    table = pd.DataFrame(index=pd.Index(methods, name=f"over {base}"))
    for c in available:
        ratios = {m: measure.speed_up(runs[c, base], runs[c, m], cap) for m in methods if (c, m) in runs}
        table[c, "ours"] = pd.Series({m: speed_up_cell(*ratio) for m, ratio in ratios.items()})
        table[c, "paper"] = [printed.get((c, m), "") for m in methods]
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table.fillna("not run")


def gains(ends: pd.Series, base: str) -> pd.DataFrame:
    """Mean final loss of each method (column) by setting (row), and how far it is below that of `base` (%).

    ends: by (setting, method, seed). If `base` has not been run, there are no gains.
    """
    table = ends.unstack("method")
    if base in table:
        rest = table.drop(columns=base)
        reduction = 100 * rest.rsub(table[base], axis=0).div(table[base], axis=0)
        table = table.join(reduction.add_prefix("gain of ").add_suffix(" (%)"))
    return table.groupby("setting", sort=False).mean()


def search_table(ends: pd.Series, used: Mapping[str, str]) -> pd.DataFrame:
    """The paper's search for the learning rate: final losses by partition and rate, and the lowest.

    ends: by (setting, method, seed), settings as "alpha = 10, lr = 0.1". used: alpha -> the rate in the paper's text.
    -> one row per alpha, one column per rate (mean over seeds, "diverged" if infinite), and the columns "lowest at"
    (among the rates that have been run) and "the paper's".
    """
    split = ends.index.get_level_values("setting").str.extract(r"alpha = ([\d.]+), lr = ([\d.]+)")
    keys = [pd.Index(split[k], name=name) for k, name in enumerate(("alpha", "lr"))]
    means = ends.groupby(keys, sort=False).mean().unstack("lr")
    cells = means.map(lambda v: "not run" if math.isnan(v) else "diverged" if math.isinf(v) else f"{v:.3f}")
    return cells.assign(
        **{"lowest at": means.idxmin(axis=1), "the paper's": [used.get(a, "") for a in means.index]}
    )


def cost_table(results: pd.DataFrame, target: float) -> pd.DataFrame:
    """Results and costs of each method of one setting, medians over seeds; one row per method.

    Parameters (millions) and client-steps (thousands) are totals of the whole run.
    """
    rounds = measure.arrivals(results, target)
    spent = measure.cumulative_cost(results)
    final = measure.per_run(results, "test_accuracy", measure.end_mean, share=0.05)
    totals = results.groupby(measure.RUN, sort=False)[
        ["parameters_down", "parameters_up", "client_steps"]
    ].sum()
    goal = f"{100 * target:.0f} %"
    runs = pd.DataFrame(
        {
            f"rounds to {goal}": rounds,
            f"MB to {goal}": measure.cost_to_target(spent, target, "megabytes"),
            "final accuracy (%)": 100 * final,
            "parameters received (M)": totals["parameters_down"] / 1e6,
            "parameters sent (M)": totals["parameters_up"] / 1e6,
            "client-steps (thousands)": totals["client_steps"] / 1e3,
            "server (ms a round)": 1e3 * results.groupby(measure.RUN, sort=False)["server_seconds"].mean(),
        }
    )
    return runs.groupby("method", sort=False).median()


def number(value: float, unit: str = "", digits: int = 3) -> str:
    """A value as text: three significant digits; "-" for nan; "never" for infinitely many rounds."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if unit == "rounds" else "infinite" if value > 0 else "-infinite"
    text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return f"{text} {unit}".strip()
