"""HCSFed's printed numbers as laws, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`).

The paper prints no spread: seeds spread as in the archived runs of Table 1 (the median over its cells).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import Law, around, arriving, table
from fedlib.papers.hcsfed.printed import ABLATION, COLUMNS, GCS, PRINTED, TABLE_1, hcsfed

SEEDS, T = 5, 200
SPREAD = 0.22  # standard deviation over seeds of the rounds, of their mean
FINALS = {"FedAvg": (0.81, 0.025), "HCSFed": (0.91, 0.005)}  # Figure 7's ends; over seeds our own deviation


def names(method: str) -> list[str]:
    """The methods of ours that read one of the paper's: both GC, and Random under both aggregation rules."""
    if method == "HCSFed":
        return [hcsfed(gc) for gc in GCS]
    return ["Random", "Random, attrition"] if method == "Random" else [method]


def rounds(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 1."""
    cells = {}
    for method, printed in PRINTED.items():
        for column, number in zip(COLUMNS, printed, strict=True):
            seeds = np.full(SEEDS, np.inf) if number > T else around(rng, number, SPREAD, SEEDS)
            cells |= {(column, name): seeds for name in names(method)}
    return {TABLE_1: arriving(TABLE_1, cells, dict.fromkeys(COLUMNS, 0.8), T)}


def ablation(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Figure 7: accuracies at both ends as printed; rounds to 80 % from Table 1's 96 and the printed speed-ups."""
    speed = {"+cluster (GC-A)": 2.6, "+importance": 2.1, "FedAvg": 1.0}
    runs = []
    for method in speed | {"HCSFed": 10.7}:
        needed = around(rng, PRINTED["Random"][0] / (speed | {"HCSFed": 10.7})[method], SPREAD, SEEDS)
        end, spread = FINALS.get(method, FINALS["HCSFed"])
        for seed, arrival in enumerate(needed):
            last = end + spread * rng.standard_normal()
            at = {0: 0.1, int(arrival): 0.8, T - 5: last, T: last}
            both = {"+cluster (GC-A)": "+cluster (GC-B)", "FedAvg": "FedAvg, attrition"}
            mine = names(method) if method == "HCSFed" else [method, *filter(None, [both.get(method)])]
            runs += [
                (ABLATION[1], one, seed, {t: {"test_accuracy": value} for t, value in at.items()})
                for one in mine
            ]
    return {ABLATION[0]: table(ABLATION[0], runs)}


NO_LAW = dict.fromkeys(
    ("hcsfed.F3.b", "hcsfed.F4b.a"), "the numbers are settings: nothing is printed of the outcome"
) | {"hcsfed.T1.j": "informative: how much of what is printed is reproduced"}

LAWS = [
    Law(
        "Table 1: rounds of five seeds, log-normal around the printed number, spread as archived runs (22 %); "
        "200+ never arrives",
        tuple(f"hcsfed.T1.{part}" for part in "abcdefghi"),
        rounds,
    ),
    Law(
        "Figure 7: ends and speed-ups of five seeds around the printed ones, spread as archived runs",
        ("hcsfed.F7a.a", "hcsfed.F7a.b", "hcsfed.F7a.c", "hcsfed.F7b.a", "hcsfed.F7b.b"),
        ablation,
    ),
]
