"""Pictures of studies, one function per kind; other pictures are in `plots.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy import stats
from sklearn.manifold import TSNE

from fedlib.drawing.plots import Smoother, draw_curves, grid, label_axes, legend_below, scatter
from fedlib.drawing.style import DASHES, Look, family, looks, sweep
from fedlib.measure import Missing

SUBSCRIPTS = str.maketrans(
    "0123456789", "₀₁₂₃₄₅₆₇₈₉"
)  # in the text's own size: raised and lowered ones are too small to read
PICKS = {"Ind": ("#D55E00", "s"), "Cor": ("#0072B2", "D"), "Opt": ("#009E73", "^")}  # FedCor's Figure 1


def toy(table: pd.DataFrame, draws: Sequence[int]) -> Figure:
    """FedCor's toy problem (study `toy`): the points, the selections of Ind, Cor and Opt, and their decision lines."""
    first = table[table["setting"] == table["setting"].iloc[0]]
    fig, axes = grid(len(draws), len(draws), width=4.2, height=3.9)
    for ax, draw in zip(axes, draws, strict=True):
        rows = first[first["draw"] == draw].set_index("method")
        x, y = rows.loc["start", "x"].reshape(-1, 2), rows.loc["start", "y"]
        for label, marker in ((1, "+"), (-1, "_")):
            ax.scatter(
                *x[y == label].T, marker=marker, color="#555555", s=40, lw=1.2, label=f"label {label:+d}"
            )
        line(ax, rows.loc["start", "w"], "#999999", ":", f"before ({rows.loc['start', 'loss']:.2f})")
        for i, (method, (colour, marker)) in enumerate(PICKS.items()):
            chosen = x[rows.loc[method, "chosen"].astype(int)]
            ax.scatter(*chosen.T, marker=marker, s=90 + 50 * i, facecolor="none", edgecolor=colour, lw=1.8)
            line(ax, rows.loc[method, "w"], colour, "-", f"{method} ({rows.loc[method, 'loss']:.2f})", marker)
        low, high = x.min(axis=0) - 0.4, x.max(axis=0) + 0.4
        ax.set(
            xlim=(low[0], high[0]),
            ylim=(low[1], high[1]),
            xlabel="x₁",
            ylabel="x₂",
            title=f"draw {draw}",
        )
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return fig


def line(ax: Axes, w: np.ndarray, colour: str, dashes: str, label: str, marker: str = "") -> None:
    """The points where w_1 x_1 + w_2 x_2 + w_3 = 0."""
    across = np.linspace(-50, 50, 2)
    if abs(w[1]) > abs(w[0]):
        points = across, -(w[2] + w[0] * across) / w[1]
    else:
        points = -(w[2] + w[1] * across) / w[0], across
    ax.plot(*points, color=colour, ls=dashes, lw=1.4, label=label, marker=marker, markerfacecolor="none")


