"""One function per kind of picture, in the project's style (`style.py`); tables are in `analysis/tables.py`.

    plots.curves(results, "test_accuracy", panels={"0.01": "alpha = 0.01"}, methods=["MD", "Algorithm 2"])

Functions that make a whole picture return its matplotlib Figure; functions with an argument `ax` draw one panel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedlib.drawing.panels import AXES as AXES
from fedlib.drawing.panels import Smoother, draw_authors, draw_printed, name_lines, say_what_is_missing
from fedlib.drawing.panels import grid as grid
from fedlib.drawing.panels import label_axes as label_axes
from fedlib.drawing.panels import legend_below as legend_below
from fedlib.drawing.style import Look, looks
from fedlib.drawing.style import style as style
from fedlib.drawing.style import sweep as sweep


def draw_curves(
    ax: Axes,
    results: pd.DataFrame,
    y: str,
    *,
    x: str = "round",
    methods: Sequence[str] | None = None,
    smooth: Smoother | None = None,
    band: bool = True,
    styles: Mapping[str, Look] | None = None,
    first: int = 0,
    authors: pd.DataFrame | None = None,
) -> None:
    """Mean over seeds of column `y` against `x`, one line per method, in one panel; band: one std over seeds.

    The line connects the rounds in which `y` was measured in all runs that did not diverge; a diverged run ends with a
    cross. smooth: applied to each run's curve before averaging. authors: this panel's runs of the authors' own program
    (`reference.beside`), each a thin line.
    """
    methods = results["method"].unique().tolist() if methods is None else methods
    styles = styles or looks(methods)
    results = results[results["round"] >= first]
    unit, across = AXES.get(y, (y, 1.0))[1], AXES.get(x, (x, 1.0))[1]
    ended = results["diverged"].groupby([results["method"], results["seed"]]).any()
    healthy = results.loc[~results["diverged"], list(dict.fromkeys(["method", "seed", "round", x, y]))]
    measured = healthy.set_index(["method", "seed", "round"])[y].dropna()
    measured_methods = set(measured.index.unique("method"))
    for method in methods:
        if method not in measured_methods:
            continue
        table, diverged = measured[method].unstack("seed"), ended[method]
        if smooth:
            table = pd.concat({seed: smooth(table[seed].dropna()) for seed in table}, axis=1)
        table = table.dropna(subset=[seed for seed in table if not diverged[seed]])
        mean, spread = table.mean(axis=1) * unit, table.std(axis=1).fillna(0) * unit
        rows = healthy[healthy["method"] == method] if x != "round" or diverged.any() else healthy
        positions = (
            mean.index if x == "round" else rows.groupby("round")[x].mean().reindex(mean.index) * across
        )
        look = {k: v for k, v in styles[method].items() if k != "marker"}
        (line,) = ax.plot(positions, mean, label=method, lw=1.6, **look)
        seeds = [table[seed] * unit for seed in table] if table.shape[1] > 1 else []
        line.seeds = seeds  # ty: ignore[missing-attribute]  # for `interactive.py`
        if band and table.shape[1] > 1:
            ax.fill_between(positions, mean - spread, mean + spread, color=look["color"], alpha=0.15, lw=0)
        for run in diverged.index[diverged]:
            last = rows[rows["seed"] == run].dropna(subset=[y]).tail(1)
            if len(last):
                ax.plot(
                    last[x] * across,
                    last[y] * unit,
                    "x",
                    color=look["color"],
                    ms=8,
                    label=f"_{method}, ended",
                )
    if authors is not None:
        draw_authors(ax, authors[authors["round"] >= first], y, styles, smooth)
    if not ax.lines:
        ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)


def curves(
    results: pd.DataFrame,
    y: str,
    *,
    x: str = "round",
    panels: Mapping[str, str] | Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    smooth: Smoother | None = None,
    band: bool = True,
    columns: int = 3,
    styles: Mapping[str, Look] | None = None,
    target: Mapping[str, float] | float | None = None,
    first: int = 0,
    width: float = 4.0,
    height: float = 3.0,
    authors: pd.DataFrame | None = None,
    printed: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """One panel per setting, each with one line per method (`draw_curves`), and names beside the lines.

    panels: settings in order, or setting -> title (default: the settings that the results have). target: a
    level of `y`, or one per setting, drawn as a thin line. printed: setting -> method -> the round in which the paper's
    table has it at the target.
    """
    if panels is None:
        panels = results["setting"].unique().tolist()
    titles = dict(panels) if isinstance(panels, Mapping) else {s: s for s in panels}
    present = {s: title for s, title in titles.items() if (results["setting"] == s).any()}
    fig, axes = grid(len(present), columns, width, height)
    ran = []
    for ax, (setting, title) in zip(axes, present.items(), strict=True):
        rows = results[results["setting"] == setting]
        ran.append([m for m in rows["method"].unique() if methods is None or m in methods])
        theirs = None if authors is None else authors[authors["setting"] == setting]
        draw_curves(
            ax,
            rows,
            y,
            x=x,
            methods=methods,
            smooth=smooth,
            band=band,
            styles=styles,
            first=first,
            authors=theirs,
        )
        level = target.get(setting) if isinstance(target, Mapping) else target
        if level is not None:
            height = level * AXES.get(y, (y, 1.0))[1]
            ax.axhline(height, color="black", lw=0.8, ls=":", label="_target")
            if printed and setting in printed and x == "round":
                draw_printed(
                    ax,
                    printed[setting],
                    height,
                    styles or looks(methods or rows["method"].unique().tolist()),
                )
        ax.set_title(title)
        label_axes(ax, x, y)
        if x == "round":
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    say_what_is_missing(axes, ran)
    name_lines(fig, axes, columns=max(2, int(width * min(columns, len(present)) / 2)))
    return fig


def panels(
    results: pd.DataFrame,
    cells: Sequence[Sequence[tuple[str, str, str, Smoother | None]]],
    *,
    methods: Sequence[str] | None = None,
    band: bool = True,
    width: float = 4.6,
    height: float = 2.7,
) -> Figure:
    """Rows of panels, each panel a (setting, column, title, smoothing or None), with names beside the lines."""
    all_cells, columns = [c for row in cells for c in row], max(map(len, cells), default=1)
    fig, axes = grid(len(all_cells), columns, width, height)
    for ax, (setting, column, title, smooth) in zip(axes, all_cells, strict=True):
        draw_curves(
            ax, results[results["setting"] == setting], column, methods=methods, smooth=smooth, band=band
        )
        ax.set_title(title)
        label_axes(ax, "round", column)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    name_lines(fig, axes, columns=max(2, 2 * columns))
    return fig


def titles(info: Mapping[str, Any], form: str = "{setting}") -> dict[str, str]:
    """setting -> title, from an experiment's record; the title says if digits replace another dataset.

    form: may use the setting's own name and its run's N, m, T, lr and steps.
    """
    titles_by_setting = {}
    for record in info["runs"]:
        run = record["run"]
        values = {key: run[key] for key in ("N", "m", "T")} | run["local"]
        stands_in = " (on digits)" if record["data"]["name"] == "digits" else ""
        titles_by_setting[record["setting"]] = form.format(setting=record["setting"], **values) + stands_in
    return titles_by_setting


def draw_seeds(ax: Axes, values: pd.DataFrame, label: str = "", shift: float = 0.0, **look: Any) -> None:
    """Median over seeds (rows) for each value of a parameter (columns), with the range over seeds as a bar.

    shift: offset to the right of the value's tick, so that the bars of several lines do not overlap.
    """
    middle = values.median()
    reach = np.abs(np.stack([middle - values.min(), values.max() - middle]))
    ax.errorbar(np.arange(len(middle)) + shift, middle, yerr=reach, capsize=3, label=label, **look)
    ax.set_xticks(range(len(middle)), [str(name) for name in middle.index])


def sweeps(
    statistics: Mapping[str, pd.Series], swept: Mapping[str, Mapping[str, Mapping[str, str]]]
) -> Figure:
    """One row per swept parameter, one panel per statistic: median over seeds and their range at each value.

    statistics: name -> by (method, seed); swept: name of the parameter -> label of a line -> value -> method. Methods
    that have not been run are left out.
    """
    fig, axes = grid(len(swept) * len(statistics), columns=len(statistics), width=3.9, height=2.9)
    pairs = [(parameter, name) for parameter in swept for name in statistics]
    for ax, (parameter, name) in zip(axes, pairs, strict=True):
        runs = statistics[name].unstack("method")
        styles = looks(list(swept[parameter]))
        for i, (label, methods) in enumerate(swept[parameter].items()):
            present = {value: method for value, method in methods.items() if method in runs}
            values = runs[list(present.values())].set_axis(list(present), axis=1)
            draw_seeds(ax, values, label, shift=0.12 * (i - (len(styles) - 1) / 2), **styles[label])
        ax.set(xlabel=parameter, ylabel=name)
    legend_below(fig, axes)
    return fig


def bars(
    values: pd.Series,
    ylabel: str,
    *,
    cap: Mapping[str, float] | pd.Series | None = None,
    printed: Mapping[tuple[str, str], float] | None = None,
    panels: Mapping[str, str] | None = None,
    statistic: Callable[..., Any] = np.median,
    columns: int = 3,
) -> Figure:
    """One bar per method, one panel per setting: medians of `values` by (setting, method, seed), seeds as dots.

    cap: by setting, the height at which runs that never arrive (inf) are drawn, hatched and marked "not reached".
    printed: the paper's values by (setting, method), drawn as a black tick on the bar.
    """
    settings = list(panels or dict.fromkeys(values.index.get_level_values("setting")))
    settings = [s for s in settings if s in values.index.get_level_values("setting")]
    methods_at_most = (
        values.groupby("setting").apply(lambda v: v.index.get_level_values("method").nunique()).max()
    )
    fig, axes = grid(len(settings), columns, width=max(3.6, 0.55 * methods_at_most + 1.2), height=3.4)
    for ax, setting in zip(axes, settings, strict=True):
        by_method = values.loc[setting]
        methods = list(dict.fromkeys(by_method.index.get_level_values("method")))
        ceiling = (
            float(cap[setting])
            if cap is not None
            else float(by_method[np.isfinite(by_method)].max(initial=1.0))
        )
        for i, method in enumerate(methods):
            seeds = by_method.loc[method].to_numpy()
            middle = float(statistic(seeds))
            height, look = min(middle, ceiling), looks([method])[method]
            ax.bar(
                i,
                height,
                color=look["color"],
                alpha=0.75,
                hatch="//" if middle > ceiling else None,
                ec="white",
            )
            jitter = np.linspace(-0.15, 0.15, len(seeds)) if len(seeds) > 1 else [0.0]
            ax.plot(
                i + np.asarray(jitter),
                np.minimum(seeds, ceiling),
                "o",
                ms=3,
                color="black",
                alpha=0.6,
                zorder=5,
            )
            if middle > ceiling:
                ax.text(i, 0.06 * ceiling, "not reached", rotation=90, ha="center", va="bottom", fontsize="small",
                        bbox={"color": "white", "alpha": 0.8, "pad": 1})  # fmt: skip
            else:
                top = max(height, np.minimum(seeds, ceiling).max())
                ax.annotate(
                    f"{middle:.3g}",
                    (i, top),
                    (0, 4),
                    textcoords="offset points",
                    ha="center",
                    fontsize="small",
                )
            if printed and (setting, method) in printed:
                ax.plot([i - 0.4, i + 0.4], [printed[setting, method]] * 2, color="black", lw=2)
        ax.set_xticks(range(len(methods)), methods, rotation=40, ha="right", rotation_mode="anchor")
        ax.set(ylabel=ylabel, title=(panels or {}).get(setting, setting))
        ax.grid(axis="x", visible=False)
        ax.set_ylim(0, 1.15 * max(ceiling, 1))
    return fig


def partition_bars(counts: Mapping[str, np.ndarray]) -> Figure:
    """A partition in two panels: label shares of each client (stacked), and samples of each class.

    counts: title -> (N, K) training samples by client and label. Clients are ordered by their dominant label.
    """
    fig, axes = grid(2 * len(counts), columns=2, width=4.75, height=2.4)
    for shares_ax, classes_ax, (title, table) in zip(axes[::2], axes[1::2], counts.items(), strict=True):
        N, K = table.shape
        colours = sns.color_palette("colorblind", 10) if K <= 10 else sns.color_palette("viridis", K)
        shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
        order = np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))
        edges = np.concatenate([np.zeros((N, 1)), shares[order].cumsum(axis=1)], axis=1)
        edges = np.concatenate([edges, edges[-1:]])
        for k in range(K):
            low, high = edges[:, k], edges[:, k + 1]
            shares_ax.fill_between(
                np.arange(N + 1), low, high, step="post", color=colours[k], lw=0, label=str(k)
            )
        shares_ax.set(
            title=f"{title}: label shares", xlabel="client (ordered by label)", ylabel="share of samples"
        )
        shares_ax.set(xlim=(0, N), ylim=(0, 1))
        shares_ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        classes_ax.bar(np.arange(K), table.sum(axis=0), color=colours)
        classes_ax.set(title=f"{title}: all clients together", xlabel="class", ylabel="samples (count)")
        classes_ax.set_xticks(range(K) if K <= 10 else range(0, K, 10))
        for ax in (shares_ax, classes_ax):
            ax.grid(visible=False, axis="x")
    if K <= 10:
        fig.legend(*axes[0].get_legend_handles_labels(), title="class", loc="outside right center")
    return fig


def heatmap(
    table: pd.DataFrame, xlabel: str, ylabel: str, unit: str, *, fmt: str = "", title: str = ""
) -> Figure:
    """A table as colours, with numbers in the cells if `fmt` is given."""
    rows, columns = table.shape
    fig, ax = plt.subplots(figsize=(max(4.5, 0.75 * columns + 2), max(2.5, 0.4 * rows + 1)))
    sns.heatmap(table, ax=ax, cmap="cividis", annot=bool(fmt), fmt=fmt or ".2g", cbar_kws={"label": unit})
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    return fig


def scatter(
    ax: Axes,
    points: np.ndarray,
    groups: np.ndarray,
    xlabel: str,
    ylabel: str,
    title: str = "",
    legend: str = "",
) -> None:
    """(n, 2) points in one panel, coloured and shaped by group (n,); legend: its title, or empty for no legend."""
    kinds = np.unique(groups)
    colours = (
        sns.color_palette("colorblind", 10) if len(kinds) <= 10 else sns.color_palette("husl", len(kinds))
    )
    for i, group in enumerate(kinds):
        members = points[groups == group]
        ax.scatter(
            *members.T,
            color=[colours[i]],
            marker="osD^v<>PXp"[i % 10],
            s=28,
            label=str(group),
            lw=0.3,
            ec="white",
        )
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if legend:
        ax.legend(title=legend, loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small")
