"""Why HiCS-FL's estimate fails on Fashion-MNIST at T_s = 0.0025: it follows the size of a client's update.

A client with one label sends an update in one direction, and the update is longer the less the model has learned that
label. At a high temperature the softmax of a short update is flat, so the estimated entropy falls with the update's
size, and a client whose label is well learned scores like a balanced one. Figure 9's page shows it, from the archived
updates and draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedlib.measure import Missing, spearman
from workspace.papers.hics_fl.estimates import estimated

ONE_LABEL = 0.01  # nats; clients with a lower entropy hold one label
WINDOWS = ((11, 25), (26, 50), (51, 100))  # rounds after the warm-up, which takes ten


def sizes(updates: pd.DataFrame) -> np.ndarray:
    """(n,) norms of the updates of the output layer's bias."""
    return np.linalg.norm(np.stack(updates["bias"].to_list()), axis=1)


def by_size(updates: pd.DataFrame, case: str, temperatures: Sequence[float]) -> pd.DataFrame:
    """How the estimates of one-label clients depend on their updates' size, at the end of the warm-up.

    One row per (temperature, seed): number of one-label clients, Spearman's correlation of their estimates with the
    norm of the update, the median and the highest of these estimates and the balanced group's mean (nats), and the
    number of one-label clients above that mean.
    """
    table = updates[(updates["data"] == case) & (updates["when"] == "warm-up")]
    rows = []
    for T_s in temperatures:
        for seed, clients in table.groupby("seed"):
            H, alone = estimated(clients, T_s), (clients["entropy"] < ONE_LABEL).to_numpy()
            balanced = H[(clients["group"] == clients["group"].max()).to_numpy()].mean()
            single = H[alone]
            row = {
                "T_s": T_s,
                "seed": seed,
                "one-label clients": alone.sum(),
                "Spearman with the update's size": round(spearman(sizes(clients)[alone], single), 3),
                "their median": round(float(np.median(single)), 3),
                "their highest": round(float(single.max()), 3),
                "balanced clients' mean": round(float(balanced), 3),
                "one-label clients above it": sum(single > balanced),
            }
            rows.append(row)
    return pd.DataFrame(rows)


def balanced_draws(
    results: pd.DataFrame, owners: pd.DataFrame, data: str, setting: str, arms: Mapping[str, str]
) -> pd.DataFrame:
    """Share of the most balanced group among the clients drawn in `WINDOWS`, one row per arm and seed.

    results: runs with their clients; owners: the study of partitions; arms: method -> what the row is called. Only
    seeds that all arms have count.

    Raises:
        Missing: no seed has all arms.
    """
    runs = results[(results["setting"] == setting) & results["method"].isin(arms)]
    owners = owners[(owners["data"] == data) & (owners["setting"] == setting)]
    known = [set(rows["seed"]) for _, rows in runs.groupby("method")]
    seeds = set.intersection(*known, set(owners["seed"])) if len(known) == len(arms) else set()
    if not seeds:
        raise Missing(f"no seed of {data} {setting} has all of {', '.join(arms)}")
    rows = {}
    for method, name in arms.items():
        for seed in sorted(seeds):
            run = runs[(runs["method"] == method) & (runs["seed"] == seed)]
            clients = owners[owners["seed"] == seed]
            group = clients.loc[clients["group"] == clients["group"].max(), "client"]
            shares = {}
            for first, last in WINDOWS:
                selections = run.loc[run["round"].between(first, last), "clients"].explode()
                shares[f"rounds {first}-{last}"] = selections.isin(group).mean()  # nan: a shorter run
            rows[name, seed] = shares | {"of all clients": len(group) / len(clients)}
    return pd.DataFrame(rows).T.round(2).rename_axis(["HiCS-FL", "seed"])