def histograms(samples: Mapping[str, np.ndarray], xlabel: str, columns: int = 3) -> Figure:
    """One histogram per panel, as a density, with the Gaussian of the sample's mean and variance in red."""
    fig, axes = grid(len(samples), columns, width=3.4, height=2.6)
    for ax, (title, values) in zip(axes, samples.items(), strict=True):
        values = np.asarray(values, dtype=float)
        ax.hist(values, bins=min(40, max(10, len(values) // 20)), density=True, color="#0072B2", alpha=0.55)
        across = np.linspace(values.min(), values.max(), 200)
        ax.plot(across, stats.norm.pdf(across, values.mean(), values.std()), color="#CC3311", lw=1.6)
        ax.set(title=title, xlabel=xlabel, ylabel="density")
    return fig


def similarities(panels: Mapping[str, pd.DataFrame], bounds: Mapping[str, float]) -> Figure:
    """Cosine of consecutive covariances against the round (study `loss_changes`), one line per run that was followed.

    panels: title -> rows of one setting; mean and standard deviation over seeds. Dashed: without the mean diagonal.
    bounds: title -> the paper's.
    """
    fig, axes = grid(len(panels), 2, width=4.8, height=3.3)
    for ax, (title, table) in zip(axes, panels.items(), strict=True):
        styles = looks(table["method"].unique().tolist())
        for method, rows in table.groupby("method", sort=False):
            colour = styles[str(method)]["color"]
            plain, centred = (
                rows.pivot(index="round", columns="seed", values=column).dropna()
                for column in ("cosine", "cosine_centred")
            )
            mean, spread = plain.mean(axis=1), plain.std(axis=1).fillna(0)
            (line,) = ax.plot(plain.index, mean, color=colour, lw=1.6, label=f"along {method}")
            line.seeds = (  # ty: ignore[missing-attribute]  # for `interactive.py`
                [plain[seed] for seed in plain] if plain.shape[1] > 1 else []
            )
            ax.fill_between(plain.index, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
            ax.plot(centred.index, centred.mean(axis=1), color=colour, lw=1.2, ls="--")
        ax.plot([], [], color="black", lw=1.2, ls="--", label="without the mean diagonal")
        ax.axhline(bounds[title], color="black", lw=0.8, ls=":", label="the paper's bound")
        ax.set(title=title, xlabel="round", ylabel="cosine of covariances", ylim=(None, 1.01))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    legend_below(fig, axes)
    return fig


def selections(
    ax: Axes, counts: Mapping[str, np.ndarray], styles: Mapping[str, Look], title: str = ""
) -> None:
    """How often each client was selected, one line per method; counts: (N,) each, in descending order."""
    for method, values in counts.items():
        look = {k: v for k, v in styles[method].items() if k != "marker"}
        ax.plot(np.arange(1, len(values) + 1), values, lw=1.6, label=method, **look)
    ax.set(xlabel="clients, most selected first", ylabel="times selected", title=title)
    ax.set_ylim(bottom=0)


def curves_and_selections(
    curves: Mapping[str, pd.DataFrame],
    counts: Mapping[str, Mapping[str, np.ndarray]],
    smooth: Smoother | None = None,
) -> Figure:
    """FedCor's Figure 6, one row per dataset: test accuracy of each beta, and how often each client was selected."""
    fig, axes = plt.subplots(len(curves), 2, figsize=(9.5, 3.2 * len(curves)), squeeze=False)
    for (accuracy_ax, counts_ax), (data, rows) in zip(axes, curves.items(), strict=True):
        betas = list(counts[data])
        styles = {**sweep(betas), **looks(["Random"])}
        draw_curves(
            accuracy_ax, rows, "test_accuracy", methods=["Random", *betas], smooth=smooth, styles=styles
        )
        label_axes(accuracy_ax, "round", "test_accuracy")
        accuracy_ax.set_title(data)
        selections(counts_ax, counts[data], styles, f"{data}: selections over the run")
        accuracy_ax.legend(fontsize="small", loc="lower right")
    return fig


def method_panels(
    results: pd.DataFrame, y: str, panels: Mapping[str, Sequence[str]], smooth: Smoother | None
) -> Figure:
    """Every setting's methods in several panels, title -> methods; variants of a family have different colours.

    Methods that have not been run are left out, and so are panels with fewer than two methods, if others have more.
    """
    panels_shown = {}
    for setting, runs in results.groupby("setting", sort=False):
        ran = set(runs["method"].unique())
        for title, methods in panels.items():
            if present := [method for method in methods if method in ran]:
                panels_shown[f"{setting}: {title}"] = runs, present
    panels_shown = {
        title: panel for title, panel in panels_shown.items() if len(panel[1]) > 1
    } or panels_shown
    fig, axes = grid(len(panels_shown), 2, width=5.2, height=3.6)
    for ax, (title, (runs, methods)) in zip(axes, panels_shown.items(), strict=True):
        alike = [m for m in methods if family(m) == family(methods[-1]) != m]
        ramp = zip(alike, sns.color_palette("flare", len(alike)), strict=True)
        variant_styles = {
            m: {"color": colour, "linestyle": DASHES[1 + i % 4]} for i, (m, colour) in enumerate(ramp)
        }
        styles = looks(methods) | variant_styles
        draw_curves(ax, runs, y, methods=methods, smooth=smooth, band=False, styles=styles)
        label_axes(ax, "round", y)
        ax.set_title(title)
        ax.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def embedded(panels: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Figure:
    """t-SNE of embeddings (N, d), coloured by label (N,), one panel per dataset (FedCor's Figure 7)."""
    if not panels:
        raise Missing("no run has embeddings")
    fig, axes = grid(len(panels), 2, width=4.6, height=3.6)
    for ax, (title, (x, labels)) in zip(axes, panels.items(), strict=True):
        tsne = TSNE(perplexity=min(30, len(x) / 4), init="pca", random_state=0)
        scatter(ax, tsne.fit_transform(x), labels, "t-SNE 1", "t-SNE 2", title, legend="label")
        ax.set(xticks=[], yticks=[])
    return fig


def layers(row: pd.Series, names: Sequence[str] | None = None) -> Figure:
    """The last two layers with their values (study `last_layer`): z, W, b, q, and the gradient of the loss by b."""
    z, b, q, gradient = (np.asarray(row[key], dtype=float) for key in ("z", "b", "q", "gradient"))
    K, L = len(b), len(z)
    W = np.asarray(row["W"], dtype=float).reshape(K, L)
    features = np.argsort(-np.abs(z), kind="stable")[:12]
    fig, ax = plt.subplots(figsize=(9.5, 5.2))
    feature_heights, class_heights = np.linspace(1, 0, len(features)), np.linspace(1, 0, K)
    cmap, norm = (
        sns.color_palette("vlag", as_cmap=True),
        mpl.colors.CenteredNorm(halfrange=np.abs(W[:, features]).max()),
    )
    for i, y in zip(features, feature_heights, strict=True):
        for k, y_k in enumerate(class_heights):
            ax.plot(
                [0.04, 0.96],
                [y, y_k],
                color=cmap(norm(W[k, i])),
                lw=0.4 + 2 * abs(norm(W[k, i]) - 0.5),
                zorder=1,
            )
        ax.text(-0.05, y, f"z{subscript(i + 1)} = {z[i]:.2f}", ha="right", va="center", fontsize=9)
    ax.scatter(np.zeros(len(features)), feature_heights, s=130, color="#DDDDDD", ec="black", zorder=2)
    true = int(row["label"])
    ax.scatter(
        np.ones(K),
        class_heights,
        s=150,
        color=["#0072B2" if k == true else "#DDDDDD" for k in range(K)],
        ec="black",
        zorder=2,
    )
    columns = (
        ("class", 1.06),
        ("bias b", 1.28),
        ("logit q", 1.44),
        ("∂ loss / ∂b", 1.62),
    )
    for head, x in columns:
        ax.text(x, 1.07, head, ha="left", va="bottom", fontsize=9, fontweight="bold")
    for k, y in enumerate(class_heights):
        weight = "bold" if k == true else "normal"
        cells = (names[k] if names else str(k), f"{b[k]:+.3f}", f"{q[k]:+.2f}", f"{gradient[k]:+.3f}")
        for text, (_, x) in zip(cells, columns, strict=True):
            ax.text(x, y, text, va="center", fontsize=9, fontweight=weight)
    ax.text(
        0,
        1.07,
        f"features z\n({len(features)} largest of {L})",
        ha="center",
        va="bottom",
        fontsize=9,
        fontweight="bold",
    )
    ax.set(xlim=(-0.3, 1.85), ylim=(-0.06, 1.22))
    ax.set_axis_off()
    fig.colorbar(
        mpl.cm.ScalarMappable(norm, cmap),
        ax=ax,
        label="weight Wᵢₖ",
        shrink=0.6,
        location="bottom",
        pad=0.02,
    )
    return fig


def subscript(number: int) -> str:
    return str(number).translate(SUBSCRIPTS)


def ownership(panels: Mapping[str, np.ndarray], columns: int = 3) -> Figure:
    """Samples by label and client as colours, one panel per setting (HiCS-FL's Figures 7 and 8); (N, K) counts each."""
    fig, axes = grid(len(panels), columns, width=4.4, height=3.0)
    largest = max(counts.max() for counts in panels.values())
    for ax, (title, counts) in zip(axes, panels.items(), strict=True):
        image = ax.imshow(
            counts.T,
            aspect="auto",
            cmap="cividis",
            vmin=0,
            vmax=largest,
            origin="lower",
            interpolation="none",
        )
        ax.set(title=title, xlabel="client", ylabel="label")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        ax.grid(visible=False)
    fig.colorbar(image, ax=axes, label="samples (count)")
    return fig


def entropies(panels: Mapping[str, tuple[np.ndarray, np.ndarray]], top: float, columns: int = 2) -> Figure:
    """Estimated and true label entropy of each client, and how far their orders agree (Kendall's tau).

    panels: title -> true, estimated entropies (N,).
    """
    fig, axes = grid(len(panels), columns, width=4.8, height=3.2)
    for ax, (title, (true, estimated)) in zip(axes, panels.items(), strict=True):
        order, clients = np.argsort(true, kind="stable"), np.arange(1, len(true) + 1)
        ax.plot(clients, true[order], "_", ms=7, mew=2, color="black", label="true")
        ax.plot(clients, estimated[order], "o", ms=4, color="#CC3311", label="estimated")
        ax.axhline(top, color="#999999", lw=0.8, ls=":", label="ln (number of classes)")
        tau = stats.kendalltau(true, estimated).statistic
        agreement = f"; Kendall's tau {tau:.2f}" if math.isfinite(tau) else ""
        ax.set(title=title, xlabel=f"client, ordered by true entropy{agreement}", ylabel="entropy (nats)")
    legend_below(fig, axes)
    return fig


def envelopes(
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]],
    curves: Mapping[str, Mapping[str, Callable[[np.ndarray], np.ndarray]]],
) -> Figure:
    """Gradient difference against label entropy, one point per client, between enveloping curves (HiCS-FL's Figure 6).

    panels: title -> entropies (n,), differences (n,). curves: title -> label -> function of the entropy.
    """
    fig, axes = grid(len(panels), 2, width=4.8, height=3.6)
    for ax, (title, (entropy, difference)) in zip(axes, panels.items(), strict=True):
        ax.scatter(entropy, difference, s=10, color="#555555", alpha=0.5, lw=0)
        across = np.linspace(entropy.min(), entropy.max(), 200)
        for (label, curve), colour in zip(
            curves[title].items(), ("#0072B2", "#009E73", "#999999"), strict=False
        ):
            ax.plot(across, curve(across), ls="--", lw=1.8, color=colour, label=label)
        ax.set(title=title, xlabel="label entropy H(Dₖ) (nats)")
        ax.set_ylabel("‖η∇Fₖ − η∇F‖²")
        ax.set_ylim(bottom=min(0.0, difference.min()), top=1.1 * difference.max())
    legend_below(fig, axes)
    return fig
