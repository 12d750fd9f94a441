"""What FedCor leaves open."""

from __future__ import annotations

from collections.abc import Mapping

from fedlib.choices import Choice, grid
from fedlib.claims.fedcor_settings import PANELS, printed_cells


def _choice(data: str, title: str, sources: str, taken: str, names: Mapping[str, str], of: str) -> Choice:
    """names: the readings' by method, in every panel of a data set. of: the method whose cells Table 1 prints."""
    panels = {place: panel for place, panel in PANELS.items() if place.startswith(data)}
    targets = {panel.setting: panel.target for panel in panels.values()}
    cells = printed_cells()
    return Choice(
        f"{data}: {title}",
        sources,
        taken,
        "fedcor_fmnist_variants" if data == "FMNIST" else "fedcor_cifar10_variants",
        grid(list(targets), names),
        ("fedcor/table_1", "fedcor/figure_4"),
        targets,
        {(panel.setting, name): cells[place, of] for place, panel in panels.items() for name in names},
    )


_SCHEDULE = (
    "how the Gaussian process is trained",
    "The paper gives neither how many past samples count nor how fast they fade (gamma). The code nearest to "
    "publication keeps the newest two, with gamma 0.8 (Fashion-MNIST) and 0.97 (CIFAR-10) a round; the README of 2023 "
    "has windows of 100 and 500 rounds with 0.95 and 0.99, samples from the first round on, trains first at the end of "
    "the warm-up (1,000 iterations), and fits the samples' weighted mean, which the paper sets to 0.",
    "The code nearest to publication.",
    {"FedCor": "code of 2022", "FedCor, README of 2023": "README of 2023"},
    "FedCor",
)
_CANDIDATES = (
    "how many candidates Pow-d asks",
    "The README has d = 10; with C = 10 clients a round (1SPC) that is random selection, but the paper prints other "
    "rounds for the two on Fashion-MNIST.",
    "Twice C: 10, and 20 for 1SPC.",
    {f"Pow-d, d = {d}": f"d = {d}" for d in (10, 20, 30)},
    "Pow-d",
)

CHOICES = [_choice(data, *choice) for choice in (_SCHEDULE, _CANDIDATES) for data in ("FMNIST", "CIFAR-10")]

NOT_VARIED = [
    ("AFL's alphas", "the code: 0.75, 0.01, 0.1", "the code's"),
    ("a fifth of each client's data held out", "the code only", "held out"),
    (
        "the run along which Figures 2 and 3 are measured",
        "not stated",
        "uniformly random selection; at scale paper FedCor's own run stands beside it",
    ),
    ("standard deviation over seeds", "of the sample or not: not stated", "of the sample (n - 1)"),
]
