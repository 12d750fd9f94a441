"""The claims of HCSFed (Song et al., UAI 2023).

They ask for "HCSFed", "+cluster", "H = 5", "compressed" ...: which runs answer, with which compression, alpha,
accuracy and rule for absent clients, is what a reading says (`readings.py`). Bounds without a printed number are
chosen before looking, and stand in `margin`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import inf

import numpy as np
import pandas as pd

from fedlib.samplers.hcsfed import allocate, deviations, kmeans
from workspace.analysis.arrivals import Censored
from workspace.analysis.claim import (
    FACT,
    PRINT,
    ROUNDS,
    SAME,
    TREND,
    Arm,
    Cell,
    Labels,
    Measurement,
    Rounds,
    versus,
)
from workspace.analysis.estimators import trend
from workspace.analysis.readings import Where
from workspace.papers.hcsfed.claims_parts import IN_FIGURE_7, IN_FIGURES_4_TO_6, ON_MNIST, claim
from workspace.papers.hcsfed.printed import BASELINES, COLUMNS, FRACTIONS, PLAIN, TABLE_1, rounds
from workspace.papers.hcsfed.theory import SCHEMES, random_population, variances

DATA = {"MNIST": "MNIST", "FMNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10"}

# -- Table 1

TO_80, TO_60 = Rounds(0.8, T=200), Rounds(0.6)
Place = tuple[str, str]  # experiment and setting


def labels(column: str) -> Labels:
    """What a column's name says: "FMNIST, q = 10 %"."""
    data, q = column.split(", ")
    return {"data": DATA[data], "partition": "Dirichlet", "participation": q}


def printed_text(*printed: float) -> str:
    return " and ".join("200+" if t == inf else f"{t:g}" for t in printed) + " rounds"


def pairs(slow: str, fast: str) -> list[Cell]:
    """One method against another, in every column in which the paper prints a difference."""
    cells = []
    for column in COLUMNS:
        printed = rounds(slow, column), rounds(fast, column)
        if printed[0] > printed[1]:
            a, b = (Where(TABLE_1, column, method) for method in (slow, fast))
            name = f"{column}, {slow} over {fast}"
            cells.append(versus(name, a, b, printed, shown=printed_text(*printed), **labels(column)))
    return cells


def about_equal(name: str, a: Where, b: Where) -> Cell:
    """Two columns or methods of Table 1 of which the paper prints about the same."""
    printed = rounds(a.method, a.setting), rounds(b.method, b.setting)
    return versus(name, a, b, printed, shown=printed_text(*printed), **labels(a.setting))


def gaining(name: str, data: str, places: list[Place], levels: list[float], q: str, shown: str = "") -> Cell:
    """The speed-up over Random along an order of settings: log speed-up gained over all of it; shown: if printed."""
    arms = tuple(
        Arm(Where(*place, method), sign * float(weight), rounds(method, place[1]) if shown else None)
        for place, weight in zip(places, trend(levels), strict=True)
        for method, sign in (("Random", 1), ("HCSFed", -1))
    )
    return Cell(name, arms, data, "Dirichlet", q, shown)


def printed_rounds(method: str, column: str) -> Cell:
    arm = Arm(Where(TABLE_1, column, method), printed=rounds(method, column))
    return Cell(f"{column}, {method}", (arm,), shown=printed_text(rounds(method, column)), **labels(column))


def sent_until(rows: pd.DataFrame, column: str) -> float:
    """Parameters sent, down and up, until an accuracy first reaches 80 % in 200 rounds; else in all of these."""
    rows = rows[rows["round"].between(1, TO_80.T)]
    reached = rows.loc[rows[column] >= TO_80.target, "round"]
    end = TO_80.T if reached.empty else reached.min()
    sent = float(rows.loc[rows["round"] <= end, ["parameters_down", "parameters_up"]].to_numpy().sum())
    return Censored(sent) if reached.empty else sent


