"""The pictures of the lab: accuracy of every method, and which clients were chosen when; drawn into a widget."""

from __future__ import annotations

import io
import math

import ipywidgets as widgets
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlib.drawing.plots import draw_curves, label_axes
from fedlib.drawing.plots import partition_bars as partition_bars
from fedlib.drawing.plots import style as style

COLUMNS = 4


def progress(results: pd.DataFrame, counts: np.ndarray, target: float, T: int) -> Figure:
    """Test accuracy of all methods, above one panel per method with the clients chosen in its first seed.

    results: tidy rows of one setting. counts: (N, K) training samples by client and label, of the first seed. target:
    an accuracy in [0, 1]. T: rounds of the runs.
    """
    methods = list(dict.fromkeys(results["method"]))
    rows = math.ceil(len(methods) / COLUMNS)
    fig = plt.figure(figsize=(10, 3.2 + 2.1 * rows), layout="constrained")
    accuracy_part, clients_part = fig.subfigures(2, 1, squeeze=False, height_ratios=[3.2, 2.1 * rows])[:, 0]
    ax = accuracy_part.subplots()
    draw_curves(ax, results, "test_accuracy")
    ax.axhline(100 * target, color="black", lw=0.8, ls=":")
    ax.set(xlim=(0, T), ylim=(0, 100))
    label_axes(ax, "round", "test_accuracy")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    panels = clients_part.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).flat
    for panel, method in zip(panels, methods, strict=False):
        runs = results[results["method"] == method]
        draw_chosen(panel, runs[runs["seed"] == runs["seed"].min()], counts)
        panel.set(title=method, xlim=(0, T + 1), xlabel="round", ylabel="client (ordered by label)")
        panel.label_outer()
    for panel in panels[len(methods) :]:
        panel.set_axis_off()
    return fig


def draw_chosen(ax: Axes, run: pd.DataFrame, counts: np.ndarray) -> None:
    """A dot for each (round, chosen client) of one run. Clients are ordered and coloured by their dominant label.

    An archived run may not keep its clients, which is said in the panel.
    """
    N, K = counts.shape
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    place = np.argsort(np.lexsort((-shares.max(axis=1), shares.argmax(axis=1))))
    colours = np.asarray(sns.color_palette("colorblind", 10) if K <= 10 else sns.color_palette("viridis", K))
    selections = run.reindex(columns=["round", "clients"]).explode("clients").dropna()
    if selections.empty:
        ax.text(0.5, 0.5, "clients: not archived", ha="center", va="center", transform=ax.transAxes)
    clients = selections["clients"].to_numpy(dtype=int)
    ax.scatter(selections["round"], place[clients], c=colours[shares.argmax(axis=1)[clients]], s=6, lw=0)
    ax.set_ylim(-1, N)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.grid(visible=False)


def show(image: widgets.Image, figure: Figure) -> None:
    """Draw a figure into a widget, and close the figure."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    plt.close(figure)
    image.value = picture.getvalue()
    image.layout.display = ""
