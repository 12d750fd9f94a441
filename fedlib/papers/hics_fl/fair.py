"""HiCS-FL's printed numbers as laws, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`).

The paper prints no spread. That of Table 1 is assumed: 25 %, about that of the archived runs; the law says so.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import Law, around, arriving, table
from fedlib.papers.hics_fl.claims_estimates import exponential
from fedlib.papers.hics_fl.printed import CAP, CLUSTERS, ENVELOPES, PRINTED, PRINTED_CLUSTERS, TABLE

SEEDS = {"FMNIST": 5, "CIFAR-10": 3, "CIFAR-100": 3, "Mini-ImageNet": 3}
SPREAD = 0.25  # standard deviation over seeds of the rounds, of their mean
FINAL = 1.0  # points, over seeds


def rounds(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 1, and the slides'."""
    tables = {}
    for data, panel in TABLE.items():
        cells = {
            (panel.setting, method): around(rng, number, SPREAD, SEEDS[data])
            for method, number in PRINTED[data].items()
        }
        tables[panel.experiment] = arriving(panel.experiment, cells, {panel.setting: panel.target}, CAP)
    return tables


def clusters(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 3 of the conference version, on CIFAR-10."""
    name, runs = "hics_cifar10_clusters", []
    for setting in ("(1)", "(2)", "(3)"):
        for method, final in zip(CLUSTERS, PRINTED_CLUSTERS[name, setting], strict=True):
            for seed in range(3):
                value = {"test_accuracy": (final + FINAL * rng.standard_normal()) / 100}
                runs.append((setting, method, seed, {0: value, 500: value}))
    return {name: table(name, runs)}


def gradients(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Figure 6: 250 clients between the printed curves, of which 2.5 % lie above and 2.5 % below."""
    rows, top = [], np.log(10)
    for data, curves in ENVELOPES.items():
        H = rng.uniform(0, top, 250)
        upper, lower = (exponential(*curves[side], top, H) for side in ("upper", "lower"))
        y = lower + (upper - lower) * ((rng.uniform(0, 1, 250) - 0.025) / 0.95)
        rows.append(pd.DataFrame({"client": np.arange(250), "entropy": H, "difference": y, "data": data}))
    return {"hics_assumption": pd.concat(rows).assign(seed=0, setting="", method="")}


NO_LAW = dict.fromkeys(
    (*(f"hics.F2.{part}" for part in "abc"), "hics.F3.a", "hics.F3.b", "hics.F5.a", "hics.F14.a", "hics.H.a"),
    "the numbers are settings, or panels of curves that are not printed as numbers",
) | {"hics.T1.c": "informative: how much of what is printed is reproduced"}

LAWS = [
    Law(
        "Table 1: rounds of our seeds, log-normal around the printed number, with a spread of 25 % (assumed: none is "
        "printed)",
        ("hics.T1.a", "hics.T1.b", "hics.T1.d", "hics.T1.e"),
        rounds,
    ),
    Law(
        "Table N.3: final accuracies of three seeds, normal around the printed one, 1 point apart",
        ("hics.N.M",),
        clusters,
    ),
    Law(
        "Figure 6: 250 clients between the printed curves, 2.5 % of them beyond either",
        ("hics.F6.a", "hics.F6.b"),
        gradients,
        draws=20,
    ),
]
