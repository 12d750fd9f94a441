"""The claims of Clustered Sampling (Fraboni, Vidal, Kameni, Lorenzi; ICML 2021).

Losses are sum_k p_k F_k over the clients' training parts; accuracies are sum_k p_k A_k over the clients' own test
parts, as in the authors' code. The paper shows one seed and prints no losses, so the bounds are ours; they stand in
`margin`. "End": mean over the last 20 % of the rounds. Figure 1 has 200 rounds; "late" is their second half.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd

from fedlib.measure import (
    area,
    curve,
    dominant_labels,
    end_mean,
    rolling,
    roughness,
    rounds_below,
)
from fedlib.samplers.clustered_sampling import similarity_distributions, size_distributions, ward_tree
from workspace.analysis.claim import (
    FACT,
    PRINT,
    SAME,
    Arm,
    Cell,
    Claim,
    Computed,
    Labels,
    Level,
    Measure,
    Measurement,
    claim_on,
    versus,
)
from workspace.analysis.readings import Where
from workspace.papers.clustered_sampling.printed import (
    ACCURACY,
    ALG1,
    ALG2,
    ALPHAS,
    EVEN,
    FIRST,
    LOSS,
    MD,
    PANELS,
    SIZES,
    SKEWED,
    SPREAD,
    TARGET,
)

BOTH = (ALG1, ALG2)
claim = partial(claim_on, "cs", "clustered_sampling")
main = partial(claim, page="figure_10")

# -- Settings

SIMILARITY, FEDPROX = ("cs_similarity", ""), ("cs_fedprox", "")
DIRICHLET = [("cs_cifar", alpha) for alpha in ALPHAS]
WORK = [("cs_work", panel) for panel in PANELS]
EVERYWHERE = [FIRST, *DIRICHLET, SIMILARITY, *WORK, FEDPROX]
TITLES = {"cs_mnist": "MNIST", "cs_cifar": "CIFAR-10", "cs_similarity": "CIFAR-10, similarity",
          "cs_work": "CIFAR-10", "cs_fedprox": "CIFAR-10, FedProx"}  # fmt: skip


def labels(place: tuple[str, str]) -> Labels:
    data = "MNIST" if place == FIRST else "CIFAR-10"
    partition = "one digit" if place == FIRST else place[1] if place[0] == "cs_cifar" else "alpha = 0.01"
    clients = {"fewer clients": "q = 5 %", "more clients": "q = 20 %"}.get(place[1], "q = 10 %")
    return {"data": data, "partition": partition, "participation": clients}


def title(place: tuple[str, str]) -> str:
    return TITLES[place[0]] if place == FIRST else ", ".join(filter(None, (TITLES[place[0]], place[1])))


def below_md(place: tuple[str, str], method: str, column: str = LOSS) -> Cell:
    """MD's value less (or over) that of an algorithm."""
    md, proposed = (Where(*place, m, column) for m in (MD, method))
    return versus(f"{title(place)}, {method}", md, proposed, **labels(place))


def above_md(place: tuple[str, str], method: str, column: str = ACCURACY) -> Cell:
    md, proposed = (Where(*place, m, column) for m in (MD, method))
    return versus(f"{title(place)}, {method}", proposed, md, **labels(place))


def named(cell: Cell, label: str, measure: Measure | None = None) -> Cell:
    return Cell(
        f"{cell.name}, {label}", cell.arms, cell.data, cell.partition, cell.participation, measure=measure
    )


WHOLE, END = Level(area, "times", log=True), Level(end_mean, "times", log=True)
ROUGH = Level(roughness, "times", log=True)
POINTS = Level(end_mean, "points", 100)
NATS, CURVE = Level(area, "nats", until=200), Level(area, "points", 100, until=200)
LATE = Level(area, "nats", options=(("first", 101), ("last", 200)))

# -- The main claims: convergence, variability, weights, representativity


def weight_variance(rows: pd.DataFrame) -> float:
    """Sum over clients of the variance over rounds of their aggregation weight, which is their draws over m."""
    selections = [np.asarray(clients, dtype=int) for clients in rows.loc[rows["round"] > 0, "clients"]]
    N = max(int(clients.max()) for clients in selections) + 1
    weights = np.stack([np.bincount(clients, minlength=N) / len(clients) for clients in selections])
    return float(weights.var(axis=0).sum())


