"""HCSFed's claims on its settings H and R (Figures 4 to 6) and on the contribution of each part (Figure 7).

Rounds to the best accuracy, which Figures 4 to 6 show, decide nothing: accuracy still rises in the last round, so they
equal T for every H and R. Rounds to 95 % of the best accuracy decide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, number, span
from fedlib.analysis.measure import at_start, best, end_mean, interval, paired, per_run, rounds_to_best
from fedlib.papers.hcsfed.printed import ABLATION, GCS, book, compared, each, hcsfed, within

# -- Figures 4 to 6

RATES = ("5 %", "10 %", "20 %", "40 %", "100 %")


def sweep(gc: str, letter: str) -> dict[str, str]:
    """Value of H or R -> method, for one reading (R = 100 % is the same in both)."""
    if letter == "H":
        return {str(H): f"{gc}, H = {H}" for H in range(5, 11)}
    return {R: "R = 100 %" if R == "100 %" else f"{gc}, R = {R}" for R in RATES}


SWEEPS = {
    name: {hcsfed(gc): sweep(gc, letter) for gc in GCS}
    for letter, name in {"H": "clusters H (count)", "R": "compression rate R"}.items()
}


def swept(results: pd.DataFrame) -> dict[str, pd.Series]:
    """Figures 4 to 6 at Dir(0.01) by (method, seed): best accuracy (%), rounds to it and to 95 % of it."""
    there = results[results["setting"] == "alpha = 0.01"]
    return {
        name: values.droplevel("setting")
        for name, values in {
            "best test accuracy (%)": 100 * per_run(there, "test_accuracy", best),
            "rounds to the best accuracy": per_run(there, "test_accuracy", rounds_to_best),
            "rounds to 95 % of the best": per_run(there, "test_accuracy", rounds_to_best, share=0.95),
        }.items()
    }


def read(runs: Runs, experiment: str, methods: dict[str, str], statistic: Callable, **options) -> pd.Series:
    """Median over seeds of a statistic of the test accuracy, by value of H or R."""
    place = experiment, "alpha = 0.01"
    values = runs.statistic(*place, list(methods.values()), "test_accuracy", statistic, **options)
    medians = values.groupby("method").median()
    return pd.Series({value: medians[method] for value, method in methods.items()})


def stable_accuracy(runs: Runs, experiment: str, gc: str, points: float) -> Verdict:
    accuracy = 100 * read(runs, experiment, sweep(gc, "H"), best)
    spread = float(accuracy.max() - accuracy.min())
    return decide(spread <= points, number(spread, "points"))


def stable_rounds(runs: Runs, experiment: str, gc: str) -> Verdict:
    needed = read(runs, experiment, sweep(gc, "H"), rounds_to_best)
    early = read(runs, experiment, sweep(gc, "H"), rounds_to_best, share=0.95)
    value = f"{number(early.max() / early.min())} (to the best itself: {number(needed.max() / needed.min())})"
    return decide(early.max() / early.min() <= 1.5, value)


def raw_is_worse(runs: Runs, experiment: str, gc: str, quantity: str) -> Verdict:
    methods = sweep(gc, "R")
    accuracy = read(runs, experiment, methods, best)
    peer = str(accuracy[["10 %", "20 %", "40 %"]].idxmax())
    statistic, options = (best, {}) if quantity == "accuracy" else (rounds_to_best, {"share": 0.95})
    values = runs.statistic(
        experiment, "alpha = 0.01", [methods[peer], methods["100 %"]], "test_accuracy", statistic, **options
    )
    between, raw = values.groupby("method").median()[[methods[peer], methods["100 %"]]]
    gains = paired(values, methods[peer], methods["100 %"])
    if quantity == "accuracy":
        text = f"{number(100 * (between - raw), 'points')} better at R = {peer}"
        return decide(between > raw, text, span(interval(100 * gains)))
    text = f"{number(raw)} rounds at 100 %, {number(between)} at {peer}"
    return decide(raw > between, text, span(interval(-gains)))


def interior(runs: Runs, experiment: str, gc: str) -> Verdict:
    needed = read(runs, experiment, sweep(gc, "R"), rounds_to_best)
    early = read(runs, experiment, sweep(gc, "R"), rounds_to_best, share=0.95)
    value = f"fewest to 95 % of the best at {early.idxmin()}, to the best itself at {needed.idxmin()}"
    return decide(early.idxmin() not in ("5 %", "100 %"), value)


MNIST = "hcsfed_sweep_mnist"


@book.claim("hcsfed.F4a.a", "figure_4", [MNIST], "stable in H")
def _(runs: Runs) -> Verdict:
    """On MNIST the best accuracy varies by at most 1.5 points over H = 5 ... 10."""
    return each([(gc,) for gc in GCS], lambda gc: stable_accuracy(runs, MNIST, gc, 1.5))


@book.claim("hcsfed.F4a.b", "figure_4", [MNIST], "stable in H")
def _(runs: Runs) -> Verdict:
    """On MNIST the rounds to 95 % of the best accuracy vary by at most a factor 1.5 over H = 5 ... 10."""
    return each([(gc,) for gc in GCS], lambda gc: stable_rounds(runs, MNIST, gc))


@book.claim("hcsfed.F4b.a", "figure_4", [MNIST], "R = 100 % unsatisfactory in both")
def _(runs: Runs) -> Verdict:
    """On MNIST, without compression the best accuracy is lower and 95 % of it is reached later."""
    parts = [(gc, quantity) for gc in GCS for quantity in ("accuracy", "rounds")]
    return each(parts, lambda gc, quantity: raw_is_worse(runs, MNIST, gc, quantity))


@book.claim("hcsfed.F4b.b", "figure_4", [MNIST], "both extremes worse")
def _(runs: Runs) -> Verdict:
    """On MNIST the compression rate with the fewest rounds to 95 % of the best accuracy is neither 5 % nor 100 %."""
    return each([(gc,) for gc in GCS], lambda gc: interior(runs, MNIST, gc))


def other_data(figure: str, data: str, experiment: str) -> None:
    """Figures 5 and 6 repeat Figure 4's claims on another dataset, with a tolerance of 3 points."""

    def of_H(runs: Runs) -> Verdict:
        parts = {f"{gc}, accuracy": (lambda gc=gc: stable_accuracy(runs, experiment, gc, 3)) for gc in GCS}
        parts |= {f"{gc}, rounds": (lambda gc=gc: stable_rounds(runs, experiment, gc)) for gc in GCS}
        return combine(parts)

    def of_R(runs: Runs) -> Verdict:
        parts = {
            f"{gc}, raw, {q}": (lambda gc=gc, q=q: raw_is_worse(runs, experiment, gc, q))
            for gc in GCS
            for q in ("accuracy", "rounds")
        }
        parts |= {f"{gc}, interior": (lambda gc=gc: interior(runs, experiment, gc)) for gc in GCS}
        return combine(parts)

    sentence = f"On {data} best accuracy and rounds to 95 % of it are stable over H = 5 ... 10 (3 points, factor 1.5)."
    book.claim(f"hcsfed.F{figure}.a", f"figure_{figure}", [experiment], "stable in H", sentence)(of_H)
    sentence = f"On {data} both no compression and the strongest are worse than a rate between them."
    book.claim(f"hcsfed.F{figure}.b", f"figure_{figure}", [experiment], "extremes worse", sentence)(of_R)


