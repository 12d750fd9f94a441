"""FedCor (Tang et al., CVPR 2022): what it claims, what it prints, and what decides."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.claims import Book, Missing, Runs, Verdict, combine, decide, number
from fedlib.claims.curves import Panel, by_sign, count, every, means
from fedlib.measure import best, capped_mean, gini, selection_counts

book = Book("fedcor")
claim = book.claim

BASELINES = ["Random", "AFL", "Pow-d"]
METHODS = [*BASELINES, "FedCor"]
SETTINGS = ["2SPC", "1SPC", "Dir"]
EXPERIMENTS = {"FMNIST": "fedcor_fmnist", "CIFAR-10": "fedcor_cifar10"}
INTERVAL = {data: f"{name}_interval" for data, name in EXPERIMENTS.items()}
ANNEALING = {data: f"{name}_annealing" for data, name in EXPERIMENTS.items()}
INTERVALS = ["FedCor, Δt", "FedCor, 2Δt", "FedCor, no update"]
BETAS = {data: [f"FedCor, β = {b}" for b in betas] for data, betas in {
    "FMNIST": (0.5, 0.75, 0.9), "CIFAR-10": (0.9, 0.95, 0.99)}.items()}  # fmt: skip
TARGETS = {"FMNIST": (0.69, 0.62, 0.64), "CIFAR-10": (0.62, 0.36, 0.54)}
PANELS = {
    f"{data} {setting}": Panel(experiment, setting, target)
    for data, experiment in EXPERIMENTS.items()
    for setting, target in zip(SETTINGS, TARGETS[data], strict=True)
}
# Table 1: rounds, mean and standard deviation over 5 seeds; None where the paper prints N/A.
PRINTED: dict[str, dict[str, tuple[float, float] | None]] = {
    "FMNIST 2SPC": {"Random": (295.8, 92.0), "AFL": (218.6, 117.3), "Pow-d": (126.6, 78.2), "FedCor": (94.8, 18.4)},
    "FMNIST 1SPC": {"Random": None, "AFL": None, "Pow-d": (167.2, 72.3), "FedCor": (84.0, 53.1)},
    "FMNIST Dir": {"Random": (141.0, 73.0), "AFL": (169.0, 166.1), "Pow-d": (123.0, 101.0), "FedCor": (68.8, 27.5)},
    "CIFAR-10 2SPC": {
        "Random": (1561.2, 236.2), "AFL": None, "Pow-d": (1558.2, 227.0), "FedCor": (1033.4, 123.7)},
    "CIFAR-10 1SPC": {
        "Random": (1750.4, 190.3), "AFL": (1845.2, 28.8), "Pow-d": (1752.2, 186.2), "FedCor": (1269.2, 70.6)},
    "CIFAR-10 Dir": {
        "Random": None, "AFL": (1524.4, 267.9), "Pow-d": (1355.2, 151.3), "FedCor": (1076.8, 262.8)},
}  # fmt: skip
MAIN = list(EXPERIMENTS.values())


# -- Table 1


@claim("fedcor.T1.a", "table_1", MAIN, printed="6 of 6 cells")
def _(runs: Runs) -> Verdict:
    """FedCor needs fewer rounds to the target than every baseline in all 6 cells."""

    def cell(panel: Panel) -> Verdict:
        rounds = means(panel.rounds(runs, METHODS))  # inf where a seed never arrives
        others = {b: rounds[b] for b in BASELINES}
        nearest = min(others, key=others.get)
        value = f"{number(rounds['FedCor'])} against {number(others[nearest])} ({nearest})"
        return decide(rounds["FedCor"] < others[nearest], value)

    return count({name: partial(cell, panel) for name, panel in PANELS.items()}, partial=4)


@claim("fedcor.T1.b", "table_1", MAIN, printed="FMNIST 34-99 %, CIFAR-10 26-51 %")
def _(runs: Runs) -> Verdict:
    """FedCor reaches the targets 34 to 99 % faster than Pow-d on FMNIST and 26 to 51 % faster on CIFAR-10."""

    def data_set(data: str, low: tuple[float, float], high: tuple[float, float]) -> Verdict:
        ratios = []
        for setting in SETTINGS:
            rbar = PANELS[f"{data} {setting}"].rbar(runs, ["Pow-d", "FedCor"])
            ratios.append(rbar["Pow-d"] / rbar["FedCor"])
        near = low[0] <= min(ratios) <= low[1] and high[0] <= max(ratios) <= high[1]
        return decide(near and min(ratios) > 1, ", ".join(f"{100 * (r - 1):+.0f} %" for r in ratios))

    parts = {
        "FMNIST": partial(data_set, "FMNIST", (0.89, 2.01), (1.33, 2.99)),
        "CIFAR-10": partial(data_set, "CIFAR-10", (0.84, 1.89), (1.01, 2.27)),
    }
    return count(parts)


@claim("fedcor.T1.c", "table_1", MAIN, printed="24 entries")
def _(runs: Runs) -> Verdict:
    """Each printed mean of Table 1 is reproduced."""

    def entry(panel: Panel, method: str, printed: tuple[float, float] | None) -> Verdict:
        rounds = panel.rounds(runs, [method]).to_numpy()
        if printed is None or np.isinf(rounds).any():
            return decide(printed is None and bool(np.isinf(rounds).any()))
        mean = capped_mean(rounds, panel.cap(runs))
        spread = rounds.std(ddof=1) if len(rounds) > 1 else 0.0
        near = abs(mean - printed[0]) <= 2 * math.sqrt(printed[1] ** 2 / 5 + spread**2 / len(rounds))
        return decide(near or 1 / 1.5 <= mean / printed[0] <= 1.5)

    parts = {
        f"{name} {method}": partial(entry, PANELS[name], method, printed)
        for name, row in PRINTED.items()
        for method, printed in row.items()
    }
    verdict = combine(parts)
    reproduced = verdict.detail.split(" parts held")[0]
    return Verdict(verdict.status, f"{reproduced} entries", "", verdict.detail)


@claim("fedcor.T1.d", "table_1", MAIN, printed="p < 0.05 in 4 of 6 cells, 0.21 FMNIST 2SPC, 0.15 FMNIST Dir")
def _(runs: Runs) -> Verdict:
    """The lead over Pow-d is significant at 5 % (one-sided Welch test on the rounds to the target)."""

    def cell(panel: Panel) -> Verdict:
        rounds = panel.rounds(runs, ["Pow-d", "FedCor"]).clip(upper=panel.cap(runs) + 1)
        ours, theirs = rounds.loc["FedCor"], rounds.loc["Pow-d"]
        if min(len(ours), len(theirs)) < 2 or ours.std() + theirs.std() == 0:
            raise Missing("fewer than two different seeds")
        p = stats.ttest_ind(ours, theirs, equal_var=False, alternative="less").pvalue
        return decide(p < 0.05, f"p = {p:.2g}")

    return count({name: partial(cell, panel) for name, panel in PANELS.items()}, partial=1)


# -- Figure 4


def panels(judge: object, need: int | None = None, some: int | None = None) -> Verdict:
    """The six panels of Figure 4 put together."""
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


@claim("fedcor.F4.d", "figure_4", MAIN, printed="1SPC on both data sets")
def _(runs: Runs) -> Verdict:
    """FedCor's advantage is largest where every client holds one label (1SPC)."""

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


