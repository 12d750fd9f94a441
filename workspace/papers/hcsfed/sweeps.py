"""Figures 4 to 6: H and R varied."""

from __future__ import annotations

import pandas as pd

from fedlib.measure import best, per_run, rounds_to_best
from workspace.papers.hcsfed.printed import GCS, hcsfed

HS = range(5, 11)
RATES = ("5 %", "10 %", "20 %", "40 %", "100 %")


def sweep(gc: str, letter: str) -> dict[str, str]:
    """Value of H or R -> method, for one reading (R = 100 % is the same in both)."""
    if letter == "H":
        return {str(H): f"{gc}, H = {H}" for H in HS}
    return {R: "R = 100 %" if R == "100 %" else f"{gc}, R = {R}" for R in RATES}


SWEEPS = {
    name: {hcsfed(gc): sweep(gc, letter) for gc in GCS}
    for letter, name in {"H": "clusters H (count)", "R": "compression rate R"}.items()
}


def swept(results: pd.DataFrame) -> dict[str, pd.Series]:
    """Figures 4 to 6 at Dir(0.01) by (method, seed): best accuracy (%), rounds to it and to 95 % of it."""
    rows = results[results["setting"] == "alpha = 0.01"]
    return {
        name: values.droplevel("setting")
        for name, values in {
            "best test accuracy (%)": 100 * per_run(rows, "test_accuracy", best),
            "rounds to the best accuracy": per_run(rows, "test_accuracy", rounds_to_best),
            "rounds to 95 % of the best": per_run(rows, "test_accuracy", rounds_to_best, share=0.95),
        }.items()
    }