def distinct(rows: pd.DataFrame) -> float:
    """Mean number of distinct clients in a round."""
    return float(np.mean([len(set(clients)) for clients in rows.loc[rows["round"] > 0, "clients"]]))


MAIN = [
    main("M.a", "With clustered sampling the training loss falls faster than with MD sampling, with both algorithms "
         "and in every setting (mean over the rounds).", "core", WHOLE,
         [below_md(place, m) for place in EVERYWHERE for m in BOTH]),
    main("M.b", "With clustered sampling the training loss varies less from round to round, with both algorithms and "
         "in every setting.", "core", ROUGH, [below_md(place, m) for place in EVERYWHERE for m in BOTH]),
    main("M.c", "The clients' aggregation weights vary less than with MD sampling (Figure 1's clients).",
         "construction", Measurement("method", weight_variance, "times", log=True), [below_md(FIRST, m) for m in BOTH]),
    main("M.d", "More distinct clients are aggregated in a round than with MD sampling (Figure 1's clients).",
         "construction", Measurement("method", distinct, "clients"), [above_md(FIRST, m, LOSS) for m in BOTH]),
    main("M.e", "Clustered sampling is never worse than MD sampling: at the end its loss is at most 2 % higher, in "
         "every setting.", "core", END, [below_md(place, m) for place in EVERYWHERE for m in BOTH],
         margin=1 / 1.02),
]  # fmt: skip

# -- Figure 1


def classes(
    first: int, last: int, statistic: Callable[[np.ndarray], float], unit: str = "classes"
) -> Measurement:
    """A statistic of the number of distinct digits in each of Figure 1's rounds first..last."""

    def of_rows(rows: pd.DataFrame, owners: pd.DataFrame) -> float:
        digit = dominant_labels(owners, FIRST[0])[rows["setting"].iloc[0], rows["seed"].iloc[0]]
        selections = rows.loc[rows["round"].between(first, last), "clients"]
        return statistic(
            np.array([len(set(digit[np.asarray(clients, dtype=int)])) for clients in selections])
        )

    return Measurement("method", of_rows, unit, beside="cs_partitions")


def mean(counts: np.ndarray) -> float:
    return float(counts.mean()) if len(counts) else math.nan


def all_distinct(rows: pd.DataFrame) -> float:
    """Share of the rounds in % whose draws are of different clients."""
    selections = rows.loc[rows["round"].between(1, 200), "clients"]
    return 100 * float(np.mean([len(set(clients)) == len(clients) for clients in selections]))


def printed(method: str, value: float, spread: float, text: str) -> Cell:
    return Cell(method, (Arm(Where(*FIRST, method), 1.0, value, spread),), shown=text, **labels(FIRST))


def seen_later(method: str) -> Cell:
    return Cell(method, (Arm(Where(*FIRST, method)),), **labels(FIRST))


def gained(counts: np.ndarray) -> float:
    """Classes in a late round more than in one of the first five."""
    return float(counts[100:].mean() - counts[:5].mean()) if len(counts) > 100 else math.nan


