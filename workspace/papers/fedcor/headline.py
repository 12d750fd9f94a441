"""FedCor's headline: Table 1, and FedCor's speed-up over Pow-d, the fastest baseline in print."""

from __future__ import annotations

from math import inf

from workspace.analysis.headline import Headline, Row
from workspace.papers.fedcor.printed import METHODS, PANELS, PRINTED, printed_cells

_SHOWN = printed_cells()
ROWS = tuple(
    Row.of(
        name,
        panel,
        {m: _SHOWN[name, m] for m in METHODS},
        {m: inf if (cell := PRINTED[name][m]) is None else cell[0] for m in METHODS},
    )
    for name, panel in PANELS.items()
)
HEADLINE = Headline(
    "FedCor, Table 1",
    "Rounds to the target; the paper prints mean and standard deviation over five seeds (N/A: one does not arrive).",
    "mean",
    ROWS,
    tuple(("fedcor.T1.a", f"{name}, Pow-d") for name in list(PANELS)[:3]),
)
