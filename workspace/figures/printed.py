"""Curves of the papers' printed figures, as somebody read them off: `data/printed/<paper>/figure_<n>.csv`.

docs/digitise-a-figure.md says how such a file is made. Where it exists, its points are drawn over ours.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from fedlib.drawing.style import looks
from fedlib.errors import ConfigError

COLUMNS = ("panel", "method", "x", "y", "by", "with")


def read(path: Path) -> pd.DataFrame:
    """The points of a printed figure, as numbers in the units of our figure's axes.

    Raises:
        ConfigError: the file lacks a column, a point is no number, or it does not say who read it off with what.
    """
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    where = f"data/printed/{path.parent.name}/{path.name}"
    if lacking := [name for name in COLUMNS if name not in table]:
        raise ConfigError(f"{where}: has no column {lacking[0]!r}; its columns are {', '.join(COLUMNS)}.")
    for name in ("method", "by", "with"):
        if (empty := table.index[table[name].str.strip() == ""]).size:
            raise ConfigError(f"{where}, line {empty[0] + 2}: {name} is empty; say it for every point.")
    for name in ("x", "y"):
        numbers = pd.to_numeric(table[name], errors="coerce")
        if (wrong := table.index[~np.isfinite(numbers)]).size:
            value = table[name][wrong[0]]
            raise ConfigError(
                f"{where}, line {wrong[0] + 2}: {name} = {value!r} is no finite number; mend it."
            )
        table[name] = numbers
    return table


def draw(figure: Figure, printed: pd.DataFrame) -> None:
    """Add printed points to the panels of their titles; an empty title is the only panel's.

    Raises:
        ConfigError: the figure has no such panel.
    """
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_lines()}
    styles = looks(list(dict.fromkeys(printed["method"])))
    groups: dict[Hashable, pd.DataFrame] = dict(list(printed.groupby("panel", sort=False)))
    for title, points in groups.items():
        axes = figure.axes[0] if title == "" and len(panels) == 1 else panels.get(str(title))
        if axes is None:
            names = ", ".join(map(repr, panels))
            raise ConfigError(f"data/printed: the figure has no panel {title!r}; its panels are {names}.")
        for method, curve in points.groupby("method", sort=False):
            color = styles[str(method)]["color"]
            axes.plot(
                *(curve["x"], curve["y"]),
                ls=":",
                lw=1,
                marker="x",
                ms=4,
                color=color,
                zorder=5,
                label=f"_{method}, printed",
            )
        axes.plot([], [], "x:", ms=4, lw=1, color="black", label="printed, read off")
