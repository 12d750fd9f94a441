"""Pictures of many experiments at once: verdicts by paper, ranks over settings, advantage over a reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from textwrap import shorten, wrap

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fedlib import measure
from fedlib.drawing.panels import grid, legend_below
from fedlib.drawing.style import looks
from workspace.analysis.headline import tested_first
from workspace.analysis.readings import TESTED

# As in site/static/house.css: an outcome has the same colour on every page and in every picture. On a dark page the
# lightness of pictures is turned around, so no two colours differ by it alone, except greys.
SHADES = {
    "holds": "#1a7f37",
    "holds where run": "#0f7b80",
    "contradicted": "#b42318",
    "not after correction": "#6b7300",
    "shown in part": "#9a5b00",
    "not shown": "#6a737d",
    "one seed": "#b6bec6",
    "not run": "#e6e8eb",
    "infeasible": "#8250df",
    "by construction": "#3d6a8a",
}
DARK = 0.18  # luminance below which words on a shade are white
MARKS = {  # of claims in worlds
    "holds": "o",
    "contradicted": "s",
    "not after correction": "^",
    "not shown": "D",
    "equal": "x",
    "one seed": "+",
}


def ink(shade: str) -> str:
    """The colour of words on a shade, which can be read."""
    return "#ffffff" if luminance(shade) < DARK else "#000000"


def luminance(shade: str) -> float:
    """The relative luminance of a colour (WCAG 2), from 0 for black to 1 for white."""
    parts = np.array(to_rgb(shade))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def outcome_bars(tallies: Mapping[str, Mapping[str, int]], outcomes: Sequence[str]) -> Figure:
    """The number of core claims of each paper with each outcome.

    It is narrow enough for a phone: the papers' names stand above their bars.
    """
    fig, ax = plt.subplots(figsize=(4.6, 0.75 * max(1, len(tallies)) + 1.1))
    for name in outcomes:
        if any(counts.get(name) for counts in tallies.values()):
            ax.barh([0], [0], color=SHADES[name], label=name)
    for y, (paper, counts) in enumerate(tallies.items()):
        offset = 0
        for name in outcomes:
            if count := counts.get(name, 0):
                ax.barh(y, count, 0.5, left=offset, color=SHADES[name])
                ax.text(
                    *(offset + count / 2, y, str(count)),
                    ha="center",
                    va="center",
                    fontsize="small",
                    color=ink(SHADES[name]),
                )
                offset += count
        ax.text(0, y - 0.3, paper, va="bottom", fontsize="small")
    ax.set(xlabel="core claims (count)", yticks=[], ylim=(len(tallies) - 0.6, -0.7))
    ax.grid(visible=False, axis="y")
    legend_below(fig, [ax], columns=3)
    return fig


def claims_in_worlds(
    claims: pd.DataFrame, xlabel: str, rows: str = "method", base: str = "base", columns: int = 3
) -> Figure:
    """A panel for each setting: the effect of every method with its interval, marked by its outcome.

    claims: columns setting, method, difference, low, high and outcome (`analysis.worlds.claims`); what a round costs
    stands on the right where `analysis.worlds.beside` added it, of `base` above the panel. rows: "setting" for a panel
    for each method and a row for each setting.
    """
    panels = "method" if rows == "setting" else "setting"
    titles, names = (list(dict.fromkeys(claims[key])) for key in (panels, rows))
    costly, occurring = "arrived" in claims, set(claims["outcome"])
    columns = 2 if len(titles) == 4 else min(columns, len(titles))  # no panel alone in its row
    width = 3.4 + costly * (0.7 if len(titles) > 1 else 3.0)
    fig, axes = grid(len(titles), columns, width, height=0.21 * len(names) + 1.1 + 0.1 * costly)
    for place, (ax, title) in enumerate(zip(axes, titles, strict=True)):
        panel = claims[claims[panels] == title].set_index(rows).reindex(names)
        ax.axvline(0, color="black", lw=0.8)
        for outcome, mark in MARKS.items():
            shown, shade = panel["outcome"] == outcome, SHADES.get(outcome, SHADES["one seed"])
            y = np.flatnonzero(shown)
            ax.hlines(y, panel["low"][shown], panel["high"][shown], color=shade, lw=1.6)
            label = outcome if outcome in occurring else None  # in all panels, in the legend's order
            ax.plot(panel["difference"][shown], y, mark, color=shade, ms=5, label=label)
        ax.set_title(title, loc="left", pad=28 if costly else None)  # above what stands over the costs
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_yticks(range(len(names)), names if place % columns == 0 else [], fontsize="small")
        ax.locator_params(axis="x", nbins=4)
        ax.grid(visible=False, axis="y")
        if costly:
            costs_beside(ax, panel, base)
        if place + columns >= len(axes):  # nothing is below it
            ax.set_xlabel(xlabel, fontsize="small")
    legend_below(fig, axes)
    return fig


def costs_beside(ax: Axes, panel: pd.DataFrame, base: str) -> None:
    """Updates that arrived and MB sent in a round, right of each row; those of `base` above, or in each row."""
    own, of_base = (
        [f"{a:.1f} · {b:.2f}" for a, b in zip(panel[f"arrived{end}"], panel[f"megabytes{end}"], strict=True)]
        for end in ("", "_base")
    )
    ran = np.flatnonzero(panel["outcome"].notna())
    shared = {of_base[row] for row in ran}
    above = f"\n{base}: {shared.pop()}" if len(shared) == 1 else f"\n({base})"
    ax.text(1.02, 1.01, f"updates · MB a round{above}", transform=ax.transAxes, va="bottom", fontsize="small")
    for row in ran:
        beside = own[row] if ":" in above else f"{own[row]} ({of_base[row]})"
        ax.text(1.02, row, beside, transform=ax.get_yaxis_transform(), va="center", fontsize="small")


def choice_shares(shares: pd.DataFrame) -> Figure:
    """The share of the variance of a claim's effect over its readings that each choice explains.

    shares: rows of `effects.sensitivity` of one claim. Narrow enough for a phone: the choices stand above their bars.
    """
    labels = ["\n".join(wrap(choice, 56)) for choice in shares["choice"]]
    heights = [0.35 + 0.17 * (1 + label.count("\n")) for label in labels]
    fig, ax = plt.subplots(figsize=(4.6, sum(heights) + 0.7))
    top = 0.0
    for label, height, share in zip(labels, heights, shares["share"], strict=True):
        y = top + height - 0.18
        ax.barh(y, 100 * share, 0.2, color="#0072B2")
        ax.text(0.6, y - 0.13, label, va="bottom", fontsize="small")
        ax.text(100 * share + 1, y, f"{100 * share:.0f} %", va="center", fontsize="small")
        top += height
    ax.set(
        xlabel=f"variance explained (%), over {shares['readings'].iloc[0]} readings",
        yticks=[],
        xlim=(0, 112),
        ylim=(top + 0.05, 0),
    )
    ax.set_xticks(range(0, 101, 25))
    ax.grid(visible=False, axis="y")
    return fig


def values_and_costs(rows: pd.DataFrame, xlabel: str) -> Figure:
    """A value of every method with its interval, and beside it what the method cost.

    rows: columns name, kind ("sampler", "submission" or anything else, which is drawn in grey), value, low, high, and
    bytes and steps as multiples of Random's, in order. Narrow enough for a phone.
    """
    fig, ax = plt.subplots(figsize=(4.8, 0.22 * len(rows) + 1.0))
    shades = {"sampler": "#0072B2", "submission": "#D55E00"}
    for kind, part in rows.reset_index(drop=True).groupby("kind", sort=False):
        shade = shades.get(str(kind), SHADES["not shown"])
        ax.hlines(part.index, part["low"], part["high"], color=shade, lw=1.6)
        ax.plot(
            part["value"], part.index, "D" if kind == "submission" else "o", color=shade, ms=4.5, label=kind
        )
    across = ax.get_yaxis_transform()
    for place, cost in ((1.2, "bytes"), (1.42, "steps")):
        ax.text(place, -1.1, cost, transform=across, ha="right", va="center", fontsize="small")
        for y, value in enumerate(rows[cost]):
            ax.text(place, y, f"{value:.2g}×", transform=across, ha="right", va="center", fontsize="small")
    ax.axvline(0, color="black", lw=0.8)
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.7))
    ax.set_yticks(range(len(rows)), rows["name"], fontsize="small", parse_math=False)
    ax.grid(visible=False, axis="y")
    legend_below(fig, [ax], columns=3)
    return fig


def critical_difference(scores: pd.DataFrame, level: float = 0.05) -> Figure:
    """Mean ranks of the methods (columns) over the cases (rows) of `scores`, best on the left (Demsar 2006).

    Methods joined by a bar differ by less than Nemenyi's critical difference at `level`.
    """
    ranks = measure.mean_ranks(scores)
    cases, k = scores.shape
    cd = measure.critical_difference(k, cases, level)
    fig, ax = plt.subplots(figsize=(9, 1.4 + 0.26 * k))
    in_left_column = math.ceil(k / 2)
    for i, (method, rank) in enumerate(ranks.items()):
        on_left = i < in_left_column
        y = -1.0 - (i if on_left else k - 1 - i)
        x = 0.6 if on_left else k + 0.4
        ax.plot([rank, rank, x], [0, y, y], lw=1.2, color=looks([str(method)])[str(method)]["color"])
        ax.text(
            x, y, f" {method} ({rank:.2f}) ", ha="right" if on_left else "left", va="center", fontsize="small"
        )
    values = ranks.to_numpy()
    last = 0
    height = 0
    for i, low in enumerate(values):
        reach = int(np.searchsorted(values, low + cd, side="right")) - 1
        if reach > max(last, i):
            ax.plot([low - 0.03, values[reach] + 0.03], [-0.3 - 0.16 * height] * 2, color="black", lw=3)
            height, last = height + 1, reach
    ax.plot([1, 1 + cd], [0.9, 0.9], color="black", lw=1.5)
    ax.text(1 + cd / 2, 1.0, f"critical difference {cd:.2f}", ha="center", va="bottom", fontsize="small")
    ax.plot([1, k], [0, 0], color="black", lw=1)
    for tick in range(1, k + 1):
        ax.plot([tick, tick], [0, 0.15], color="black", lw=1)
        ax.text(tick, 0.2, str(tick), ha="center", va="bottom", fontsize="small")
    ax.set(xlim=(-0.2 * k, 1.2 * k + 1), ylim=(-1.5 - in_left_column, 2.2))
    ax.set_axis_off()
    ax.set_title(f"mean rank over {cases} cases (1 = best)", fontsize="medium")
    return fig


def ratio_map(table: pd.DataFrame, words: str) -> Figure:
    """How many times better (above 1) or worse than a reference: `table` of ratios, one row per method.

    0 stands for "never"; colours are logarithmic, from a quarter to four times.
    """
    texts = table.map(lambda x: "" if math.isnan(x) else "never" if x == 0 else f"{x:.2g}")
    colours = np.log2(table.where(table > 0, 2**-10).where(table.notna()))
    rows, columns = table.shape
    fig, ax = plt.subplots(figsize=(0.62 * columns + 4, 0.36 * rows + 2.4))
    bar = {"label": words, "ticks": [-2, -1, 0, 1, 2]}
    sns.heatmap(colours, ax=ax, annot=texts, fmt="", cmap="vlag_r", center=0, vmin=-2, vmax=2, cbar_kws=bar,
                linewidths=0.5, annot_kws={"size": 9})  # fmt: skip
    colorbar = ax.collections[0].colorbar
    assert colorbar  # of the map
    colorbar.ax.set_yticklabels(["1/4", "1/2", "1", "2", "4"])
    ax.set(xlabel="setting", ylabel="")
    texts_at = [text.get_text() for text in ax.get_xticklabels()]
    ax.set_xticks(ax.get_xticks(), texts_at, rotation=40, ha="right", rotation_mode="anchor")
    ax.grid(visible=False)
    return fig


def performance_profiles(profile: pd.DataFrame, groups: Mapping[str, Sequence[str]], xlabel: str) -> Figure:
    """The share of runs with a score above each level, with its band over seeds; a panel for each group of methods.

    profile: columns method, level, share, low, high.
    """
    fig, axes = plt.subplots(1, len(groups), figsize=(4.6 * len(groups), 3.6), sharey=True, squeeze=False)
    worn = looks(list(dict.fromkeys(method for methods in groups.values() for method in methods)))
    for ax, (title, methods) in zip(axes[0], groups.items(), strict=True):
        for method in methods:
            rows = profile[profile["method"] == method]
            look = {key: worn[method][key] for key in ("color", "linestyle")}
            ax.step(rows["level"], rows["share"], where="post", label=method, **look)
            ax.fill_between(
                rows["level"], rows["low"], rows["high"], step="post", color=look["color"], alpha=0.12, lw=0
            )
        ax.set(title=title, xlabel=xlabel, ylim=(-0.02, 1.02))
    axes[0][0].set_ylabel("share of runs above")
    legend_below(fig, list(axes[0]), columns=4)
    return fig


def specification_curve(rows: pd.DataFrame, words: str, printed: float | None, null: float = 1.0) -> Figure:
    """The effect under every archived reading, sorted, with intervals over seeds; below, what each takes.

    rows: `headline.specifications`; what all readings take alike is left out below. The tested reading is a black
    square, those beside it are coloured. An effect whose null is 1 is a ratio, on a logarithmic axis. An interval that
    no run bounds goes to the edge.
    """
    columns = ("reading", "called", "effect", "low", "high", "seeds")
    choices = [name for name in rows.columns if name not in columns]
    first = tested_first(rows)
    groups = {choice: list(dict.fromkeys(first[choice].dropna())) for choice in choices}
    groups = {choice: values for choice, values in groups.items() if len(values) > 1}
    lines = sum(len(values) + 1 for values in groups.values())
    fig, (effects_ax, choices_ax) = plt.subplots(
        2, 1, figsize=(8, 3.2 + 0.2 * lines), sharex=True, layout="constrained",
        gridspec_kw={"height_ratios": [2.6, max(0.2 * lines, 0.2)]},
    )  # fmt: skip
    x = np.arange(len(rows))
    if null == 1:
        effects_ax.set_yscale("log", base=2)
        effects_ax.yaxis.set_major_formatter("{x:g}")
    effects_ax.plot(x, rows["effect"], "o", ms=4, color="#0072B2", label="a reading tried")
    marks = cycle((("#D55E00", "D"), ("#009E73", "^"), ("#E69F00", "v")))
    for name in first["called"][first["called"] != ""]:
        shade, shape = ("black", "s") if name.endswith(TESTED) else next(marks)
        mask = rows["called"] == name
        effects_ax.plot(x[mask], rows["effect"][mask], shape, ms=8, color=shade, label=name)
    effects_ax.axhline(null, color="black", lw=0.8)
    if printed is not None:
        effects_ax.axhline(printed, color="#CC79A7", lw=1.4, ls="--", label=f"printed: {printed:.3g}")
    bounded = {"low": rows["low"] > (0 if null == 1 else -np.inf), "high": rows["high"] < np.inf}
    grey = {"color": "#999999", "lw": 1.2, "zorder": 1}
    for end, mask in bounded.items():
        effects_ax.vlines(x[mask], rows["effect"][mask], rows[end][mask], **grey)
    for mask, edge in zip(bounded.values(), effects_ax.get_ylim(), strict=True):
        effects_ax.vlines(x[~mask], rows["effect"][~mask], edge, **grey)
    effects_ax.autoscale(enable=False, axis="y")
    fig.suptitle("\n".join(wrap(words, 84)), fontsize=11, x=0.02, ha="left")
    effects_ax.set_ylabel("ratio" if null == 1 else words[words.rfind("(") :].strip("()"))
    effects_ax.legend(fontsize=10, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)
    labels: list[tuple[float, str, str]] = []
    for choice, values in groups.items():
        labels.append((len(labels), choice, "bold"))
        for value in values:
            positions = x[rows[choice] == value]
            choices_ax.plot(
                positions, np.full(len(positions), len(labels)), "|", ms=8, mew=2, color="#333333"
            )
            labels.append((len(labels), shorten(value, 46, placeholder=" …"), "normal"))
    choices_ax.set_yticks([y for y, _, _ in labels], [text for _, text, _ in labels], fontsize=10)
    for tick, (_, _, weight) in zip(choices_ax.get_yticklabels(), labels, strict=True):
        tick.set_fontweight(weight)
    choices_ax.set(ylim=(len(labels) - 0.5, -0.5), xlabel=f"{len(rows)} readings, sorted by the effect")
    choices_ax.set_xticks([])
    choices_ax.grid(visible=False)
    return fig
