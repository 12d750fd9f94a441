"""What the site's first page says: what was found, in words and bars, and which sampler to use."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.analysis.paper import Paper

BARS = ("settled", "indicated", "held as run only", "not held", "not run")
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


def bar(rows: Sequence[Mapping[str, Any]]) -> str:
    """A paper's claims as one bar (HTML): a part for each outcome, as wide as it has claims."""
    found = [part for part in map(bar_of, rows) if part]
    counts = {part: found.count(part) for part in BARS if part in found}
    parts = (
        f'<span class="{part.replace(" ", "-")}" style="flex:{n}" title="{n} {part}">{n}</span>'
        for part, n in counts.items()
    )
    words = ", ".join(f"{n} {part}" for part, n in counts.items())
    return f'<div class="bar" role="img" aria-label="{words}">{"".join(parts)}</div><small>{words}</small>'


def finding(paper: Paper, rows: Sequence[Mapping[str, Any]]) -> str:
    """What became of a paper's main claim, as a sentence (HTML) with the printed number and ours."""
    row = next((row for row in rows if row["id"] == paper.headline), None)
    if row is None:
        return ""
    said = {key: html.escape(str(row[key])) for key in ("claim", "headline", "printed", "replicated")}
    ours = f"; here: {said['replicated']}" if said["replicated"] else ""
    printed = f" Printed: {said['printed']}{ours}." if said["printed"] else ""
    claim = said["claim"].rstrip(".")
    return f"“{claim}.” This is <strong>{said['headline']}</strong>.{printed}"


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
