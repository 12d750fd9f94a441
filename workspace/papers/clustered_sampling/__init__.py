"""Clustered Sampling: low variance and improved representativity for client selection (ICML 2021)."""

from workspace.analysis.paper import Paper

PAPER = Paper(
    title="Clustered Sampling",
    year=2021,
    citation=(
        "Fraboni, Vidal, Kameni, Lorenzi: Clustered Sampling: Low-Variance and Improved "
        "Representativity for Clients Selection in Federated Learning. ICML 2021."
    ),
    headline="cs.M.a",
    measured=(
        "training loss with the usual random draw of clients (MD sampling) over that with clustered sampling,"
        " each the mean over all rounds of a run"
    ),
    says="Training loss falls faster than with MD sampling.",
    ratio="training loss with MD sampling ÷ with clustered sampling",
    url="https://hal.science/hal-03232421",
    code=("https://github.com/Accenture/Labs-Federated-Learning", "6707484"),
)
