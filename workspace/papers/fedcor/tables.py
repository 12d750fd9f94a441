"""FedCor's tables and selections beside its claims: costs of a round, and how often each client was selected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedlib.measure import BYTES, Missing, gini, selection_counts
from workspace.papers.fedcor.printed import ANNEALING, MAIN


def spent(results: Mapping[str, pd.DataFrame], methods: list[str]) -> pd.DataFrame:
    """Costs per round, summed over clients: mean over rounds and seeds, one row per (experiment, setting, method)."""
    columns = {
        "parameters_down": "sent down (MB)",
        "parameters_up": "sent up (MB)",
        "client_steps": "local steps",
    }
    tables = [results[e] for e in MAIN if e in results]
    table = pd.concat(tables) if tables else results[MAIN[0]]
    table = table[(table["round"] > 0) & table["method"].isin(methods)]
    mean = table.groupby(["experiment", "setting", "method"], sort=False)[list(columns)].mean()
    mean[["parameters_down", "parameters_up"]] *= BYTES / 1e6
    return mean.rename(columns=columns).round(3)


def counts_of(results: pd.DataFrame, after_warm_up: bool = False) -> np.ndarray:
    """(N,) how often each client was selected over one FedCor run, or in its rounds after the warm-up.

    FedCor notes the clients' alpha only after the warm-up; N is its length.
    """
    chosen = results[results["notes"].notna()]
    if chosen.empty:
        raise Missing("the run ends within the warm-up")
    N = len(json.loads(chosen["notes"].iloc[0])["alpha"])
    return selection_counts(results, N, int(chosen["round"].min()) if after_warm_up else 1)


def unevenness(run: pd.DataFrame) -> float:
    """Gini coefficient of how often one FedCor run selects each client after the warm-up."""
    return gini(counts_of(run, after_warm_up=True))


def annealing(results: Mapping[str, pd.DataFrame], setting: str) -> dict[str, pd.DataFrame]:
    """The rows of Figure 6's panels that have been run, by dataset and setting.

    If nothing has been run, the lookup of the first experiment raises.
    """
    names = [e for e in ANNEALING.values() if e in results] or [next(iter(ANNEALING.values()))]
    tables = {
        data: results[e][results[e]["setting"] == setting] for data, e in ANNEALING.items() if e in names
    }
    return {f"{data} {setting}": table for data, table in tables.items() if len(table)}


def selections(table: pd.DataFrame) -> dict[Any, np.ndarray]:
    """beta -> (N,) how often each client was selected, in descending order, mean over the runs of each beta."""
    runs = table[table["method"] != "Random"].groupby(["method", "seed"], sort=False)
    ordered = pd.Series({key: np.sort(counts_of(run))[::-1] for key, run in runs})
    return {beta: np.mean(list(group), axis=0) for beta, group in ordered.groupby(level=0, sort=False)}
