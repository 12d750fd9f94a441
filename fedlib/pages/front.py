"""What the site's first page and the printed report say: what was found, and which sampler to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.analysis.paper import Paper, papers

BARS = ("settled", "indicated", "held as run only", "not held", "not run")
SUMMARY = "Every figure, table and claim of four papers on client selection, checked with one simulator."
MEANINGS = (
    "Settled: held as written, with three seeds or more and an interval off the threshold; indicated: held as written "
    "with less. Held as run only: held in runs that follow the authors' program instead of the text."
)
BASE = "Random"  # the sampler that the arena's ratios compare with


def bar_of(row: Mapping[str, Any]) -> str | None:
    """Which part of the bar a claim is in; None for an informative one."""
    match row["headline"]:
        case "held as written":
            return "settled" if row["strength"] == "settled" else "indicated"
        case "held under neither":
            return "not held"
        case "held as run only" | "not run" as part:
            return part
    return None


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many of a paper's claims are in each part of its bar, in the bar's order."""
    found = [bar_of(row) for row in rows]
    return {part: found.count(part) for part in BARS if part in found}


def finding(paper: Paper, rows: Sequence[Mapping[str, Any]]) -> str:
    """What became of a paper's main claim, as a sentence with the printed number and ours; "" if it has none."""
    row = next((row for row in rows if row["id"] == paper.headline), None)
    if row is None:
        return ""
    ours = f"; here: {row['replicated']}" if row["replicated"] else ""
    printed = f" Printed: {row['printed']}{ours}." if row["printed"] else ""
    return f"“{row['claim'].rstrip('.')}.” This claim is {row['headline']}.{printed}"


def which_sampler(arena: Path) -> pd.DataFrame:
    """The best samplers of the arena, by what they ask of the clients; empty where the arena has not been run.

    A sampler asks nothing where it takes as many times fewer bytes as it takes fewer rounds. -> a row a (group,
    sampler): its mean rank by the accuracy over all rounds, and the medians over the settings of how many times fewer
    rounds and bytes than Random it needs to Random's final accuracy.
    """
    names = ("mean_accuracy", "rounds", "megabytes")
    if not all((arena / f"{name}.csv").exists() for name in names):
        return pd.DataFrame()
    accuracy, rounds, megabytes = (pd.read_csv(arena / f"{name}.csv") for name in names)
    accuracy = accuracy.drop(columns=["experiment", "setting"])
    ranks = accuracy.rank(axis=1, ascending=False).mean()
    rows = []
    for name in ranks.drop(BASE, errors="ignore").sort_values().index:
        fewer = rounds.get(name, pd.Series(dtype=float)), megabytes.get(name, pd.Series(dtype=float))
        asks = "nothing" if (fewer[0] - fewer[1]).abs().max() < 1e-6 else "losses or updates of other clients"
        rows.append((asks, name, ranks[name], *(values.median() for values in fewer)))
    columns = ["asked of the clients", "sampler", "mean rank", "times fewer rounds", "times fewer bytes"]
    table = pd.DataFrame(rows, columns=columns)
    return table.groupby("asked of the clients", sort=False).head(3).sort_values(columns[0], ascending=False)


def story(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], findings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Paper by paper, what was found, its bar and up to three settled claims.

    rows: paper -> its verdicts. findings: paper -> what its pages say in words, in place of its main claim.
    """
    return [
        {
            "section": section,
            "title": paper.title,
            "citation": paper.citation,
            "finding": findings.get(section) or finding(paper, rows[section]),
            "bar": [{"name": name, "n": n} for name, n in counted(rows[section]).items()],
            "claims": [row["claim"].rstrip(".") for row in rows[section] if bar_of(row) == "settled"][:3],
        }
        for section, paper in papers().items()
        if rows.get(section)
    ]


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """`which_sampler` with its numbers as text."""
    return table.map(lambda value: f"{value:.2f}" if isinstance(value, float) else value)