other_data("5", "CIFAR-10", "hcsfed_sweep_cifar10")
other_data("6", "CIFAR-100", "hcsfed_sweep_cifar100")


# -- Figure 7

FEDAVGS = ("FedAvg",)
NEEDS = ["hcsfed_ablation"]


def final(runs: Runs, method: str) -> np.ndarray:
    """(seeds,) mean test accuracy of the last 5 % of the rounds, in per cent."""
    values = runs.statistic(*ABLATION, [method], "test_accuracy", end_mean, share=0.05)
    return 100 * values.loc[method].to_numpy()


def near(values: np.ndarray, middle: float, allowed: float) -> Verdict:
    mine = float(np.median(values))
    return decide(abs(mine - middle) <= allowed, number(mine, "%"), span(interval(values)))


@book.claim("hcsfed.F7a.a", "figure_7", NEEDS, "10 points")
def _(runs: Runs) -> Verdict:
    """HCSFed's final accuracy is at least 5 points above FedAvg's."""

    def ahead(gc: str, base: str) -> Verdict:
        values = runs.statistic(*ABLATION, [base, hcsfed(gc)], "test_accuracy", end_mean, share=0.05)
        points = 100 * paired(values, hcsfed(gc), base)
        if len(points) == 0:
            raise Missing(f"no seed has both {hcsfed(gc)} and {base}")
        return decide(
            np.median(points) >= 5, number(float(np.median(points)), "points"), span(interval(points))
        )

    return each([(gc, base) for gc in GCS for base in FEDAVGS], ahead)


