"""The multiverse's curves: a mean over seeds of what was measured."""

from __future__ import annotations

from math import nan

import pandas as pd

from workspace.analysis.readings import Where
from workspace.pages.multiverse import Curves


def test_a_curve_is_the_mean_over_seeds_in_percent_and_what_was_not_measured_has_none() -> None:
    rows = [
        {
            "setting": "s",
            "method": "A",
            "seed": seed,
            "round": t,
            "test_accuracy": 0.1 * t + 0.02 * seed,
            "train_loss": nan,
        }
        for seed in (0, 1)
        for t in range(3)
    ]
    curves = Curves({"e": pd.DataFrame(rows)})
    assert curves.place(Where("e", "s", "A")) == curves.place(Where("e", "s", "A")) == 0
    (curve,) = curves.known
    assert curve["x"] == [0, 1, 2]
    assert curve["y"][1] == 11.0, "the running mean of 1, 11 and 21 percent"
    for other in (Where("e", "s", "A", "train_loss"), Where("e", "s", "B"), Where("other", "s", "A")):
        assert curves.place(other) is None
    assert len(curves.known) == 1
