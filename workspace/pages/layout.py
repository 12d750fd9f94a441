"""A page of the site: its notebook in its order, without code; settings, code and downloads folded at the end.

What a notebook displays through `Artifact` is marked by metadata of its output: "provenance" (`Artifact.open`) goes to
the end of the page, "finding" (`Artifact.say`) and "claims" (`Artifact.judge`) are given by the site.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbformat import NotebookNode

FEW = 4  # claims that the result lists one by one; for more it gives the counts
FOLD = "fold"  # tag of a cell whose figures and tables open on a click
DRAWN = {"image/svg+xml", "image/png", "text/html"}  # kinds of pictures and tables


def arranged(
    cells: Sequence[NotebookNode],
    result: str = "",
    about: str = "",
    beside: str = "",
    curves: Mapping[str, str] | None = None,
    claims: str = "",
) -> list[NotebookNode]:
    """The cells of an executed notebook as its page shows them.

    result: the result in a few lines, under the title. about: Markdown for the folded part at the end (downloads, how
    to reproduce it). beside: Markdown that goes under the first picture or table, or else under the title: what it
    lacks. curves: name of a picture (`Artifact.show`) -> name of the data with which the site's script draws it anew.
    claims: HTML in place of the outcomes that the notebook shows.
    """
    heading, _, text = cells[0].source.partition("\n")
    parts = [text_cell("\n\n".join(filter(None, [heading, result, text])))]
    provenance = []
    for cell in cells[1:]:
        if cell.cell_type == "markdown":
            parts.append(cell)
            continue
        outputs: list[NotebookNode] = []
        judged = False
        for output in cell.outputs:
            mark = output.get("metadata", {})
            if "provenance" in mark:
                provenance.append("".join(output.data["text/markdown"]))
            elif "claims" in mark and claims:
                judged = True
            elif "finding" not in mark:
                outputs.append(output)
        cell.outputs = outputs
        shown = with_curves(cell, curves or {})
        parts += folded(shown) if shown and FOLD in cell.metadata.get("tags", ()) else shown
        cell.metadata["tags"] = ["remove-input"]
        if judged:
            parts.append(text_cell(claims))
        if beside and any(DRAWN & {*output.get("data", ())} for output in outputs):
            parts.append(text_cell(beside))
            beside = ""
    if beside:  # nothing is drawn: what there is instead comes first
        parts.insert(1, text_cell(beside))
    code = "\n\n".join(
        cell.source.strip() for cell in cells if cell.cell_type == "code" and cell.source.strip()
    )
    end = [
        dropdown("Settings and provenance", "\n".join(provenance)),
        dropdown("Code", f"```python\n{code}\n```" if code else ""),
    ]
    return [*parts, text_cell("\n\n".join(filter(None, [*end, about])))]


def with_curves(cell: NotebookNode, curves: Mapping[str, str]) -> list[NotebookNode]:
    """A cell, split after each picture whose curves the site can draw, with the element in which it draws them."""
    parts, waiting = [], []
    for output in cell.outputs:
        waiting.append(output)
        if name := curves.get(output.get("metadata", {}).get("picture")):
            element = text_cell(f'<div class="interactive" data-figure="{name}"></div>')
            parts += [type(cell)(cell | {"outputs": waiting}), element]
            waiting = []
    return [*parts, type(cell)(cell | {"outputs": waiting})] if waiting else parts


def folded(cells: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Cells that open on a click."""
    summary = "<summary>Show the figures and tables</summary>"
    return [text_cell(f'<details class="section">{summary}'), *cells, text_cell("</details>")]


def text_cell(text: str) -> NotebookNode:
    from nbformat.v4 import new_markdown_cell

    return new_markdown_cell(text.strip(), id="text")


def dropdown(title: str, text: str) -> str:
    return f":::::{{dropdown}} {title}\n{text}\n:::::" if text.strip() else ""


def result(outcomes: Sequence[tuple[str, str]], finding: str = "") -> str:
    """A page's finding as Markdown: one sentence per claim if there are few, otherwise the first one's and counts.

    outcomes: (outcome, sentence) of each claim. finding: of the page, in place of the first claim's sentence.
    """
    lead = f"{escaped(finding)}\n\n" if finding else ""
    if len(outcomes) <= FEW:
        return lead + "\n".join(
            f"- {mark(outcome)} {escaped(unmarked(text, outcome))}" for outcome, text in outcomes
        )
    outcome, text = outcomes[0]
    lead = lead or f"{mark(outcome)} {escaped(unmarked(text, outcome))}\n\n"
    counts = Counter(outcome for outcome, _ in outcomes)
    return f"{lead}All {len(outcomes)} claims here: " + " ".join(
        mark(name, n) for name, n in counts.most_common()
    )


def unmarked(text: str, outcome: str) -> str:
    """A sentence without the outcome at the beginning or end of a part of it, for a place that shows it as a mark."""

    def kept_separator(match: re.Match[str]) -> str:
        return match["before"] if match["after"] else ""

    return re.sub(
        rf"(?P<before>^|[:;] ){re.escape(outcome)}(?:(?P<after>[:;] )|(?=\.)|$)",
        kept_separator,
        text,
        count=1,
    )


def mark(outcome: str, n: int = 0) -> str:
    """An outcome in its colour, as HTML. n: a number in front of it."""
    label = html.escape(f"{n} {outcome}" if n else outcome)
    return f'<span class="verdict {html.escape(outcome).replace(" ", "-")}">{label}</span>'


def escaped(text: str) -> str:
    """Text of settings or results as Markdown that shows it as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$|~&" else c for c in text)
