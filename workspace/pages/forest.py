"""Claims as rows of a forest plot: a mark per cell for the printed effect, ours with its interval, and the margin."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import shorten
from typing import Any

import pandas as pd

from workspace.analysis import words
from workspace.analysis.claim import sentence
from workspace.analysis.paper import papers
from workspace.analysis.readings import primary
from workspace.pages import layout, tables

WIDTH, LINE, EDGE = 300, 16, 14  # pixels: of the plot, of a cell's row, of the space on each side
NAME, NAMED = 12, 12  # pixels of a cell's name above its row; cells that have names
FULL, LEAST = 200, 9  # pixels: from which height on rows come closer, and how close
LARGEST = 64.0  # ratios beyond it are plotted at the edge
AGREEMENT = "agreement with print"  # an estimator whose null is the printed value
TICKS = 4  # about how many an axis has
GLYPH = 5.6  # pixels of a letter of its labels


def number(value: float) -> str:
    """Three digits; "–" for what is not there, "∞" for what no run bounds."""
    if not math.isfinite(value):
        return tables.MISSING if math.isnan(value) else "∞" if value > 0 else "−∞"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def effect(row: Mapping[str, Any]) -> str:
    """An effect in words: "1.10 × [1.03, 1.17]"; "≥ 1.10 ×" if it may be larger, "≤" smaller; "exact" of a fact."""
    if row.get("estimator") == "exact fact":
        return "exact"
    if not math.isfinite(row["estimate"]):
        return tables.MISSING
    unit = "\u00a0×" if row["unit"] == "times" else f"\u00a0{row['unit']}" if row["unit"] else ""
    bounds = "" if math.isnan(row["low"]) else f" [{number(row['low'])}, {number(row['high'])}]"
    sign = {(True, False): "≥ ", (False, True): "≤ "}.get((bool(row.get("open")), bool(row.get("under"))), "")
    return f"{sign}{number(row['estimate'])}{unit}{bounds}"


def plot(cells: Sequence[Mapping[str, Any]]) -> str:
    """The cells of a claim under one reading as an SVG, one line a cell; numbers on hover."""
    plotted = [
        {**cell, "printed": cell["null"]} if cell.get("estimator") == AGREEMENT else cell
        for cell in cells
        if math.isfinite(cell["estimate"])
    ]
    if not plotted:
        return ""
    ratio = plotted[0]["unit"] == "times"

    def scaled(value: float) -> float:
        return math.log(min(LARGEST, max(1 / LARGEST, value))) if ratio else value

    keys = ("estimate", "low", "high", "printed", "null", "margin")
    ends = [
        scaled(cell[key])
        for cell in plotted
        for key in keys
        if math.isfinite(cell[key]) and not (ratio and key == "low" and cell["under"])
    ]
    low, high = min(ends), max(ends)

    def x(value: float) -> float:
        return round(EDGE + (scaled(value) - low) / ((high - low) or 1) * (WIDTH - 2 * EDGE), 1)

    named = 1 < len(plotted) <= NAMED
    line = LINE + NAME if named else min(LINE, max(LEAST, FULL / len(plotted)))
    height = round(line * len(plotted) + 18)
    parts = [
        f'<line class="null" x1="{x(plotted[0]["null"])}" x2="{x(plotted[0]["null"])}" y1="0" y2="{height - 16}"/>'
    ]
    for k, cell in enumerate(plotted):
        y = round(line * (k + 1) - LINE / 2 if named else line * (k + 0.5), 1)
        seeds = {0: "", 1: ""}.get(cell["n"], f", {cell['n']} seeds")
        words = f"{cell['cell']}: {effect(cell)}{seeds}{', ' * bool(cell['outcome'])}{cell['outcome']}"
        words += f"; printed {cell['shown']}" if cell["shown"] else ""
        name = shorten(str(cell["cell"]), 52, placeholder=" …")
        marks = [f'<text class="name" x="0" y="{y - LINE / 2}">{html.escape(name)}</text>'] if named else []
        if not math.isnan(cell["low"]):
            left = x(cell["estimate"]) if cell["under"] else x(cell["low"])
            right = x(cell["estimate"]) if cell["open"] else x(cell["high"])
            marks.append(f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
        if math.isfinite(cell["margin"]) and cell["margin"] != cell["null"]:
            position = x(cell["margin"])
            marks.append(f'<line class="margin" x1="{position}" x2="{position}" y1="{y - 6}" y2="{y + 6}"/>')
        if math.isfinite(cell["printed"]):
            position = x(cell["printed"])
            marks.append(f'<path class="printed" d="M{position - 4} {y}l4 -4 4 4 -4 4z"/>')
        position = x(cell["estimate"])
        marks.append(f'<circle cx="{position}" cy="{y}" r="4"/>')
        if cell.get("open"):  # the true effect may be larger
            marks.append(f'<path class="open" d="M{position + 4} {y}h9m-4 -4l4 4l-4 4"/>')
        if cell.get("under"):
            marks.append(f'<path class="open" d="M{position - 4} {y}h-9m4 -4l-4 4l4 4"/>')
        kind = cell["outcome"].replace(" ", "-")
        parts.append(f'<g class="cell {kind}"><title>{html.escape(words)}</title>{"".join(marks)}</g>')
    unit = "×" if ratio else plotted[0]["unit"]
    for tick in ticks(low, high, ratio) or [plotted[0]["null"]]:
        position = x(tick)
        end = f" {unit}" if tick == plotted[0]["null"] else ""
        parts.append(
            f'<line class="tick" x1="{position}" x2="{position}" y1="{height - 16}" y2="{height - 12}"/>'
        )
        half = GLYPH / 2 * len(f"{number(tick)}{end}")  # of the label, which stays inside
        middle = round(min(max(position, half), WIDTH - half), 1)
        parts.append(f'<text x="{middle}" y="{height - 3}" text-anchor="middle">{number(tick)}{end}</text>')
    label = html.escape("; ".join(f"{cell['cell']} {effect(cell)}" for cell in plotted))
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"'
    return f'<svg class="forest" {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def ticks(low: float, high: float, ratio: bool) -> list[float]:
    """Round values from low to high: powers of two of ratios, whose ends are logarithms, or multiples of 1, 2 or 5."""
    if ratio and high - low >= math.log(4):
        step = math.log(2) * max(1, round((high - low) / math.log(2) / TICKS))
        return [
            math.exp(step * k)
            for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        ]
    if ratio:
        return ticks(math.exp(low), math.exp(high), False)
    power = 10 ** math.floor(math.log10((high - low or 1) / TICKS))
    step = power * next(
        digit for digit in (1, 2, 5, 10) if digit * power >= (high - low or 1) / TICKS * 0.999
    )
    return [
        float(f"{step * k:.10g}")
        for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    ]


def numbers(cells: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The table behind the plot: one row per cell and reading."""
    rows = [
        {
            "reading": cell["reading"],
            "cell": cell["cell"],
            "printed": cell["shown"] or tables.MISSING,
            "effect": effect(cell),
            "bound": number(cell["margin"]),
            "seeds": cell["n"],
            "outcome": cell["outcome"],
            "": cell["words"],
        }
        for cell in cells
    ]
    return pd.DataFrame(rows)


