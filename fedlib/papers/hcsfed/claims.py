"""The claims of HCSFed (Song et al., UAI 2023).

They ask for "HCSFed", "+cluster", "H = 5", "compressed" ...: which runs answer, with which compression, alpha,
accuracy and rule for absent clients, is what a reading says (`readings.py`). Bounds without a printed number are
chosen before looking, and stand in `margin`. Rounds to the best accuracy itself, which Figures 4 to 6 show, decide
nothing: accuracy still rises in the last round, so that they equal T for every H and R.
"""

from __future__ import annotations

from math import inf

import numpy as np
import pandas as pd

from fedlib.analysis.claim import Arm, Cell, Claim, Kind, Labels, Level, Rounds, Study, versus
from fedlib.analysis.estimators import trend
from fedlib.analysis.measure import at_start, best, end_mean, rounds_to_best
from fedlib.analysis.readings import Where
from fedlib.papers.hcsfed.printed import ABLATION, BASELINES, COLUMNS, FRACTIONS, TABLE_1, rounds
from fedlib.papers.hcsfed.sweeps import HS, RATES
from fedlib.samplers.hcsfed import allocate, deviations, kmeans

ORDER, SAME, TREND, PRINT = "log-ratio of rounds", "equivalence", "trend", "agreement with print"
DATA = {"MNIST": "MNIST", "FMNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10"}

# -- Table 1

TO_80 = Rounds(0.8, T=200)


def labels(column: str) -> Labels:
    """What a column's name says: "FMNIST, q = 10 %"."""
    data, q = column.split(", ")
    return {"data": DATA[data], "partition": "Dirichlet", "participation": q}


def shown(*printed: float) -> str:
    return " and ".join("200+" if t == inf else f"{t:g}" for t in printed) + " rounds"


def pairs(slow: str, fast: str) -> list[Cell]:
    """One method against another, in every column in which the paper prints a difference."""
    cells = []
    for column in COLUMNS:
        printed = rounds(slow, column), rounds(fast, column)
        if printed[0] > printed[1]:
            a, b = (Where(TABLE_1, column, method) for method in (slow, fast))
            name = f"{column}, {slow} over {fast}"
            cells.append(versus(name, a, b, printed, shown=shown(*printed), **labels(column)))
    return cells


def between(name: str, column: str, a: tuple[str, str], b: tuple[str, str]) -> Cell:
    """Two (column, method) of Table 1 of which the paper prints about the same."""
    printed = rounds(a[1], a[0]), rounds(b[1], b[0])
    return versus(
        name, Where(TABLE_1, *a), Where(TABLE_1, *b), printed, shown=shown(*printed), **labels(column)
    )


def table_1(letter: str, text: str, kind: Kind, estimator, cells: list[Cell], margin=None) -> Claim:
    return Claim(f"hcsfed.T1.{letter}", "hcsfed/table_1", text, kind, estimator, TO_80, tuple(cells), margin)


def falling(data: str) -> Cell:
    """The speed-up over Random as q falls from 50 to 10 %: log speed-up gained over this range."""
    columns = [f"{data}, q = {q}" for q in FRACTIONS]
    arms = tuple(
        Arm(Where(TABLE_1, column, method), sign * weight, rounds(method, column))
        for column, weight in zip(columns, trend([1, 0.5, 0]), strict=True)
        for method, sign in (("Random", 1), ("HCSFed", -1))
    )
    return Cell(data, arms, DATA[data], "Dirichlet", "q = 10 to 50 %", "10.7, 5.2 and 3.5 times")


def printed_rounds(method: str, column: str) -> Cell:
    arm = Arm(Where(TABLE_1, column, method), printed=rounds(method, column))
    return Cell(f"{column}, {method}", (arm,), shown=shown(rounds(method, column)), **labels(column))


