"""HCSFed's Table 1 as data: rounds to 80 % of its method and of four others, in six columns."""

from __future__ import annotations

from math import inf

from fedlib.analysis.claim import Cell, Claim, Rounds, versus
from fedlib.analysis.readings import Where
from fedlib.papers.hcsfed.printed import BASELINES, COLUMNS, PRINTED, TABLE_1

PAGE = "hcsfed/table_1"
ROUNDS = Rounds(0.8, T=200)
DATA = {"MNIST": "MNIST", "FMNIST": "Fashion-MNIST"}


def where(column: str, method: str) -> Where:
    return Where(TABLE_1, column, method)


def printed(method: str, column: str) -> float:
    """Table 1's number of rounds; inf for "200+"."""
    rounds = PRINTED[method][COLUMNS.index(column)]
    return inf if rounds > 200 else float(rounds)


def shown(rounds: float) -> str:
    return "200+" if rounds == inf else f"{rounds:g}"


def labels(column: str) -> dict[str, str]:
    data, q = column.split(", ")
    return {"data": DATA[data], "partition": "Dirichlet", "participation": q}


def faster(column: str, slow: str, fast: str = "HCSFed") -> Cell:
    """A cell in which one method needs fewer rounds than another."""
    of = printed(slow, column), printed(fast, column)
    text = f"{shown(of[0])} and {shown(of[1])} rounds"
    name = f"{column}, {slow}"
    return versus(name, where(column, slow), where(column, fast), of, shown=text, **labels(column))


def claim(
    letter: str, text: str, cells: list[Cell], margin=None, kind="core", estimator="log-ratio of rounds"
):
    return Claim(f"hcsfed.T1.{letter}", PAGE, text, kind, estimator, ROUNDS, tuple(cells), margin)


def differ(column: str, slow: str) -> bool:
    return printed(slow, column) > printed("HCSFed", column)


CLAIMS = (
    claim(
        "a",
        "HCSFed needs fewer rounds to 80 % than every other method, in all six columns (the columns in which the paper "
        "prints a tie are claim T1.f).",
        [faster(c, other) for c in COLUMNS for other in BASELINES if differ(c, other)],
    ),
    claim(
        "r",
        "HCSFed needs fewer rounds to 80 % than Random, in all six columns.",
        [faster(c, "Random") for c in COLUMNS],
    ),
)
