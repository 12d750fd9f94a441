"""The claims of HiCS-FL (Chen and Vikalo).

The paper prints one number of rounds a method, without seeds or spread, and its curves are smoothed: ours are not.
Table 1 is about setting (2) of each data set, and follows runs beyond the rounds of the figures. Bounds without a
printed number are ours and stand in `margin`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations, pairwise

import pandas as pd

from fedlib.measure import area, end_mean, jitter
from workspace.analysis.claim import (
    FACT,
    PRINT,
    ROUNDS,
    SAME,
    Arm,
    Cell,
    Computed,
    Level,
    Measurement,
    Rounds,
    versus,
)
from workspace.analysis.readings import Where
from workspace.papers.hics_fl.claims_updates import OF_ESTIMATES, OF_GRADIENTS
from workspace.papers.hics_fl.printed import (
    BASELINES,
    CLUSTERS,
    NAMES,
    ON,
    OURS,
    PANELS,
    PRINTED,
    PRINTED_AVAILABILITY,
    PRINTED_TEXT_ACCURACY,
    PRINTED_TEXT_ROUNDS,
    SHOWN,
    TABLE,
    claim,
    labels,
    where,
)

# -- Table 1, and the slides' with FedCor and Mini-ImageNet


def in_table(data: str, method: str, weight: float = 1.0) -> Arm:
    return Arm(Where(TABLE[data].experiment, TABLE[data].setting, method), weight, PRINTED[data][method])


def to_target(data: str) -> Rounds:
    return Rounds(TABLE[data].target, T=TABLE[data].T)


def sooner(data: str, slow: str, fast: str) -> Cell:
    name, q = NAMES.get(data, data), "q = 10 %" if data == "FMNIST" else "q = 20 %"
    arms = in_table(data, slow), in_table(data, fast, -1.0)
    text = f"{PRINTED[data][slow]} and {PRINTED[data][fast]} rounds"
    partition = TABLE[data].setting
    return Cell(f"{name}, {slow} over {fast}", arms, name, partition, q, text, measure=to_target(data))


def in_order(data: str) -> list[Cell]:
    """Every method against the next faster one in print."""
    methods = sorted(PRINTED[data], key=lambda method: -PRINTED[data][method])
    return [sooner(data, slow, fast) for slow, fast in pairwise(methods)]


def printed_rounds(data: str, method: str) -> Cell:
    name, text = NAMES.get(data, data), f"{PRINTED[data][method]} rounds"
    arms, partition = (in_table(data, method),), TABLE[data].setting
    return Cell(f"{name}, {method}", arms, name, partition, shown=text, measure=to_target(data))


TARGET = to_target("FMNIST")  # every cell has its own
IN_TABLE_1 = [
    claim("T1.a", "HiCS-FL needs fewer rounds to the target than every other method, on every data set.", "core",
          TARGET, [sooner(data, slower, OURS) for data in TABLE for slower in PRINTED[data] if slower != OURS], ROUNDS),
    claim("T1.b", "HiCS-FL needs fewer rounds than random selection, on every data set (printed: 2.5, 7.3, 1.6 and 2.2 "
          "times).", "core",
          TARGET, [sooner(data, "Random", OURS) for data in TABLE], ROUNDS),
    claim("T1.c", "Each of the 23 printed numbers of rounds comes out (within a factor 2).", "supporting", TARGET,
          [printed_rounds(data, method) for data in TABLE for method in PRINTED[data]], PRINT, 2.0),
    claim("T1.d", "The methods have the printed order on every data set: each needs more rounds than the next.",
          "supporting", TARGET, [cell for data in TABLE for cell in in_order(data)], ROUNDS),
    claim("T1.e", "DivFL is slower than random selection everywhere, Pow-d everywhere but on Fashion-MNIST.",
          "supporting", TARGET, [sooner(data, "DivFL", "Random") for data in TABLE]
          + [sooner(data, "Pow-d", "Random") for data in TABLE if data != "FMNIST"], ROUNDS),
]  # fmt: skip

# -- Figures 2 to 5 and the slides: accuracy curves


def auc(data: str) -> Level:
    return Level(area, "points", 100, until=SHOWN[data])


def fin(data: str) -> Level:
    return Level(end_mean, "points", 100, options=(("share", 0.05),), until=SHOWN[data])


def rough(data: str) -> Level:
    return Level(jitter, "points", 100, until=SHOWN[data])


def mean_loss(data: str) -> Level:
    return Level(area, "nats", until=SHOWN[data])


def leads(panel: str) -> list[Cell]:
    """HiCS-FL's level less that of every baseline."""
    return [versus(f"{panel}, {b}", where(panel, OURS), where(panel, b), **labels(panel)) for b in BASELINES]


