"""Clustered Sampling's claims on Figures 2 to 10."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Missing, Runs, Verdict, combine, decide, number, positive, span
from fedlib.analysis.measure import area, end_mean, interval, paired, rolling, roughness, rounds_below
from fedlib.papers.clustered_sampling.book import (
    ACCURACY,
    ALG1,
    ALG2,
    ALPHAS,
    FIRST,
    LOSS,
    MD,
    PANELS,
    SIZES,
    SKEWED,
    against_md,
    below_md,
    book,
    gains,
    of_figure_1,
    percent,
)
from fedlib.samplers.clustered_sampling import similarity_distributions, size_distributions, ward_tree

# -- Figures 2 and 7


@book.claim("cs.F2.a", "figure_2", ["cs_cifar"], "larger gain at small alpha")
def _(runs: Runs) -> Verdict:
    """The gain of Algorithm 2 over MD is larger at alpha = 0.001 and 0.01 than at 0.1 and 10."""

    def larger(alpha: str) -> Verdict:
        here = gains(runs, ("cs_cifar", alpha), ALG2)
        others = [float(np.median(gains(runs, ("cs_cifar", a), ALG2))) for a in ALPHAS[:2]]
        return percent(here, float(np.median(here)) > max(others))

    return combine({alpha: (lambda a=alpha: larger(a)) for alpha in SKEWED})


@book.claim("cs.F2.b", "figure_2", ["cs_cifar"], "same end")
def _(runs: Runs) -> Verdict:
    """At alpha = 10 and 0.1 all three samplers end close together: gains of at most 10 % in either direction."""

    def close(alpha: str, method: str) -> Verdict:
        gain = gains(runs, ("cs_cifar", alpha), method)
        return percent(gain, float(np.median(np.abs(gain))) <= 0.10)

    pairs = [(alpha, method) for alpha in ALPHAS[:2] for method in (ALG1, ALG2)]
    return combine({f"{a}, {m}": (lambda a=a, m=m: close(a, m)) for a, m in pairs})


@book.claim("cs.F2.c", "figure_2", ["cs_cifar"], "faster")
def _(runs: Runs) -> Verdict:
    """At alpha = 10 and 0.1 Algorithm 2 is at least as fast as MD."""

    def fast(alpha: str) -> Verdict:
        md, other = against_md(runs, ("cs_cifar", alpha), ALG2, LOSS, area).T
        ratio = float(np.median(other / md))
        return decide(ratio <= 1.01, number(ratio), span(interval(other / md)))

    return combine({alpha: (lambda a=alpha: fast(a)) for alpha in ALPHAS[:2]})


def faster_and_lower(runs: Runs, method: str) -> Verdict:
    parts = {}
    for alpha in SKEWED:
        place = ("cs_cifar", alpha)
        for name, statistic in (("end", end_mean), ("whole run", area)):
            parts[f"{alpha}, {name}"] = lambda p=place, s=statistic: below_md(runs, p, method, LOSS, s)
    return combine(parts)


@book.claim("cs.F2.d", "figure_2", ["cs_cifar"], "faster and lower")
def _(runs: Runs) -> Verdict:
    """At alpha = 0.01 and 0.001 Algorithm 2 has a lower loss than MD, at the end and over the whole run."""
    return faster_and_lower(runs, ALG2)


@book.claim("cs.F2.e", "figure_2", ["cs_cifar"], "faster and lower")
def _(runs: Runs) -> Verdict:
    """At alpha = 0.01 and 0.001 Algorithm 1 has a lower loss than MD, at the end and over the whole run."""
    return faster_and_lower(runs, ALG1)


@book.claim("cs.F2.f", "figure_2", ["cs_cifar"], "smoother")
def _(runs: Runs) -> Verdict:
    """Algorithm 2's loss and accuracy are smoother than MD's at every alpha."""
    parts = {}
    for alpha in ALPHAS:
        for name, column in (("loss", LOSS), ("accuracy", ACCURACY)):
            place = ("cs_cifar", alpha)
            parts[f"{alpha}, {name}"] = lambda p=place, c=column: below_md(runs, p, ALG2, c, roughness)
    return combine(parts)


@book.claim("cs.F7.a", "figure_7", ["cs_cifar"], "no worse; better at small alpha")
def _(runs: Runs) -> Verdict:
    """Algorithm 2's final accuracy is within half a point of MD's at every alpha, and higher at 0.01 and 0.001."""

    def part(alpha: str) -> Verdict:
        values = runs.statistic("cs_cifar", alpha, [MD, ALG2], ACCURACY, end_mean)
        points = 100 * paired(values, ALG2, MD)
        return positive(points, "points", 0.0 if alpha in SKEWED else -0.5)

    return combine({alpha: (lambda a=alpha: part(a)) for alpha in ALPHAS})


# -- Figures 3 to 5


@book.claim("cs.F3.a", "figure_3", [], "by construction")
def _(runs: Runs) -> Verdict:
    """After each client that Algorithm 1 assigns, at most one distribution is partly filled; all end up full."""
    order = np.argsort(-SIZES, kind="stable")
    filled = size_distributions(SIZES, 10, order)[:, order].cumsum(axis=1)
    partly = ((filled > 1e-12) & (filled < 1 - 1e-12)).sum(axis=0)
    full = bool(np.allclose(filled[:, -1], 1))
    return decide(partly.max() <= 1 and full, f"at most {partly.max()} partly filled; all full: {full}")


@book.claim("cs.F4.a", "figure_4", [], "by construction")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 keeps its m heaviest groups, each in one distribution, and fills every distribution."""
    rng = np.random.default_rng(0)
    r, groups = similarity_distributions(SIZES, 10, ward_tree(rng.random((100, 100)), "rows"), rng)
    heaviest = sorted(groups, key=lambda group: SIZES[group].sum())[-10:]
    homes = {int(np.flatnonzero((r[:, group] > 0).all(axis=1))[0]) for group in heaviest}
    full = bool(np.allclose(r.sum(axis=1), 1))
    value = f"{len(groups)} groups; the 10 heaviest in {len(homes)} distributions; all full: {full}"
    return decide(full and len(homes) == 10, value)


