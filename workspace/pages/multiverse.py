"""The data of the multiverse: the effect of every core claim under every archived reading, with its cells and curves.

`site/static/multiverse.js` lets the reader take the choices that a paper leaves open and shows the claim's effect. Only
the primary reading has an outcome; of all together the page says, for each option of the choice that moves the effect
most, their range and their mean, seed by seed (`effects.levels`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedlib import measure
from fedlib.kinds import whole
from workspace.analysis import effects
from workspace.analysis.claim import Cell, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import Reading, Where, readings
from workspace.pages.evidence import pooled

POINTS = 40  # of a curve
NUMBERS = ("estimate", "low", "high", "margin")
ABOUT = (*NUMBERS, "n", "badge", "open", "under", "primary")
SHOWN = ("estimate", "low", "high", "n", "open", "under", "primary")  # of a reading, on the page


def numbers(table: pd.DataFrame, judged: pd.DataFrame) -> pd.DataFrame:
    """One row per core claim and archived reading: what it takes, and what the claim comes to.

    table, judged: `effects.table` and `effects.claims`.
    """
    ran = judged[(judged["kind"] == "core") & (judged["outcome"] != "not run")]
    rows = []
    for row in ran.to_dict("records"):
        reading = named(row["paper"], row["reading"])
        if reading is not None:
            keys = ("paper", "claim", "reading", "unit", "null", *ABOUT)
            rows.append({key: row[key] for key in keys} | {"choices": dict(reading.choices)})
    return pd.DataFrame(rows)


def named(paper: str, name: str) -> Reading | None:
    return next((reading for reading in readings(paper) if reading.name == name), None)


def data(table: pd.DataFrame, judged: pd.DataFrame, results: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """What the page's script reads, claims with the most readings first; one with one reading has no choices."""
    curves = Curves(results)
    readings_of_claims = numbers(table, judged)
    texts = {claim.id: claim for paper in papers() for claim in claims_of(paper)}
    listed, by_level = [], effects.levels(judged)
    of_reading: dict[tuple[str, str], list[dict[Any, Any]]] = {}
    for cell in table.to_dict("records"):  # all at once: pandas takes long for each call
        of_reading.setdefault((cell["claim"], cell["reading"]), []).append(cell)
    groups: list[tuple[Any, pd.DataFrame]] = (
        list(readings_of_claims.groupby(["paper", "claim"], sort=False)) if len(readings_of_claims) else []
    )
    for (paper, name), rows in groups:
        if len(rows) < 2 or name not in texts:
            continue
        claim, cells = texts[name], table[table["claim"] == name]
        listed.append(
            {
                "id": name,
                "paper": papers()[paper].title,
                "page": f"{claim.artifact}.html",
                "text": claim.text,
                "unit": rows["unit"].iloc[0],
                "null": plain(rows["null"].iloc[0]),
                "printed": plain(pooled(cells)),
                "choices": varied([row["choices"] for _, row in rows.iterrows()]),
                "told": in_words(judged, name),
                "levels": [
                    {key: plain(value) for key, value in row.items() if key != "claim"}
                    for row in by_level[by_level["claim"] == name].to_dict("records")
                ],
                "readings": [
                    {
                        "name": row["reading"],
                        "choices": row["choices"],
                        **{key: plain(row[key]) for key in SHOWN},
                        "cells": [
                            cell_of(cell, by_name(claim.cells, cell["cell"]), paper, row["reading"], curves)
                            for cell in of_reading[name, row["reading"]]
                        ],
                    }
                    for _, row in rows.iterrows()
                ],
            }
        )
    main = {paper.headline for paper in papers().values()}
    listed.sort(key=lambda claim: (-len(claim["readings"]), claim["id"] not in main))
    return {"claims": listed, "curves": curves.known, "sources": sources()}


def sources() -> dict[str, dict[str, dict[str, str]]]:
    """Title of a paper -> what it leaves open -> an option -> where that option comes from."""
    origins: dict[str, dict[str, dict[str, str]]] = {}
    for name, paper in papers().items():
        for reading in readings(name):
            for choice, source in reading.sources.items():
                origins.setdefault(paper.title, {}).setdefault(choice, {})[reading.choices[choice]] = source
    return origins


def in_words(judged: pd.DataFrame, claim: str) -> str:
    """What a claim comes to under the primary reading, in words."""
    rows = judged[(judged["claim"] == claim) & judged["primary"]]
    return (
        "; ".join(filter(None, (str(rows["said"].iloc[0]), str(rows["size"].iloc[0])))) if len(rows) else ""
    )


def by_name(cells: Iterable[Cell], name: str) -> Cell:
    return next(cell for cell in cells if cell.name == name)


def varied(readings_of: list[Mapping[str, str]]) -> dict[str, list[str]]:
    """What the readings take differently: choice -> its options, in the order of the readings."""
    names = dict.fromkeys(name for choices in readings_of for name in choices)
    options = {name: list(dict.fromkeys(choices.get(name, "") for choices in readings_of)) for name in names}
    return {name: values for name, values in options.items() if len(values) > 1}


def cell_of(row: Mapping[str, Any], cell: Cell, paper: str, reading: str, curves: Curves) -> dict[str, Any]:
    reading_found = named(paper, reading)
    assert reading_found is not None
    arms = [[arm.where.method, curves.place(reading_found.find(arm.where))] for arm in cell.arms]
    numbers = {
        key: plain(row[key]) for key in ("estimate", "low", "high", "printed", "n", "shown", "open", "under")
    }
    filled = {key: value for key, value in numbers.items() if value != "" and value is not False}
    return {"cell": row["cell"], **filled, "arms": [arm for arm in arms if arm[1] is not None]}


def plain(value: Any) -> Any:
    """A value for JSON: five digits; None for what is not finite."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return whole(float(f"{float(value):.5g}")) if math.isfinite(value) else None


class Curves:
    """Mean curves over seeds, each kept once, in a list that cells refer to."""

    def __init__(self, results: Mapping[str, pd.DataFrame]) -> None:
        self.results = results
        self.known: list[dict[str, Any]] = []
        self.places: dict[Where, int] = {}
        self.groups: dict[str, dict[Any, pd.DataFrame]] = {}

    def place(self, where: Where) -> int | None:
        """The place of a method's curve in the list; None if it has not been run or measured."""
        if where not in self.places:
            table = self.results.get(where.experiment)
            if table is None or where.column not in table or "method" not in table:
                return None
            if where.experiment not in self.groups:
                self.groups[where.experiment] = dict(list(table.groupby(["setting", "method"], sort=False)))
            rows = self.groups[where.experiment].get((where.setting, where.method))
            if rows is None:
                return None
            mean = rows.dropna(subset=[where.column]).groupby("round")[where.column].mean()
            if mean.empty:
                return None
            smooth = measure.rolling(mean, max(1, int(mean.index.max()) // 60))
            points = smooth.iloc[np.unique(np.linspace(0, len(smooth) - 1, POINTS).astype(int))]
            scale = 100 if "accuracy" in where.column else 1
            self.places[where] = len(self.known)
            self.known.append(
                {
                    "column": where.column,
                    "x": [int(x) for x in points.index],
                    "y": [plain(scale * y) for y in points],
                }
            )
        return self.places[where]
