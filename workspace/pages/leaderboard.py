"""What the page Leaderboard says of the arena's board: who is how far, and what that cost."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from fedlib.drawing.style import NAMES
from fedlib.settings.schema import Run
from workspace.analysis.arena import Board
from workspace.pages import chooser

CHEAP = 1.05  # times Random's bytes and steps: no more than Random, but for rounding


def rows(board: Board, runs: Mapping[str, Run]) -> pd.DataFrame:
    """The board for a figure, highest score first: name, kind, value, low, high, bytes and steps.

    runs: a run of every method that is not a submission.
    """
    table = board.table.rename(columns={"iqm": "value"}).rename_axis("name").reset_index()
    kinds = [chooser.kind_of(runs[name]) if name in runs else "submission" for name in table["name"]]
    words = {"server": "other algorithm"}
    table = table.assign(name=table["name"].replace(NAMES), kind=[words.get(kind, kind) for kind in kinds])
    return table[["name", "kind", "value", "low", "high", "bytes", "steps"]]


def answer(rows: pd.DataFrame) -> str:
    """The highest score of what a server could use, and the highest at no more than Random's cost."""
    usable = rows[rows["kind"].isin(("sampler", "submission")) & (rows["name"] != chooser.ranking.BASE)]
    if usable.empty:
        return ""
    first = usable.iloc[0]
    text = f"{first['name']} has the highest score in the arena's tasks, {scored(first)}"
    cheap = usable[(usable[["bytes", "steps"]] <= CHEAP).all(axis=1)]
    if first["name"] in set(cheap["name"]):
        return f"{text}, at no more than Random's bytes and client steps."
    text += f", at {first['bytes']:.2g} times Random's bytes and {first['steps']:.2g} times its client steps"
    if cheap.empty:
        return f"{text}."
    return f"{text}; of those that cost no more than Random, {cheap.iloc[0]['name']} has {scored(cheap.iloc[0])}."


def scored(row: pd.Series) -> str:
    return f"{row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