IN_FIGURE_1 = [
    claim("F1.a", "With one digit per client, Algorithm 1 has a lower training loss than MD sampling.", "supporting",
          NATS, [below_md(FIRST, ALG1)]),
    claim("F1.b", "Algorithm 2 has a lower training loss than MD sampling.", "supporting",
          NATS, [below_md(FIRST, ALG2)]),
    claim("F1.c", "Algorithms 1 and 2 have a higher test accuracy than MD sampling.", "supporting", CURVE,
          [above_md(FIRST, m) for m in BOTH]),
    claim("F1.d", "Late in training Algorithm 2 performs like target sampling: its loss lies nearer to it than a "
          "quarter of MD's distance (bound ours).", "supporting", LATE,
          [Cell("MNIST", (Arm(Where(*FIRST, MD, LOSS), 0.25), Arm(Where(*FIRST, TARGET, LOSS), 0.75),
                          Arm(Where(*FIRST, ALG2, LOSS), -1.0)), **labels(FIRST))]),
    claim("F1.e", "In late rounds Algorithm 2 sees all ten classes (at least 9.8 of them, bound ours).", "supporting",
          classes(101, 200, mean), [printed(ALG2, 10, 0.05, "10 classes")], PRINT, 0.2),
    claim("F1.l", "With Algorithm 1 a round sees more classes than with MD sampling.", "supporting",
          classes(101, 200, mean), [above_md(FIRST, ALG1, LOSS)]),
    claim("F1.f", "With MD sampling 6 to 8 of the 10 classes are seen in most rounds (exact: 84 %).", "construction",
          classes(1, 200, lambda counts: 100 * float(((counts >= 6) & (counts <= 8)).mean()), "% of rounds"),
          [printed(MD, 83.7, 2.6, "most rounds")], PRINT, 8.7),
    claim("F1.g", "MD sampling draws ten different clients in 63 % of the rounds.", "construction",
          Measurement("method", all_distinct, "% of rounds"), [printed(MD, 62.8, 3.4, "63 %")], PRINT, 10.0),
    claim("F1.h", "If all clients have equal sizes, Algorithms 1 and 2 aggregate m distinct clients in every round.",
          "construction", Measurement("method", all_distinct, "% of rounds"),
          [printed(m, 100, 0.0, "10 distinct clients") for m in BOTH], PRINT, 0.1),
    claim("F1.i", "Algorithm 2 finds the ten classes over time: it sees more of them late than in rounds 1 to 5.",
          "supporting", classes(1, 200, gained), [seen_later(ALG2)]),
    claim("F1.j", "Both algorithms vary less than MD sampling across clients (standard deviation of their losses).",
          "core", NATS, [below_md(FIRST, m, SPREAD) for m in BOTH]),
]  # fmt: skip

# -- Figures 2 and 7


def larger_gain(larger: tuple[str, str], smaller: tuple[str, str]) -> Cell:
    """Algorithm 2's gain over MD in one setting, over that in another."""
    arms = [
        Arm(Where(*place, m, LOSS), s * w)
        for place, s in ((larger, 1), (smaller, -1))
        for m, w in ((MD, 1), (ALG2, -1))
    ]
    return Cell(f"{larger[1]} over {smaller[1]}", tuple(arms), **labels(larger))


def faster_and_lower(method: str) -> list[Cell]:
    cells = [below_md(("cs_cifar", alpha), method) for alpha in SKEWED]
    return [named(cell, label, how) for cell in cells for label, how in (("end", END), ("mean", WHOLE))]


IN_FIGURES_2_AND_7 = [
    claim("F2.a", "The gain of Algorithm 2 over MD is larger at alpha = 0.001 and 0.01 than at 0.1 and 10.",
          "core", END, [larger_gain(("cs_cifar", a), ("cs_cifar", b)) for a in SKEWED for b in EVEN]),
    claim("F2.b", "At alpha = 10 and 0.1 all three samplers end alike (losses within 10 %, bound ours).", "supporting",
          END, [below_md(("cs_cifar", alpha), m) for alpha in EVEN for m in BOTH], SAME, 1.1),
    claim("F2.c", "At alpha = 10 and 0.1 Algorithm 2 is at least as fast as MD (mean loss at most 1 % higher).",
          "supporting", WHOLE, [below_md(("cs_cifar", alpha), ALG2) for alpha in EVEN], margin=1 / 1.01),
    claim("F2.d", "At alpha = 0.01 and 0.001 Algorithm 2 has a lower loss than MD, at the end and over the whole run.",
          "supporting", END, faster_and_lower(ALG2)),
    claim("F2.e", "At alpha = 0.01 and 0.001 Algorithm 1 has a lower loss than MD, at the end and over the whole run.",
          "supporting", END, faster_and_lower(ALG1)),
    claim("F2.f", "Algorithm 2's loss and accuracy are smoother than MD's at every alpha.", "supporting", ROUGH,
          [named(below_md(place, ALG2, column), label) for place in DIRICHLET
           for label, column in (("loss", LOSS), ("accuracy", ACCURACY))]),
    claim("F7.a", "At alpha = 0.01 and 0.001 Algorithm 2 ends at a higher accuracy than MD.", "supporting", POINTS,
          [above_md(("cs_cifar", alpha), ALG2) for alpha in SKEWED]),
    claim("F7.b", "At alpha = 10 and 0.1 Algorithm 2 ends at most half a point less accurate than MD (bound ours).",
          "supporting", POINTS, [above_md(("cs_cifar", alpha), ALG2) for alpha in EVEN], margin=-0.5),
]  # fmt: skip

