"""Clustered Sampling's figures by the names of params.yaml, its headline, and the authors' program as run by us."""

from __future__ import annotations

import numpy as np

from workspace.analysis.headline import Headline
from workspace.analysis.reference import Program

LOSS, ACCURACY, SPREAD = "train_loss", "client_accuracy", "train_loss_std"
MD, TARGET, ALG1, ALG2 = "MD", "Target", "Algorithm 1", "Algorithm 2"
FIRST = ("cs_mnist", "random ids")
ALPHAS = ("alpha = 10", "alpha = 0.1", "alpha = 0.01", "alpha = 0.001")
RATES = {"10": "0.1", "0.1": "0.05", "0.01": "0.05", "0.001": "0.05"}  # alpha -> the rate in the paper's text
EVEN, SKEWED = ALPHAS[:2], ALPHAS[2:]
PANELS = ("less work", "more work", "fewer clients", "more clients")
SIZES = np.repeat([100, 250, 500, 750, 1000], [10, 30, 30, 20, 10])  # the paper's CIFAR-10 clients

HEADLINE = Headline(
    "Clustered Sampling, Figure 1",
    "The paper prints no numbers; its claims compare curves.",
    "mean",
    (),
    (("cs.F1.a", f"MNIST, {ALG1}"), ("cs.F1.b", f"MNIST, {ALG2}")),
)

# Accenture/Labs-Federated-Learning. It numbers the clients by digit. Its accuracy is measured on the clients' own test
# parts (80 images each), like our `client_accuracy`; all clients have the same number of images.
_SHARDS = "MNIST_shard, N=50, lr=0.01, B=50, m=10"
_SORTED = "ids sorted by digit"

PROGRAM = Program(
    digest="94496eeacfa462d57546f01e96abeeaf0e40359440ba03be3e8ba8fa9b4c2329",
    settings={_SHARDS: _SORTED, f"{_SHARDS}; draws reseeded by run": _SORTED},
    methods={
        "MD": ("cs_mnist", "MD"),
        "Algorithm 1": ("cs_mnist", "Algorithm 1, authors' tie order"),
        "Algorithm 2": ("cs_mnist", "Algorithm 2"),
    },
    columns={
        "test_accuracy": "client_accuracy",
        "train_loss": "train_loss",
        "distinct_clients": "distinct_clients",
        "distinct_classes": "distinct_classes",
    },
)
