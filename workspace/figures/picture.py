"""A finished picture: as small, byte-stable SVG, and as the points of its lines."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.path import Path

PATH = re.compile(r' d="(M [^"]*)"')
PLACE = re.compile(r' (?:d|x|y)="[^"]*"|translate\([^)]*\)')  # what is written in points
FRACTION = re.compile(r"-?\d+\.\d+")
INVISIBLE = 0.25  # points: about how far a line may be from where it was, once it has fewer vertices


def svg(figure: Figure, salt: str) -> bytes:
    """A figure as byte-stable SVG: without date, with ids that depend only on `salt`."""
    picture = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return compact(picture.getvalue().decode()).encode()


def compact(svg: str) -> str:
    """An SVG with hundredths of a point for millionths, and without vertices that nobody would miss."""
    return re.sub(r"\n +", "\n", PLACE.sub(rounded, PATH.sub(thinned, svg)))


def thinned(found: re.Match[str]) -> str:
    """One line or outline of an SVG with fewer vertices; any other path as it is."""
    words = found[1].split()
    if {*words} & {"C", "Q"} or words.count("M") != 1 or words.count("L") < 20:
        return found[0].replace(" \n", " ")
    closed = "z" * (words[-1] == "z")
    numbers = [word for word in words if word not in ("M", "L", "z")]
    line = Path(np.array(numbers, float).reshape(-1, 2))
    line.simplify_threshold = INVISIBLE
    line = line.cleaned(simplify=True)
    vertices = np.asarray(line.vertices)[np.asarray(line.codes) != Path.STOP]
    return f' d="M {" ".join(f"{value:.6f}" for value in vertices.ravel())}{closed}"'


def rounded(place: re.Match[str]) -> str:
    def hundredths(number: re.Match[str]) -> str:
        text = f"{float(number[0]):.2f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text

    return FRACTION.sub(hundredths, place[0])


def show(picture: bytes, /, **metadata: Any) -> None:
    """Display an SVG. IPython's own class for it parses it with Python's slow XML parser."""
    text = picture.decode()
    display({"image/svg+xml": text[text.index("<svg") :]}, raw=True, metadata=metadata)


def lines(figure: Figure) -> pd.DataFrame:
    """The points of every line of a figure: one row per point, with columns panel, line, x, y.

    A line's name is its label without the underscore that keeps it out of the legend; empty if it has no label.
    """
    rows = []
    for k, axes in enumerate(figure.axes):
        panel = axes.get_title() or f"panel {k + 1}"
        for line in axes.get_lines():
            label = str(line.get_label())
            name = "" if label.startswith("_child") else label.removeprefix("_")
            rows += [(panel, name, x, y) for x, y in zip(*map(np.asarray, line.get_data()), strict=True)]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "y"])
