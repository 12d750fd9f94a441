"""What HiCS-FL leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from fedlib.analysis.choices import Choice, Studied
from fedlib.papers.hics_fl.claims_estimates import estimators
from fedlib.papers.hics_fl.printed import PRINTED, TABLE


def _choice(
    data: str,
    title: str,
    sources: str,
    taken: str,
    readings: Mapping[tuple[str, str] | str, str],
) -> Choice:
    """readings: by method, in setting (2), or by (setting, method); each has Table 1's cell of its family."""
    experiment, figures = {
        "FMNIST": ("hics_fmnist_variants", (2, 4, 13, 14)),
        "CIFAR-10": ("hics_cifar10_variants", (3, 4, 15, 16)),
    }[data]
    runs = {key if isinstance(key, tuple) else ("(2)", key): text for key, text in readings.items()}
    return Choice(
        f"{data}: {title}",
        sources,
        taken,
        experiment,
        runs,
        ("hics_fl/variants", "hics_fl/table_1", *(f"hics_fl/figure_{k}" for k in figures)),
        {setting: TABLE[data].target for setting, _ in runs},
        {(s, m): str(PRINTED[data][m.split(", ")[0]]) for s, m in runs},
    )


_BOTH = (
    (
        "the switch on the spread of the estimates",
        "The paper has none. The published code runs plain Clustered Sampling unless the estimated entropies vary "
        "little, and keeps the updates of its warm-up alone; the code just before has no switch. Both estimate from "
        "the weights, at temperature 0.001.",
        "The paper's.",
        {
            "HiCS-FL": "the paper's",
            "HiCS-FL, C0": "the code's, before the switch",
            "HiCS-FL, C": "the published code's",
            "CS": "Clustered Sampling, for comparison",
        },
    ),
    (
        "what the label entropy is estimated from",
        "The paper: the update of the output layer's bias. The code: the update of its weights.",
        "The bias. The weights stand beside it at the same temperature.",
        {"HiCS-FL": "bias", "HiCS-FL, weight estimate": "weights"},
    ),
    (
        "how many candidates Pow-d asks",
        "The paper: all clients. The code: twice as many as are chosen.",
        "All clients.",
        {"Pow-d": "all", "Pow-d, d = 2K": "2K"},
    ),
    (
        "which gradients DivFL compares",
        "The paper: of one step at the current model. The code: all clients' updates of the round before, with a "
        "stochastic greedy choice.",
        "The paper's.",
        {"DivFL": "one step at the model", "DivFL, as the code": "updates of the round before"},
    ),
    (
        "the likelihood of FedCor as a baseline",
        "The paper's code takes FedCor's leave-one-out likelihood, whose sum runs over the samples where it should run "
        "over the clients.",
        "The marginal likelihood.",
        {"FedCor": "marginal likelihood", "FedCor, LOO": "leave-one-out, as the code has it"},
    ),
)

