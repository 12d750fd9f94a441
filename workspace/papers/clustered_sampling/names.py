"""The settings and methods of Clustered Sampling's figures, by the names that params.yaml gives them."""

from __future__ import annotations

import numpy as np

LOSS, ACCURACY, SPREAD = "train_loss", "client_accuracy", "train_loss_std"
MD, TARGET, ALG1, ALG2 = "MD", "Target", "Algorithm 1", "Algorithm 2"
FIRST = ("cs_mnist", "random ids")
ALPHAS = ("alpha = 10", "alpha = 0.1", "alpha = 0.01", "alpha = 0.001")
RATES = {"10": "0.1", "0.1": "0.05", "0.01": "0.05", "0.001": "0.05"}  # alpha -> the rate in the paper's text
EVEN, SKEWED = ALPHAS[:2], ALPHAS[2:]
PANELS = ("less work", "more work", "fewer clients", "more clients")
SIZES = np.repeat([100, 250, 500, 750, 1000], [10, 30, 30, 20, 10])  # the paper's CIFAR-10 clients
