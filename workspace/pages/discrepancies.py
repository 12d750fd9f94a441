"""The page of discrepancies: a specification curve for each headline claim, and what each paper leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython.display import Markdown, display

from fedlib.measure import Missing
from workspace.analysis.cells import rows as rows_of
from workspace.analysis.claim import Arms, claims_of
from workspace.analysis.headline import closest, headlines, specifications, tested_first
from workspace.analysis.paper import papers
from workspace.analysis.readings import how_many, left_open, primary, readings
from workspace.figures import summary
from workspace.pages import forest, tables
from workspace.pages.artifact import Artifact


def nearness(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """How far each paper's headline table is from the print, by the typical factor; a row a paper that prints numbers.

    Columns: cells of the table that were run; the factor of the tested reading, of the closest to print, and of
    the best of as many readings by luck; how many readings were looked at; and what the closest one takes.
    """
    rows, arms = {}, Arms(results)
    for paper, headline in headlines().items():
        try:
            tested = primary(paper).reading
            near = closest(headline, readings(paper), tested, arms) if headline.rows else None
        except Missing:
            continue
        if near:
            choices = "; ".join(f"{choice}: {value}" for choice, value in near.reading.choices.items())
            rows[papers()[paper].title] = {
                "cells": near.cells,
                "tested": factor(near.tested),
                "closest": factor(near.distance),
                "by luck": factor(near.by_luck),
                "readings": near.looked_at,
                "the closest one": "the tested one" if near.reading.name == tested else choices,
            }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("paper")


def factor(distance: float) -> str:
    """A distance (`headline.distance`) as the factor of the typical cell: "× 1.8"."""
    return f"× {2**distance:.2f}"


def sentence(cells: Sequence[Mapping[str, Any]], text: str, rows: pd.DataFrame) -> str:
    """A specification curve in a sentence: printed, tested, beside it, and over all readings.

    cells: rows of `effects.table` of one cell; text: of its claim; rows: `headline.specifications`.
    """
    cell, by_reading = cells[0], {cell["reading"]: cell for cell in cells}
    parts = [
        f"{row['called']} {forest.effect(by_reading[row['reading']])}, {row['seeds']} seed{'s' * (row['seeds'] > 1)}"
        for _, row in tested_first(rows[rows["called"] != ""]).iterrows()
    ]
    printed = [] if math.isnan(cell["printed"]) else [f"printed {cell['printed']:.3g}"]
    low, high = rows["effect"].min(), rows["effect"].max()
    spread = f"from {low:.3g} to {high:.3g} over the {len(rows)} ways to read the paper that were run"
    parts += [spread] if len(rows) > 1 else ["it was run under no other reading"]
    return f"`{cell['claim']}` {text} {cell['cell']}: {'; '.join([*printed, *parts])}."


def show(artifact: Artifact, paper: str, results: Mapping[str, pd.DataFrame]) -> None:
    """A paper's part of the page: a specification curve a headline effect; folded, what it leaves open."""
    arms, by_id = Arms(results), {claim.id: claim for claim in claims_of(paper)}
    if combined := how_many(paper):
        display(Markdown(combined))
    for k, (claim, name) in enumerate(headlines()[paper].effects, start=1):
        text = by_id[claim].text
        cells = [cell for cell in rows_of(by_id[claim], arms) if cell["cell"] == name]
        try:
            rows = specifications(cells)
        except Missing:
            display(Markdown(f"`{claim}` {text} {name}: not run."))
            continue
        display(Markdown(sentence(cells, text, rows)))
        if len(rows) < 2:
            continue
        printed = None if math.isnan(cells[0]["printed"]) else cells[0]["printed"]
        words = f"{name} ({cells[0]['unit']})"
        figure = summary.specification_curve(rows, words, printed, cells[0]["null"])
        artifact.show(figure, f"{paper}_curve_{k}", data=rows)
    choices = left_open(paper)
    artifact.keep(choices, f"{paper}_left_open")
    tables.fold(choices, f"What the paper leaves open: {len(choices)} things, each with its sources", "words")
