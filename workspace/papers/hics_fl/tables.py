"""HiCS-FL's tables, ours next to the printed ones: rounds to a target, costs, numbers of clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib import measure
from fedlib.measure import (
    BYTES,
    Missing,
    area,
    capped_mean,
    common_end,
    comparable,
    end_mean,
    per_run,
)
from workspace.analysis.arrivals import Arrivals, followed
from workspace.analysis.tables import number, short_cell
from workspace.papers.hics_fl.printed import OURS, PRINTED, SPEED_UP


def speed_table(sides: Mapping[str, Arrivals], data: str) -> pd.DataFrame:
    """Table 1's columns for a dataset of `TABLE`: mean rounds and speed-up over random selection, ours and printed.

    sides: method -> when its runs arrive. A run that never does counts as one round more than those of its table were
    followed, and its method's mean is then marked as a lower bound. The speed-up is that of the claims: the geometric
    mean over the seeds that both have. For a method without runs only the printed numbers are shown.
    """
    end = followed(sides.values())
    rows = {}
    for method, printed in PRINTED[data].items():
        ours = {"rounds": "not run", "speed-up": "-", "seeds": 0}
        if method in sides:
            rounds = list(sides[method].rounds.values())
            mean = capped_mean(rounds, cap=int(end)) if math.isfinite(end) else float(np.mean(rounds))
            lower = "≥ " if sides[method].censored(end) else ""
            ours |= {"rounds": f"{lower}{mean:.1f}", "seeds": len(rounds)}
            if "Random" in sides:
                ours["speed-up"] = speed_up(sides["Random"], sides[method])
        rows[method] = {**ours, "rounds, paper": printed, "speed-up, paper": SPEED_UP[data][method]}
    return pd.DataFrame(rows).T.rename_axis("method")


def speed_up(base: Arrivals, own: Arrivals) -> str:
    """How many times as many rounds the base needs, over the seeds and the rounds that both have; a bound says so."""
    tau = followed([base, own])
    slower, faster = (pd.Series(side.until(tau)) for side in (base, own))
    ratio = float(np.exp(np.log(slower / faster).mean()))
    return ratio_cell(ratio, base.censored(tau) > 0, own.censored(tau) > 0)


def ratio_cell(ratio: float, base_open: bool, own_open: bool) -> str:
    """A speed-up as text: a bound if one of the two never arrived, empty if neither did."""
    if base_open and own_open:
        return "-"
    return f"{'≥ ' if base_open else '≤ ' if own_open else ''}{number(ratio)}"


def speed_tables(sides: Mapping[str, Mapping[str, Arrivals]], methods: list[str]) -> pd.DataFrame:
    """`speed_table` of every dataset that has been run, side by side; sides: dataset -> method -> when runs arrive.

    Raises:
        Missing: nothing has been run.
    """
    tables = {data: speed_table(arrived, data) for data, arrived in sides.items() if arrived}
    if not tables:
        raise Missing(f"none of {', '.join(methods)} has been run on {', '.join(sides)}")
    return pd.concat(tables, axis=1).reindex(methods).fillna("")


def warm_up(table: pd.DataFrame) -> int:
    """Number of rounds of HiCS-FL's warm-up, in which every selected client is selected for the first time.

    Raises:
        Missing: the runs have been archived without their selected clients.
    """
    if "clients" not in table or table["clients"].isna().any():
        raise Missing("the clients that HiCS-FL selected have not been archived")
    clients_so_far: set[int] = set()
    for clients in table.sort_values("round")["clients"]:
        if clients_so_far & set(map(int, clients)):
            break
        clients_so_far |= set(map(int, clients))
    return -(-len(clients_so_far) // max(1, len(table.loc[table["round"] == 1, "clients"].iloc[0])))


def after_warm_up(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a setting after HiCS-FL's warm-up, in the rounds that all its runs have.

    Raises:
        Missing: HiCS-FL has not been run in this setting.
    """
    first = table[(table["method"] == OURS) & (table["seed"] == table["seed"].min())]
    if first.empty:
        raise Missing(f"{OURS} has not been run in this setting")
    return table[table["round"].between(warm_up(first) + 1, common_end(table))]


def drawn_entropy(results: pd.DataFrame, owners: pd.DataFrame) -> pd.DataFrame:
    """The rounds with the mean label entropy of their clients as `drawn_entropy` (nats), if the partition is known.

    results: settings are named "data setting" (`curves.shown`); text after a comma does not concern the partition.
    owners: the study of partitions.
    """
    owners = owners.assign(
        partition=owners["data"] + " " + owners["setting"], drawn_entropy=owners["entropy"]
    )
    selections = results.assign(partition=results["setting"].str.split(",").str[0], client=results["clients"])
    selections = selections[["partition", "seed", "client"]].explode("client").dropna().reset_index()
    key = ["partition", "seed", "client"]
    merged = selections.merge(owners[[*key, "drawn_entropy"]].astype({"client": object}), on=key)
    return results.join(merged.groupby("index")["drawn_entropy"].mean(), how="inner")


def costs(rounds: pd.DataFrame) -> pd.DataFrame:
    """Means per round by method, from the rows of one setting; also the median of the server's time."""
    columns = {
        "parameters_down": "sent down (MB)",
        "parameters_up": "sent up (MB)",
        "scalars_up": "scalars up",
        "client_steps": "local steps",
        "samples_evaluated": "samples evaluated",
        "server_seconds": "server (ms)",
        "server_median": "server, median (ms)",
    }
    runs = rounds.groupby("method", sort=False)
    mean = runs[list(columns)[:-1]].mean().assign(server_median=runs["server_seconds"].median())
    mean[["parameters_down", "parameters_up"]] *= BYTES / 1e6
    mean[["server_seconds", "server_median"]] *= 1000
    return mean.rename(columns=columns).round(3)


def ends(results: pd.DataFrame, target: float) -> pd.DataFrame:
    """Final and mean accuracy (%) and first round at a target, mean ± std over seeds, one row per (setting, method)."""
    alike = comparable(results)
    values = {
        "final (%)": 100 * per_run(alike, "test_accuracy", end_mean, share=0.05),
        "mean (%)": 100 * per_run(alike, "test_accuracy", area),
        f"rounds to {100 * target:.0f} %": measure.arrivals(results, target),
    }
    keys = ["setting", "method"]
    tables = dict(list(results.groupby(keys)))

    def cell(seeds: pd.Series) -> str:
        return short_cell(measure.followed(tables[seeds.index[0][:2]], seeds), seeds.to_numpy())

    return pd.DataFrame({name: runs.groupby(keys, sort=False).agg(cell) for name, runs in values.items()})


def spreads(results: pd.DataFrame) -> pd.DataFrame:
    """Std over a round's clients of their local training loss, its mean (nats) and the final accuracy (%).

    Means over rounds and seeds, one row per (setting, method); the accuracy: `end_mean`.
    """
    values = {
        "std of local loss (nats)": per_run(results, "local_loss_std", area),
        "mean local loss (nats)": per_run(results, "local_loss", area),
        "final accuracy (%)": 100 * per_run(results, "test_accuracy", end_mean, share=0.05),
    }
    means = pd.DataFrame(values).groupby(["setting", "method"], sort=False).mean()
    return means.round(3).round({"final accuracy (%)": 1})
