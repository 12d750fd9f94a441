"""What the pages over all papers and those of worlds found, in a few sentences or as a figure of effects."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pandas as pd

from workspace.analysis import worlds
from workspace.analysis.paper import papers
from workspace.figures import summary
from workspace.pages import tables
from workspace.pages.artifact import Artifact
from workspace.pages.evidence import OUTCOMES, Evidence
from workspace.pages.front import listed


def counted(tallies: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """The outcomes of core claims as a table: one row per paper, one column per outcome."""
    table = pd.DataFrame.from_dict(dict(tallies), orient="index").reindex(columns=list(OUTCOMES))
    return table.fillna(0).astype(int).rename_axis("paper").reset_index()


def main_effects(evidence: Evidence) -> dict[str, dict[str, float]]:
    """Paper -> effect of its main claim and its interval under the primary reading, without ends that no run bounds."""
    effects = {}
    for paper in papers().values():
        if (evidence.claims["claim"] == paper.headline).any():
            row = evidence.primary(paper.headline)
            numbers = {"effect": row["estimate"], "low": row["low"], "high": row["high"]}
            effects[paper.title] = {name: round(n, 4) for name, n in numbers.items() if math.isfinite(n)}
    return effects


def of_board(tallies: Mapping[str, Mapping[str, int]], experiments: int) -> str:
    """The outcomes of all papers' core claims (`front.tally`). experiments: how many, with studies, have results."""
    total = {name: sum(counts.get(name, 0) for counts in tallies.values()) for name in OUTCOMES}
    parts = [f"{n} {name}" for name, n in total.items() if n]
    if not parts:
        return ""
    claims = sum(total.values())
    return f"{claims} core claims: {listed(parts)}. {experiments} experiments and studies have results."


def of_discrepancies(near: pd.DataFrame) -> str:
    """How far the headline tables are from print (`discrepancies.nearness`); "" without one."""
    if near.empty:
        return ""
    tested, closest, by_luck = (
        listed([f"{factor.removeprefix('× ')} ({paper})" for paper, factor in near[name].items()])
        for name in ("tested", "closest", "by luck")
    )
    return (
        "Under the reading that is tested, the typical number of a headline table differs from the printed one by a "
        f"factor of {tested}. In the closest of all archived readings, the factor is {closest}. With as many readings, "
        f"luck alone would give {by_luck}."
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
                f"{row[data, 'speed-up']} times as many on {data} ({counted}; "
                f"printed {row[data, 'speed-up, paper']})"
            )
    sentence = f"Compared with the rounds of {method}, random selection needs {listed(parts)}."
    return f"{sentence} The page of Table 1 says how sure that is." if parts else ""


def show(
    artifact: Artifact,
    claims: pd.DataFrame,
    name: str,
    results: pd.DataFrame | None = None,
    xlabel: str = "ahead of Random (points)",
    rows: str = "method",
    base: str = "Random",
) -> None:
    """Display claims (`analysis.worlds.claims`) as a figure, and their numbers as a table that opens on a click.

    results: the experiment's table, whose updates and bytes a round stand beside each effect, and those of `base`; None
    if the claims have them. rows: "method", with a panel for each setting, or "setting", with one for each method.
    """
    if results is not None:
        claims = worlds.beside(claims, worlds.costs(results), base)
    artifact.show(summary.claims_in_worlds(claims, xlabel, rows, base), name, data=claims)
    tables.fold(worlds.numbers(claims, base), "The numbers")
