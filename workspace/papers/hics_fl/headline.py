"""HiCS-FL's headline: Table 1 (Mini-ImageNet: the slides'), and HiCS-FL's speed-up over random selection."""

from __future__ import annotations

from workspace.analysis.headline import Headline, Row
from workspace.papers.hics_fl.printed import PRINTED, TABLE

ROWS = tuple(
    Row.of(
        f"{data} {panel.setting}",
        panel,
        {m: str(rounds) for m, rounds in PRINTED[data].items()},
        {m: float(rounds) for m, rounds in PRINTED[data].items()},
    )
    for data, panel in TABLE.items()
)
HEADLINE = Headline(
    "HiCS-FL, Table 1",
    "Rounds to the target (FedCor and Mini-ImageNet: the slides'); the paper prints one number, without a spread.",
    "mean",
    ROWS,
    tuple(("hics.T1.b", f"{data}, Random over HiCS-FL") for data in ("Fashion-MNIST", "CIFAR-10")),
)
