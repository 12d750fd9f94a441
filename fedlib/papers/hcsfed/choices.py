"""What HCSFed leaves open."""

from __future__ import annotations

from fedlib.analysis.choices import Choice, grid
from fedlib.papers.hcsfed.printed import COLUMNS, PRINTED, in_print

_MNIST = [f"MNIST, q = {q} %" for q in (10, 30, 50)]
_FMNIST = [f"FMNIST, q = {q} %" for q in (10, 30, 50)]
_ALPHAS = {  # setting -> column of Table 1, alpha
    f"{column}{own}": (column, own.removeprefix(", ") or "alpha = 0.01")
    for column in (_MNIST[0], _FMNIST[0])
    for own in ("", ", alpha = 0.1", ", alpha = 0.001", *[", IID"] * (column in _MNIST))
}
_RATES = {  # setting -> column of Table 1, alpha and learning rate
    f"{column}{alpha}{lr}": (column, f"{alpha.removeprefix(', ') or 'alpha = 0.01'}{lr or ', lr = 0.01'}")
    for column in [*_MNIST, *_FMNIST]
    for alpha in ("", *[", alpha = 0.1"] * (column in _FMNIST))
    for lr in ("", ", lr = 0.05")
}
_METHODS = (
    *("Random", "Random, attrition", "Cluster"),
    *("HCSFed-R (GC-A)", "HCSFed-R (GC-B)", "Full participation"),
)
_ABLATION = [f"alpha = {alpha}" for alpha in ("0.01", "0.1", "0.001")]
_TO_80 = dict.fromkeys([*_MNIST, *_FMNIST, *_ALPHAS, *_RATES], 0.8)


def _printed() -> dict[tuple[str, str], str]:
    """Table 1's cells by the setting and the method of our non-IID runs, whatever their alpha."""
    methods = (
        "Random",
        "Random, attrition",
        "Importance",
        "Importance, mean",
        "Cluster",
        "HCSFed-R (GC-A)",
        "HCSFed-R (GC-B)",
    )
    settings = {column: column for column in COLUMNS} | {s: c for s, (c, _) in (_ALPHAS | _RATES).items()}
    cells = {(s, m): in_print(PRINTED, m.split(", ")[0], c) for s, c in settings.items() for m in methods}
    return {key: "200+" if rounds > 200 else str(rounds) for key, rounds in cells.items()}


CHOICES = [
    Choice(
        "How Random is aggregated",
        "The paper's Algorithm 2 averages the chosen models. Its printed rounds fall like 1/q, which the plain average "
        "does not give, and attrition does: absent clients count with the old model.",
        "The plain average, as printed; attrition stands beside it, and claims are decided for both.",
        "hcsfed_table_1",
        grid(
            [*_MNIST, *_FMNIST],
            {"Random": "average of the chosen", "Random, attrition": "absent clients keep the old model"},
        ),
        ("hcsfed/table_1", "hcsfed/figure_3", "hcsfed/figure_7"),
        _TO_80,
        _printed(),
    ),
    Choice(
        "What the compression keeps of an update",
        "The paper keeps the centres of groups of like components, and does not say whether each client has groups of "
        "its own (GC-A) or all clients share them (GC-B).",
        "Neither: GC-A and GC-B stand side by side, and claims are decided for both.",
        "hcsfed_table_1",
        grid([*_MNIST, *_FMNIST], {f"HCSFed-R ({gc})": gc for gc in ("GC-A", "GC-B")}),
        ("hcsfed/table_1", "hcsfed/figure_2", "hcsfed/figure_3", "hcsfed/figure_4", "hcsfed/figure_7"),
        _TO_80,
        _printed(),
    ),
    Choice(
        "How places are dealt to clusters and updates weighed",
        "As printed, a cluster's spread is a variance, a cluster may get no place, and the average is biased.",
        "R, repaired: spread as a standard deviation, one place for every cluster.",
        "hcsfed_table_1",
        grid(
            _MNIST,
            {
                f"HCSFed-{variant} ({gc})": f"{words} ({gc})"
                for variant, words in (("R", "repaired"), ("P", "as printed"), ("U", "unbiased"))
                for gc in ("GC-A", "GC-B")
            },
        ),
        ("hcsfed/table_1", "hcsfed/figure_7"),
        _TO_80,
    ),
    Choice(
        "Which alpha Table 1 has",
        "The paper names none for MNIST and Fashion-MNIST.",
        "0.01.",
        "hcsfed_table_1",
        grid([*_ALPHAS], {method: method for method in _METHODS if method != "Cluster"}),
        ("hcsfed/table_1",),
        _TO_80,
        _printed(),
        _ALPHAS,
    ),
    Choice(
        "Which learning rate Table 1 has",
        "The paper names none. Its figures have two: 0.01 on MNIST and Fashion-MNIST, 0.05 on CIFAR-10.",
        "0.01.",
        "hcsfed_table_1",
        grid([*_RATES], {method: method for method in _METHODS}),
        ("hcsfed/table_1",),
        _TO_80,
        _printed(),
        _RATES,
    ),
    Choice(
        "How importance sampling weighs updates",
        "The paper does not give the rule.",
        "Unbiased weights.",
        "hcsfed_table_1",
        grid(_MNIST, {"Importance": "unbiased weights", "Importance, mean": "plain average"}),
        ("hcsfed/table_1", "hcsfed/figure_7"),
        _TO_80,
        _printed(),
    ),
    Choice(
        "Which importance selection the ablation adds to FedAvg",
        "The paper names it after a part of HCSFed, where it draws by the norm of a compressed update and averages "
        "plainly, and after related work, whose rule draws by the norm of the whole one and weighs without bias.",
        "Related work's, as in Table 1.",
        "hcsfed_ablation",
        grid(
            _ABLATION,
            {
                "+importance": "related work's",
                "+importance (GC-A)": "HCSFed's part (GC-A)",
                "+importance (GC-B)": "HCSFed's part (GC-B)",
            },
        ),
        ("hcsfed/figure_7",),
        dict.fromkeys(_ABLATION, 0.8),
    ),
]

NOT_VARIED = [
    ("batch and local steps of Table 1", "not given", "50 and 50, those of Figure 3"),
    (
        "number of clusters and compression rate",
        "ranges only",
        "10 clusters, 10 %; Figures 4 to 6 vary them",
    ),
    (
        "what the server knows of a client before it trains",
        "not given",
        "all clients train in every round, which is counted",
    ),
    ("accuracy", "not defined", "official test set"),
    ("IFCA's number of models", "not given", "4"),
    ("SCAFFOLD's control variates and server step", "not given", "option II, 1"),
]
