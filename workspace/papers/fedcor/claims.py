"""The claims of FedCor (Tang et al., CVPR 2022).

"Faster by x %" is the ratio of rounds to the target minus one: only so does Table 1 give the abstract's percentages.
The paper prints means of five seeds with their standard deviations. Bounds without a printed number are ours and stand
in `margin`. fin: mean accuracy over the last 5 % of the rounds; auc: over all rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from math import inf, nan

import pandas as pd

from fedlib.measure import area, best, end_mean, jitter
from workspace.analysis.claim import (
    PRINT,
    ROUNDS,
    SAME,
    SPREAD,
    TREND,
    Arm,
    Cell,
    Claim,
    Computed,
    Labels,
    Level,
    Measurement,
    Rounds,
    claim_on,
    versus,
)
from workspace.analysis.estimators import trend
from workspace.analysis.readings import Where
from workspace.papers.fedcor.printed import (
    ANNEALING,
    BASELINES,
    BETAS,
    EXPERIMENTS,
    INTERVAL,
    INTERVALS,
    METHODS,
    PANELS,
    PRINTED,
    SETTINGS,
)
from workspace.papers.fedcor.process import BOUNDS, embeddings, gaussian, separation
from workspace.papers.fedcor.tables import unevenness

claim = partial(claim_on, "fedcor", "fedcor")
DATA = {"FMNIST": "Fashion-MNIST", "CIFAR-10": "CIFAR-10"}
FIN = Level(end_mean, "points", 100, options=(("share", 0.05),))
AUC = Level(area, "points", 100)
ROUGH = Level(jitter, "points", 100)


def labels(panel: str) -> Labels:
    """What a panel's name says: "FMNIST 2SPC"."""
    data, partition = panel.split()
    share = "q = 10 %" if partition == "1SPC" else "q = 5 %"
    return {"data": DATA[data], "partition": partition, "participation": share}


def where(panel: str, method: str, experiments: Mapping[str, str] = EXPERIMENTS) -> Where:
    data, setting = panel.split()
    return Where(experiments[data], setting, method)


# -- Table 1


def printed_arm(panel: str, method: str, weight: float) -> Arm:
    """Table 1's mean of five seeds, and its standard deviation as that of the logarithm; N/A is never reached."""
    entry = PRINTED[panel][method]
    mean, spread = (inf, SPREAD) if entry is None else (entry[0], entry[1] / entry[0])
    return Arm(where(panel, method), weight, mean, spread)


def printed_text(panel: str, *methods: str) -> str:
    entries = [PRINTED[panel][method] for method in methods]
    return " and ".join("N/A" if entry is None else f"{entry[0]:g}" for entry in entries) + " rounds"


def to_target(panel: str) -> Rounds:
    return Rounds(PANELS[panel].target, T=PANELS[panel].T)


def sooner(panel: str, baseline: str) -> Cell:
    arms = printed_arm(panel, baseline, 1.0), printed_arm(panel, "FedCor", -1.0)
    name, text = f"{panel}, {baseline}", printed_text(panel, baseline, "FedCor")
    return Cell(name, arms, shown=text, measure=to_target(panel), **labels(panel))


TARGET = to_target("FMNIST 2SPC")  # every cell has its own
IN_TABLE_1 = [
    claim("T1.a", "FedCor needs fewer rounds to the target than every baseline, in all six settings.", "core", TARGET,
          [sooner(panel, baseline) for panel in PANELS for baseline in BASELINES], ROUNDS),
    claim("T1.b", "On Fashion-MNIST FedCor needs fewer rounds than Pow-d in each setting (printed: 34 to 99 % faster).",
          "core", TARGET, [sooner(f"FMNIST {setting}", "Pow-d") for setting in SETTINGS], ROUNDS, version=2),
    claim("T1.e", "On CIFAR-10 FedCor needs fewer rounds than Pow-d in each setting (printed: 26 to 51 % faster).",
          "core", TARGET, [sooner(f"CIFAR-10 {setting}", "Pow-d") for setting in SETTINGS], ROUNDS,
          version=2),
    claim("T1.c", "Each of the 24 printed numbers of rounds comes out (within a factor 1.5).", "supporting", TARGET,
          [Cell(f"{panel}, {m}", (printed_arm(panel, m, 1.0),), shown=printed_text(panel, m), measure=to_target(panel),
                **labels(panel)) for panel in PANELS for m in METHODS], PRINT, 1.5),
]  # fmt: skip


# -- Figure 4


def leads(higher: str | None = None, lower: str | None = None) -> list[Cell]:
    """FedCor's level less that of every baseline in every panel; higher, lower: the side that is FedCor's."""
    return [
        versus(f"{panel}, {b}", where(panel, higher or b), where(panel, lower or b), **labels(panel))
        for panel in PANELS
        for b in BASELINES
    ]


def half_the_gain(panel: str, baseline: str) -> Cell:
    """Half of FedCor's gain over Random, less the gain of a baseline."""
    weights = {"FedCor": 0.5, "Random": 0.5, baseline: -1.0}
    arms = tuple(Arm(where(panel, method), weight) for method, weight in weights.items())
    return Cell(f"{panel}, {baseline}", arms, **labels(panel))


