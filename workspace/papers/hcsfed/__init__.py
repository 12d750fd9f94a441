"""Fast Heterogeneous Federated Learning with Hybrid Client Selection (UAI 2023)."""

from workspace.analysis.paper import Paper

PAPER = Paper(
    title="HCSFed",
    year=2023,
    citation=(
        "Song, Shen, Gao, Yang, Zhou, Pan, Lou, Zhou: Fast Heterogeneous Federated Learning with "
        "Hybrid Client Selection. UAI 2023."
    ),
    headline="hcsfed.T1.c",
    url="https://arxiv.org/abs/2208.05135",
)
