"""Effects against a base in each world, recomputed by a plain loop."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.analysis.worlds import against, grid, mean_of


def made() -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), []
    for setting, lift in (("calm", 0.1), ("rough", -0.1)):
        for seed in range(5):
            level = rng.normal(0.5, 0.2)
            for method in ("Random", "Other", "Same"):
                for t in range(11):
                    value = level + (lift if method == "Other" else 0) + rng.normal(0, 0.01)
                    measured = value if t % 5 == 0 else np.nan
                    rows.append((setting, method, seed, t, measured))
    return pd.DataFrame(rows, columns=["setting", "method", "seed", "round", "test_accuracy"])


def test_differences_are_paired_over_seeds() -> None:
    table = made()
    found = against(table, "Random", mean_of("test_accuracy"), unit=100).set_index(["setting", "method"])
    assert found["in words"].unstack().to_dict("index") == {
        "calm": {"Other": "above", "Same": "undecided"},
        "rough": {"Other": "below", "Same": "undecided"},
    }
    differences = []
    for seed in range(5):
        level = {}
        for method in ("Other", "Random"):
            of = table[(table["setting"] == "calm") & (table["seed"] == seed) & (table["method"] == method)]
            level[method] = of["test_accuracy"].iloc[[5, 10]].mean()
        differences.append(100 * (level["Other"] - level["Random"]))
    row = found.loc["calm", "Other"]
    assert row["difference"] == pytest.approx(np.mean(differences))
    half = stats.t.ppf(0.975, 4) * np.std(differences, ddof=1) / np.sqrt(5)
    assert (row["low"], row["high"]) == pytest.approx(
        (np.mean(differences) - half, np.mean(differences) + half)
    )
    assert row["seeds"] == 5
    shown = grid(found.reset_index())
    assert shown.index.tolist() == ["Other", "Same"]
    assert (
        shown.loc["Other", "calm"]
        == f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}] above"
    )


def test_the_last_rounds_alone() -> None:
    run = made().query("setting == 'calm' and seed == 0 and method == 'Random'")
    assert mean_of("test_accuracy", last=0.5)(run) == run["test_accuracy"].iloc[10]