def larger_lead(data: str, partition_besides: str) -> Cell:
    """FedCor's lead over the mean of the baselines in 1SPC, less that in another partition."""
    arms = []
    for partition, sign in (("1SPC", 1.0), (partition_besides, -1.0)):
        arms.append(Arm(where(f"{data} {partition}", "FedCor"), sign))
        arms += [Arm(where(f"{data} {partition}", b), -sign / len(BASELINES)) for b in BASELINES]
    return Cell(f"{data}, {partition_besides}", tuple(arms), DATA[data], f"1SPC and {partition_besides}")


IN_FIGURE_4 = [
    claim("F4.a", "FedCor's final accuracy is above every baseline's, in all six settings.", "supporting", FIN,
          leads("FedCor")),
    claim("F4.b", "FedCor converges faster than every baseline, in all six settings (mean accuracy over the rounds).",
          "core", AUC, leads("FedCor")),
    claim("F4.c", "AFL and Pow-d gain less than half as much over Random as FedCor (bound ours: slight or none).",
          "supporting", AUC, [half_the_gain(panel, b) for panel in PANELS for b in BASELINES[1:]]),
    claim("F4.d", "FedCor's lead over the baselines is larger with one label per client (1SPC) than in 2SPC and Dir.",
          "supporting", AUC, [larger_lead(data, partition) for data in EXPERIMENTS for partition in ("2SPC", "Dir")]),
    claim("F4.e", "FedCor's learning curves are smoother than every baseline's (change from round to round).", "core",
          ROUGH, leads(lower="FedCor")),
]  # fmt: skip


# -- Figures 5 and 6


def over_random(panel: str, method: str, experiments: Mapping[str, str]) -> Cell:
    ours, random = (where(panel, m, experiments) for m in (method, "Random"))
    return versus(f"{panel}, {method.removeprefix('FedCor, ')}", ours, random, **labels(panel))


def alike(panel: str, a: str, b: str, experiments: Mapping[str, str]) -> tuple[Cell, Cell]:
    """Two variants of FedCor of which the paper says that they reach about the same: at the end, and on the way."""
    names = [method.removeprefix("FedCor, ") for method in (a, b)]
    arms = Arm(where(panel, a, experiments)), Arm(where(panel, b, experiments), -1.0)
    final, mean = (
        Cell(f"{panel}, {' - '.join(names)}, {label}", arms, measure=measure, **labels(panel))
        for label, measure in (("end", FIN), ("mean", AUC))
    )
    return final, mean


def by_beta(data: str) -> Cell:
    """What is gained from the smallest to the largest beta."""
    arms = tuple(
        Arm(where(f"{data} 2SPC", beta, ANNEALING), float(weight))
        for beta, weight in zip(BETAS[data], trend([0, 0.5, 1]), strict=True)
    )
    return Cell(data, arms, **labels(f"{data} 2SPC"))


IN_FIGURES_5_AND_6 = [
    claim("F5.a", "Twice the interval between updates of the Gaussian process changes the accuracy by less than one "
          "point (bound ours).", "supporting", FIN,
          [cell for panel in PANELS for cell in alike(panel, *INTERVALS[:2], INTERVAL)], SAME, 1.0),
    claim("F5.b", "Without any update after the warm-up FedCor converges faster than Random (mean accuracy over the "
          "rounds).", "supporting", AUC, [over_random(panel, INTERVALS[2], INTERVAL) for panel in PANELS]),
    claim("F6.a", "The smaller beta, the more uniformly FedCor selects (Gini coefficient, gained from the smallest to "
          "the largest beta).", "supporting", Measurement("method", unevenness), map(by_beta, ANNEALING), TREND),
    claim("F6.b", "The accuracy at the three values of beta differs by less than two points (bound ours).",
          "supporting", FIN,
          [cell for data in ANNEALING for a, b in combinations(BETAS[data], 2)
           for cell in alike(f"{data} 2SPC", a, b, ANNEALING)], SAME, 2.0),
    claim("F6.c", "FedCor converges faster than Random at every beta (mean accuracy over the rounds).", "supporting",
          AUC, [over_random(f"{data} 2SPC", beta, ANNEALING) for data in ANNEALING for beta in BETAS[data]]),
]  # fmt: skip


# -- The Gaussian process: Figures 1, 2, 3 and 7, and what it costs


LOSS = Measurement("method", lambda draw: float(draw["loss"].iloc[0]), "nats", each="draw")
BY_CHANCE = 20 / 39  # that two of the toy's 2 x 20 points have different labels


def more_often(draw: pd.DataFrame) -> float:
    """Whether a pair has both labels, less how often a random pair has."""
    a, b = draw["labels"].iloc[0]
    return float(a != b) - BY_CHANCE


def in_toy(method: str) -> Where:
    return Where("fedcor_toy", "gap 4, rate 1", method)


def toy(id: str, text: str, measure: Measurement, *arms: Arm) -> Claim:
    return claim(id, text, "supporting", measure, [Cell("toy problem", arms, data="toy")])


