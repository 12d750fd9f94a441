"""Towards Understanding Biased Client Selection in Federated Learning (AISTATS 2022)."""

from workspace.analysis.paper import Paper

PAPER = Paper(
    title="Power-of-Choice",
    year=2022,
    citation=(
        "Cho, Wang, Joshi: Towards Understanding Biased Client Selection in Federated Learning. AISTATS 2022."
    ),
    headline="poc.F3.a",
    measured=(
        "how many times as many rounds random selection needs to the same training loss, with two or ten times as many "
        "candidates as places"
    ),
    url="https://proceedings.mlr.press/v151/jee-cho22a.html",
)
