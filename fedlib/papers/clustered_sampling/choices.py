"""What Clustered Sampling leaves open."""

from __future__ import annotations

from fedlib.analysis.choices import Choice

CHOICES = [
    Choice(
        "The order of clients of equal size in Algorithm 1",
        "All MNIST clients have 500 samples, and the paper does not say how ties are broken. The authors sort with "
        "numpy's unstable sort, clients numbered by digit.",
        "At random, clients numbered at random: a server does not know the labels.",
        "cs_mnist",
        {
            ("random ids", "MD"): "MD sampling, for comparison",
            ("random ids", "Algorithm 1"): "at random",
            ("ids sorted by digit", "Algorithm 1, ties at random"): "at random",
            ("ids sorted by digit", "Algorithm 1, authors' tie order"): "as numpy 1.24 sorts",
            ("ids sorted by digit", "Algorithm 1, ties by id"): "by id",
            ("random ids", "Target"): "target sampling, which knows the labels",
        },
        ("clustered_sampling/figure_1",),
    ),
    Choice(
        "The learning rate at the two ends of alpha",
        "The paper's text and list of runs have 0.1 at alpha = 10 and 0.05 at alpha = 0.001; the plotting program has "
        "the reverse. The paper's criterion is the final training loss of MD sampling.",
        "The text's.",
        "cs_rates",
        {
            (f"alpha = {alpha}, lr = {lr}", "MD"): where
            for alpha, named in (("10", ("0.1", "0.05")), ("0.001", ("0.05", "0.1")))
            for lr, where in zip(named, ("the text's", "the plotting program's"), strict=True)
        },
        tuple(f"clustered_sampling/figure_{n}" for n in (2, 7)),
    ),
]

NOT_VARIED = [
    (
        "rows or condensed distances for Ward's tree",
        "the paper: a similarity matrix; the code hands its rows to scipy",
        "rows, as the code",
    ),
    ("dropout while measuring", "the code leaves it on", "off"),
    (
        "test samples of an MNIST client",
        "the paper: 100; the code: 80",
        "80: five digits have fewer than 1,000 test images",
    ),
    (
        "number of seeds",
        "one, with the draws of MD sampling reseeded by the round",
        "5 seeds, every draw from the run's seed",
    ),
]