FEW = 3  # effects that are told one by one
OPEN = 8  # claims of a page that are all shown at once


def spread(levels: pd.DataFrame, unit: str) -> str:
    """How much a claim's effect depends on what its paper leaves open, in words (rows of `effects.levels`)."""
    if levels["readings"].sum() < 2:
        return ""
    parts = []
    for row in levels.to_dict("records"):
        mean = effect({**row, "unit": unit})
        ends = f"{number(row['lowest'])} to {number(row['highest'])}, on average {mean}"
        parts.append(f"{row['option']}: {ends}" if row["choice"] else ends)
    choice = levels["choice"].iloc[0]
    by = f", by “{choice}”" if choice else ""
    return f"Over what the paper leaves open{by}: {'; '.join(parts)}"


def row(
    table: pd.DataFrame, judged: Mapping[str, Any], levels: pd.DataFrame, text: str, link: str = ""
) -> str:
    """One claim as a row: its words, its cells as a plot, its effect and outcome, and the numbers folded.

    table, judged: its rows of `effects.table` and its row of `effects.claims` under the primary reading. levels: its
    rows of `effects.levels`. text: the claim. link: to the page that shows it.
    """
    cells: list[dict[Any, Any]] = table.to_dict("records")
    name = f"<code>{html.escape(judged['claim'])}</code>"
    name = f'<a href="{link}">{name}</a>' if link else name
    quote, place = sentence(judged["claim"])
    quoted = f"<br><small>“{html.escape(quote)}” ({html.escape(place)})</small>" if quote else ""
    outcome = judged["outcome"]
    order = layout.unmarked(judged["said"], outcome) if judged["said"] != outcome else ""
    remarks = [order, size_of(judged), seeds_of(judged)]
    remarks = "".join(f"<br><small>{html.escape(remark)}</small>" for remark in remarks if remark)
    fold = f"<details><summary>Numbers</summary>{tables.html_of(numbers(cells), kind='numbers')}</details>"
    n = int(judged["n"])
    where = f"{mean_of(judged)}, {n} seed{'s' * (n != 1)}" if n else alone(cells)
    reading = html.escape(primary(judged["paper"]).called)
    multiverse = spread(levels, judged["unit"])
    where += f"<br>{html.escape(multiverse)}" if multiverse else ""
    columns = (
        f"{html.escape(text)}{quoted}<br><small>{name} {judged['kind']}</small>{fold}",
        f'{plot(cells)}<small title="{reading}">{where}</small>',
        f"{layout.mark(outcome)}{remarks}",
    )
    joined = "".join(f"<td>{cell}</td>" for cell in columns)
    attributes = f'id="{judged["claim"]}" data-paper="{html.escape(papers()[judged["paper"]].title)}"'
    return f'<tr {attributes} data-kind="{judged["kind"]}">{joined}</tr>\n'