def lags(panel: str, column: str = "test_accuracy") -> list[Cell]:
    """Every baseline's level less HiCS-FL's."""
    return [
        versus(f"{panel}, {b}", where(panel, b, column), where(panel, OURS, column), **labels(panel))
        for b in BASELINES
    ]


def larger_lead(panel: str, compared: str, baselines: list[str]) -> Cell:
    """HiCS-FL's lead over the mean of some baselines in one panel, less that in another."""
    arms = [Arm(where(panel, OURS)), Arm(where(compared, OURS), -1.0)]
    arms += [Arm(where(panel, b), -1 / len(baselines)) for b in baselines]
    arms += [Arm(where(compared, b), 1 / len(baselines)) for b in baselines]
    return Cell(f"{panel} - {compared}", tuple(arms), **labels(panel))


def everywhere(data: str, cells: Callable[[str], list[Cell]]) -> list[Cell]:
    return [cell for panel in ON[data] for cell in cells(panel)]


def change_of_spread(rows: pd.DataFrame) -> float:
    """Spread of the clients' training losses over their mean: last fifth of the rounds less first, without warm-up."""
    rows = rows[rows["round"].between(1, SHOWN["CIFAR-10"])]
    relative, t = rows["local_loss_std"] / rows["local_loss"], rows["round"]
    T, first = t.max(), 5  # the warm-up draws each of the 50 clients once, ten a round
    return float(relative[t > 0.8 * T].mean() - relative[(t > first) & (t <= 0.2 * T)].mean())


IN_FIGURES_2_TO_5 = [
    claim("F2.a", "On Fashion-MNIST HiCS-FL converges faster than every baseline in all three settings "
          "(mean accuracy over the rounds).", "core", auc("Fashion-MNIST"), everywhere("Fashion-MNIST", leads)),
    claim("F2.b", "On Fashion-MNIST HiCS-FL's lead over the baselines is larger in setting (1) than in "
          "the others.", "supporting", auc("Fashion-MNIST"),
          [larger_lead("Fashion-MNIST (1)", f"Fashion-MNIST ({k})", BASELINES) for k in (2, 3)]),
    claim("F2.c", "On Fashion-MNIST HiCS-FL's accuracy varies less from round to round than every "
          "baseline's.", "core", rough("Fashion-MNIST"), everywhere("Fashion-MNIST", lags)),
    claim("F2.d", "On Fashion-MNIST HiCS-FL ends at a higher accuracy than every baseline (conclusion).",
          "core", fin("Fashion-MNIST"), everywhere("Fashion-MNIST", leads)),
    claim("F3.a", "On CIFAR-10 HiCS-FL converges faster than every baseline in all three settings (mean "
          "accuracy over the rounds).", "core", auc("CIFAR-10"), everywhere("CIFAR-10", leads)),
    claim("F3.c", "On CIFAR-10 HiCS-FL ends more accurate than every baseline in all three settings.",
          "core", fin("CIFAR-10"), everywhere("CIFAR-10", leads)),
    claim("F3.b", "On CIFAR-10 the gain over random selection is larger in (2) and (3) than in (1).",
          "supporting", auc("CIFAR-10"),
          [larger_lead(f"CIFAR-10 ({k})", "CIFAR-10 (1)", ["Random"]) for k in (2, 3)]),
    claim("F4.a", "If all clients are equally skewed (Fashion-MNIST (3)), HiCS-FL performs like "
          "Clustered Sampling (within two points, bound ours).", "core", auc("Fashion-MNIST"),
          [versus("Fashion-MNIST (3)", where("Fashion-MNIST (3)", OURS), where("Fashion-MNIST (3)", "CS"),
                  **labels("Fashion-MNIST (3)"))], SAME, 2.0),
    claim("F4.b", "On CIFAR-10 the spread of HiCS-FL's training loss, relative to the loss, grows with "
          "the rounds.", "supporting", Measurement("method", change_of_spread, "of the loss"),
          [Cell(panel, (Arm(where(panel, OURS)),), **labels(panel)) for panel in ON["CIFAR-10"]]),
    claim("F5.a", "On CIFAR-100 HiCS-FL converges faster than every baseline in both settings.", "core",
          auc("CIFAR-100"), everywhere("CIFAR-100", leads)),
    claim("F5.b", "On CIFAR-100 HiCS-FL's lead is larger in setting (2) than in (1).", "supporting",
          auc("CIFAR-100"), [larger_lead("CIFAR-100 (2)", "CIFAR-100 (1)", BASELINES)]),
    claim("S.a", "On CIFAR-100 HiCS-FL ends higher than every baseline under medium and severe "
          "heterogeneity.", "supporting", fin("CIFAR-100"),
          [versus(f"CIFAR-100 {s}, {b}", Where("hics_cifar100", s, OURS), Where("hics_cifar100", s, b),
                  data="CIFAR-100", partition=s) for s in ("(2)", "severe") for b in BASELINES],
          page="slides_cifar100"),
]  # fmt: skip

