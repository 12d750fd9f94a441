"""The words of outcomes: the one list of what a claim, a size and a cell can come to (`docs/judging.md`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

Order = Literal[
    "holds",
    "holds where run",
    "contradicted",
    "not after correction",
    "shown in part",
    "not shown",
    "one seed",
    "not run",
    "infeasible",
    "by construction",
]
ORDER: dict[str, str] = {
    "holds": "the claimed direction is shown in every setting that the claim names",
    "holds where run": "the claimed direction is shown in every setting that was run; others that it names are open",
    "contradicted": "the opposite direction is shown in at least one setting",
    "not after correction": "every setting, taken alone, shows the direction; correction for the paper's other "
    "claims takes it back",
    "shown in part": "the direction is shown in some of the settings",
    "not shown": "no setting shows the direction; where some show the opposite, that is not enough to contradict the "
    "claim",
    "one seed": "there is one seed, which has no interval",
    "not run": "there are no runs",
    "infeasible": "even full participation does not reach the target",
    "by construction": "it holds by arithmetic or by how a method is built, and is not tested",
}
DECIDED = ("holds", "holds where run", "contradicted")
TESTED = (*DECIDED, "not after correction", "shown in part", "not shown")
OPEN = (
    "not after correction",
    "shown in part",
    "not shown",
    "one seed",
    "not run",
)  # more runs may change them

Size = Literal["as large as printed", "smaller than printed", "size open", ""]
SIZES: dict[str, str] = {
    "as large as printed": "the whole interval of the mean lies above the margin, which is at least half of the "
    "printed effect",
    "smaller than printed": "the whole interval of the mean lies below that margin",
    "size open": "the interval contains the margin",
}

Cell = Literal[
    "shown",
    "reversed",
    "unclear",
    "lost seeds",
    "nobody arrives",
    "true",
    "false",
    "one seed",
    "not run",
    "infeasible",
]
CELLS: dict[str, str] = {
    "shown": "the 95 % interval lies on the claimed side",
    "reversed": "it lies on the other side",
    "unclear": "it contains the bound",
    "lost seeds": "runs without a finite value; the others would be a choice",
    "nobody arrives": "no side reaches the target, so nothing is compared",
    "true": "an exact fact",
    "false": "an exact fact that is not so",
    "one seed": ORDER["one seed"],
    "not run": ORDER["not run"],
    "infeasible": ORDER["infeasible"],
}
APART = ("one seed", "not run", "infeasible", "nobody arrives")  # cells that take no part
BY_ITSELF = ("shown", "reversed", "unclear")  # what cells of the primary reading alone come to


APART_WORDS = {True: "apart from no effect", False: "not apart from no effect"}


def ratio(row: Mapping[Any, Any]) -> str:
    """A mean ratio with its interval, "1.01 × [0.97, 1.05]"; "≥" if it may be larger, "≤" if smaller.

    row: of the effects table or of its claims.
    """
    sign = "≥ " * bool(row["open"] and not row["under"]) + "≤ " * bool(row["under"] and not row["open"])
    high = "∞" if math.isinf(row["high"]) else f"{row['high']:.2f}"
    return f"{sign}{row['estimate']:.2f} × [{row['low']:.2f}, {high}]"


def side(low: float, high: float, null: float) -> str:
    """On which side of no effect an interval lies, in words."""
    if low != low:  # NaN: there is none
        return "not measured"
    if low > null:
        return "above no effect"
    return "below no effect" if high < null else APART_WORDS[False]


def explained(side_of_claim: str, side_of_control: str) -> str:
    """Whose an effect is: of the rule in which two sides differ, or of what is compared.

    side_of_claim, side_of_control: `side` where they differ in the rule too, and with one rule for both.
    """
    if side_of_claim != "above no effect":
        return "there is no speed-up to explain"
    if side_of_control == "above no effect":
        return "the speed-up is in part the selection's"
    return "the speed-up is the rule's, not the selection's"
