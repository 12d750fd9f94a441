"""Laws from HCSFed's printed numbers, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`).

The paper prints no spread: rounds scatter as `fairness.SPREAD` says, accuracies as our archived runs of Figure 7.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import BEFORE, LAW, PAPER, Law, around, arriving, table
from fedlib.papers.hcsfed.printed import ABLATION, COLUMNS, GCS, PRINTED, TABLE_1, hcsfed

SEEDS, T = 5, 200
FINALS = {
    "FedAvg": (0.81, 0.025),
    "HCSFed": (0.91, 0.005),
}  # Figure 7's final values; our deviation over seeds


def names(method: str) -> list[str]:
    """Our methods for one of the paper's: both GC, and Random under both aggregation rules."""
    if method == "HCSFed":
        return [hcsfed(gc) for gc in GCS]
    return ["Random", "Random, attrition"] if method == "Random" else [method]


def rounds(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 1."""
    cells = {}
    for method, printed in PRINTED.items():
        for column, number in zip(COLUMNS, printed, strict=True):
            seeds = np.full(SEEDS, np.inf) if number > T else around(rng, number, SEEDS)
            cells |= {(column, name): seeds for name in names(method)}
    return {TABLE_1: arriving(TABLE_1, cells, dict.fromkeys(COLUMNS, 0.8), T)}


def ablation(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Figure 7: first and last accuracies as printed; rounds to 80 % from Table 1's 96 and the printed speed-ups."""
    speed = {"+cluster (GC-A)": 2.6, "+importance": 2.1, "FedAvg": 1.0}
    runs = []
    for method in speed | {"HCSFed": 10.7}:
        needed = around(rng, PRINTED["Random"][0] / (speed | {"HCSFed": 10.7})[method], SEEDS)
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
        "Table 1: rounds of five seeds, log-normal around the printed number by 22 %; 200+ never arrives",
        {f"hcsfed.T1.{part}": LAW for part in "aefgh"}
        | {"hcsfed.T1.b": PAPER, "hcsfed.T1.c": BEFORE, "hcsfed.T1.d": PAPER, "hcsfed.T1.i": PAPER},
        rounds,
    ),
    Law(
        "Figure 7: speed-ups of five seeds, log-normal around the printed ones by 22 %; accuracies at the end around "
        "the printed ones, spread as archived runs",
        {f"hcsfed.F7{part}": BEFORE for part in ("a.a", "a.b", "a.c", "b.a")} | {"hcsfed.F7b.b": PAPER},
        ablation,
        draws=50,
    ),
]
