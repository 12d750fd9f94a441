"""Pictures of how samplers work, drawn from the output of the algorithms."""

from __future__ import annotations

from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import rgb_to_hsv, to_hex, to_rgb
from scipy.cluster.hierarchy import dendrogram


def selection_columns(
    ax: Axes, heights: np.ndarray, groups: np.ndarray, chosen: np.ndarray, title: str
) -> None:
    """One column per client: its update's norm, coloured by cluster, selected clients marked (HCSFed, Figure 1)."""
    order = np.lexsort((-heights, groups))
    colours = sns.color_palette("colorblind", 10)
    for x, k in enumerate(order):
        ax.bar(x, heights[k], color=colours[groups[k] % 10], alpha=1.0 if k in chosen else 0.35)
        if k in chosen:
            ax.plot(x, heights[k] + 0.06 * heights.max(), "v", color="black", ms=6)
    ax.set_xticks(range(len(order)), [str(k) for k in order], fontsize=9)
    ax.set(title=title, xlabel="client, by cluster", ylabel="norm of its update")
    ax.set_ylim(0, 1.18 * heights.max())
    ax.grid(visible=False, axis="x")


def sampling_cells(ax: Axes, r: np.ndarray, colours: list[Any], order: np.ndarray, title: str = "") -> None:
    """A clustered sampling scheme: one column per distribution W_k, filled by the clients' probabilities in it.

    r: (m, N), rows sum to 1. colours: one per client. order: (N,) the clients from the bottom to the top of a column. A
    client's id is shown if it fits.
    """
    for k, row in enumerate(r):
        inside = order[row[order] > 0]
        heights = row[inside]
        bottoms = np.cumsum(heights) - heights
        fills = [colours[i] for i in inside]
        ax.bar(
            np.full(len(inside), k + 1), heights, bottom=bottoms, color=fills, ec="white", lw=0.6, width=0.86
        )
        for i, bottom, height in zip(inside, bottoms, heights, strict=True):
            if height > 0.045:
                dark = rgb_to_hsv(to_rgb(colours[i]))[2] < 0.8
                color = "white" if dark else "black"
                ax.text(k + 1, bottom + height / 2, str(i), ha="center", va="center", fontsize=9, color=color)
    ax.set(xlabel="distribution Wₖ", ylabel="probability of a client in it", ylim=(0, 1), title=title)
    ax.set_xticks(range(1, len(r) + 1))
    ax.grid(visible=False)


def cut_dendrogram(
    ax: Axes, tree: np.ndarray, groups: list[np.ndarray], colours: list[Any], title: str
) -> None:
    """A Ward tree with the branches of each of its groups of clients in the group's colour."""
    home: dict[int, Any] = {int(i): g for g, members in enumerate(groups) for i in members}
    N = len(tree) + 1
    for node, (a, b) in enumerate(tree[:, :2].astype(int), start=N):
        inside = home.get(a), home.get(b)
        home[node] = inside[0] if inside[0] == inside[1] and inside[0] is not None else None
    tree_drawn = dendrogram(
        tree,
        ax=ax,
        leaf_font_size=9,
        link_color_func=lambda node: "#999999" if home[node] is None else to_hex(colours[home[node]]),
    )
    for tick, leaf in zip(ax.get_xticklabels(), tree_drawn["leaves"], strict=True):
        tick.set_color(colours[home[leaf]])
    ax.set(title=title, xlabel="client", ylabel="merge height of the Ward tree")
    ax.grid(visible=False)
