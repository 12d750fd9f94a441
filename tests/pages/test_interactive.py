"""The data of an interactive figure are the curves that its picture shows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.drawing import plots
from workspace.figures import interactive, studies


def results() -> pd.DataFrame:
    rounds = np.arange(10)
    rows = [
        {"setting": "s", "method": method, "seed": seed, "round": t, "test_accuracy": 0.1 * seed + 0.05 * t}
        for method in ("MD", "Random")
        for seed in (0, 1)
        for t in rounds
    ]
    return pd.DataFrame(rows).assign(diverged=False)


def test_curves_bands_seeds_and_levels_are_those_of_the_picture():
    found = interactive.panels(plots.curves(results(), "test_accuracy", target=0.3))
    json.dumps(found, allow_nan=False)
    (panel,) = found["panels"]
    md, random, target = panel["lines"]
    assert (md["name"], random["name"], target["name"]) == ("MD", "Random", "target")
    np.testing.assert_allclose(md["y"], 100 * (0.05 + 0.05 * np.arange(10)), rtol=1e-4)
    np.testing.assert_allclose(md["seeds"][1], 100 * (0.1 + 0.05 * np.arange(10)), rtol=1e-4)
    assert target["across"]
    assert not target["listed"]
    assert not md["across"]
    assert [band["name"] for band in panel["bands"]] == ["MD", "Random"]
    assert found["xs"][md["x"]] == list(range(10))
    assert md["x"] == random["x"] != target["x"], "lines of the same rounds share their x"
    outline = found["xs"][panel["bands"][0]["x"]]
    assert len(outline) == len(panel["bands"][0]["y"])
    assert set(outline) == set(range(10))


def test_a_figure_of_something_else_has_no_curves():
    figure = Figure()
    figure.add_subplot().bar([0, 1], [2, 3])
    assert interactive.panels(figure) is None
    assert interactive.panels(Figure()) is None


def test_points_that_no_line_joins_stay_points():
    """True and estimated entropies of clients (HiCS-FL, Figure 9): a line between clients would mean nothing."""
    true, estimated = np.arange(12) / 6, np.ones(12)
    shown = interactive.panels(studies.entropies({"a": (true, estimated)}, top=2.3))["panels"][0]["lines"]
    modes = {line["name"]: (line["mode"], line["symbol"]) for line in shown}
    assert modes["true"] == ("markers", "line-ew-open")
    assert modes["estimated"] == ("markers", "circle")
    assert modes["ln (number of classes)"][0] == "lines"