# -- Figures 13 to 17: training loss and its spread


def relative_range(results: Mapping[str, pd.DataFrame], data: str) -> dict[int, float]:
    """(largest - smallest) / mean over the settings of the clients' loss spread, mean over methods, by seed."""
    tables = [
        results[PANELS[panel].experiment].query("setting == @setting and 1 <= round <= @last")
        for panel in ON[data]
        for setting, last in [(PANELS[panel].setting, SHOWN[data])]
    ]
    spreads = pd.concat(tables).groupby(["seed", "method", "setting"])["local_loss_std"].mean().unstack()
    spreads = spreads.dropna()[lambda table: [method in (*BASELINES, OURS) for _, method in table.index]]
    ranges = (spreads.max(axis=1) - spreads.min(axis=1)) / spreads.mean(axis=1)
    return {int(seed): float(value) for seed, value in ranges.groupby("seed").mean().items()}


def less_on_fashion(results: Mapping[str, pd.DataFrame]) -> dict[int, float]:
    fashion, cifar = (relative_range(results, data) for data in ("Fashion-MNIST", "CIFAR-10"))
    return {seed: cifar[seed] - fashion[seed] for seed in cifar if seed in fashion}


IN_FIGURES_13_TO_17 = [
    *(
        claim(f"F{number}.a", f"On {data} HiCS-FL has a lower training loss than every "
              "baseline in every setting (mean over the rounds).", "supporting", mean_loss(data),
              everywhere(data, lambda panel: lags(panel, "train_loss")))
        for number, data in ((13, "Fashion-MNIST"), (15, "CIFAR-10"), (17, "CIFAR-100"))
    ),
    claim("F14.a", "HiCS-FL has a lower spread of the training loss over the selected clients than every baseline "
          "(printed: in almost all of six settings; the paper does not define it).", "core", mean_loss("CIFAR-10"),
          [replace(cell, measure=mean_loss(data)) for data in ("Fashion-MNIST", "CIFAR-10")
           for cell in everywhere(data, lambda panel: lags(panel, "local_loss_std"))], over=5),
    claim("F14.b", "The setting changes the spread of the loss less on Fashion-MNIST than on CIFAR-10 "
          "(range over the settings over their mean).", "supporting", Computed(less_on_fashion, "of the mean"),
          [Cell("both", needs=("hics_fmnist", "hics_cifar10"))]),
]  # fmt: skip

# -- The server's costs, and the number of clusters


def sent(rows: pd.DataFrame) -> float:
    """Parameters and scalars sent in a round."""
    rows = rows[rows["round"] > 0]
    return float(rows[["parameters_down", "parameters_up", "scalars_up"]].sum(axis=1).mean())


AFTER = 25  # rounds: the warm-ups of HiCS-FL (10 or 5), CS (10) and FedCor (25)


def server_median(rows: pd.DataFrame) -> float:
    """Median of the server's own time in a round after the warm-up, in ms: other work lengthens single rounds."""
    return 1000 * float(rows.loc[rows["round"] > AFTER, "server_seconds"].median())


def server_mean(rows: pd.DataFrame) -> float:
    return 1000 * float(rows.loc[rows["round"] > AFTER, "server_seconds"].mean())


def less_work(panel: str) -> list[Cell]:
    return [
        replace(
            versus(f"{panel}, {b}, {statistic}", where(panel, b), where(panel, OURS), **labels(panel)),
            measure=measure,
        )
        for b in ("CS", "DivFL", "FedCor")
        for statistic, measure in (("median", MEDIAN), ("mean", MEAN))
    ]


MEDIAN, MEAN = (Measurement("method", f, "times", log=True) for f in (server_median, server_mean))


