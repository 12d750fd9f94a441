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
        "how many times as many rounds random selection needs to a training loss of 0.3, with two or ten times as many "
        "candidates as places (the target is ours, as the paper shows curves; by its own theory more candidates end at "
        "a higher loss, and so may never reach one)"
    ),
    says="It needs fewer rounds to a loss of 0.3 than random selection.",
    ratio="rounds that Random needs ÷ rounds that pow-d needs",
    url="https://proceedings.mlr.press/v151/jee-cho22a.html",
)