def shares(runs: Runs, alpha: str) -> list[np.ndarray]:
    """One (N, K) table of samples by client and label per seed."""
    table = runs["cs_partitions"]
    table = table[(table["data"] == "cs_cifar") & (table["setting"] == alpha)]
    if table.empty:
        raise Missing(f"partitions at {alpha} have not been made")
    return [np.stack(rows["counts"]) for _, rows in table.groupby("seed")]


@book.claim(
    "cs.F5.a", "figure_5", ["cs_partitions"], "alpha = 10 near uniform; 0.001 almost one class per client"
)
def _(runs: Runs) -> Verdict:
    """The largest class share of a client is below 0.2 on average at alpha = 10, above 0.98 at alpha = 0.001."""

    def largest(alpha: str) -> np.ndarray:
        return np.concatenate([(t / t.sum(axis=1, keepdims=True)).max(axis=1) for t in shares(runs, alpha)])

    def skewed() -> Verdict:
        top = largest("alpha = 0.001")
        pure = float((top > 0.99).mean())
        value = f"{number(float(top.mean()))} ({100 * pure:.0f} % of clients above 0.99)"
        return decide(top.mean() > 0.98 and pure >= 0.9, value)

    def even() -> Verdict:
        top = float(largest("alpha = 10").mean())
        return decide(top < 0.2, number(top))

    return combine({"alpha = 10": even, "alpha = 0.001": skewed})


@book.claim("cs.F5.b", "figure_5", ["cs_partitions"], "more even class totals at alpha = 10")
def _(runs: Runs) -> Verdict:
    """Class totals over all clients are more even at alpha = 10 than at alpha = 0.001."""

    def uneven(alpha: str) -> float:
        totals = [t.sum(axis=0) for t in shares(runs, alpha)]
        return float(np.median([t.max() / max(t.min(), 1) for t in totals]))

    even, skewed = uneven("alpha = 10"), uneven("alpha = 0.001")
    return decide(even < skewed, f"largest/smallest {number(even)} at 10, {number(skewed)} at 0.001")


# -- Figure 6

MEASURES = (ALG2, "Algorithm 2 (L1)", "Algorithm 2 (squared L2)")


@book.claim("cs.F6.a", "figure_6", ["cs_similarity"], "no significant difference")
def _(runs: Runs) -> Verdict:
    """Arccos, L1 and L2 similarity give similar final losses."""
    ends = runs.statistic("cs_similarity", "", [MD, *MEASURES], LOSS, end_mean).groupby("method").median()
    three = ends[list(MEASURES)]
    spread = float(three.max() - three.min())
    ok = spread <= 0.5 * float(ends[MD] - three.mean()) or spread <= 0.03 * float(ends[MD])
    return decide(ok, f"range {number(spread, 'nats')}, MD's loss {number(float(ends[MD]), 'nats')}")


@book.claim("cs.F6.b", "figure_6", ["cs_similarity"], "lower loss")
def _(runs: Runs) -> Verdict:
    """Algorithm 1 ends with a lower loss than MD."""
    return below_md(runs, ("cs_similarity", ""), ALG1, LOSS, end_mean)