TO_SEND = Measurement("method", sent_until, "times", log=True, of_column=True)
BY_FRACTION = [(TABLE_1, f"MNIST, q = {q}") for q in FRACTIONS]
IN_TABLE_1 = [
    claim("T1.a", "HCSFed needs fewer rounds to 80 % than every other method, in all columns (where a tie is printed: "
          "T1.f).", "core", TO_80, [cell for slower in BASELINES for cell in pairs(slower, "HCSFed")], ROUNDS),
    claim("T1.b", "HCSFed needs fewer rounds to 80 % than Random, in all columns (printed: 10.7 to 2.1 times).", "core",
          TO_80, pairs("Random", "HCSFed"), ROUNDS),
    claim("T1.d", "The fewer clients take part, the larger HCSFed's speed-up.", "core", TO_80,
          [gaining("MNIST", "MNIST", BY_FRACTION, [1, 0.5, 0], "q = 10 to 50 %", "10.7, 5.2 and 3.5 times")], TREND),
    claim("T1.e", "HCSFed hardly depends on q: it needs about as many rounds at q = 10 % as at 50 %.", "supporting",
          TO_80, [about_equal(data, *(Where(TABLE_1, f"{data}, q = {q}", "HCSFed") for q in ("10 %", "50 %")))
                  for data in ("MNIST", "FMNIST")], SAME, 1.5),
    claim("T1.f", "At q = 50 % Cluster needs as many rounds as HCSFed.", "supporting", TO_80,
          [about_equal(c, Where(TABLE_1, c, "Cluster"), Where(TABLE_1, c, "HCSFed")) for c in COLUMNS if "50 %" in c],
          SAME, 1.5),
    claim("T1.g", "Random needs more rounds than SCAFFOLD, and SCAFFOLD more than Cluster, in all columns.",
          "supporting", TO_80, pairs("Random", "SCAFFOLD") + pairs("SCAFFOLD", "Cluster"), ROUNDS),
    claim("T1.h", "Random needs more rounds than Importance, and Importance more than Cluster, in all columns.",
          "supporting", TO_80, pairs("Random", "Importance") + pairs("Importance", "Cluster"), ROUNDS),
    claim("T1.i", "On Fashion-MNIST Random reaches 80 % in round 158 at q = 50 %, and not in 200 rounds at 10 and "
          "30 %.", "supporting", TO_80, [printed_rounds("Random", c) for c in COLUMNS[3:]], PRINT, 1.5),
    claim("T1.j", "Each of the 30 printed numbers of rounds comes out.", "supporting", TO_80,
          [printed_rounds(method, c) for method in (*BASELINES, "HCSFed") for c in COLUMNS], PRINT, 1.5),
    claim("C.a", "HCSFed is communication-efficient: until 80 % it sends less than Random, in all columns (parameters "
          "down and up; all clients train in every round).", "core", TO_SEND,
          [versus(f"{c}, Random over HCSFed", Where(TABLE_1, c, "Random"), Where(TABLE_1, c, "HCSFed"), **labels(c))
           for c in COLUMNS], page="table_1"),
    claim("T1.l", "If absent clients keep the old model, random selection needs more rounds to 80 % than under the "
          "plain mean.", "control", TO_80,
          [versus(c, Where(TABLE_1, c, "Random, attrition"), Where(TABLE_1, c, PLAIN), **labels(c)) for c in COLUMNS],
          ROUNDS),
]  # fmt: skip

# -- Figures 1 and 2, and Theorem 1


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


def falls(scheme: str, wider: str) -> Callable[[object], bool]:
    """Whether one selection scheme varies no more than another, in 300 random populations (`theory.variances`)."""

    def in_all(results: object) -> bool:
        rng = np.random.default_rng(0)
        samples = [variances(random_population(rng), 10) for _ in range(300)]
        return all(V[scheme] <= V[wider] for V in samples)

    return in_all


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


COMPRESSED, RAW = (Where("hcsfed_updates", "alpha = 0.01", features) for features in ("compressed", "raw"))
TIGHTER = versus("MNIST", COMPRESSED, RAW, **ON_MNIST)
IN_FIGURES_1_AND_2 = [
    claim("F1.a", "The cluster with the largest N_h sigma_h receives the most places.", "construction", None,
          [Cell("schematic", fact=most_places)], FACT),
    claim("F1.b", "Clusters vary less than random selection, re-allocation less than clusters, HCSFed least (Theorem "
          "1: unbiased weights, places as real numbers, standard deviations and norms of the updates themselves).",
          "construction", None,
          [Cell(f"{scheme} and {wider}", fact=falls(scheme, wider)) for wider, scheme in pairwise(SCHEMES)], FACT),
    claim("F2.a", "Clusters of compressed updates agree better with the labels (adjusted Rand index) than clusters of "
          "raw ones.", "core", Measurement("features", agreement), [TIGHTER]),
    claim("F2.c", "Clusters of compressed updates are tighter (silhouette) than clusters of raw ones.", "core",
          Measurement("features", silhouette), [TIGHTER]),
    claim("F2.b", "Spread differs between clusters: the largest deviation is more than twice the median (effect: ratio "
          "over 2).", "supporting", Measurement("features", unevenness, "times", log=True),
          [Cell("MNIST", (Arm(COMPRESSED),), **ON_MNIST)]),
]  # fmt: skip

# -- Figure 3, and how the speed-up depends on heterogeneity

FIGURE_3 = [
    ("hcsfed_rounds" if data == "MNIST" else "hcsfed_rounds_cnn", f"{data}, alpha = {alpha}")
    for data in DATA
    for alpha in ("0.01", "0.001")
]
OTHERS = (*BASELINES, "IFCA")


def labels_of(setting: str) -> Labels:
    data, alpha = setting.split(", alpha = ")
    return {"data": DATA[data], "partition": f"Dirichlet {alpha}", "participation": "q = 10 %"}


BY_ALPHA = [(TABLE_1, f"MNIST, q = 10 %, alpha = {alpha}") for alpha in ("0.1", "0.01", "0.001")]
IN_FIGURE_3 = [
    claim("F3.a", "HCSFed needs fewer rounds to 60 % than every other method, on all data sets.", "core", TO_60,
          [versus(f"{place[1]}, {slower}", Where(*place, slower), Where(*place, "HCSFed"), **labels_of(place[1]))
           for place in FIGURE_3 for slower in OTHERS], ROUNDS),
    claim("F3.b", "The more heterogeneous the data, the larger HCSFed's speed-up over Random (rounds to 60 %).", "core",
          TO_60, [gaining(data, DATA[data], FIGURE_3[2 * k : 2 * k + 2], [0, 1], "q = 10 %")
                  for k, data in enumerate(DATA)], TREND),
    claim("T1.k", "The more heterogeneous the data, the larger HCSFed's speed-up over Random (logistic regression, "
          "80 %).", "core", TO_80, [gaining("MNIST", "MNIST", BY_ALPHA, [0, 0.5, 1], "q = 10 %")], TREND),
]  # fmt: skip

CLAIMS = (*IN_TABLE_1, *IN_FIGURES_1_AND_2, *IN_FIGURE_3, *IN_FIGURES_4_TO_6, *IN_FIGURE_7)