IN_TABLE_1 = [
    table_1(
        "a",
        "HCSFed needs fewer rounds to 80 % than every other method, in all columns (where a tie is printed: T1.f).",
        "core",
        ORDER,
        [cell for other in BASELINES for cell in pairs(other, "HCSFed")],
    ),
    table_1(
        "b",
        "HCSFed needs fewer rounds to 80 % than Random, in all columns.",
        "core",
        ORDER,
        pairs("Random", "HCSFed"),
    ),
    table_1(
        "c",
        "HCSFed's speed-up over Random is as large as printed: 10.7 to 2.1 times.",
        "core",
        ORDER,
        pairs("Random", "HCSFed"),
        "printed",
    ),
    table_1(
        "d", "The fewer clients take part, the larger HCSFed's speed-up.", "core", TREND, [falling("MNIST")]
    ),
    table_1(
        "e",
        "HCSFed hardly depends on q: it needs about as many rounds at q = 10 % as at 50 %.",
        "supporting",
        SAME,
        [
            between(
                data, f"{data}, q = 10 %", (f"{data}, q = 10 %", "HCSFed"), (f"{data}, q = 50 %", "HCSFed")
            )
            for data in ("MNIST", "FMNIST")
        ],
        1.5,
    ),
    table_1(
        "f",
        "At q = 50 % Cluster needs as many rounds as HCSFed.",
        "supporting",
        SAME,
        [between(c, c, (c, "Cluster"), (c, "HCSFed")) for c in COLUMNS if c.endswith("50 %")],
        1.5,
    ),
    table_1(
        "g",
        "Random needs more rounds than SCAFFOLD, and SCAFFOLD more than Cluster, in all columns.",
        "supporting",
        ORDER,
        pairs("Random", "SCAFFOLD") + pairs("SCAFFOLD", "Cluster"),
    ),
    table_1(
        "h",
        "Random needs more rounds than Importance, and Importance more than Cluster, in all columns.",
        "supporting",
        ORDER,
        pairs("Random", "Importance") + pairs("Importance", "Cluster"),
    ),
    table_1(
        "i",
        "On Fashion-MNIST Random reaches 80 % in round 158 at q = 50 %, and not in 200 rounds at 10 and 30 %.",
        "supporting",
        PRINT,
        [printed_rounds("Random", c) for c in COLUMNS[3:]],
        1.5,
    ),
    table_1(
        "j",
        "Each of the 30 printed numbers of rounds comes out.",
        "supporting",
        PRINT,
        [printed_rounds(method, c) for method in (*BASELINES, "HCSFed") for c in COLUMNS],
        1.5,
    ),
]

# -- Figures 1 and 2


def schematic(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Figure 1's clients: updates G (16, 2) in four groups of unequal spread, their clusters, and places (m = 6)."""
    rng = np.random.default_rng(seed)
    middles, spreads = np.array([[3, 0.5], [-0.5, 1.8], [-1.4, -0.4], [0.6, -1.2]]), [0.1, 0.5, 0.15, 0.1]
    G = np.concatenate([c + s * rng.standard_normal((4, 2)) for c, s in zip(middles, spreads, strict=True)])
    groups = kmeans(G, 4, np.random.default_rng(seed + 5))
    places = allocate(np.bincount(groups, minlength=4), deviations(G, groups, 4), 6, at_least_one=True)
    return G, groups, places


def most_places(results: object) -> bool:
    """Whether the cluster with the largest N_h sigma_h receives the most places."""
    G, groups, places = schematic()
    weight = np.bincount(groups, minlength=4) * deviations(G, groups, 4)
    return bool(places[weight.argmax()] == places.max())


def at_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["round"] == rows["round"].min()]


def agreement(rows: pd.DataFrame) -> float:
    """Adjusted Rand index of clusters and dominant labels, in the first round that was probed."""
    return float(at_first(rows)["ari"].mean())


def silhouette(rows: pd.DataFrame) -> float:
    """Mean silhouette of the clusters, in the first round that was probed."""
    return float(at_first(rows)["silhouette"].mean())


def unevenness(rows: pd.DataFrame) -> float:
    """Half of the ratio of the largest to the median deviation of a cluster, in the first round that was probed."""
    sigmas = at_first(rows).groupby("cluster")["sigma"].first()
    return float(sigmas.max() / sigmas.median()) / 2


UPDATES = ("hcsfed_updates", "alpha = 0.01")
ON_MNIST: Labels = {"data": "MNIST", "partition": "Dirichlet", "participation": "q = 10 %"}


def clusters(letter: str, text: str, kind: Kind, measure: Study, raw: bool) -> Claim:
    compressed, other = (Where(*UPDATES, features) for features in ("compressed", "raw"))
    both = (
        versus("MNIST", compressed, other, **ON_MNIST)
        if raw
        else Cell("MNIST", (Arm(compressed),), **ON_MNIST)
    )
    return Claim(
        f"hcsfed.F2.{letter}", "hcsfed/figure_2", text, kind, "difference of a level", measure, (both,)
    )


IN_FIGURES_1_AND_2 = [
    Claim(
        "hcsfed.F1.a",
        "hcsfed/figure_1",
        "The cluster with the largest N_h sigma_h receives the most places.",
        "construction",
        "exact fact",
        None,
        (Cell("schematic", fact=most_places),),
    ),
    clusters(
        "a",
        "Clusters of compressed updates agree better with the labels (adjusted Rand index) than clusters of raw ones.",
        "core",
        Study("features", agreement),
        True,
    ),
    clusters(
        "c",
        "Clusters of compressed updates are tighter (silhouette) than clusters of raw ones.",
        "core",
        Study("features", silhouette),
        True,
    ),
    clusters(
        "b",
        "Spread differs between clusters: the largest deviation is more than twice the median (effect: ratio over 2).",
        "supporting",
        Study("features", unevenness, "times", log=True),
        False,
    ),
]