@book.claim("hcsfed.F7a.b", "figure_7", NEEDS, "91 % and 81 %")
def _(runs: Runs) -> Verdict:
    """HCSFed ends at 91 % (within 2 points) and FedAvg at 81 % (within 3)."""
    parts = {hcsfed(gc): (lambda gc=gc: near(final(runs, hcsfed(gc)), 91, 2)) for gc in GCS}
    parts |= {base: (lambda base=base: near(final(runs, base), 81, 3)) for base in FEDAVGS}
    return combine(parts)


@book.claim("hcsfed.F7a.c", "figure_7", NEEDS, "10 %")
def _(runs: Runs) -> Verdict:
    """HCSFed and FedAvg both start at 10 % (within 3 points)."""

    def start(method: str) -> Verdict:
        values = runs.statistic(*ABLATION, [method], "test_accuracy", at_start).loc[method]
        return near(100 * values.to_numpy(), 10, 3)

    return each([("FedAvg",), (hcsfed("GC-A"),), (hcsfed("GC-B"),)], start)


@book.claim("hcsfed.F7b.a", "figure_7", NEEDS, "2.6 and 2.1")
def _(runs: Runs) -> Verdict:
    """The speed-up of cluster selection is in [1.8, 3.4], that of importance selection in [1.5, 2.8]."""
    bounds = {"+cluster (GC-A)": (1.8, 3.4), "+cluster (GC-B)": (1.8, 3.4), "+importance": (1.5, 2.8)}
    parts = [(method, base) for method in bounds for base in FEDAVGS]
    return each(parts, lambda method, base: within(runs, ABLATION, base, method, *bounds[method]))


@book.claim("hcsfed.F7b.b", "figure_7", NEEDS, "2.6 and 2.1 times faster than FedAvg")
def _(runs: Runs) -> Verdict:
    """Cluster selection needs fewer rounds than importance selection."""

    def less(gc: str) -> Verdict:
        arms = (f"+cluster ({gc})", "+importance")
        (cluster, importance), texts = compared(runs, [(ABLATION, arm) for arm in arms])
        return decide(cluster < importance, f"{' and '.join(texts)} rounds")

    return each([(gc,) for gc in GCS], less)


@book.claim("hcsfed.F7b.c", "figure_7", NEEDS, "more components, fewer rounds")
def _(runs: Runs) -> Verdict:
    """Adding a component to cluster selection, or both, needs no more rounds than without it."""

    def chain(gc: str, component: str) -> Verdict:
        arms = (hcsfed(gc), f"+cluster+{component} ({gc})", f"+cluster ({gc})")
        needed, texts = compared(runs, [(ABLATION, arm) for arm in arms])
        return decide(needed == sorted(needed), " <= ".join(texts))

    return each([(gc, component) for gc in GCS for component in ("re-allocation", "importance")], chain)


@book.claim("hcsfed.F7b.d", "figure_7", NEEDS, "fewer rounds, no less accurate")
def _(runs: Runs) -> Verdict:
    """HCSFed needs fewer rounds than SCAFFOLD, and its final accuracy is no lower."""

    def beats(gc: str, quantity: str) -> Verdict:
        if quantity == "rounds":
            (mine, other), texts = compared(runs, [(ABLATION, m) for m in (hcsfed(gc), "SCAFFOLD")])
            return decide(mine < other, " and ".join(texts))
        mine, other = (float(np.median(final(runs, m))) for m in (hcsfed(gc), "SCAFFOLD"))
        return decide(mine >= other, f"{number(mine, '%')} and {number(other, '%')}")

    return each([(gc, quantity) for gc in GCS for quantity in ("rounds", "accuracy")], beats)