def fewer_operations(results: object, N: int = 50, C: int = 10, d: int = 10_000) -> bool:
    """Whether N (N - 1) / 2 distances and N estimates of C labels take less than as many distances of d parameters."""
    pairs = N * (N - 1) // 2
    return pairs + N * C < pairs * d


def alike(setting: str, a: str, b: str) -> Cell:
    experiment = "hics_cifar10_clusters"
    return versus(f"CIFAR-10 {setting}, {a} - {b}", Where(experiment, setting, a), Where(experiment, setting, b),
                  data="CIFAR-10", partition=setting)  # fmt: skip


OF_COSTS = [
    claim("C.a", "HiCS-FL sends nothing beyond what random selection sends.", "construction",
          Measurement("method", sent, "times", log=True),
          [versus(panel, where(panel, OURS), where(panel, "Random"), **labels(panel))
           for panel in ("Fashion-MNIST (2)", "CIFAR-10 (2)")], SAME, 1.001, page="cost_comparison"),
    claim("C.c", "HiCS-FL's server compares one number a client, where those of Clustered Sampling and DivFL "
          "compare whole updates: fewer operations in a round.", "construction", None,
          [Cell("Fashion-MNIST, the paper's network", fact=fewer_operations)], FACT, page="cost_comparison"),
    claim("C.b", "Here HiCS-FL's server takes less time in a round than those of Clustered Sampling, DivFL and FedCor "
          "(after the warm-up; milliseconds of this program, which the paper does not claim).", "supporting", MEDIAN,
          [cell for panel in ("Fashion-MNIST (2)", "CIFAR-10 (2)") for cell in less_work(panel)],
          page="cost_comparison"),
    claim("N.M", "With M = 0.5 K, 0.7 K and K clusters HiCS-FL ends alike on CIFAR-10 (within 3 points).",
          "supporting", fin("CIFAR-10"),
          [alike(s, a, b) for s in ("(1)", "(2)", "(3)") for a, b in combinations(CLUSTERS[1:], 2)], SAME, 3.0,
          page="table_n3"),
]  # fmt: skip

# -- The conference version's tables on texts and on availability, of which nothing can be run yet

POINTS = Level(end_mean, "points", 100, options=(("share", 0.05),))


def above_all(experiment: str, printed: pd.DataFrame) -> list[Cell]:
    """HiCS-FL's printed accuracy against that of every other method, in every setting of a table."""
    return [
        versus(
            f"{setting}, {b}",
            Where(experiment, setting, OURS),
            Where(experiment, setting, b),
            shown=f"{values[OURS]:g} and {values[b]:g} %",
            data="texts" if experiment == "hics_texts" else setting.rpartition(" ")[0],
            partition=setting.rpartition(" ")[2],
        )
        for setting, values in ((str(name), column) for name, column in printed.items())
        for b in map(str, values.index.drop(OURS))
    ]


def printed_text_rounds() -> list[Cell]:
    rounds = PRINTED_TEXT_ROUNDS["rounds to 80 %"]
    return [
        versus(
            f"texts, {b} over {OURS}",
            Where("hics_texts", "(1)", b),
            Where("hics_texts", "(1)", OURS),
            (float(rounds[b]), float(rounds[OURS])),
            shown=f"{rounds[b]} and {rounds[OURS]} rounds",
            data="texts",
        )
        for b in map(str, rounds.index.drop(OURS))
    ]


NOT_RUN = [
    claim("N1.a", "On texts HiCS-FL ends at a higher accuracy than every other method, in all three settings (not run: "
          "no loader of this data yet).", "core", POINTS, above_all("hics_texts", PRINTED_TEXT_ACCURACY),
          page="table_n1"),
    claim("N1.b", "On texts HiCS-FL needs fewer rounds to 80 % than every other method (not run: no loader of this "
          "data yet).", "core", Rounds(0.8), printed_text_rounds(), ROUNDS, page="table_n2"),
    claim("N4.a", "If clients come and go HiCS-FL ends at a higher accuracy than every other method in almost all "
          "settings (printed: four of five; not run: the paper does not say how they come and go).", "core", POINTS,
          above_all("hics_availability", PRINTED_AVAILABILITY), over=4, page="table_n4"),
]  # fmt: skip

CLAIMS = (
    *(
        *IN_TABLE_1,
        *IN_FIGURES_2_TO_5,
        *IN_FIGURES_13_TO_17,
        *OF_COSTS,
        *OF_GRADIENTS,
        *OF_ESTIMATES,
        *NOT_RUN,
    ),
)
