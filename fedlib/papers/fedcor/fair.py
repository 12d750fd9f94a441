"""FedCor's printed numbers as laws, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import Law, arriving, normal, table
from fedlib.papers.fedcor.printed import (
    ANNEALING,
    BETAS,
    EXPERIMENTS,
    INTERVAL,
    INTERVALS,
    PANELS,
    PRINTED,
    SETTINGS,
    T,
)

SEEDS = 5
# Standard deviation over seeds, in points, of what two arms differ by, as in archived runs (the middle setting's).
INTERVAL_SPREAD = {"final": 2.45, "mean": 1.85}
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


def alike(
    rng: np.random.Generator,
    arms: list[str],
    settings: list[str],
    experiment: str,
    spread: Mapping[str, float],
) -> pd.DataFrame:
    """Accuracies of arms that do not differ, 8 points above Random's as in archived runs: a run of 40 rounds."""
    mean, final = spread["mean"], np.sqrt(max(spread["final"] ** 2 - spread["mean"] ** 2, 0))
    runs = []
    for setting in settings:
        for method in ("Random", *arms):
            level = 0.55 if method == "Random" else 0.63
            for seed in range(SEEDS):
                off, end = rng.standard_normal(2) * (mean, final) / np.sqrt(2) / 100
                at = {t: {"test_accuracy": level + off} for t in range(39)}
                at |= {t: {"test_accuracy": level + off + end} for t in (39, 40)}
                runs.append((setting, method, seed, at))
    return table(experiment, runs)


def centralised(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Section 5.1: best accuracies of five seeds, 0.15 points apart as ours, around the printed ones."""
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

_ALIKE = (
    "No difference between the arms; five seeds, whose pairs differ as archived ones ({final} points at the end, "
    "{mean} in the mean)"
)

LAWS = [
    Law(
        "Table 1: rounds of five seeds, normal with the printed mean and standard deviation; N/A never arrives",
        ("fedcor.T1.a", "fedcor.T1.b"),
        rounds,
    ),
    Law(
        _ALIKE.format(**INTERVAL_SPREAD),
        ("fedcor.F5.a",),
        lambda rng: {e: alike(rng, INTERVALS[:2], SETTINGS, e, INTERVAL_SPREAD) for e in INTERVAL.values()},
    ),
    Law(
        _ALIKE.format(**BETA_SPREAD),
        ("fedcor.F6.b",),
        lambda rng: {e: alike(rng, BETAS[data], ["2SPC"], e, BETA_SPREAD) for data, e in ANNEALING.items()},
    ),
    Law(
        "Section 5.1: five seeds around the printed accuracies, 0.15 points apart as ours",
        ("fedcor.S5.a",),
        centralised,
    ),
]
