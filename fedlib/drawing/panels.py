"""Parts of panels: axes with units, a grid of axes, one legend, thin lines for the authors' own programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedlib.analysis.measure import Missing
from fedlib.drawing.style import Look

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


def legend_below(fig: Figure, axes: Sequence[Axes], columns: int = 5) -> None:
    """One legend for all panels, below them, in at most so many columns as the longest label leaves room for."""
    found = {
        label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if found:
        fit = int(fig.get_figwidth() / (0.65 + 0.075 * max(map(len, found))))  # inches: a handle, a character
        ncols = max(1, min(columns, len(found), fit))
        rows = math.ceil(len(found) / ncols) - math.ceil(len(found) / columns)
        fig.set_figheight(fig.get_figheight() + 0.25 * rows)  # so the panels keep theirs
        fig.legend(found.values(), found.keys(), loc="outside lower center", ncols=ncols)


def draw_authors(
    ax: Axes, runs: pd.DataFrame, y: str, styles: Mapping[str, Look], smooth: Smoother | None = None
) -> None:
    """Runs of the authors' own program as thin lines in their methods' colours, with one legend entry for all."""
    unit = AXES.get(y, (y, 1.0))[1]
    drawn = runs[runs["method"].isin(styles)] if y in runs else runs.iloc[:0]
    for (method, seed), run in drawn.groupby(["method", "seed"], sort=False):
        curve = run.set_index("round")[y].dropna()
        curve = (smooth(curve) if smooth else curve) * unit
        name = f"_{method}, authors' program, seed {seed}"
        ax.plot(curve.index, curve, lw=0.7, color=styles[method]["color"], label=name)
    if len(drawn):
        commits = ", ".join(dict.fromkeys(drawn["commit"]))
        ax.plot([], [], lw=0.7, color="black", label=f"authors' program, run by us, commit {commits}")
