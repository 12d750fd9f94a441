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

from fedlib.analysis.claim import (
    FACT,
    LEVEL,
    PRINT,
    ROUNDS,
    SAME,
    TREND,
    Arm,
    Cell,
    Claim,
    Kind,
    Labels,
    Measurement,
    Rounds,
    versus,
)
from fedlib.analysis.estimators import trend
from fedlib.analysis.readings import Where
from fedlib.papers.hcsfed.claims_parts import IN_FIGURE_7, IN_FIGURES_4_TO_6, ON_MNIST
from fedlib.papers.hcsfed.printed import BASELINES, COLUMNS, FRACTIONS, PLAIN, TABLE_1, rounds
from fedlib.papers.hcsfed.theory import SCHEMES, random_population, variances
from fedlib.samplers.hcsfed import allocate, deviations, kmeans

DATA = {"MNIST": "MNIST", "FMNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10"}

# -- Table 1

TO_80 = Rounds(0.8, T=200)


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


def about_equal(name: str, column: str, a: tuple[str, str], b: tuple[str, str]) -> Cell:
    """Two (column, method) of Table 1 of which the paper prints about the same."""
    printed = rounds(a[1], a[0]), rounds(b[1], b[0])
    return versus(
        name, Where(TABLE_1, *a), Where(TABLE_1, *b), printed, shown=printed_text(*printed), **labels(column)
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
    return Cell(f"{column}, {method}", (arm,), shown=printed_text(rounds(method, column)), **labels(column))


IN_TABLE_1 = [
    table_1(
        "a",
        "HCSFed needs fewer rounds to 80 % than every other method, in all columns (where a tie is printed: T1.f).",
        "core",
        ROUNDS,
        [cell for slower in BASELINES for cell in pairs(slower, "HCSFed")],
    ),
    table_1(
        "b",
        "HCSFed needs fewer rounds to 80 % than Random, in all columns.",
        "core",
        ROUNDS,
        pairs("Random", "HCSFed"),
    ),
    table_1(
        "c",
        "HCSFed's speed-up over Random is as large as printed: 10.7 to 2.1 times.",
        "core",
        ROUNDS,
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
            about_equal(
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
        [about_equal(c, c, (c, "Cluster"), (c, "HCSFed")) for c in COLUMNS if c.endswith("50 %")],
        1.5,
    ),
    table_1(
        "g",
        "Random needs more rounds than SCAFFOLD, and SCAFFOLD more than Cluster, in all columns.",
        "supporting",
        ROUNDS,
        pairs("Random", "SCAFFOLD") + pairs("SCAFFOLD", "Cluster"),
    ),
    table_1(
        "h",
        "Random needs more rounds than Importance, and Importance more than Cluster, in all columns.",
        "supporting",
        ROUNDS,
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

ATTRITION = Claim(
    "hcsfed.T1.l",
    "hcsfed/table_1",
    "If absent clients keep the old model, random selection needs more rounds to 80 % than under the plain mean.",
    "control",
    ROUNDS,
    TO_80,
    tuple(
        versus(
            column,
            Where(TABLE_1, column, "Random, attrition"),
            Where(TABLE_1, column, PLAIN),
            **labels(column),
        )
        for column in COLUMNS
    ),
)

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


UPDATES = ("hcsfed_updates", "alpha = 0.01")


def clusters(letter: str, text: str, kind: Kind, measure: Measurement, raw: bool) -> Claim:
    compressed, uncompressed = (Where(*UPDATES, features) for features in ("compressed", "raw"))
    cell = (
        versus("MNIST", compressed, uncompressed, **ON_MNIST)
        if raw
        else Cell("MNIST", (Arm(compressed),), **ON_MNIST)
    )
    return Claim(f"hcsfed.F2.{letter}", "hcsfed/figure_2", text, kind, LEVEL, measure, (cell,))


IN_FIGURES_1_AND_2 = [
    Claim(
        "hcsfed.F1.a",
        "hcsfed/figure_1",
        "The cluster with the largest N_h sigma_h receives the most places.",
        "construction",
        FACT,
        None,
        (Cell("schematic", fact=most_places),),
    ),
    Claim(
        "hcsfed.F1.b",
        "hcsfed/figure_1",
        "Clusters vary less than random selection, re-allocation less than clusters, HCSFed least (Theorem 1: unbiased "
        "weights, places as real numbers, standard deviations and norms of the updates themselves).",
        "construction",
        FACT,
        None,
        tuple(
            Cell(f"{scheme} and {wider}", fact=falls(scheme, wider)) for wider, scheme in pairwise(SCHEMES)
        ),
    ),
    clusters(
        "a",
        "Clusters of compressed updates agree better with the labels (adjusted Rand index) than clusters of raw ones.",
        "core",
        Measurement("features", agreement),
        True,
    ),
    clusters(
        "c",
        "Clusters of compressed updates are tighter (silhouette) than clusters of raw ones.",
        "core",
        Measurement("features", silhouette),
        True,
    ),
    clusters(
        "b",
        "Spread differs between clusters: the largest deviation is more than twice the median (effect: ratio over 2).",
        "supporting",
        Measurement("features", unevenness, "times", log=True),
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


def labels_of(setting: str) -> Labels:
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
        ROUNDS,
        Rounds(0.6),
        tuple(
            versus(f"{place[1]}, {slower}", Where(*place, slower), Where(*place, "HCSFed"), **labels_of(place[1]))
            for place in FIGURE_3
            for slower in OTHERS
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

CLAIMS = (*IN_TABLE_1, ATTRITION, *IN_FIGURES_1_AND_2, *IN_FIGURE_3, *IN_FIGURES_4_TO_6, *IN_FIGURE_7)
