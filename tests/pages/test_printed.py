"""Curves of printed figures: refused in a sentence unless whole, and drawn over ours in the panel of their title."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedlib.errors import ConfigError
from workspace.analysis.paper import printed_curves
from workspace.figures import picture, printed

HEAD = "panel,method,x,y,by,with\n"
GOOD = HEAD + "left,MD,10,61.5,A. Reader,a program\nleft,MD,20,70,A. Reader,a program\n"


def written(folder: Path, text: str) -> Path:
    path = printed_curves("fedcor/figure_4", folder)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def figure() -> Figure:
    made = Figure()
    for k, title in enumerate(("left", "right")):
        made.add_subplot(1, 2, k + 1, title=title).plot([0, 30], [0, 90], label="MD")
    return made


def test_printed_points_are_drawn_over_ours_in_their_panel(tmp_path: Path) -> None:
    drawn = figure()
    printed.draw(drawn, printed.read(written(tmp_path, GOOD)))
    lines = picture.lines(drawn)
    points = lines[lines["line"] == "MD, printed"]
    assert set(points["panel"]) == {"left"}
    np.testing.assert_array_equal(points[["x", "y"]], [[10, 61.5], [20, 70]])
    assert len(lines[lines["line"] == "MD"]) == 4, "ours stay"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("panel,method,x,y,by\nleft,MD,1,2,me\n", "figure_4.csv: has no column 'with'"),
        (HEAD + "left,MD,1,2,me,it\nleft,MD,1,2,,it\n", "line 3: by is empty"),
        (HEAD + "left,MD,1,2 %,me,it\n", "line 2: y = '2 %' is no finite number"),
        (HEAD + "left,MD,inf,2,me,it\n", "line 2: x = 'inf' is no finite number"),
        (HEAD + "middle,MD,1,2,me,it\n", "no panel 'middle'; its panels are 'left', 'right'"),
        (HEAD + ",MD,1,2,me,it\n", "no panel ''"),
    ],
)
def test_what_is_not_whole_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=sentence):
        printed.draw(figure(), printed.read(path))
