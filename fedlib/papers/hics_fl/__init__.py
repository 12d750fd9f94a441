"""Accelerating Non-IID Federated Learning via Heterogeneity-Guided Client Sampling (NeurIPS 2024)."""

from fedlib.analysis.paper import Paper

PAPER = Paper(
    title="HiCS-FL",
    year=2024,
    citation=(
        "Chen, Vikalo: Accelerating Non-IID Federated Learning via Heterogeneity-Guided Client "
        "Sampling. NeurIPS 2024."
    ),
    headline="hics.T1.b",
)
