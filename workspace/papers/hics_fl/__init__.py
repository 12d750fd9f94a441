"""Accelerating Non-IID Federated Learning via Heterogeneity-Guided Client Sampling (NeurIPS 2024)."""

from workspace.analysis.paper import Paper

PAPER = Paper(
    title="HiCS-FL",
    year=2024,
    citation=(
        "Chen, Vikalo: Accelerating Non-IID Federated Learning via Heterogeneity-Guided Client "
        "Sampling. NeurIPS 2024."
    ),
    headline="hics.T1.b",
    measured=("how many times as many rounds random selection needs to reach the target accuracy"),
    url="https://arxiv.org/abs/2310.00198",
    code=("https://github.com/CityChan/HiCS-FL", "25f309d"),
)