# -- Figure 3, and how the speed-up depends on heterogeneity

FIGURE_3 = [("hcsfed_rounds", "MNIST, alpha = 0.01"), ("hcsfed_rounds", "MNIST, alpha = 0.001")]
FIGURE_3 += [
    ("hcsfed_rounds_cnn", f"{data}, alpha = {alpha}")
    for data in ("FMNIST", "CIFAR-10")
    for alpha in ("0.01", "0.001")
]
OTHERS = (*BASELINES, "IFCA")


def at(setting: str) -> Labels:
    data, alpha = setting.split(", alpha = ")
    return {"data": DATA[data], "partition": f"Dirichlet {alpha}", "participation": "q = 10 %"}


def steeper(name: str, data: str, places: list[tuple[str, str]]) -> Cell:
    """The speed-up over Random over settings of rising heterogeneity: log speed-up gained over all of them."""
    weights = trend(list(np.linspace(0, 1, len(places))))
    arms = tuple(
        Arm(Where(*place, method), sign * float(weight))
        for place, weight in zip(places, weights, strict=True)
        for method, sign in (("Random", 1), ("HCSFed", -1))
    )
    return Cell(name, arms, data, "Dirichlet", "q = 10 %")


ALPHAS = [(TABLE_1, f"MNIST, q = 10 %, alpha = {alpha}") for alpha in ("0.1", "0.01", "0.001")]
IN_FIGURE_3 = [
    Claim(
        "hcsfed.F3.a",
        "hcsfed/figure_3",
        "HCSFed needs fewer rounds to 60 % than every other method, on all data sets.",
        "core",
        ORDER,
        Rounds(0.6),
        tuple(
            versus(f"{place[1]}, {other}", Where(*place, other), Where(*place, "HCSFed"), **at(place[1]))
            for place in FIGURE_3
            for other in OTHERS
        ),
    ),
    Claim(
        "hcsfed.F3.b",
        "hcsfed/figure_3",
        "The more heterogeneous the data, the larger HCSFed's speed-up over Random (rounds to 60 %).",
        "core",
        TREND,
        Rounds(0.6),
        tuple(steeper(data, DATA[data], FIGURE_3[2 * k : 2 * k + 2]) for k, data in enumerate(DATA)),
    ),
    Claim(
        "hcsfed.T1.k",
        "hcsfed/table_1",
        "The more heterogeneous the data, the larger HCSFed's speed-up over Random (logistic regression, 80 %).",
        "core",
        TREND,
        TO_80,
        (steeper("MNIST", "MNIST", ALPHAS),),
    ),
]  # fmt: skip

# -- Figures 4 to 6

SHARE = (("share", 0.95),)
BEST = Level(best, "points", 100)
TO_BEST = Level(rounds_to_best, "times", log=True, options=SHARE)


def stable(figure: str, data: str, experiment: str, measure: Level, margin: float, what: str) -> Claim:
    first, last = (Where(experiment, "alpha = 0.01", f"H = {H}") for H in (HS[-1], HS[0]))
    cells = tuple(
        versus(f"H = {H}", last._replace(method=f"H = {H}"), first, data=data, partition="Dirichlet 0.01")
        for H in HS[:-1]
    )
    text = f"On {data} {what} with H = 5 ... 9 clusters as with 10."
    return Claim(
        f"hcsfed.F{figure}", f"hcsfed/figure_{figure[0]}", text, "supporting", SAME, measure, cells, margin
    )


def extremes(
    figure: str, data: str, experiment: str, measure: Level, rates: tuple[str, ...], what: str
) -> Claim:
    """An extreme of R against the mean of the rates between, R = 10, 20 and 40 %."""
    sign = 1.0 if measure is TO_BEST else -1.0
    arms = {R: Arm(Where(experiment, "alpha = 0.01", f"R = {R}"), -sign / 3) for R in RATES[1:-1]}
    cells = tuple(
        Cell(
            f"R = {R}",
            (Arm(Where(experiment, "alpha = 0.01", f"R = {R}"), sign), *arms.values()),
            data,
            "Dirichlet 0.01",
        )
        for R in rates
    )
    estimator = ORDER if measure is TO_BEST else "difference of a level"
    text = f"On {data} {what} than with the rates between (10 to 40 %)."
    return Claim(
        f"hcsfed.F{figure}", f"hcsfed/figure_{figure[0]}", text, "supporting", estimator, measure, cells
    )


