"""Figures of the study: core claims, readings, gains by label skew, cost against gain, worlds. Readable in print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, PRINT = "#0072B2", "#b0469a"  # ours, printed (Okabe and Ito)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7f7f7f")
MARKERS = "osD^vP*X"
FEWEST, MOST = 0.25, 16.0  # ratios beyond are drawn at the edge


def forest(core: pd.DataFrame) -> Figure:
    """Core claims with an interval: ratios with what is printed, and differences in half-widths of their interval.

    core: claim, unit, estimate, low, high, open, under, printed.
    """
    ratios, differences = (core[(core["unit"] == "times") == is_ratio] for is_ratio in (True, False))
    fig, axes = plt.subplots(
        1, 2, figsize=(7.2, 0.27 * max(len(ratios), len(differences), 1) + 1.0), layout="constrained"
    )
    ratio_axes, right = axes
    names = [str(name) for name in ratios["claim"]]
    for y, row in enumerate(ratios.to_dict("records")):
        low, high = (min(MOST, max(FEWEST, float(row[end]))) for end in ("low", "high"))
        ratio_axes.plot([low, high], [y, y], color=INK, lw=1.6)
        for end, value, mark in (("low", low, "<"), ("high", high, ">")):
            if not math.isfinite(row[end]) or not FEWEST <= row[end] <= MOST:
                ratio_axes.plot(value, y, mark, color=INK, ms=5)
        ratio_axes.plot(min(MOST, max(FEWEST, row["estimate"])), y, "o", color=INK, ms=5)
        if math.isfinite(row["printed"]):
            ratio_axes.plot(min(MOST, row["printed"]), y, "D", mfc="none", color=PRINT, ms=6)
    ratio_axes.set(xscale="log", xlim=(FEWEST * 0.9, MOST * 1.1), xlabel="ratio; above 1: as claimed")
    ratio_axes.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16], ["¼", "½", "1", "2", "4", "8", "16"])
    ratio_axes.axvline(1, color="black", lw=0.8)
    half = (differences["high"] - differences["low"]) / 2
    scaled = ((differences["estimate"] - differences["null"]) / half.where(half > 0)).clip(-6, 6)
    for y, value in enumerate(scaled):
        right.plot([value - 1, value + 1], [y, y], color=INK, lw=1.6)
        right.plot(value, y, "o", color=INK, ms=5)
    right.set(xlabel="difference, in half-widths of its interval; above 0: as claimed", xlim=(-7.5, 7.5))
    right.axvline(0, color="black", lw=0.8)
    _rows(ratio_axes, names)
    units = [f" ({row['unit']})" if row["unit"] else "" for row in differences.to_dict("records")]
    _rows(right, [f"{name}{unit}" for name, unit in zip(differences["claim"], units, strict=True)])
    return fig


def _rows(ax: Axes, names: Sequence[str]) -> None:
    ax.set_yticks(range(len(names)), names, fontsize=7)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="x", labelsize=7)
    ax.set_xlabel(ax.get_xlabel(), fontsize=7)
    ax.grid(visible=True, axis="x", lw=0.3, alpha=0.5)
    ax.grid(visible=False, axis="y")


def multiverse(readings: pd.DataFrame) -> Figure:
    """The effect of each claim under every reading, by the option of the choice that explains most of the variance.

    readings: claim, estimate (a ratio), printed, primary, choice, option; a row a reading.
    """
    claims = list(dict.fromkeys(readings["claim"]))
    fig, ax = plt.subplots(figsize=(7.2, 0.42 * max(len(claims), 1) + 0.9), layout="constrained")
    for y, claim in enumerate(claims):
        mine = readings[readings["claim"] == claim]
        for k, (_, rows) in enumerate(mine.groupby("option", sort=True)):
            heights = y + 0.16 * (k - (mine["option"].nunique() - 1) / 2)
            values = rows["estimate"].clip(FEWEST, MOST)
            colour, mark = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
            ax.plot(values, [heights] * len(rows), mark, color=colour, ms=3.5, alpha=0.6, ls="")
            if rows["primary"].any():
                position = values[rows["primary"]].iloc[0]
                ax.plot(position, heights, mark, color=colour, mec="black", mew=1, ms=7)
        printed = mine["printed"].dropna()
        if len(printed):
            ax.plot(min(MOST, printed.iloc[0]), y, "D", mfc="none", color=PRINT, ms=8)
    ax.set(xscale="log", xlim=(FEWEST * 0.9, MOST * 1.1), xlabel="ratio; above 1: as claimed")
    ax.set_xticks([0.25, 0.5, 1, 2, 4, 8, 16], ["¼", "½", "1", "2", "4", "8", "16"])
    ax.axvline(1, color="black", lw=0.8)
    choices = readings.drop_duplicates("claim").set_index("claim")["choice"]
    _rows(ax, [f"{claim}: {choices[claim]}" if choices[claim] else claim for claim in claims])
    return fig


def skew(gains: pd.DataFrame, methods: Sequence[str]) -> Figure:
    """Points of accuracy above Random in every setting, by what clients hold.

    gains: labels, setting, method, gain, low, high, in the order of the labels; NaN ends: one seed.
    """
    places = gains.drop_duplicates("setting")[["labels", "setting"]].to_dict("records")
    height = 0.46 * len(places) + 1.4
    fig, ax = plt.subplots(figsize=(7.2, height), layout="constrained")
    shift = np.linspace(-0.34, 0.34, len(methods))
    for k, method in enumerate(methods):
        mine = gains[gains["method"] == method].set_index("setting")
        where = [(y, mine.loc[p["setting"]]) for y, p in enumerate(places) if p["setting"] in mine.index]
        ys = [y + shift[k] for y, _ in where]
        colour, mark = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        for y, (_, row) in zip(ys, where, strict=True):
            if math.isfinite(row["low"]):
                ax.plot([row["low"], row["high"]], [y, y], color=colour, lw=1)
        values = [row["gain"] for _, row in where]
        ax.plot(values, ys, mark, color=colour, ms=4.5, ls="", label=method)
    for y, (first, second) in enumerate(zip(places, places[1:], strict=False)):
        if first["labels"] != second["labels"]:
            ax.axhline(y + 0.5, color="black", lw=0.8, ls=":")
    ax.axvline(0, color="black", lw=0.8)
    _rows(ax, [str(place["setting"]) for place in places])
    ax.set_xlabel("points of test accuracy above random selection, all rounds done", fontsize=7)
    fig.legend(fontsize=7, ncols=4, loc="outside lower center", frameon=False)
    return fig


def cost(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Gain over Random against bytes and local steps. rows: method, gain, low, high, bytes, steps (times Random's)."""
    fig, axes = plt.subplots(1, 2, figsize=(7.2, 3.3), sharey=True, layout="constrained")
    for ax, key, words in zip(
        axes, ("bytes", "steps"), ("bytes sent both ways", "local steps of clients"), strict=True
    ):
        for k, row in enumerate(rows):
            colour, mark = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
            face = colour if k < len(COLOURS) else "none"
            ax.plot([row[key]] * 2, [row["low"], row["high"]], color=colour, lw=1)
            ax.plot(row[key], row["gain"], mark, color=colour, mfc=face, ms=5.5, ls="", label=row["method"])
        ax.set_xscale("log")
        ax.set_xlim(0.8, 14)
        ax.set_xticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        ax.minorticks_off()
        ax.axhline(0, color="black", lw=0.8)
        ax.set_xlabel(f"{words}, times those of random selection", fontsize=7)
        ax.tick_params(labelsize=7)
    axes[0].set_ylabel("points above random selection", fontsize=7)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, fontsize=7, ncols=4, loc="outside lower center", frameon=False)
    return fig


