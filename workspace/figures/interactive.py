"""Interactive curves: the points of a figure of curves, as data for the site's script.

The picture stays unchanged for print and for browsers without scripts. `site/static/interactive.js` draws the same
panels with Plotly: it shows values under the pointer, switches methods on and off, and offers seeds instead of bands
and a logarithmic axis.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.drawing.panels import NOTE
from fedlib.kinds import whole

DASHES = {"-": "solid", "--": "dash", "-.": "dashdot", ":": "dot"}
SYMBOLS = {"o": "circle", "_": "line-ew-open", "x": "x", "D": "diamond-open", ".": "circle"}
LEAST = 8  # points that a line needs to be a curve


def panels(figure: Figure) -> dict[str, Any] | None:
    """The panels of a figure of curves as plain data; None if it shows anything else.

    A panel has its title, axes (label, range, scale), lines (name, colour, dash, width, mode, symbol, x, y, and each
    seed's y where they are known), bands (name, colour, and the x and y of their outline) and notes. Most
    have the same x, so `xs` has all that occur, and each line and band the number of its own.
    """
    axes = [ax for ax in figure.axes if ax.axison]
    if not axes or not all(is_curves(ax) for ax in axes):
        return None
    rows = len({round(ax.get_position().y0, 3) for ax in axes})
    drawn = [panel(ax) for ax in axes]
    xs: dict[tuple[float | None, ...], int] = {}
    for part in (part for panel in drawn for part in (*panel["lines"], *panel["bands"])):
        part["x"] = xs.setdefault(tuple(part["x"]), len(xs))
    return {"columns": math.ceil(len(axes) / rows), "xs": [list(x) for x in xs], "panels": drawn}


def is_curves(ax: Axes) -> bool:
    curves = any(len(np.asarray(line.get_xdata())) >= LEAST for line in ax.lines)
    bands = all(isinstance(collection, PolyCollection) for collection in ax.collections)
    return curves and bands and not ax.patches and not ax.images


def panel(ax: Axes) -> dict[str, Any]:
    colours = {to_hex(line.get_color()): name_of(line) for line in reversed(ax.lines)}
    bands = []
    for band in ax.collections:
        colour = to_hex(np.asarray(band.get_facecolor())[0])
        for path in band.get_paths():
            x, y = np.asarray(path.vertices).T
            bands.append({"name": colours.get(colour, ""), "color": colour, "x": short(x), "y": short(y, 4)})
    return {
        "title": ax.get_title(),
        "x": {"title": ax.get_xlabel(), "range": short(ax.get_xlim()), "type": ax.get_xscale()},
        "y": {"title": ax.get_ylabel(), "range": short(ax.get_ylim()), "type": ax.get_yscale()},
        "lines": [line_of(line) for line in ax.lines],
        "bands": bands,
        "notes": [{"text": t.get_text(), "y": t.get_position()[1]} for t in ax.texts if t.get_gid() == NOTE],
    }


def name_of(line: Line2D) -> str:
    label = str(line.get_label())
    return "" if label.startswith("_child") else label.removeprefix("_")


def line_of(line: Line2D) -> dict[str, Any]:
    x, y = line.get_data()
    assert line.axes is not None
    listed = not str(line.get_label()).startswith("_")
    return {
        "name": name_of(line),
        "listed": listed,
        "color": to_hex(line.get_color()),
        "dash": DASHES.get(str(line.get_linestyle()), "dash"),
        "width": round(float(line.get_linewidth()), 2),
        "mode": "markers" if line.get_linestyle() == "None" else "lines",
        "symbol": SYMBOLS.get(str(line.get_marker()), "circle"),
        "across": line.get_transform()
        != line.axes.transData,  # a level: its x runs from 0 to 1, side to side
        "x": short(x),
        "y": short(y, 4),
        "seeds": [short(values, 4) for values in getattr(line, "seeds", [])],
    }


def short(values: Any, digits: int = 5) -> list[float | None]:
    """Rounded numbers, whole ones without a decimal point; None for missing ones. The site shows four digits."""
    return [whole(float(f"{v:.{digits}g}")) if math.isfinite(v) else None for v in map(float, values)]
