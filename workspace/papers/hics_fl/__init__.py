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
    says="It needs fewer rounds than random selection.",
    ratio="rounds that Random needs ÷ rounds that HiCS-FL needs",
    url="https://arxiv.org/abs/2310.00198",
    code=("https://github.com/CityChan/HiCS-FL", "25f309d"),
)
