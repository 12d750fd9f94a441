"""The page of discrepancies: a specification curve for each headline claim, and what each paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from IPython.display import HTML, Markdown, display

from fedlib.analysis.headline import Effect, closest, headlines, specifications
from fedlib.analysis.lookup import Runs
from fedlib.analysis.measure import Missing
from fedlib.analysis.paper import papers
from fedlib.analysis.readings import AS_RUN, AS_WRITTEN, left_open, readings
from fedlib.drawing import summary
from fedlib.pages import tables
from fedlib.pages.artifact import Artifact

MARKED = (AS_WRITTEN, AS_RUN)


def nearness(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """How far each paper's headline table is from the print, by the typical factor; a row a paper that prints numbers.

    Columns: cells of the table that were run; the factor as written, of the reading closest to print, and of the best
    of as many readings by luck; how many readings were looked at; and what the closest one takes.
    """
    rows, runs = {}, Runs(results)
    for paper, headline in headlines().items():
        try:
            near = closest(headline, readings(paper), runs) if headline.rows else None
        except Missing:
            continue
        if near:
            rows[papers()[paper].title] = {
                "cells": near.cells,
                "as written": factor(near.written),
                "closest": factor(near.distance),
                "by luck": factor(near.by_luck),
                "readings": near.looked_at,
                "the closest one": choices_of(near.reading.name, near.reading.choices),
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("paper")


def factor(distance: float) -> str:
    """A distance (`headline.distance`) as the factor of the typical cell: "× 1.8"."""
    return f"× {2**distance:.2f}"


def choices_of(name: str, choices: Mapping[str, str]) -> str:
    return (
        name if name == AS_WRITTEN else "; ".join(f"{choice}: {value}" for choice, value in choices.items())
    )


def sentence(effect: Effect, rows: pd.DataFrame) -> str:
    """A specification curve in a sentence: printed, as written, as run, and over all readings."""
    parts = [f"{row['reading']} {_value(row)}" for _, row in rows.iterrows() if row["reading"] in MARKED]
    printed = [] if effect.printed is None else [f"printed {effect.printed:.3g}"]
    above_null = int((rows["effect"] > effect.null).sum())
    low, high = rows["effect"].min(), rows["effect"].max()
    spread = f"{len(rows)} archived readings from {low:.3g} to {high:.3g}, {above_null} of them above {effect.null:g}"
    parts += [spread] if len(rows) > 1 else ["no other reading is archived"]
    return f"`{effect.claim}` {effect.words}: {'; '.join([*printed, *parts])}."


def _value(row: pd.Series) -> str:
    interval = f" ({row['low']:.3g} to {row['high']:.3g})" if row["low"] < row["high"] else ""
    return f"{row['effect']:.3g}{interval}, {row['seeds']} seed{'s' * (row['seeds'] > 1)}"


def show(artifact: Artifact, paper: str, results: Mapping[str, pd.DataFrame]) -> None:
    """A paper's part of the page: a specification curve a headline claim; folded, what it leaves open."""
    runs = Runs(results)
    for k, effect in enumerate(headlines()[paper].effects, start=1):
        try:
            rows = specifications(effect, readings(paper), runs)
        except Missing as missing:
            display(Markdown(f"`{effect.claim}` {effect.words}: not run ({missing})."))
            continue
        display(Markdown(sentence(effect, rows)))
        if len(rows) < 2:
            continue
        figure = summary.specification_curve(rows, effect.words, effect.printed, effect.null)
        artifact.show(figure, f"{paper}_curve_{k}", data=rows)
    fold(artifact, left_open(paper), f"{paper}_left_open")


def fold(artifact: Artifact, frame: pd.DataFrame, name: str) -> None:
    """A table that opens on a click, kept as `<name>.csv`."""
    artifact.keep(frame, name)
    summary = f"What the paper leaves open: {len(frame)} things, each with its sources"
    table = tables.html_of(frame, kind="words")
    display(HTML(f"<details><summary>{summary}</summary>{table}</details>"))
