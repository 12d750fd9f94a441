"""Clustered Sampling's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

SENTENCES = {
    "cs.M.a": (
        "model aggregation through clustered sampling consistently leads to better training convergence and "
        "variability",
        "abstract",
    ),
    "cs.M.b": (
        "model aggregation through clustered sampling consistently leads to better training convergence and "
        "variability",
        "abstract",
    ),
    "cs.M.c": (
        "clustered sampling leads to [...] reduced variance of the clients stochastic aggregation weights",
        "abstract",
    ),
    "cs.M.d": (
        "clustered sampling leads to better clients representativity",
        "abstract",
    ),
    "cs.M.e": (
        "in none of the experimental settings considered for this paper clustered sampling underperformed",
        "section 6",
    ),
    "cs.M.f": (
        "Both algorithms provide smaller weight variance for the clients aggregation process",
        "section 7",
    ),
    "cs.F1.j": (
        "This improved data representation translates in less convergence variability at every iteration",
        "section 6",
    ),
    "cs.F2.a": (
        "the more heterogeneous a dataset is [...] the larger is the improvement provided by clustered "
        "sampling",
        "section 6",
    ),
}
