"""FedCor's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

SENTENCES = {
    "fedcor.T1.a": (
        "FedCor achieves the highest test accuracy and the fastest convergence in all experiments",
        "section 5.2",
    ),
    "fedcor.T1.b": (
        "FedCor can improve the convergence rates by 34% ~ 99% and 26% ~ 51% on FMNIST and CIFAR-10",
        "abstract",
    ),
    "fedcor.T1.e": (
        "FedCor can improve the convergence rates by 34% ~ 99% and 26% ~ 51% on FMNIST and CIFAR-10",
        "abstract",
    ),
    "fedcor.F4.b": (
        "FedCor achieves the highest test accuracy and the fastest convergence in all experiments",
        "section 5.2",
    ),
    "fedcor.F4.e": (
        "the learning curves of FedCor are more smooth and less noisy than those of other methods",
        "section 5.2",
    ),
    "fedcor.F3.a": (
        "a GP training method that utilizes the covariance stationarity",
        "section 1",
    ),
    "fedcor.F7.a": (
        "FedCor captures the client correlation correctly using only the loss information",
        "section 6",
    ),
    "fedcor.C.a": (
        "utilizes the covariance stationarity to reduce the communication cost",
        "section 1",
    ),
    "fedcor.C.b": (
        "an efficient GP training method with a low communication overhead",
        "abstract",
    ),
}
