"""Laws from FedCor's printed numbers, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import BEFORE, LAW, Law, arriving, normal, table
from fedlib.papers.fedcor.printed import (
    ANNEALING,
    BETAS,
    EXPERIMENTS,
    PANELS,
    PRINTED,
    T,
)

SEEDS = 5
# Standard deviation over seeds of the difference between two arms, in points, from archived runs.
BETA_SPREAD = {"final": 1.55, "mean": 1.4}


def rounds(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 1: normal rounds; a method printed as N/A never arrives."""
    tables = {}
    for data, experiment in EXPERIMENTS.items():
        cells = {
            (panel.setting, method): np.full(SEEDS, np.inf)
            if printed is None
            else normal(rng, *printed, SEEDS)
            for place, panel in PANELS.items()
            if place.startswith(data)
            for method, printed in PRINTED[place].items()
        }
        targets = {panel.setting: panel.target for panel in PANELS.values() if panel.experiment == experiment}
        tables[experiment] = arriving(experiment, cells, targets, T[data])
    return tables


def alike(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Figure 6: accuracies of arms that do not differ, in a run of 20 rounds, of which the last is the end."""
    mean, final = BETA_SPREAD["mean"], np.sqrt(BETA_SPREAD["final"] ** 2 - BETA_SPREAD["mean"] ** 2)
    tables = {}
    for data, experiment in ANNEALING.items():
        names = [
            ("2SPC", method, seed, t) for method in BETAS[data] for seed in range(SEEDS) for t in range(21)
        ]
        off, end = (
            rng.standard_normal((2, len(BETAS[data]) * SEEDS, 1)) * [[[mean]], [[final]]] / np.sqrt(2) / 100
        )
        accuracy = 0.6 + off + end * (np.arange(21) == 20)
        frame = pd.DataFrame(names, columns=["setting", "method", "seed", "round"])
        tables[experiment] = frame.assign(
            test_accuracy=accuracy.ravel(), experiment=experiment, diverged=False
        )
    return tables


def centralised(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Section 5.1: best accuracies of five seeds around the printed ones, 0.15 points apart like ours."""
    printed = {"FMNIST": 0.8592, "CIFAR-10": 0.7384}
    runs = [
        (data, "Centralised", seed, {t: {"test_accuracy": best} for t in (0, 100)})
        for data, mean in printed.items()
        for seed, best in enumerate(mean + 0.0015 * rng.standard_normal(SEEDS))
    ]
    return {"fedcor_centralised": table("fedcor_centralised", runs)}


NO_LAW = dict.fromkeys(("fedcor.F4.a", "fedcor.F4.b", "fedcor.F4.d"), "curves are not printed as numbers") | {
    "fedcor.F3.a": "the printed numbers are the rule's own bounds",
    "fedcor.T1.c": "informative: how much of what is printed is reproduced",
    "fedcor.T1.d": "informative: the p-values",
}

LAWS = [
    Law(
        "Table 1: rounds of five seeds, normal with the printed mean and standard deviation; N/A never arrives",
        {"fedcor.T1.a": LAW, "fedcor.T1.b": LAW},
        rounds,
    ),
    Law(
        "No difference between the arms; five seeds, whose pairs differ as archived ones ({final} points at the end, "
        "{mean} in the mean)".format(**BETA_SPREAD),
        {"fedcor.F6.b": BEFORE},
        alike,
        draws=50,
    ),
    Law(
        "Section 5.1: five seeds around the printed accuracies, 0.15 points apart as ours",
        {"fedcor.S5.a": BEFORE},
        centralised,
        draws=50,
    ),
]
