"""FedCor (Tang et al., CVPR 2022): its claims on learning curves and rounds to a target."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, factor, misses
from fedlib.analysis.curves import Panel, by_sign, count, every, means
from fedlib.analysis.measure import BYTES, best, gini, selection_counts
from fedlib.papers.fedcor.printed import (
    ANNEALING,
    BASELINES,
    BETAS,
    EXPERIMENTS,
    INTERVAL,
    INTERVALS,
    MAIN,
    METHODS,
    PANELS,
    PRINTED,
    SETTINGS,
    book,
)

claim = book.claim


# -- Table 1


@claim("fedcor.T1.a", "table_1", MAIN, printed="6 of 6 cells", tolerance=misses(1))
def _(runs: Runs, tolerance: int) -> Verdict:
    """FedCor needs fewer rounds to the target than every baseline, in all of 6 cells but {tolerance}."""

    def cell(panel: Panel) -> Verdict:
        rounds, capped = means(panel.arrived(runs, METHODS)), panel.rbar(runs, METHODS)
        place = {
            m: (np.isinf(rounds[m]), capped[m]) for m in METHODS
        }  # one that never arrives comes after all others
        nearest = min(BASELINES, key=place.get)
        shown = [f"{capped[m]:.0f}{' (N/A)' if place[m][0] else ''}" for m in ("FedCor", nearest)]
        return decide(place["FedCor"] < place[nearest], f"{' against '.join(shown)} ({nearest})")

    return count(
        {name: partial(cell, panel) for name, panel in PANELS.items()}, need=6 - tolerance, partial=4
    )


def over_pow_d(runs: Runs, data: str) -> tuple[list[float], float]:
    """Mean rounds of Pow-d over those of FedCor in each partition of a dataset, and the geometric mean in print."""
    ratios, printed = [], []
    for setting in SETTINGS:
        rbar = PANELS[f"{data} {setting}"].rbar(runs, ["Pow-d", "FedCor"])
        ratios.append(rbar["Pow-d"] / rbar["FedCor"])
        theirs, ours = (PRINTED[f"{data} {setting}"][m][0] for m in ("Pow-d", "FedCor"))
        printed.append(theirs / ours)
    return ratios, stats.gmean(printed)


@claim("fedcor.T1.b", "table_1", MAIN, printed="FMNIST 34-99 %, CIFAR-10 26-51 %", tolerance=factor(1.3))
def _(runs: Runs, tolerance: float) -> Verdict:
    """FedCor is faster than Pow-d by the printed factor (mean of a dataset's cells, within a factor {tolerance})."""

    def data_set(data: str) -> Verdict:
        ratios, paper = over_pow_d(runs, data)
        found = stats.gmean(ratios)
        each = ", ".join(f"{100 * (r - 1):+.0f} %" for r in ratios)
        near = found > 1 and 1 / tolerance <= found / paper <= tolerance
        return decide(near, f"{100 * (found - 1):+.0f} % (printed {100 * (paper - 1):+.0f} %): {each}")

    return count({data: partial(data_set, data) for data in EXPERIMENTS})


@claim("fedcor.T1.c", "table_1", MAIN, printed="24 entries", informative=True)
def _(runs: Runs) -> Verdict:
    """Each printed mean of Table 1 is reproduced; a run of ours that never arrives can only reproduce an N/A."""

    def entry(panel: Panel, method: str, printed: tuple[float, float] | None) -> Verdict:
        rounds = panel.arrived(runs, [method]).to_numpy()
        if printed is None or np.isinf(rounds).any():
            return decide(printed is None and bool(np.isinf(rounds).any()))
        mean = rounds.mean()
        spread = rounds.std(ddof=1) if len(rounds) > 1 else 0.0
        near = abs(mean - printed[0]) <= 2 * math.sqrt(printed[1] ** 2 / 5 + spread**2 / len(rounds))
        return decide(near or 1 / 1.5 <= mean / printed[0] <= 1.5)

    parts = {
        f"{name} {method}": partial(entry, PANELS[name], method, printed)
        for name, row in PRINTED.items()
        for method, printed in row.items()
    }
    return combine(parts)


@claim(
    "fedcor.T1.d",
    "table_1",
    MAIN,
    printed="derived: p < 0.05 in 4 of 6 cells, 0.21 FMNIST 2SPC, 0.15 FMNIST Dir",
    informative=True,
)
def _(runs: Runs) -> Verdict:
    """The lead over Pow-d in a cell is significant at 5 % (one-sided Welch test on the rounds to the target)."""

    def cell(panel: Panel) -> Verdict:
        rounds = panel.arrived(runs, ["Pow-d", "FedCor"]).clip(upper=panel.cap(runs) + 1)
        ours, theirs = rounds.loc["FedCor"], rounds.loc["Pow-d"]
        if min(len(ours), len(theirs)) < 2 or ours.std() + theirs.std() == 0:
            raise Missing("fewer than two different seeds")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # equal seeds of one method are no error
            p = stats.ttest_ind(ours, theirs, equal_var=False, alternative="less").pvalue
        return decide(p < 0.05, f"p = {p:.2g}")

    return count({name: partial(cell, panel) for name, panel in PANELS.items()})


def lead(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """How much faster FedCor is than Pow-d, one row per panel: Rbar of both, their ratio minus one, and in print."""
    runs, rows = Runs(dict(results)), {}
    for name, panel in PANELS.items():
        try:
            rbar = panel.rbar(runs, ["Pow-d", "FedCor"])
        except Missing:
            continue
        theirs, ours = (PRINTED[name][m][0] for m in ("Pow-d", "FedCor"))
        rows[name] = {**rbar.round(1), "faster (%)": f"{100 * (rbar['Pow-d'] / rbar['FedCor'] - 1):+.0f}"}
        rows[name]["faster, paper (%)"] = f"{100 * (theirs / ours - 1):+.0f}"
    return pd.DataFrame(rows).T.rename_axis("panel")


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


# -- Figure 4


def panels(judge: object, need: int | None = None, some: int | None = None) -> Verdict:
    """One verdict from the six panels of Figure 4."""
    return count({name: partial(judge, panel) for name, panel in PANELS.items()}, need, some)


@claim("fedcor.F4.a", "figure_4", MAIN, printed="6 of 6 panels")
def _(runs: Runs) -> Verdict:
    """FedCor has the highest final accuracy in all 6 panels."""

    def judge(panel: Panel) -> Verdict:
        fin = means(panel.fin(runs, METHODS))
        margin = fin["FedCor"] - fin[BASELINES].max()
        return decide(margin >= 0, f"{100 * margin:+.2f} points")

    return panels(judge, some=4)


@claim("fedcor.F4.b", "figure_4", MAIN, printed="6 of 6 panels")
def _(runs: Runs) -> Verdict:
    """FedCor converges fastest: the highest mean accuracy over all rounds in all 6 panels."""

    def judge(panel: Panel) -> Verdict:
        auc = panel.auc(runs, METHODS)
        return every({b: by_sign(100 * auc, "FedCor", b, "points") for b in BASELINES})

    return panels(judge, some=4)


@claim("fedcor.F4.c", "figure_4", MAIN, printed="slight or no superiority")
def _(runs: Runs) -> Verdict:
    """AFL and Pow-d are only slightly better than random selection, or not at all."""

    def judge(panel: Panel, baseline: str) -> Verdict:
        auc = means(panel.auc(runs, METHODS))
        gain, ours = auc[baseline] - auc["Random"], auc["FedCor"] - auc["Random"]
        return decide(gain < 0.5 * ours, f"{100 * gain:+.2f} against {100 * ours:+.2f} points")

    parts = {f"{name} {b}": partial(judge, panel, b) for name, panel in PANELS.items() for b in BASELINES[1:]}
    return count(parts, need=9)


@claim("fedcor.F4.d", "figure_4", MAIN, printed="1SPC on both datasets")
def _(runs: Runs) -> Verdict:
    """FedCor's advantage is largest if every client holds one label (1SPC)."""

    def data_set(data: str) -> Verdict:
        margins = {}
        for setting in SETTINGS:
            auc = means(PANELS[f"{data} {setting}"].auc(runs, METHODS))
            margins[setting] = 100 * (auc["FedCor"] - auc[BASELINES].max())
        value = ", ".join(f"{s} {m:+.2f}" for s, m in margins.items())
        return decide(max(margins, key=margins.get) == "1SPC", f"{value} points")

    return count({data: partial(data_set, data) for data in EXPERIMENTS})


@claim("fedcor.F4.e", "figure_4", MAIN, printed="smoother")
def _(runs: Runs) -> Verdict:
    """FedCor's learning curves are smoother than those of all baselines."""

    def judge(panel: Panel) -> Verdict:
        rough = means(panel.rough(runs, METHODS))
        least = rough[BASELINES].min()
        return decide(rough["FedCor"] < least, f"{rough['FedCor']:.2g} against {least:.2g}")

    return panels(judge, need=5)


# -- Figure 5


@claim(
    "fedcor.F5.a",
    "figure_5",
    list(INTERVAL.values()),
    printed="very slight degradation",
    informative=True,
)
def _(runs: Runs) -> Verdict:
    """A longer interval between updates of the Gaussian process costs at most one point of accuracy.

    Five seeds differ by more: of arms that do not differ at all, one would seem to cost as much.
    """

    def judge(data: str, setting: str) -> Verdict:
        panel = Panel(INTERVAL[data], setting)
        values = {
            "final": means(panel.fin(runs, INTERVALS[:2])),
            "mean": means(panel.auc(runs, INTERVALS[:2])),
        }
        lost = {name: 100 * (v[INTERVALS[0]] - v[INTERVALS[1]]) for name, v in values.items()}
        each = ", ".join(f"{name} {-points:+.2f}" for name, points in lost.items())
        return decide(max(lost.values()) <= 1, f"{each} points")

    return count({f"{d} {s}": partial(judge, d, s) for d in INTERVAL for s in SETTINGS})


@claim("fedcor.F5.b", "figure_5", list(INTERVAL.values()), printed="faster than Rand")
def _(runs: Runs) -> Verdict:
    """Without any update after the warm-up FedCor still converges faster than random selection."""

    def judge(data: str, setting: str) -> Verdict:
        auc = Panel(INTERVAL[data], setting).auc(runs, ["Random", INTERVALS[2]])
        return by_sign(100 * auc, INTERVALS[2], "Random", "points")

    return count({f"{d} {s}": partial(judge, d, s) for d in INTERVAL for s in SETTINGS}, need=5)


# -- Figure 6


def counts_of(results: pd.DataFrame, after_warm_up: bool = False) -> np.ndarray:
    """(N,) how often each client was selected over one FedCor run, or in its rounds after the warm-up.

    FedCor notes the clients' alpha only after the warm-up; N is its length.
    """
    chosen = results[results["notes"].notna()]
    if chosen.empty:
        raise Missing("the run ends within the warm-up")
    N = len(json.loads(chosen["notes"].iloc[0])["alpha"])
    return selection_counts(results, N, int(chosen["round"].min()) if after_warm_up else 1)


def annealing(
    results: Mapping[str, pd.DataFrame], setting: str
) -> tuple[dict[str, pd.DataFrame], dict[str, dict[str, np.ndarray]]]:
    """Figure 6's panels that have been run, by dataset and setting.

    Each has the rows of the curves and, for each beta, the (N,) selections in descending order, averaged over seeds. If
    nothing has been run, the lookup of the first experiment raises.
    """
    names = [e for e in ANNEALING.values() if e in results] or [next(iter(ANNEALING.values()))]
    tables = {
        data: results[e][results[e]["setting"] == setting] for data, e in ANNEALING.items() if e in names
    }
    tables = {f"{data} {setting}": table for data, table in tables.items() if len(table)}
    counts: dict[str, dict[str, np.ndarray]] = {}
    for data, table in tables.items():
        runs = table[table["method"] != "Random"].groupby(["method", "seed"], sort=False)
        ordered = pd.Series({key: np.sort(counts_of(run))[::-1] for key, run in runs})
        counts[data] = {m: np.mean(list(group), axis=0) for m, group in ordered.groupby(level=0, sort=False)}
    return tables, counts


@claim("fedcor.F6.a", "figure_6", list(ANNEALING.values()), printed="smaller β, more uniform")
def _(runs: Runs) -> Verdict:
    """A smaller beta selects clients more uniformly."""

    def data_set(data: str) -> Verdict:
        ginis = []
        for method in BETAS[data]:
            seeds = runs.pick(ANNEALING[data], "2SPC", [method]).groupby("seed")
            ginis.append(float(np.mean([gini(counts_of(run, after_warm_up=True)) for _, run in seeds])))
        return decide(bool((np.diff(ginis) > 0).all()), "Gini " + ", ".join(f"{g:.3f}" for g in ginis))

    return count({data: partial(data_set, data) for data in ANNEALING})


@claim("fedcor.F6.b", "figure_6", list(ANNEALING.values()), printed="almost unchanged")
def _(runs: Runs) -> Verdict:
    """The accuracy hardly depends on beta."""

    def data_set(data: str) -> Verdict:
        panel = Panel(ANNEALING[data], "2SPC")
        spans = [float(np.ptp(means(read(runs, BETAS[data])))) for read in (panel.fin, panel.auc)]
        return decide(
            max(spans) <= 0.02, f"final {100 * spans[0]:.2f}, mean {100 * spans[1]:.2f} points apart"
        )

    return count({data: partial(data_set, data) for data in ANNEALING})


@claim("fedcor.F6.c", "figure_6", list(ANNEALING.values()), printed="every β beats Rand")
def _(runs: Runs) -> Verdict:
    """FedCor converges faster than random selection at every beta."""

    def judge(data: str, method: str) -> Verdict:
        auc = Panel(ANNEALING[data], "2SPC").auc(runs, ["Random", method])
        return by_sign(100 * auc, method, "Random", "points")

    parts = {
        f"{data} {method.removeprefix('FedCor, ')}": partial(judge, data, method)
        for data, methods in BETAS.items()
        for method in methods
    }
    return count(parts)


@claim(
    "fedcor.S5.a", "centralised", ["fedcor_centralised"], printed="85.92 % FMNIST MLP, 73.84 % CIFAR-10 CNN"
)
def _(runs: Runs) -> Verdict:
    """The models reach these accuracies when trained centrally."""

    def data_set(data: str, printed: float, within: float) -> Verdict:
        reached = runs.statistic("fedcor_centralised", data, ["Centralised"], "test_accuracy", best)
        value, epochs = 100 * float(reached.mean()), runs.last("fedcor_centralised", data)
        if value < printed - within and epochs < 100:
            raise Missing(f"{value:.2f} % after {epochs} of 100 epochs, which may still rise")
        return decide(abs(value - printed) <= within, f"{value:.2f} %")

    parts = {
        "FMNIST": partial(data_set, "FMNIST", 85.92, 1.5),
        "CIFAR-10": partial(data_set, "CIFAR-10", 73.84, 2.0),
    }
    return count(parts)