OF_BEST = "95 % of the best accuracy"
IN_FIGURES_4_TO_6 = [
    claim
    for figure, names, data, points in (
        ("4", ("4a.a", "4a.b", "4b.a", "4b.b"), "MNIST", 1.5),
        ("5", ("5.a", "5.b", "5.c", "5.d"), "CIFAR-10", 3.0),
        ("6", ("6.a", "6.b", "6.c", "6.d"), "CIFAR-100", 3.0),
    )
    for sweep in ("hcsfed_sweep_" + {"4": "mnist", "5": "cifar10", "6": "cifar100"}[figure],)
    for claim in (
        stable(names[0], data, sweep, BEST, points, f"the best accuracy is the same (within {points:g} points)"),
        stable(names[1], data, sweep, TO_BEST, 1.5, f"{OF_BEST} takes as many rounds (within a factor 1.5)"),
        extremes(names[2], data, sweep, BEST, ("100 %",), "without compression (R = 100 %) the best accuracy is lower"),
        extremes(names[3], data, sweep, TO_BEST, ("5 %", "100 %"), f"{OF_BEST} takes more rounds at R = 5 % and 100 %"),
    )
]  # fmt: skip

# -- Figure 7

ABLATED = Rounds(0.8, T=200)
END = Level(end_mean, "points", 100, options=(("share", 0.05),))
BASE = rounds(
    "Random", "MNIST, q = 10 %"
)  # FedAvg's in Table 1, with which the printed speed-ups become rounds
SPREADS = {"HCSFed": 0.5, "FedAvg": 2.5}  # points: over seeds of our archived runs, as the paper prints none


def arm(method: str) -> Where:
    return Where(*ABLATION, method)


def printed_level(method: str, points: float, spread: float) -> Cell:
    return Cell(method, (Arm(arm(method), 1.0, points, spread),), shown=f"{points:g} %", **ON_MNIST)


def sooner(slow: str, fast: str, printed: tuple[float, float] | None = None, shown: str = "") -> Cell:
    return versus(f"{slow} over {fast}", arm(slow), arm(fast), printed, shown=shown, **ON_MNIST)


def figure_7(
    part: str, text: str, estimator, measure, cells: list[Cell], margin=None, kind: Kind = "supporting"
) -> Claim:
    return Claim(f"hcsfed.F7{part}", "hcsfed/figure_7", text, kind, estimator, measure, tuple(cells), margin)


ENDS = (Arm(arm("HCSFed"), 1.0, 91, SPREADS["HCSFed"]), Arm(arm("FedAvg"), -1.0, 81, SPREADS["FedAvg"]))
IN_FIGURE_7 = [
    figure_7(
        "a.a", "HCSFed's final accuracy is 10 points above FedAvg's.", "difference of a level", END,
        [Cell("HCSFed - FedAvg", ENDS, shown="91 and 81 %", **ON_MNIST)], "printed",
    ),
    figure_7(
        "a.b", "HCSFed ends at 91 % and FedAvg at 81 % (within 3 points).", PRINT, END,
        [printed_level("HCSFed", 91, SPREADS["HCSFed"]), printed_level("FedAvg", 81, SPREADS["FedAvg"])], 3.0,
    ),
    figure_7(
        "a.c", "HCSFed and FedAvg both start at 10 % (within 3 points).", PRINT, Level(at_start, "points", 100),
        [printed_level("HCSFed", 10, 0.5), printed_level("FedAvg", 10, 0.5)], 3.0, "construction",
    ),
    figure_7(
        "b.a", "Cluster selection is 2.6 times and importance selection 2.1 times as fast as FedAvg.", ORDER, ABLATED,
        [sooner("FedAvg", "+cluster", (BASE, BASE / 2.6), "2.6 times"),
         sooner("FedAvg", "+importance", (BASE, BASE / 2.1), "2.1 times")], "printed",
    ),
    figure_7(
        "b.b", "Cluster selection needs fewer rounds than importance selection.", ORDER, ABLATED,
        [sooner("+importance", "+cluster", (BASE / 2.1, BASE / 2.6), "2.6 and 2.1 times faster than FedAvg")],
    ),
    figure_7(
        "b.c", "Cluster selection with re-allocation, with importance, and with both needs fewer rounds than alone.",
        ORDER, ABLATED,
        [sooner("+cluster", more) for more in ("+cluster+re-allocation", "+cluster+importance", "HCSFed")],
    ),
    figure_7(
        "b.d", "After convergence HCSFed is more accurate than SCAFFOLD.", "difference of a level", END,
        [versus("HCSFed - SCAFFOLD", arm("HCSFed"), arm("SCAFFOLD"), **ON_MNIST)],
    ),
]  # fmt: skip

CLAIMS = (*IN_TABLE_1, *IN_FIGURES_1_AND_2, *IN_FIGURE_3, *IN_FIGURES_4_TO_6, *IN_FIGURE_7)
