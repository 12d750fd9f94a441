"""Parts of panels: axes with units, a grid of axes, names beside lines, one legend, the authors' own programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fedlib.drawing.style import Look
from fedlib.measure import Missing

NOTE = "note"  # the name of a panel's note among its texts
LONGEST = 36  # letters of a note, which has to stay in its panel
MOST_NAMES = 10  # lines of a panel that have their names beside them
WIDEST = 12.8  # inches: of a wider figure, the text is too small on a page
NARROWEST = 2.6  # inches of a panel that has names beside it, with its labels
Smoother = Callable[[pd.Series], pd.Series]

AXES: dict[str, tuple[str, float]] = {  # column -> (label with its unit, factor to that unit)
    "round": ("round", 1),
    "test_accuracy": ("test accuracy (%)", 100),
    "test_metric": ("test metric", 1),
    "test_loss": ("test loss (nats)", 1),
    "train_loss": ("training loss (nats)", 1),
    "train_loss_std": ("loss std across clients (nats)", 1),
    "client_accuracy": ("clients' test accuracy (%)", 100),
    "client_accuracy_std": ("accuracy std across clients (%)", 100),
    "local_loss": ("local training loss (nats)", 1),
    "local_loss_std": ("std of local training loss (nats)", 1),
    "distinct_classes": ("distinct classes (count)", 1),
    "distinct_clients": ("distinct clients (count)", 1),
    "drawn_entropy": ("drawn label entropy (nats)", 1),
    "megabytes": ("sent and received so far (MB)", 1),
    "uplink_megabytes": ("sent by clients so far (MB)", 1),
    "work": ("local steps so far (client-steps)", 1),
    "clock": ("simulated time (s)", 1),
    "server_seconds": ("sampler's own time per round (s)", 1),
}


def grid(panels: int, columns: int = 3, width: float = 4.0, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """A figure of `panels` axes, at most `columns` in a row; the rest of the last row stays blank.

    Raises:
        Missing: there is no panel to draw.
    """
    if panels < 1:
        raise Missing("nothing that this figure shows has been run")
    columns = max(1, min(columns, panels))
    rows = math.ceil(panels / columns)
    fig, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    for extra in axes.flat[panels:]:
        extra.set_axis_off()
    return fig, list(axes.flat[:panels])


def label_axes(ax: Axes, x: str, y: str) -> None:
    ax.set(xlabel=AXES.get(x, (x, 1))[0], ylabel=AXES.get(y, (y, 1))[0])


def say_what_is_missing(axes: Sequence[Axes], ran: Sequence[Sequence[str]]) -> None:
    """Note in each panel which of the figure's methods were not run there: a panel with one curve then says why.

    ran: the methods that were run, of each panel.
    """
    everything = list(dict.fromkeys(method for methods in ran for method in methods))
    for ax, methods in zip(axes, ran, strict=True):
        lacking = [method for method in everything if method not in methods]
        if not lacking:
            continue
        words = f"not run here: {', '.join(lacking)}"
        if len(methods) < len(lacking):
            words = f"only {', '.join(methods)} {'was' if len(methods) == 1 else 'were'} run here"
        if len(words) > LONGEST:  # it would make the figure wider, and its text smaller
            words = f"{len(lacking)} of {len(everything)} were not run here"
        heights = np.asarray(ax.lines[0].get_ydata(), float) if ax.lines else np.zeros(1)
        heights = heights[np.isfinite(heights)]
        note(ax, words, top=len(heights) > 1 and heights[-1] < heights[0])


def note(ax: Axes, words: str, top: bool = False) -> None:
    """A few words on the right of a panel, below its lines or, with `top`, above them."""
    ax.text(
        *(0.98, 0.97 if top else 0.03),
        s=words,
        transform=ax.transAxes,
        ha="right",
        va="top" if top else "bottom",
        fontsize="small",
        style="italic",
        gid=NOTE,
        parse_math=False,
        zorder=7,
    )


def legend_below(fig: Figure, axes: Sequence[Axes], columns: int = 5, only_kinds: bool = False) -> None:
    """One legend for all panels, below them, in at most so many columns as the longest label leaves room for.

    only_kinds: only entries without points.
    """
    entries = {
        label: handle
        for ax in axes
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        if not only_kinds or (isinstance(handle, Line2D) and not np.size(handle.get_xdata()))
    }
    if entries:
        fit = int(
            fig.get_figwidth() / (0.65 + 0.075 * max(map(len, entries)))
        )  # inches: a handle, a character
        ncols = max(1, min(columns, len(entries), fit))
        rows = math.ceil(len(entries) / ncols) - math.ceil(len(entries) / columns)
        fig.set_figheight(fig.get_figheight() + 0.25 * rows)  # so the panels keep theirs
        legend = fig.legend(entries.values(), entries.keys(), loc="outside lower center", ncols=ncols)
        for text in legend.get_texts():
            text.set_parse_math(False)  # a name is no formula


def names_beside(ax: Axes) -> bool:
    """Write each line's name where the line ends, in its colour; False, and nothing, if the lines are too many.

    The names move apart where lines end together, so call this when everything is drawn.
    """
    lines = [
        line for line in ax.lines if not str(line.get_label()).startswith("_") and np.size(line.get_xdata())
    ]
    if not lines or len(lines) > MOST_NAMES:
        return False
    ax.get_ylim()  # scales the axis to what was drawn; the transformations below do not
    height = ax.get_window_extent().height / ax.figure.dpi  # inches
    gap = 0.16 / max(height, 0.5)
    ends = []
    for line in lines:
        y = np.asarray(line.get_ydata(), dtype=float)
        y = y[np.isfinite(y)]
        end = ax.transAxes.inverted().transform(ax.transData.transform((0, y[-1])))[1] if len(y) else 0.0
        ends.append((min(1.0, max(0.0, float(end))), line))
    ends.sort(key=lambda pair: pair[0])
    heights: list[float] = []
    for end, _ in ends:
        heights.append(max(end, heights[-1] + gap) if heights else end)
    ceiling = 1 + gap / 2
    for k in reversed(range(len(heights))):
        heights[k] = min(heights[k], ceiling)
        ceiling = heights[k] - gap
    for (_, line), y in zip(ends, heights, strict=True):
        ax.annotate(
            str(line.get_label()), (1, y), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points",
            va="center", fontsize="small", color=line.get_color(), annotation_clip=False, parse_math=False,
        )  # fmt: skip
    return True


def name_lines(fig: Figure, axes: Sequence[Axes], columns: int = 5) -> None:
    """Names beside the lines of every panel, for which the figure grows; one legend below if they do not fit.

    Entries without points, which explain a kind of line, stand in a legend below in any case.
    """
    labels = [str(line.get_label()) for ax in axes for line in ax.lines if np.size(line.get_xdata())]
    longest = max((len(label) for label in labels if not label.startswith("_")), default=0)
    across = len({round(ax.get_position().x0, 3) for ax in axes})
    names = 0.1 + 0.075 * longest  # inches
    width = min(WIDEST, fig.get_figwidth() + across * names)
    if width / across - names >= NARROWEST and all(names_beside(ax) for ax in axes):
        fig.set_figwidth(width)
        legend_below(fig, axes, columns, only_kinds=True)
        return
    for ax in axes:
        for text in list(ax.texts):
            if text.get_text() in labels:
                text.remove()
    legend_below(fig, axes, columns)


def darker(colour: str, share: float = 0.45) -> tuple[float, ...]:
    """A colour mixed with black."""
    return tuple((1 - share) * part for part in to_rgb(colour))


def draw_authors(
    ax: Axes, runs: pd.DataFrame, y: str, styles: Mapping[str, Look], smooth: Smoother | None = None
) -> None:
    """Runs of the authors' own program, dotted and darker than their methods' colours, with one name for all."""
    unit = AXES.get(y, (y, 1.0))[1]
    shown_runs = runs[runs["method"].isin(styles)] if y in runs else runs.iloc[:0]
    for (method, seed), run in shown_runs.groupby(["method", "seed"], sort=False):
        curve = run.set_index("round")[y].dropna()
        curve = (smooth(curve) if smooth else curve) * unit
        name = f"_{method}, authors' program, seed {seed}"
        ax.plot(
            curve.index, curve, lw=1.3, ls=":", color=darker(styles[method]["color"]), label=name, zorder=3
        )
    if len(shown_runs):
        commits = ", ".join(dict.fromkeys(shown_runs["commit"]))
        ax.plot([], [], lw=1.3, ls=":", color="black", label=f"authors' program, run by us, commit {commits}")


def draw_printed(ax: Axes, rounds: Mapping[str, float], level: float, styles: Mapping[str, Look]) -> None:
    """The printed round in which each method's curve reaches a level, as a diamond in the method's colour.

    Rounds beyond the panel's axis are left out.
    """
    last = ax.get_xlim()[1]
    for method, printed_round in rounds.items():
        if method in styles and printed_round <= last:
            look: Look = {"color": styles[method]["color"], "marker": "D", "ms": 7, "mew": 2, "mfc": "none"}
            ax.plot([printed_round], [level], ls="none", label=f"_{method}, printed", zorder=6, **look)
    ax.plot([], [], "D", ms=6, mew=1.5, mfc="none", color="black", label="printed (table)")
