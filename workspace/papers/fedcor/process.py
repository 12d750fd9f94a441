"""FedCor's Gaussian process, from embeddings, sampled loss changes and the toy problem (Figures 1, 2, 3 and 7)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from workspace.papers.fedcor.printed import EXPERIMENTS, MAIN

# -- Figure 7


def embeddings(
    results: pd.DataFrame, owners: pd.DataFrame, data: str
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """seed -> unit embeddings (N, d) of the clients after the warm-up, and their dominant labels (N,).

    results: FedCor's runs of 1SPC; owners: the study of partitions.
    """
    lines = {}
    runs: list[tuple[Any, pd.DataFrame]] = list(results.groupby("seed"))
    for seed, run in runs:
        owned = owners[(owners["data"] == data) & (owners["setting"] == "1SPC") & (owners["seed"] == seed)]
        noted = [json.loads(note) for note in run["notes"].dropna()]
        noted = [np.array(note["embedding"]) for note in noted if "embedding" in note]
        if noted and len(owned):
            counts = np.stack(owned.sort_values("client")["counts"].to_list())
            lines[int(seed)] = (
                noted[0] / np.linalg.norm(noted[0], axis=1, keepdims=True),
                counts.argmax(axis=1),
            )
    return lines


def separation(x: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Mean cosine within labels minus that between labels; leave-one-out nearest-neighbour accuracy of the label."""
    cosine = x @ x.T
    alike, different = labels[:, None] == labels, ~np.eye(len(x), dtype=bool)
    gap = cosine[alike & different].mean() - cosine[~alike].mean()
    nearest = np.where(different, cosine, -np.inf).argmax(axis=1)
    return float(gap), float((labels[nearest] == labels).mean())