CHOICES = [
    *(_choice(data, *choice) for choice in _BOTH for data in ("FMNIST", "CIFAR-10")),
    _choice(
        "FMNIST",
        "the temperature",
        "The conference version: 0.0025. The code: 0.001.",
        "0.0025.",
        {"HiCS-FL, T_s = 0.001": "0.001", "HiCS-FL": "0.0025", "HiCS-FL, T_s = 0.005": "0.005"},
    ),
    _choice(
        "CIFAR-10",
        "the temperature",
        "The conference version: 0.0015. The code: 0.001.",
        "0.0015.",
        {
            "HiCS-FL, T_s = 0.001": "0.001",
            "HiCS-FL": "0.0015",
            "HiCS-FL, T_s = 0.0025": "0.0025",
            "HiCS-FL, T_s = 0.005": "0.005",
        },
    ),
    _choice(
        "FMNIST",
        "how clients train, and how many",
        "The paper: SGD, FedAvg; the conference version: 2 epochs, 5 clients a round. The code: momentum 0.9, weight "
        "decay 0.0005, a proximal term of 0.5, 1 epoch, 10 clients in 5 clusters, each client's momentum kept between "
        "rounds; ours there has 10 clusters and begins each round without momentum.",
        "The paper's.",
        {
            (setting, method): f"{method}, {whose}"
            for setting, whose in (("(2)", "the paper's"), ("(2), the code's training", "the code's"))
            for method in ("Random", "CS", "HiCS-FL", "HiCS-FL, C0", "HiCS-FL, C")
        },
    ),
    _choice(
        "FMNIST",
        "the network",
        "The paper: two convolutions and one linear layer, as in a file of the code that it does not train. What the "
        "code trains: three and two, with 64 hidden units; here its network for CIFAR-10, on one channel.",
        "The paper's.",
        {
            (setting, method): f"{method}, {whose}"
            for setting, whose in (("(2)", "the paper's"), ("(2), the code's network", "the code's"))
            for method in ("Random", "CS", "HiCS-FL", "HiCS-FL, C0")
        },
    ),
    _choice(
        "FMNIST",
        "the draw within a cluster",
        "The paper: by the client's share of the data (the largest has four to eight times the smallest's). The code: "
        "uniformly.",
        "By share.",
        {"HiCS-FL": "by share", "HiCS-FL, uniform draw": "uniform"},
    ),
    _choice(
        "FMNIST",
        "the learning rate in a round",
        "The conference version halves it every 10 iterations; the code never does. Iterations cannot be rounds: a "
        "whole run would be worth 20.",
        "Constant.",
        {
            (setting, method): f"{method}, {whose}"
            for setting, whose in (
                ("(2)", "constant"),
                ("(2), the rate halved in a round", "halved every 10 steps"),
            )
            for method in ("Random", "CS", "HiCS-FL", "HiCS-FL, C0")
        },
    ),
    _choice(
        "CIFAR-10",
        "the weight of the proximal term",
        "The conference version: 0.1. The code: 0.5.",
        "0.1.",
        {"HiCS-FL": "0.1", "HiCS-FL, μ = 0.5": "0.5"},
    ),
    _choice(
        "CIFAR-10",
        "the width of the network's hidden layer",
        "The conference version and the code: 64. The code's network for CIFAR-100: 256.",
        "64, and 256 on CIFAR-100.",
        {
            (setting, method): f"{method}, {width}"
            for setting, width in (("(2)", "64"), ("(2), 256 hidden units", "256"))
            for method in ("Random", "Pow-d", "DivFL", "FedCor", "HiCS-FL")
        },
    ),
    Studied(
        "When the label entropy is estimated, from what, and at which temperature",
        "The paper: from the bias, in a round that is not stated. The conference version: at 0.0025 (Fashion-MNIST), "
        "0.0015 (CIFAR). The code: from the weights, at 0.001. Means over all cases of Figures 9 to 12 that were "
        "measured; AUC and Kendall's tau as there.",
        "The bias, over the warm-up, at the conference version's temperature.",
        "hics_entropy",
        estimators,
        ("hics_fl/figure_9", "hics_fl/figure_10", "hics_fl/figure_11", "hics_fl/figure_12"),
    ),
]

NOT_VARIED = [
    (
        "halving the learning rate every 10 iterations on CIFAR-10",
        "the conference version; the code never does; read as rounds, a whole run would be worth 20 rounds",
        "constant; on Fashion-MNIST halving within a round is varied",
    ),
    ("the draw within a cluster on CIFAR-10", "the paper: by data share; the code: uniform", "by data share"),
    (
        "the warm-up's order",
        "the paper: random; the code: by client id, which is by alpha",
        "random",
    ),
    (
        "the clients' size and the probed rounds of Figure 6",
        "neither stated",
        "200 samples; every tenth of 500 rounds (at scale cpu every fifth of 50)",
    ),
    (
        "the training loss of Figures 13, 15 and 17",
        "the paper: the average local training loss",
        "the global model's over all clients' data; their verdicts say what the chosen clients' own gives",
    ),
    ("Adam's state between rounds", "the code keeps it at the client", "fresh in every round"),
]