# -- Figures 3 to 5, by construction


def algorithm_1_fills_in_turn(results: Mapping[str, pd.DataFrame]) -> bool:
    """After each client that it assigns, at most one distribution is partly filled; all end up full."""
    order = np.argsort(-SIZES, kind="stable")
    filled = size_distributions(SIZES, 10, order)[:, order].cumsum(axis=1)
    partly = ((filled > 1e-12) & (filled < 1 - 1e-12)).sum(axis=0)
    return bool(partly.max() <= 1 and np.allclose(filled[:, -1], 1))


def algorithm_2_keeps_groups(results: Mapping[str, pd.DataFrame]) -> bool:
    """Its m heaviest groups lie in one distribution each, and every distribution is full."""
    rng = np.random.default_rng(0)
    r, groups = similarity_distributions(SIZES, 10, ward_tree(rng.random((100, 100)), "rows"), rng)
    heaviest = sorted(groups, key=lambda group: SIZES[group].sum())[-10:]
    homes = {int(np.flatnonzero((r[:, group] > 0).all(axis=1))[0]) for group in heaviest}
    return len(homes) == 10 and bool(np.allclose(r.sum(axis=1), 1))


def weight_variance_of(r: np.ndarray) -> float:
    """Sum over clients of the variance of their aggregation weight, from m distributions over clients, (m, N)."""
    return float((r * (1 - r)).sum() / len(r) ** 2)


def weights_vary_less(algorithm: str) -> Callable[[object], bool]:
    """Whether an algorithm's weights vary less than MD sampling's for CIFAR-10's unbalanced clients."""

    def less(results: object) -> bool:
        rng = np.random.default_rng(0)
        p = SIZES / SIZES.sum()
        if algorithm == ALG1:
            r = size_distributions(SIZES, 10, np.argsort(-SIZES, kind="stable"))
        else:
            r = similarity_distributions(SIZES, 10, ward_tree(rng.random((100, 100)), "rows"), rng)[0]
        return weight_variance_of(r) < weight_variance_of(np.tile(p, (10, 1)))

    return less


def counts(results: Mapping[str, pd.DataFrame], alpha: str) -> list[np.ndarray]:
    """One (N, K) table of samples by client and label per seed.

    Raises:
        KeyError: the partitions have not been made.
    """
    table = results["cs_partitions"]
    table = table[(table["data"] == "cs_cifar") & (table["setting"] == alpha)]
    if table.empty:
        raise KeyError(alpha)
    return [np.stack(rows["counts"]) for _, rows in table.groupby("seed")]


def largest_share(results: Mapping[str, pd.DataFrame], alpha: str) -> float:
    return float(
        np.mean([(t / t.sum(axis=1, keepdims=True)).max(axis=1).mean() for t in counts(results, alpha)])
    )


def unevenness(results: Mapping[str, pd.DataFrame], alpha: str) -> float:
    totals = [t.sum(axis=0) for t in counts(results, alpha)]
    return float(np.median([t.max() / max(t.min(), 1) for t in totals]))


def fact(id: str, text: str, **facts: Callable[[Mapping[str, pd.DataFrame]], bool]) -> Claim:
    needs = ("cs_partitions",) if id.startswith("F5") else ()
    cells = [Cell(name.replace("_", " "), fact=true, needs=needs) for name, true in facts.items()]
    return claim(id, text, "construction", None, cells, FACT)


BY_CONSTRUCTION = [
    fact("F3.a", "After each client that Algorithm 1 assigns, at most one distribution is partly filled; all end full.",
         scheme=algorithm_1_fills_in_turn),
    claim("M.f", "The aggregation weights of CIFAR-10's unbalanced clients vary less than with MD sampling (any "
          "updates: Algorithm 2's are drawn).", "construction", None,
          [Cell(m, fact=weights_vary_less(m)) for m in BOTH], FACT, page="figure_10"),
    fact("F4.a", "Algorithm 2 keeps its m heaviest groups, each in one distribution, and fills every distribution.",
         scheme=algorithm_2_keeps_groups),
    fact("F5.a", "A client's largest class share is below 0.2 on average at alpha = 10, above 0.98 at alpha = 0.001.",
         even=lambda results: largest_share(results, ALPHAS[0]) < 0.2,
         skewed=lambda results: largest_share(results, ALPHAS[3]) > 0.98),
    fact("F5.b", "Class totals over all clients are more even at alpha = 10 than at alpha = 0.001.",
         totals=lambda results: unevenness(results, ALPHAS[0]) < unevenness(results, ALPHAS[3])),
]  # fmt: skip

