"""What the pages over all papers found, in a few sentences each: the scoreboard, the arena, the discrepancies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from fedlib.measure import mean_ranks
from workspace.pages.evidence import OUTCOMES
from workspace.pages.front import listed

UNIFORM = "Random"


def counted(tallies: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """The outcomes of core claims as a table: one row per paper, one column per outcome."""
    table = pd.DataFrame.from_dict(dict(tallies), orient="index").reindex(columns=list(OUTCOMES))
    return table.fillna(0).astype(int).rename_axis("paper").reset_index()


def of_board(tallies: Mapping[str, Mapping[str, int]], experiments: int) -> str:
    """The outcomes of all papers' core claims (`front.tally`). experiments: how many, with studies, have results."""
    total = {name: sum(counts.get(name, 0) for counts in tallies.values()) for name in OUTCOMES}
    parts = [f"{n} {name}" for name, n in total.items() if n]
    if not parts:
        return ""
    claims = sum(total.values())
    return f"{claims} core claims: {listed(parts)}. {experiments} experiments and studies have results."


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
    sentences = [f"With one digit per client, {'; '.join(ends)}."] if ends else []
    ranks = mean_ranks(scores)
    if len(ranks) > 1:
        first, second = (f"{name} ({ranks[name]:.1f})" for name in ranks.index[:2])
        sentences.append(
            f"Over {len(scores)} settings, {first} and {second} have the best mean ranks of {len(ranks)} samplers by "
            "final accuracy."
        )
    return " ".join(sentences)


def of_leaderboard(board: pd.DataFrame, uniform: str, tasks: int) -> str:
    """Which methods' scores lie above and below uniform sampling's, with their intervals; "" without another method.

    board: method -> its score (iqm) and interval (low, high), highest first, without references.
    """
    others = board.drop(index=uniform)
    if others.empty:
        return ""
    first = others.iloc[0]
    above, below = others.index[others["low"] > 0], others.index[others["high"] < 0]
    parts = [
        f"{others.index[0]} leads with {first['iqm']:.2f} ({first['low']:.2f} to {first['high']:.2f}) over {tasks} "
        f"{'task' if tasks == 1 else 'tasks'}",
        f"above {uniform} {'is' if len(above) < 2 else 'are'} {listed(above) if len(above) else 'none'}",
        *([f"below it {'is' if len(below) == 1 else 'are'} {listed(below)}"] if len(below) else []),
    ]
    return f"{'; '.join(parts)}."


def of_discrepancies(near: pd.DataFrame) -> str:
    """How far the headline tables are from print (`discrepancies.nearness`); "" without one."""
    if near.empty:
        return ""
    numbers = near[["as written", "closest", "by luck"]].map(lambda factor: factor.removeprefix("× "))
    factors = listed([f"{factor} ({paper})" for paper, factor in numbers["as written"].items()])
    return (
        f"As written, the typical number of a headline table differs from the printed one by a factor of {factors}. "
        f"In the closest of all archived readings, the factor is {listed(numbers['closest'])}; with as many readings, "
        f"luck alone would give {listed(numbers['by luck'])}."
    )


def extremes(panels: Mapping[str, pd.Series], quantity: str, unit: str) -> str:
    """Which method has the most and which the least in each panel; "" without two methods to compare.

    panels: title -> method -> value. quantity: what is compared ("final test accuracy").
    """
    parts = [
        f"{title}: {values.idxmax()} ({values.max():.3g} {unit}), {values.idxmin()} ({values.min():.3g} {unit})"
        for title, values in panels.items()
        if values.nunique() > 1
    ]
    return f"Highest and lowest {quantity}: {'; '.join(parts)}." if parts else ""


def of_speed(table: pd.DataFrame, method: str) -> str:
    """A method's speed-up over random selection on each dataset (`speed_tables`), with the printed one."""
    row = table.loc[method]
    parts = []
    for data in dict.fromkeys(table.columns.get_level_values(0)):
        seeds = int(row[data, "seeds"])
        if seeds:
            counted = f"{seeds} seeds" if seeds > 1 else "one seed"
            parts.append(
                f"{row[data, 'speed-up']} times on {data} ({counted}; printed {row[data, 'speed-up, paper']})"
            )
    return f"{method} is faster than random selection by {listed(parts)}." if parts else ""