@book.claim("cs.F6.c", "figure_6", ["cs_similarity"], "lower loss")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 ends with a lower loss than MD with each of the three measures of similarity."""
    place = ("cs_similarity", "")
    return combine({m: (lambda m=m: below_md(runs, place, m, LOSS, end_mean)) for m in MEASURES})


# -- Figures 8 and 9


@book.claim("cs.F8.a", "figure_8", ["cs_work"], "more local work, fewer rounds")
def _(runs: Runs) -> Verdict:
    """With more local steps Algorithm 2 needs fewer rounds to reach the same loss."""
    settings = ("less work", "standard", "more work")
    ends = [runs.statistic("cs_work", s, [ALG2], LOSS, end_mean).loc[ALG2] for s in settings]
    level = pd.concat(ends, axis=1, join="inner").max(axis=1)
    rounds = {}
    for setting in settings:
        curves = runs.curves("cs_work", setting, ALG2, LOSS)
        rounds[setting] = float(np.median([rounds_below(rolling(curves[s]), x) for s, x in level.items()]))
    value = ", ".join(f"{setting}: {number(r, 'rounds')}" for setting, r in rounds.items())
    less, standard, more = rounds.values()
    verdict = combine(
        {
            "less than standard": lambda: decide(less > standard),
            "standard than more": lambda: decide(standard > more),
        }
    )
    return Verdict(verdict.status, value, detail=verdict.detail)


@book.claim("cs.F8.b", "figure_8", ["cs_work"], "larger gain with fewer clients")
def _(runs: Runs) -> Verdict:
    """The gain of Algorithm 2 over MD is larger the fewer clients are drawn."""
    settings = ("fewer clients", "standard", "more clients")
    last = min(runs.last("cs_work", s) for s in settings)
    a, b, c = (float(np.median(gains(runs, ("cs_work", s), ALG2, last))) for s in settings)
    value = f"{100 * a:.3g} %, {100 * b:.3g} %, {100 * c:.3g} % with few, standard, many clients"
    return Verdict("held" if a > b > c else "held in part" if a > c else "not held", value)


@book.claim("cs.F8.c", "figure_8", ["cs_work"], "faster with more clients")
def _(runs: Runs) -> Verdict:
    """MD and Algorithm 2 are both faster the more clients are drawn."""
    settings = ("fewer clients", "standard", "more clients")
    last = min(runs.last("cs_work", s) for s in settings)

    def faster(method: str) -> Verdict:
        areas = [
            float(runs.statistic("cs_work", s, [method], LOSS, area, last=last).median()) for s in settings
        ]
        return decide(areas[0] > areas[1] > areas[2], " > ".join(number(x) for x in areas))

    return combine({MD: lambda: faster(MD), ALG2: lambda: faster(ALG2)})


@book.claim("cs.F8.d", "figure_8", ["cs_work"], "lower loss")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 ends with a lower loss than MD in all four panels."""
    return combine({p: (lambda p=p: below_md(runs, ("cs_work", p), ALG2, LOSS, end_mean)) for p in PANELS})


@book.claim("cs.F9.a", "figure_9", ["cs_work"], "higher accuracy")
def _(runs: Runs) -> Verdict:
    """Algorithm 2 ends with a higher accuracy than MD in all four rows."""

    def higher(panel: str) -> Verdict:
        values = runs.statistic("cs_work", panel, [MD, ALG2], ACCURACY, end_mean)
        return positive(100 * paired(values, ALG2, MD), "points")

    return combine({panel: (lambda p=panel: higher(p)) for panel in PANELS})


# -- Figure 10, and all together


@book.claim("cs.F10.a", "figure_10", ["cs_fedprox"], "lower loss")
def _(runs: Runs) -> Verdict:
    """With FedProx's term (mu = 0.1) both algorithms end with a lower loss than MD."""
    place = ("cs_fedprox", "")
    return combine({m: (lambda m=m: below_md(runs, place, m, LOSS, end_mean)) for m in (ALG1, ALG2)})


EVERYWHERE = [FIRST, *(("cs_cifar", alpha) for alpha in ALPHAS), ("cs_similarity", "")]
EVERYWHERE += [*(("cs_work", panel) for panel in PANELS), ("cs_fedprox", "")]


@book.claim("cs.all.g", "figure_10", sorted({name for name, _ in EVERYWHERE}), "never worse")
def _(runs: Runs) -> Verdict:
    """Clustered sampling is never worse than MD: in every setting its final loss is at most 2 % higher."""

    def no_worse(place: tuple[str, str], method: str) -> Verdict:
        if place == FIRST:
            ends = of_figure_1(runs, method, LOSS, end_mean)
            ratio = (ends.loc[method] / ends.loc[MD]).dropna().to_numpy()
        else:
            ratio = 1 - gains(runs, place, method)
        return decide(float(np.median(ratio)) <= 1.02, number(float(np.median(ratio))), span(interval(ratio)))

    cases = [(place, method) for place in EVERYWHERE for method in (ALG1, ALG2)]
    verdict = combine(
        {f"{e} {s}, {m}".strip(): (lambda p=(e, s), m=m: no_worse(p, m)) for (e, s), m in cases}
    )
    return Verdict(verdict.status, verdict.detail.split(". ")[0], detail=verdict.detail)
