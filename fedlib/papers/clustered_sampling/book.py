"""What Clustered Sampling's rules share: settings, methods, and statistics compared with MD sampling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Book, Missing, Runs, Verdict, decide, number, positive, span
from fedlib.analysis.measure import add_distinct, dominant_labels, end_mean, interval, paired

book = Book("clustered_sampling")
LOSS, ACCURACY = "train_loss", "client_accuracy"
MD, TARGET, ALG1, ALG2 = "MD", "Target", "Algorithm 1", "Algorithm 2"
FIRST = ("cs_mnist", "random ids")
ALPHAS = ("alpha = 10", "alpha = 0.1", "alpha = 0.01", "alpha = 0.001")
RATES = {"10": "0.1", "0.1": "0.05", "0.01": "0.05", "0.001": "0.05"}  # alpha -> the rate in the paper's text
SKEWED = ALPHAS[2:]
PANELS = ("less work", "more work", "fewer clients", "more clients")
SIZES = np.repeat([100, 250, 500, 750, 1000], [10, 30, 30, 20, 10])  # the paper's CIFAR-10 clients


def window(runs: Runs) -> int:
    """Number of rounds in Figure 1: 200, or all if there are fewer."""
    return min(200, runs.last(*FIRST))


def of_figure_1(
    runs: Runs, method: str, column: str, statistic: Callable[..., float], **options
) -> pd.Series:
    """A statistic over Figure 1's rounds for MD and another method, by (method, seed)."""
    last = window(runs)
    return runs.statistic(*FIRST, [MD, method], column, lambda c: statistic(c[c.index <= last], **options))


def against_md(
    runs: Runs, place: tuple[str, str], method: str, column: str, statistic: Callable[..., float], **options
) -> np.ndarray:
    """(seeds, 2) a statistic of MD and `method` in one setting."""
    values = runs.statistic(*place, [MD, method], column, statistic, **options)
    both = pd.concat([values.loc[MD], values.loc[method]], axis=1, join="inner").to_numpy()
    if len(both) == 0:
        raise Missing(f"no seed has both MD and {method}")
    return both


def gains(runs: Runs, place: tuple[str, str], method: str, last: float = math.inf) -> np.ndarray:
    """(seeds,) (L_end(MD) - L_end(method)) / L_end(MD) over the rounds up to `last`.

    Seeds in which both diverged are left out.
    """
    md, other = against_md(runs, place, method, LOSS, lambda c: end_mean(c[c.index <= last])).T
    known = np.isfinite(md) | np.isfinite(other)
    return 1 - other[known] / md[known]


def below_md(runs: Runs, place: tuple[str, str], method: str, column: str, statistic, **options) -> Verdict:
    """Held if MD's value is the larger one, by the median over seeds."""
    values = runs.statistic(*place, [MD, method], column, statistic, **options)
    scale, unit = (1, "nats") if column == LOSS else (100, "points")
    return positive(scale * paired(values, MD, method), unit)


def percent(values: np.ndarray, holds: bool) -> Verdict:
    low, high = interval(100 * values)
    return decide(holds, number(100 * float(np.median(values)), "%"), span((low, high)))


def labels(runs: Runs) -> dict[tuple[str, int], np.ndarray]:
    """(setting, seed) -> (N,) the digit of each of Figure 1's clients."""
    return dominant_labels(runs.pick("cs_partitions", FIRST[1]), FIRST[0])


def drawn(runs: Runs, method: str, column: str, first: int = 1, last: int | None = None) -> np.ndarray:
    """Distinct clients or classes in each of Figure 1's rounds first..last, over all seeds."""
    last = window(runs) if last is None else last
    runs.need(*FIRST, [method])
    classes = column == "distinct_classes"
    owners = labels(runs) if classes else None
    key = "drawn", method, column
    if key not in runs.kept:
        runs.kept[key] = add_distinct(runs.pick(*FIRST, [method]), owners)
    table = runs.kept[key]
    return table.loc[table["round"].between(first, last) & ~table["diverged"], column].to_numpy()


def late(runs: Runs) -> int:
    return window(runs) // 2 + 1