@claim("fedcor.F5.a", "figure_5", list(INTERVAL.values()), printed="very slight degradation")
def _(runs: Runs) -> Verdict:
    """A longer interval between updates of the Gaussian process costs little accuracy."""

    def judge(data: str, setting: str) -> Verdict:
        panel = Panel(INTERVAL[data], setting)
        fin, auc = (means(read(runs, INTERVALS[:2])) for read in (panel.fin, panel.auc))
        lost = [values[INTERVALS[0]] - values[INTERVALS[1]] for values in (fin, auc)]
        return decide(max(lost) <= 0.01, f"final {-100 * lost[0]:+.2f}, mean {-100 * lost[1]:+.2f} points")

    return count({f"{d} {s}": partial(judge, d, s) for d in INTERVAL for s in SETTINGS}, need=5)


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

    Only there does FedCor note the clients' alpha, which also tells how many clients there are.
    """
    chosen = results[results["notes"].notna()]
    if chosen.empty:
        raise Missing("the run ends within the warm-up")
    N = len(json.loads(chosen["notes"].iloc[0])["alpha"])
    return selection_counts(results, N, int(chosen["round"].min()) if after_warm_up else 1)


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


# -- Figure 7


def embeddings(
    results: pd.DataFrame, owners: pd.DataFrame, data: str
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """seed -> unit embeddings (N, d) of the clients after the warm-up, and their dominant labels (N,).

    results: FedCor's runs of 1SPC; owners: the study of partitions.
    """
    out = {}
    for seed, run in results.groupby("seed"):
        owned = owners[(owners["data"] == data) & (owners["setting"] == "1SPC") & (owners["seed"] == seed)]
        noted = [json.loads(note) for note in run["notes"].dropna()]
        noted = [np.array(note["embedding"]) for note in noted if "embedding" in note]
        if noted and len(owned):
            counts = np.stack(owned.sort_values("client")["counts"].to_list())
            out[int(seed)] = noted[0] / np.linalg.norm(noted[0], axis=1, keepdims=True), counts.argmax(axis=1)
    return out


def separation(x: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Mean cosine within labels less that between labels; leave-one-out nearest-neighbour accuracy of the label."""
    cosine = x @ x.T
    same, other = labels[:, None] == labels, ~np.eye(len(x), dtype=bool)
    gap = cosine[same & other].mean() - cosine[~same].mean()
    nearest = np.where(other, cosine, -np.inf).argmax(axis=1)
    return float(gap), float((labels[nearest] == labels).mean())