def worlds(claims: pd.DataFrame) -> Figure:
    """Points above Random of every method in every world: bold where the interval, corrected, excludes none.

    claims: setting, method, difference, outcome (`analysis.worlds.claims`).
    """
    wide = claims.pivot(index="method", columns="setting", values="difference")
    wide = wide.loc[claims["method"].unique(), claims["setting"].unique()]
    sure = claims.pivot(index="method", columns="setting", values="sure").reindex_like(wide)
    largest = float(np.nanmax(np.abs(wide.to_numpy())))
    fig, ax = plt.subplots(figsize=(7.2, 0.25 * len(wide) + 0.9), layout="constrained")
    ax.imshow(wide, cmap="PuOr_r", vmin=-largest, vmax=largest, aspect="auto", alpha=0.75)
    for y, x in np.ndindex(*wide.shape):
        value = wide.iat[y, x]
        if math.isfinite(value):
            weight = "bold" if sure.iat[y, x] else "normal"
            ink = "white" if abs(value) > 0.75 * largest else "black"
            ax.text(x, y, f"{value:+.1f}", ha="center", va="center", fontsize=7, weight=weight, color=ink)
    ax.set_xticks(range(wide.shape[1]), list(wide.columns), fontsize=7)
    ax.set_yticks(range(len(wide)), list(wide.index), fontsize=7)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    return fig