def alone(cells: Iterable[Mapping[str, Any]]) -> str:
    """The effects of one seed, in words."""
    ran = [effect(cell) for cell in cells if cell["n"] == 1]
    return f"{', '.join(ran)}; one seed" if 0 < len(ran) <= FEW else tables.MISSING


def mean_of(judged: Mapping[str, Any]) -> str:
    """The mean effect of a claim in words, "on average" where there are several cells."""
    several = "on average " if judged["cells"] > 1 else ""
    return f"{several}{effect(judged)}"


def size_of(judged: Mapping[str, Any]) -> str:
    """The size of a claim in words: "smaller than printed: 1.28 × for 2.35 ×"."""
    if not judged["size"]:
        return ""
    ours, print_ = (number(judged[key]) for key in ("estimate", "printed"))
    unit = "\u00a0×" if judged["unit"] == "times" else f"\u00a0{judged['unit']}"
    return f"{judged['size']}: {'≥ ' if judged['open'] else ''}{ours}{unit} for {print_}{unit} (same cells)"


def seeds_of(judged: Mapping[str, Any]) -> str:
    """How many seeds would decide what is open, and the weakest cell, in words."""
    needed = int(judged["needed"])
    if not needed:
        return ""
    seeds = "more than 1,000" if needed > 1000 else f"about {needed}"
    weakest = f"; weakest: {judged['weakest']}" if judged["weakest"] else ""
    return f"{seeds} seeds would show it{weakest}"


MARK = '<svg class="forest key" viewBox="0 0 14 12" width="14">{}</svg>'
KEY = (
    '<p class="note">Each line is a comparison: '
    + MARK.format('<g class="cell"><circle cx="7" cy="6" r="4"/></g>')
    + " ours with its 95 % interval over seeds, "
    + MARK.format('<path class="printed" d="M3 6l4 -4 4 4 -4 4z"/>')
    + " printed; vertical line: no effect; short dashed line: a stated bound; "
    "≥, ≤, an arrow: may be larger, smaller. Green: shown; red: reversed. Point at a line for its numbers.</p>"
)


def on_page(rows: Mapping[str, tuple[bool, str]]) -> str:
    """The claims of a page; of many, those that are not core open on a click. rows: claim -> is it core, its row."""
    core = [row for is_core, row in rows.values() if is_core]
    others = [row for is_core, row in rows.values() if not is_core]
    if len(rows) <= OPEN or not core or not others:
        return table([row for _, row in rows.values()]) if rows else ""
    summary = f"<summary>{len(others)} supporting claims</summary>"
    return f"{table(core)}<details>{summary}{table(others)}</details>"


def board(rows: Mapping[str, tuple[str, str, str]], main: str) -> str:
    """A paper's claims for the scoreboard: the main one, and the others behind a click, core claims first.

    rows: claim -> its kind, its outcome, its row. main: the main claim.
    """
    parts = [table([rows[main][2]], board=True)]
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for claim, (kind, outcome, row) in rows.items():
        if claim != main:
            by_kind.setdefault(kind, []).append((outcome, row))
    for kind, folded in by_kind.items():
        counts = Counter(outcome for outcome, _ in folded)
        marks = " ".join(layout.mark(name, counts[name]) for name in words.ORDER if counts[name])
        title = f"{len(folded)} {'more ' * (kind == 'core')}{kind} claim{'s' * (len(folded) != 1)}"
        contents = table([row for _, row in folded], board=True)
        parts.append(f"<details><summary>{title}: {marks}</summary>{contents}</details>")
    return "".join(parts)


def table(rows: Sequence[str], board: bool = False) -> str:
    """Claims as a table. board: of the scoreboard, which explains its marks once."""
    head = "".join(f"<th>{name}</th>" for name in ("claim", "effect", "outcome"))
    kind = "dataframe verdicts board" if board else "dataframe verdicts"
    key = "" if board else KEY
    return (
        f'{key}<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table>'
    )
