"""FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous Federated Learning (CVPR 2022)."""

from workspace.analysis.paper import Paper

PAPER = Paper(
    title="FedCor",
    year=2022,
    citation=(
        "Tang, Ning, Wang, Sun, Wang, Li, Chen: FedCor: Correlation-Based Active Client Selection"
        " Strategy for Heterogeneous Federated Learning. CVPR 2022."
    ),
    headline="fedcor.T1.b",
    measured=(
        "how many times as many rounds Pow-d, the fastest other method in print, needs to reach the target "
        "accuracy"
    ),
    says="It needs fewer rounds than Pow-d to the target accuracy.",
    ratio="rounds that Pow-d needs ÷ rounds that FedCor needs",
    url="https://arxiv.org/abs/2103.13822",
    code=("https://github.com/Yoruko-Tang/FedCor", "a89bd66"),
)
