"""Laws from HiCS-FL's printed numbers, by which its rules are tested for fairness (`fedlib/analysis/fairness.py`).

The paper prints no spread: rounds scatter as `fairness.SPREAD` says.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.fairness import BEFORE, LAW, PAPER, Law, around, arriving
from fedlib.papers.hics_fl.estimates import exponential
from fedlib.papers.hics_fl.printed import CAP, ENVELOPES, PRINTED, TABLE

SEEDS = {"FMNIST": 5, "CIFAR-10": 3, "CIFAR-100": 3, "Mini-ImageNet": 3}


def rounds(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """Table 1 and the slides' table."""
    tables = {}
    for data, panel in TABLE.items():
        cells = {
            (panel.setting, method): around(rng, number, SEEDS[data])
            for method, number in PRINTED[data].items()
        }
        tables[panel.experiment] = arriving(panel.experiment, cells, {panel.setting: panel.target}, CAP)
    return tables


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
) | {
    "hics.T1.c": "informative: how much of what is printed is reproduced",
    "hics.N.M": "informative: of final accuracies without a printed spread nothing says how far apart seeds may be",
}

LAWS = [
    Law(
        "Table 1: rounds of our seeds, log-normal around the printed number by 22 %",
        {"hics.T1.a": PAPER, "hics.T1.b": BEFORE, "hics.T1.d": BEFORE, "hics.T1.e": LAW},
        rounds,
    ),
    Law(
        "Figure 6: 250 clients between the printed curves, 2.5 % of them beyond either",
        {"hics.F6.a": LAW, "hics.F6.b": BEFORE},
        gradients,
        draws=20,
    ),
]
