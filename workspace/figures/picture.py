"""A finished picture: as byte-stable SVG, and as the points of its lines."""

from __future__ import annotations

import io
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure


def svg(figure: Figure, salt: str) -> bytes:
    """A figure as byte-stable SVG: without date, with ids that depend only on `salt`."""
    picture = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return picture.getvalue()


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