# -- Figures 6, 8, 9 and 10

MEASURES = (ALG2, "Algorithm 2 (L1)", "Algorithm 2 (squared L2)")


def alike(a: str, b: str) -> Cell:
    first, second = (Where(*SIMILARITY, m, LOSS) for m in (a, b))
    return versus(f"{a} - {b}", first, second, **labels(SIMILARITY))


WORKS = ("less work", "standard", "more work")


def sooner(many_steps: str, fewer_steps: str) -> Computed:
    """Log-ratio of Algorithm 2's rounds to the highest loss at which its runs end, by seed."""

    def by_seed(results: Mapping[str, pd.DataFrame]) -> dict[int, float]:
        table = results["cs_work"]
        table = table[(table["method"] == ALG2) & table["setting"].isin(WORKS)]
        effects = {}
        for seed, runs in table.groupby("seed"):
            curves = {setting: curve(run, LOSS) for setting, run in runs.groupby("setting")}
            level = max(end_mean(losses) for losses in curves.values())
            rounds = {setting: rounds_below(rolling(losses), level) for setting, losses in curves.items()}
            if {fewer_steps, many_steps} <= set(rounds):
                effects[int(str(seed))] = float(np.log(rounds[fewer_steps] / rounds[many_steps]))
        return effects

    return Computed(by_seed, "times", log=True)


FEW, STANDARD, MANY = (("cs_work", setting) for setting in ("fewer clients", "standard", "more clients"))


def faster_with(larger: tuple[str, str], smaller: tuple[str, str], method: str) -> Cell:
    arms = [Where(*place, method, LOSS) for place in (smaller, larger)]
    return versus(f"{larger[1]} over {smaller[1]}, {method}", arms[0], arms[1], **labels(larger))


IN_FIGURES_6_TO_10 = [
    claim("F6.a", "Arccos, L1 and L2 similarity give similar final losses (within 3 %, bound ours).", "supporting", END,
          [alike(a, b) for a, b in combinations(MEASURES, 2)], SAME, 1.03),
    claim("F6.b", "Algorithm 1 ends with a lower loss than MD.", "supporting", END, [below_md(SIMILARITY, ALG1)]),
    claim("F6.c", "Algorithm 2 ends with a lower loss than MD with each of the three measures of similarity.",
          "supporting", END, [below_md(SIMILARITY, m) for m in MEASURES]),
    claim("F8.a", "With more local steps Algorithm 2 needs fewer rounds to reach the same loss.", "supporting",
          sooner("standard", "less work"),
          [Cell(f"{a} than {b}", needs=("cs_work",), measure=sooner(a, b), **labels(STANDARD))
           for a, b in (("standard", "less work"), ("more work", "standard"))]),
    claim("F8.b", "The gain of Algorithm 2 over MD is larger the fewer clients are drawn.", "supporting", END,
          [larger_gain(FEW, STANDARD), larger_gain(STANDARD, MANY)]),
    claim("F8.c", "MD and Algorithm 2 are both faster the more clients are drawn (mean loss over the rounds).",
          "supporting", WHOLE,
          [faster_with(a, b, m) for m in (MD, ALG2) for a, b in ((STANDARD, FEW), (MANY, STANDARD))]),
    claim("F8.d", "Algorithm 2 ends with a lower loss than MD in all four panels.", "supporting", END,
          [below_md(place, ALG2) for place in WORK]),
    claim("F9.a", "Algorithm 2 ends with a higher accuracy than MD in all four rows.", "supporting", POINTS,
          [above_md(place, ALG2) for place in WORK]),
    claim("F10.a", "With FedProx's term (mu = 0.1) both algorithms end with a lower loss than MD.", "supporting", END,
          [below_md(FEDPROX, m) for m in BOTH]),
]  # fmt: skip

CLAIMS = (*MAIN, *IN_FIGURE_1, *IN_FIGURES_2_AND_7, *BY_CONSTRUCTION, *IN_FIGURES_6_TO_10)