def all_embeddings(
    results: Mapping[str, pd.DataFrame],
) -> dict[str, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """`embeddings` of every dataset that has been run and has some."""
    owners = results["fedcor_partitions"]
    tables = {data: results[e] for data, e in EXPERIMENTS.items() if e in results} or {"": results[MAIN[0]]}
    mine = {data: t[(t["setting"] == "1SPC") & (t["method"] == "FedCor")] for data, t in tables.items()}
    by_data = {data: embeddings(table, owners, data) for data, table in mine.items()}
    return {data: seeds for data, seeds in by_data.items() if seeds}


def separations(by_data: Mapping[str, Mapping[int, tuple[np.ndarray, np.ndarray]]]) -> pd.DataFrame:
    """`separation` of every seed of `embeddings`, one row per (dataset, seed)."""
    rows = [(d, seed, *separation(x, y)) for d, seeds in by_data.items() for seed, (x, y) in seeds.items()]
    columns = ["data", "seed", "cosine within less between labels", "nearest neighbour has the label"]
    return pd.DataFrame(rows, columns=columns).round(3)


# -- Figures 1 to 3


def toy_shares(toy: pd.DataFrame, setting: str) -> tuple[float, float, float]:
    """Statistics of one case of the toy problem.

    How often Cor picks both labels; the median of (Cor - Opt) / (Ind - Opt) of the losses after the step; how often Ind
    does not lower the loss.
    """
    toy = toy[toy["setting"] == setting]
    loss = toy.pivot(index="draw", columns="method", values="loss")
    opposite = float(np.mean([pair[0] != pair[1] for pair in toy.loc[toy["method"] == "Cor", "labels"]]))
    gaps = (loss["Cor"] - loss["Opt"]) / (loss["Ind"] - loss["Opt"]).where(loss["Ind"] > loss["Opt"])
    return opposite, float(gaps.median()), float((loss["Ind"] >= loss["start"]).mean())


def toy_cases(toy: pd.DataFrame) -> pd.DataFrame:
    """Median losses and `toy_shares`, one row per case of the toy problem."""
    rows = {}
    for setting in toy["setting"].unique():
        opposite, gap, failed = toy_shares(toy, setting)
        loss = toy[toy["setting"] == setting].groupby("method")["loss"].median()
        rows[setting] = {f"median loss, {m}": loss[m] for m in ("start", "Ind", "Cor", "Opt")}
        rows[setting] |= {
            "Cor picks both labels": opposite,
            "gap to Opt left by Cor": gap,
            "Ind fails": failed,
        }
    return pd.DataFrame(rows).T.rename_axis("case").round(2)


def gaussianity(projections: np.ndarray) -> tuple[float, float, float]:
    """Skewness, excess kurtosis, and Kolmogorov-Smirnov distance to the Gaussian of the same mean and variance."""
    distance = stats.kstest(projections, "norm", args=(projections.mean(), projections.std())).statistic
    return float(stats.skew(projections)), float(stats.kurtosis(projections)), float(distance)


def probed(changes: pd.DataFrame, rounds: int) -> pd.DataFrame:
    """`rounds` evenly spread probed rounds of each (data, setting, followed method), for the first seed."""

    def thinned(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows[rows["seed"] == rows["seed"].min()].sort_values("round")
        places = np.linspace(0, len(rows) - 1, rounds) if rounds > 1 else [len(rows) // 2]
        return rows.iloc[np.unique(np.round(places).astype(int))]

    groups = changes.groupby(["data", "setting", "method"], sort=False)
    return pd.concat([thinned(rows) for _, rows in groups])


def gaussian(changes: pd.DataFrame) -> pd.DataFrame:
    """How Gaussian the first component is over the probed rounds, one row per (data, setting, followed method).

    Columns: the share of near-Gaussian rounds (each part of `gaussianity` small), and the medians of the parts' sizes.
    """
    rows = []
    groups: list[tuple[Any, pd.DataFrame]] = list(changes.groupby(["data", "setting", "method"], sort=False))
    for labels, probes in groups:
        sizes = np.abs([gaussianity(np.asarray(x, dtype=float)) for x in probes["component_1"]])
        near = 100 * (sizes < (0.5, 1, 0.05)).all(axis=1).mean()
        rows.append((*labels, len(probes), near, *np.median(sizes, axis=0)))
    medians = ["median |skewness|", "median |excess kurtosis|", "median KS distance"]
    return pd.DataFrame(rows, columns=["data", "setting", "method", "rounds", "near-Gaussian (%)", *medians])


BOUNDS = {"FMNIST": 0.97, "CIFAR-10": 0.95}  # Figure 3: no cosine is lower


def stationarity(changes: pd.DataFrame) -> pd.DataFrame:
    """Figure 3 in numbers: the cosines at all probed rounds, one row per (data, setting, followed method)."""
    rows = changes.dropna(subset=["cosine"])
    rows = rows.assign(above=100 * (rows["cosine"] > rows["data"].map(BOUNDS)))
    groups = rows.groupby(["data", "setting", "method"], sort=False)
    return pd.DataFrame(
        {
            "rounds": groups.size(),
            "least": groups["cosine"].min(),
            "10th percentile": groups["cosine"].quantile(0.1),
            "median": groups["cosine"].median(),
            "least, without the mean diagonal": groups["cosine_centred"].min(),
            "above the paper's bound (%)": groups["above"].mean(),
        }
    ).reset_index()


def above_the_bound(cosines: pd.DataFrame) -> str:
    """What `stationarity` says of the paper's bound, in a sentence."""
    of_settings: dict[str, list[str]] = {}
    for row in cosines.to_dict("records"):
        share = row["above the paper's bound (%)"]
        of_settings.setdefault(f"{row['data']} {row['setting']}", []).append(
            f"{share:.0f} % along {row['method']}"
        )
    settings = [f"{setting}: {', '.join(shares)}" for setting, shares in of_settings.items()]
    return f"Probed rounds with a cosine above the paper's bound: {'; '.join(settings)}."
