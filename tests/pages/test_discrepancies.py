"""Discrepancies: a picture and a sentence for each headline claim, and what each paper leaves open."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from workspace.analysis.paper import papers, part
from workspace.analysis.readings import readings
from workspace.figures import summary
from workspace.pages import discrepancies, tables
from workspace.pages.artifact import Artifact

CURVE = pd.DataFrame(
    {
        "reading": ["another", "text", "program"],
        "called": ["", "as written (tested)", "as run"],
        "effect": [0.5, 1.25, 4.0],
        "low": [0.5, 1.0, 3.0],
        "high": [0.5, 1.5, 5.0],
        "seeds": [1, 5, 3],
        "rule": ["mean", "mean", "attrition"],
        "rate": ["0.01", "0.01", "0.01"],
    }
)
CELL = {"claim": "p.T1.a", "cell": "A over B", "unit": "times", "printed": 2.48, "null": 1.0}
CELLS = [
    {**CELL, "reading": "text", "estimate": 1.25, "low": 1.0, "high": 1.5},
    {**CELL, "reading": "program", "estimate": 4.0, "low": 3.0, "high": math.inf, "open": True},
    {**CELL, "reading": "another", "estimate": 0.5, "low": math.nan, "high": math.nan},
]


@pytest.mark.parametrize("paper", papers())
def test_what_is_left_open_stands_in_one_place(paper: str) -> None:
    varied = {what for reading in readings(paper) for what in reading.choices}
    unvaried = [what for what, _, _ in part(paper, "readings").LEFT_OPEN]
    assert unvaried
    assert len(set(unvaried)) == len(unvaried)
    assert not varied & set(unvaried)
    shown = discrepancies.left_open(paper)
    assert sorted(shown["left open"]) == sorted([*varied, *unvaried])
    silent = shown.loc[shown["sources"] == "", "left open"]
    assert set(silent) <= varied, (
        "each says where it is from, unless the paper is silent and several are tried"
    )
    taken = shown["tested"] + shown["also tried"]
    assert (taken != "").all(), "each says what is taken or tried"


def test_a_sentence() -> None:
    assert discrepancies.sentence(CELLS, "B is faster.", CURVE).replace("\u00a0", " ") == (
        "`p.T1.a` B is faster. A over B: printed 2.48; as written (tested) 1.25 × [1, 1.5], 5 seeds; "
        "as run ≥ 4 × [3, ∞], 3 seeds; from 0.5 to 4 over the 3 ways to read the paper that were run."
    )
    alone = discrepancies.sentence(CELLS, "B is faster.", CURVE[CURVE["reading"] == "text"])
    assert alone.endswith(" [1, 1.5], 5 seeds; it was run under no other reading.")
    unprinted = [cell | {"printed": math.nan} for cell in CELLS]
    said = discrepancies.sentence(unprinted, "B is faster.", CURVE)
    assert "A over B: as written (tested) 1.25" in said, "what is not printed is not said to be nan"


def test_the_picture_marks_what_readings_take_and_leaves_out_what_all_take_alike() -> None:
    figure = summary.specification_curve(CURVE, CELL["cell"], CELL["printed"])
    above, below = figure.axes
    labels = [tick.get_text() for tick in below.get_yticklabels()]
    assert labels == ["rule", "mean", "attrition"]
    assert [list(line.get_xdata()) for line in below.get_lines()] == [[0, 1], [2]]
    named = [text.get_text() for text in above.get_legend().get_texts()]
    assert named == ["a reading tried", "as written (tested)", "as run", "printed: 2.48"]


def test_an_interval_without_a_bound_goes_to_the_edge() -> None:
    rows = CURVE.assign(low=[0.5, 0.0, 3.0], high=[0.5, 1.5, math.inf])
    axes = summary.specification_curve(rows, CELL["cell"], CELL["printed"]).axes[0]
    lines = [segment for drawn in axes.collections for segment in drawn.get_segments()]
    ends = {tuple(round(float(y), 3) for y in segment[:, 1]) for segment in lines}
    bottom, top = (round(float(edge), 3) for edge in axes.get_ylim())
    assert {(1.25, bottom), (1.25, 1.5), (4.0, top), (4.0, 3.0)} <= ends


def test_a_distance_is_shown_as_the_factor_of_the_typical_cell() -> None:
    assert discrepancies.factor(1) == "× 2.00"
    assert discrepancies.factor(0) == "× 1.00"
    assert discrepancies.nearness({}).empty


def test_the_page_draws_what_is_there_and_says_what_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "params.yaml").write_text(
        "scale: demo\nexperiments: {e: {}}\nartifacts: {discrepancies: {}}\n"
    )
    artifact = Artifact.open("discrepancies", root=tmp_path)
    rows = [
        {
            "setting": "MNIST, q = 10 %",
            "method": method,
            "seed": seed,
            "round": t,
            "test_accuracy": 0.9 * (t >= start),
        }
        for method, start in (
            ("Random", 4),
            ("Random, attrition", 6),
            ("HCSFed-R (GC-A)", 2),
            ("HCSFed-R (GC-B)", 3),
        )
        for seed in range(3)
        for t in range(8)
    ]
    told: list[str] = []
    for module in (discrepancies, tables):
        monkeypatch.setattr(module, "display", lambda shown: told.append(shown.data))
    results = {"hcsfed_table_1": pd.DataFrame(rows).assign(diverged=False)}
    discrepancies.show(artifact, "hcsfed", results)
    made = {path.stem for path in artifact.folder.glob("*.csv")}
    assert made == {"hcsfed_curve_1", "hcsfed_left_open"}, "nothing of the second claim is there"
    curve = pd.read_csv(artifact.folder / "hcsfed_curve_1.csv")
    assert sorted(curve["effect"].round(3)) == [1.333, 2, 2, 3]
    assert told[0].startswith("192 readings are all combinations")
    assert told[2].endswith("FMNIST, q = 10 %, Random over HCSFed: not run.")
    assert told[3].startswith("<details>")