def probed(data: str, share: Callable[[pd.DataFrame], float]) -> Measurement:
    """A share of the probed rounds of one data set, less all of them, in points: it cannot be above 0."""

    def below_all(changes: pd.DataFrame) -> float:
        rows = changes[changes["data"] == data]
        return 100 * (share(rows) - 1) if len(rows) else nan

    return Measurement("method", below_all, "points")


def near_gaussian(data: str) -> Measurement:
    return probed(data, lambda changes: float(gaussian(changes)["near-Gaussian (%)"].iloc[0]) / 100)


def stationary(data: str) -> Measurement:
    return probed(data, lambda changes: float((changes["cosine"].dropna() > BOUNDS[data]).mean()))


def rounds_with(measure: Callable[[str], Measurement], text: str) -> tuple[Cell, ...]:
    return tuple(
        Cell(data, (Arm(Where("fedcor_loss_changes", "2SPC", "Random"), printed=0.0, spread=5.0),),
             shown=text.format(BOUNDS[data]), measure=measure(data), **labels(f"{data} 2SPC"))
        for data in EXPERIMENTS
    )  # fmt: skip


def neighbours(data: str) -> Computed:
    """How often the nearest embedding is of a client with the same label, less how often a random one is (9 / 99)."""

    def above_chance(results: Mapping[str, pd.DataFrame]) -> dict[int, float]:
        runs = results[EXPERIMENTS[data]].query("setting == '1SPC' and method == 'FedCor'")
        seeds = embeddings(runs, results["fedcor_partitions"], data)
        return {seed: separation(x, y)[1] - 9 / 99 for seed, (x, y) in seeds.items()}

    return Computed(above_chance, "share of clients", resolution=0.01)


def sent(rows: pd.DataFrame) -> float:
    """Parameters and scalars sent in a run."""
    return float(rows[["parameters_down", "parameters_up", "scalars_up"]].to_numpy().sum())


def saved(run: pd.DataFrame) -> float:
    """What a run would send if each of its rounds were an update round, over what it sends."""
    by_round = run.loc[run["round"] > 0, ["parameters_down", "parameters_up", "scalars_up"]].sum(axis=1)
    return len(by_round) * by_round.max() / by_round.sum()


ON_THE_PROCESS = [
    toy("F1.a", "FedCor's pair has both labels more often than a random pair.",
        Measurement("method", more_often, "share of draws", each="draw"), Arm(in_toy("Cor"))),
    toy("F1.b", "FedCor's pair leaves a lower loss than the two clients of highest loss.", LOSS,
        Arm(in_toy("Ind")), Arm(in_toy("Cor"), -1.0)),
    toy("F1.c", "The two clients of highest loss do not lower the loss.", LOSS,
        Arm(in_toy("Ind")), Arm(in_toy("start"), -1.0)),
    claim("F2.a", "The first component of the clients' loss changes is close to Gaussian in all probed rounds but 20 % "
          "(effect: their share less 100 %; |skewness| < 0.5, |excess kurtosis| < 1, Kolmogorov-Smirnov < 0.05: bounds "
          "ours).", "supporting", near_gaussian("FMNIST"), rounds_with(near_gaussian, "close to Gaussian"),
          margin=-20.0, version=2),
    claim("F3.a", "Between two updates the covariance of the loss changes keeps a cosine above 0.97 (CIFAR-10: 0.95), "
          "in all probed rounds but 5 % (effect: their share less 100 %).", "core", stationary("FMNIST"),
          rounds_with(stationary, "> {}"), margin=-5.0, version=2),
    claim("F7.a", "After the warm-up the embeddings of clients with the same label are nearest to each other more "
          "often than chance (1SPC).", "core", neighbours("FMNIST"),
          [Cell(name, needs=(runs, "fedcor_partitions"), measure=neighbours(name), **labels(f"{name} 1SPC"))
           for name, runs in EXPERIMENTS.items()]),
    claim("C.a", "Covariance stationarity saves communication: a run sends less than with an update of the Gaussian "
          "process in every round.", "construction", Measurement("method", saved, "times", log=True),
          [Cell(panel, (Arm(where(panel, "FedCor")),), **labels(panel)) for panel in PANELS], page="table_1"),
    claim("C.b", "FedCor's overhead is low: a run sends at most twice as much as with Random (bound ours).",
          "core", Measurement("method", sent, "times", log=True),
          [versus(panel, where(panel, "FedCor"), where(panel, "Random"), **labels(panel)) for panel in PANELS],
          SAME, 2.0, page="table_1"),
    claim("S5.a", "The models reach the printed accuracies when trained centrally (within 1.5 points).", "supporting",
          Level(best, "points", 100),
          [Cell(data, (Arm(Where("fedcor_centralised", data, "Centralised"), 1.0, points, 0.15),), DATA[data],
                "one client", shown=f"{points} %")
           for data, points in {"FMNIST": 85.92, "CIFAR-10": 73.84}.items()], PRINT, 1.5, page="centralised"),
]  # fmt: skip

CLAIMS = (*IN_TABLE_1, *IN_FIGURE_4, *IN_FIGURES_5_AND_6, *ON_THE_PROCESS)
