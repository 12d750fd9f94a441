"""What the pages over all papers found, in a few sentences each: the scoreboard, the arena, the discrepancies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fedlib.analysis.judging import HEADLINES, IN_PART
from fedlib.analysis.measure import mean_ranks

UNIFORM = "Random"


def of_board(totals: pd.DataFrame, claims: int, experiments: int) -> str:
    """The verdicts of all papers (`judging.totals`). claims: their number, with informative ones.

    experiments: number of experiments and studies with results.
    """
    every = totals.loc["all papers"]
    written, run, neither, missing = (int(every[name]) for name in HEADLINES)
    informative = claims - int(every["claims"])
    return (
        f"Of {every['claims']} claims, {written} held as written, {run} only as the authors' programs run, {neither} "
        f"under neither ({every[IN_PART]} of these in part), and {missing} are not run; {informative} more are "
        f"informative and count as none of these. {experiments} experiments and studies have results."
    )


def of_arena(accuracy: pd.Series, groups: Mapping[str, Sequence[str]], scores: pd.DataFrame) -> str:
    """Which sampler ends highest with one digit per client, in each group; which has the best rank over all settings.

    accuracy: method -> final accuracy in percent. scores: the final accuracy by setting (rows) and method.
    """
    ends = []
    for words, methods in groups.items():
        among = accuracy[[name for name in methods if name in accuracy and name != UNIFORM]]
        if len(among):
            ends.append(f"{among.idxmax()} ends highest of the {words} ({among.max():.0f} %)")
    if UNIFORM in accuracy:
        ends.append(f"{UNIFORM} ends at {accuracy[UNIFORM]:.0f} % test accuracy")
    said = [f"With one digit per client, {'; '.join(ends)}."] if ends else []
    ranks = mean_ranks(scores)
    if len(ranks) > 1:
        first, second = (f"{name} ({ranks[name]:.1f})" for name in ranks.index[:2])
        said.append(
            f"Over {len(scores)} settings, {first} and {second} have the best mean ranks of {len(ranks)} samplers by "
            "final accuracy."
        )
    return " ".join(said)


def of_discrepancies(near: pd.DataFrame) -> str:
    """How far the headline tables are from print (`discrepancies.nearness`); "" without one."""
    if near.empty:
        return ""
    numbers = near[["as written", "closest", "by luck"]].map(lambda factor: factor.removeprefix("× "))
    written = _listed([f"{factor} ({paper})" for paper, factor in numbers["as written"].items()])
    return (
        f"As written, the typical number of a headline table differs from the printed one by a factor of {written}. "
        f"In the closest of all archived readings, the factor is {_listed(numbers['closest'])}; with as many readings, "
        f"luck alone would give {_listed(numbers['by luck'])}."
    )


def _listed(parts: Iterable[str]) -> str:
    """ "a, b and c" """
    *others, last = parts
    return f"{', '.join(others)} and {last}" if others else last
