"""Clustered Sampling's claims on Figure 1: one digit per client."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, number, positive, span
from fedlib.analysis.measure import area, interval, paired, roughness
from fedlib.papers.clustered_sampling.book import (
    ACCURACY,
    ALG1,
    ALG2,
    FIRST,
    LOSS,
    MD,
    TARGET,
    book,
    drawn,
    labels,
    late,
    of_figure_1,
    window,
)


@book.claim("cs.F1.a", "figure_1", ["cs_mnist"], "lower loss")
def _(runs: Runs) -> Verdict:
    """With one digit per client, Algorithm 1 has a lower training loss than MD sampling."""
    return positive(paired(of_figure_1(runs, ALG1, LOSS, area), MD, ALG1), "nats")


@book.claim("cs.F1.b", "figure_1", ["cs_mnist"], "lower loss, higher accuracy")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 has a lower training loss and a higher test accuracy than MD sampling."""
    return combine(
        {
            "loss": lambda: positive(paired(of_figure_1(runs, ALG2, LOSS, area), MD, ALG2), "nats"),
            "accuracy": lambda: positive(paired(of_figure_1(runs, ALG2, ACCURACY, area), ALG2, MD)),
        }
    )


@book.claim("cs.F1.c", "figure_1", ["cs_mnist"], "higher accuracy")
def _(runs: Runs) -> Verdict:
    """Algorithm 1 has a higher test accuracy than MD sampling."""
    return positive(paired(of_figure_1(runs, ALG1, ACCURACY, area), ALG1, MD))


@book.claim("cs.F1.d", "figure_1", ["cs_mnist"], "same performance")
def _(runs: Runs) -> Verdict:
    """Late in training Algorithm 2 performs like target sampling: within a quarter of MD's distance from it."""
    table = runs.pick(*FIRST, [MD, TARGET, ALG2])
    table = table[table["round"].between(late(runs), window(runs))]
    losses = table.pivot_table(index=["seed", "round"], columns="method", values=LOSS).dropna()
    far = losses.sub(losses[TARGET], axis=0).abs().groupby("seed").median()
    ratio = (far[ALG2] / far[MD]).to_numpy()
    if len(ratio) == 0:
        raise Missing("no seed has all three samplers' late rounds")
    return decide(np.median(ratio) <= 0.25, number(float(np.median(ratio))), span(interval(ratio)))


@book.claim(
    "cs.F1.e",
    "figure_1",
    ["cs_mnist", "cs_partitions"],
    "Algorithm 2 and target: 10 classes; MD: 6 to 8 (exact mean: 6.51)",
)
def _(runs: Runs) -> Verdict:
    """Classes in a late round: about 10 with Algorithm 2, 10 with target, 6.51 with MD, more with Algorithm 1."""

    def mean(method: str) -> float:
        return float(drawn(runs, method, "distinct_classes", late(runs)).mean())

    return combine(
        {
            ALG2: lambda: decide(mean(ALG2) >= 9.8, number(mean(ALG2))),
            TARGET: lambda: decide(mean(TARGET) == 10, number(mean(TARGET))),
            MD: lambda: decide(abs(mean(MD) - 6.51) <= 0.25, number(mean(MD))),
            f"{ALG1} (ties at random)": lambda: decide(mean(ALG1) > mean(MD), number(mean(ALG1))),
        }
    )


@book.claim(
    "cs.F1.f", "figure_1", ["cs_mnist", "cs_partitions"], "6 to 8 classes in most rounds (exact: 84 %)"
)
def _(runs: Runs) -> Verdict:
    """With MD sampling most rounds see 6 to 8 of the 10 classes."""
    counts = drawn(runs, MD, "distinct_classes")
    share = float(((counts >= 6) & (counts <= 8)).mean())
    return decide(share >= 0.75, number(100 * share, "% of rounds"))


@book.claim("cs.F1.g", "figure_1", ["cs_mnist", "cs_partitions"], "63 % of rounds")
def _(runs: Runs) -> Verdict:
    """MD sampling aggregates as many distinct clients as it draws in 63 % of the rounds (N = 100, m = 10)."""
    counts = drawn(runs, MD, "distinct_clients")
    N, m = (
        len(next(iter(labels(runs).values()))),
        len(runs.pick(*FIRST, [MD])["clients"].iloc[-1]),
    )
    exact = float(np.prod(1 - np.arange(m) / N))
    share, allowed = float((counts == m).mean()), 3 * np.sqrt(exact * (1 - exact) / len(counts))
    return decide(
        abs(share - exact) <= allowed,
        number(100 * share, "%"),
        detail=f"Exact for N = {N}, m = {m}: {100 * exact:.1f} %, allowed +-{100 * allowed:.1f}.",
    )


@book.claim("cs.F1.h", "figure_1", ["cs_mnist"], "10 distinct clients")
def _(runs: Runs) -> Verdict:
    """If all clients have equal sizes, Algorithms 1 and 2 aggregate m distinct clients in every round."""
    m = len(runs.pick(*FIRST, [MD])["clients"].iloc[-1])

    def always(method: str) -> Verdict:
        counts = drawn(runs, method, "distinct_clients")
        return decide(bool((counts == m).all()), f"{counts.min():.0f} to {counts.max():.0f}")

    return combine({ALG1: lambda: always(ALG1), ALG2: lambda: always(ALG2)})


@book.claim("cs.F1.i", "figure_1", ["cs_mnist", "cs_partitions"], "finds the 10 clusters over time")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 misses classes at the start but none later."""
    start = float(drawn(runs, ALG2, "distinct_classes", last=5).mean())
    end = float(drawn(runs, ALG2, "distinct_classes", late(runs)).mean())
    value = f"{number(start)} classes in rounds 1-5, {number(end)} late"
    return decide(start < 9.5 and end >= 9.8, value)


@book.claim("cs.F1.j", "figure_1", ["cs_mnist"], "lower variability")
def _(runs: Runs) -> Verdict:
    """Both algorithms vary less than MD sampling, across clients and from round to round."""

    def less(method: str, column: str, statistic: Callable[..., float]) -> Callable[[], Verdict]:
        return lambda: positive(paired(of_figure_1(runs, method, column, statistic), MD, method), "nats")

    return combine(
        {f"{m}, across clients": less(m, "train_loss_std", area) for m in (ALG1, ALG2)}
        | {f"{m}, over rounds": less(m, LOSS, roughness) for m in (ALG1, ALG2)}
    )