@claim("fedcor.F7.a", "figure_7", [*MAIN, "fedcor_partitions"], printed="same-label clients cluster")
def _(runs: Runs) -> Verdict:
    """After the warm-up the embeddings of clients that hold the same label lie together (1SPC)."""

    def data_set(data: str) -> Verdict:
        found = embeddings(runs.pick(EXPERIMENTS[data], "1SPC", ["FedCor"]), runs["fedcor_partitions"], data)
        if not found:
            raise Missing(f"no embeddings of {data} have been noted")
        values = np.array([separation(x, labels) for x, labels in found.values()])
        good = ((values[:, 0] > 0.2) & (values[:, 1] >= 0.5)).mean()
        gap, neighbour = values.mean(axis=0)
        return decide(good >= 0.8, f"cosine gap {gap:.2f}, nearest neighbour {neighbour:.2f}")

    return count({data: partial(data_set, data) for data in EXPERIMENTS})


# -- Figures 1 to 3, and the centralised models of section 5.1


@claim("fedcor.F1.a", "figure_1", ["fedcor_toy"], printed="one positive, one negative point")
def _(runs: Runs) -> Verdict:
    """In the toy FedCor chooses points of both labels and comes close to the best pair; two highest losses do not."""
    table = runs["fedcor_toy"].pivot(index="draw", columns="method", values="loss")
    pairs = runs["fedcor_toy"].query("method == 'Cor'")["labels"]
    opposite = float(np.mean([pair[0] != pair[1] for pair in pairs]))
    gaps = (table["Cor"] - table["Opt"]) / (table["Ind"] - table["Opt"]).where(table["Ind"] > table["Opt"])
    failed = float((table["Ind"] >= table["start"]).mean())
    parts = {
        "opposite labels": lambda: decide(opposite >= 0.9, f"{100 * opposite:.0f} %"),
        "left of the gap to the best": lambda: decide(gaps.median() <= 0.2, number(gaps.median())),
        "draws where Ind raises the loss": lambda: decide(failed > 0.5, f"{100 * failed:.0f} %"),
    }
    return count(parts)


