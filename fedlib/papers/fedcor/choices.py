"""What FedCor leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd

from fedlib.analysis.choices import Choice, Studied, grid
from fedlib.papers.fedcor.claims_process import gaussian, stationarity, toy_cases
from fedlib.papers.fedcor.printed import PANELS, printed_cells


def _choice(
    data: str,
    title: str,
    sources: str,
    taken: str,
    names: Mapping[str, str],
    of: str,
    figures: tuple[int, ...],
) -> Choice:
    """names: the readings' by method, in every panel of a data set. of: the method whose cells Table 1 prints.

    figures: those whose claims depend on it, as Table 1's do.
    """
    panels = {place: panel for place, panel in PANELS.items() if place.startswith(data)}
    targets = {panel.setting: panel.target for panel in panels.values()}
    cells = printed_cells()
    return Choice(
        f"{data}: {title}",
        sources,
        taken,
        "fedcor_fmnist_variants" if data == "FMNIST" else "fedcor_cifar10_variants",
        grid(list(targets), names),
        ("fedcor/table_1", *(f"fedcor/figure_{k}" for k in figures)),
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
    (4, 5, 6, 7),
)
_CANDIDATES = (
    "how many candidates Pow-d asks",
    "The README has d = 10; with C = 10 clients a round (1SPC) that is random selection, but the paper prints other "
    "rounds for the two on Fashion-MNIST.",
    "Twice C: 10, and 20 for 1SPC.",
    {f"Pow-d, d = {d}": f"d = {d}" for d in (10, 20, 30)},
    "Pow-d",
    (4,),
)


def _of_2spc(described: Callable[[pd.DataFrame], pd.DataFrame], changes: pd.DataFrame) -> pd.DataFrame:
    found = described(changes[changes["setting"] == "2SPC"])
    return found.drop(columns="setting").set_index(["data", "method"]).round(3)


_ALONG = (
    "Not stated. At scale paper the other run stands beside it.",
    "Uniformly random selection, 2SPC.",
    "fedcor_loss_changes",
)

CHOICES = [
    *(_choice(data, *choice) for choice in (_SCHEDULE, _CANDIDATES) for data in ("FMNIST", "CIFAR-10")),
    Studied(
        "The toy of Figure 1: how far apart its labels are, and the rate",
        "The paper shows one draw and states no sizes.",
        "The first row.",
        "fedcor_toy",
        toy_cases,
        ("fedcor/figure_1",),
    ),
    Studied(
        "Along which run Figure 2 looks at the loss changes",
        *_ALONG,
        partial(_of_2spc, gaussian),
        ("fedcor/figure_2",),
    ),
    Studied(
        "Along which run Figure 3 compares their covariances",
        *_ALONG,
        partial(_of_2spc, stationarity),
        ("fedcor/figure_3",),
    ),
]

NOT_VARIED = [
    ("AFL's alphas", "the code: 0.75, 0.01, 0.1", "the code's"),
    ("a fifth of each client's data held out", "the code only", "held out"),
    ("standard deviation over seeds", "of the sample or not: not stated", "of the sample (n - 1)"),
]
