"""HCSFed's headline: Table 1, and the speed-up over Random in its first and fourth column."""

from __future__ import annotations

from math import inf

from workspace.analysis.headline import Headline, Row
from workspace.papers.hcsfed.printed import COLUMNS, PRINTED, TABLE_1


def _row(k: int, column: str) -> Row:
    cells = {method: rounds[k] for method, rounds in PRINTED.items()}
    texts = {m: "200+" if n > 200 else str(n) for m, n in cells.items()}
    printed = {m: inf if n > 200 else float(n) for m, n in cells.items()}
    return Row(column, TABLE_1, column, 0.8, texts, printed, 200)


ROWS = tuple(_row(k, column) for k, column in enumerate(COLUMNS))
HEADLINE = Headline(
    "HCSFed, Table 1",
    "Rounds to 80 %. The paper states neither seeds nor alpha, and leaves open how absent clients count, how updates "
    "are compressed and which accuracy is meant. The program of the group's earlier paper is public.",
    "median",
    ROWS,
    tuple(("hcsfed.T1.b", f"{row.name}, Random over HCSFed") for row in (ROWS[0], ROWS[3])),
)