def gaussianity(projections: np.ndarray) -> tuple[float, float, float]:
    """Skewness, excess kurtosis, and Kolmogorov-Smirnov distance to the Gaussian of the same mean and variance."""
    distance = stats.kstest(projections, "norm", args=(projections.mean(), projections.std())).statistic
    return float(stats.skew(projections)), float(stats.kurtosis(projections)), float(distance)


def probes(runs: Runs, data: str, setting: str = "2SPC", method: str = "Random") -> pd.DataFrame:
    """The probed rounds of a run in the study of loss changes, seeds in order."""
    table = runs["fedcor_loss_changes"]
    table = table[(table["data"] == data) & (table["setting"] == setting) & (table["method"] == method)]
    if table.empty:
        raise Missing(f"the loss changes of {data} {setting} have not been measured")
    return table.sort_values(["seed", "round"])


@claim("fedcor.F2.a", "figure_2", ["fedcor_loss_changes"], printed="approximately Gaussian")
def _(runs: Runs) -> Verdict:
    """The first principal component of the clients' loss changes is close to Gaussian."""

    def data_set(data: str) -> Verdict:
        shapes = [gaussianity(np.asarray(x, dtype=float)) for x in probes(runs, data)["component_1"]]
        good = np.mean([abs(skew) < 0.5 and abs(tails) < 1 and ks < 0.05 for skew, tails, ks in shapes])
        skew, tails, ks = np.median(np.abs(shapes), axis=0)
        value = (
            f"{100 * good:.0f} % of rounds (median |skew| {skew:.2f}, |kurtosis| {tails:.2f}, KS {ks:.3f})"
        )
        return decide(good >= 0.8, value)

    return count({data: partial(data_set, data) for data in EXPERIMENTS})


@claim("fedcor.F3.a", "figure_3", ["fedcor_loss_changes"], printed="> 0.97 FMNIST, > 0.95 CIFAR-10")
def _(runs: Runs) -> Verdict:
    """The covariance of the loss changes hardly moves between two updates of the process."""

    def data_set(data: str, bound: float) -> Verdict:
        cosines = probes(runs, data)[["cosine", "cosine_centred"]].dropna()
        if cosines.empty:
            raise Missing(f"{data} has fewer than two probed rounds")
        least, tenth = cosines["cosine"].min(), cosines["cosine"].quantile(0.1)
        value = f"{least:.3f} at least, {cosines['cosine_centred'].min():.3f} without the mean diagonal"
        if least > bound:
            return Verdict("held", value)
        return Verdict("held in part" if tenth > bound else "not held", value)

    return count(
        {"FMNIST": partial(data_set, "FMNIST", 0.97), "CIFAR-10": partial(data_set, "CIFAR-10", 0.95)}
    )


@claim(
    "fedcor.S5.a", "centralised", ["fedcor_centralised"], printed="85.92 % FMNIST MLP, 73.84 % CIFAR-10 CNN"
)
def _(runs: Runs) -> Verdict:
    """The models reach these accuracies when trained centrally."""

    def data_set(data: str, printed: float, within: float) -> Verdict:
        reached = runs.statistic("fedcor_centralised", data, ["Centralised"], "test_accuracy", best)
        value = 100 * float(reached.mean())
        return decide(abs(value - printed) <= within, f"{value:.2f} %")

    parts = {
        "FMNIST": partial(data_set, "FMNIST", 85.92, 1.5),
        "CIFAR-10": partial(data_set, "CIFAR-10", 73.84, 2.0),
    }
    return count(parts)
