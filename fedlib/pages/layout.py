"""The layout of a page of the site, independent of the order of its notebook.

A page shows in this order: the title, the result in a few lines, the figure or table, its explanation, the verdicts,
and the rest of the notebook. Folded at the end are the settings and provenance, the code and the downloads.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

FEW = 4  # claims that the result lists one by one; for more it gives the counts


def arranged(
    cells: list[NotebookNode],
    result: str = "",
    about: str = "",
    beside: str = "",
    curves: Mapping[str, str] | None = None,
) -> list[NotebookNode]:
    """The cells of an executed notebook in the page's order.

    result: the result in a few lines, under the title; a page without one keeps its order. about: Markdown for the
    folded part at the end (downloads, how to reproduce it). beside: Markdown that goes under the first picture or
    table: what it lacks. curves: name of a picture (`Artifact.show`) -> name of the data with which the site's script
    draws it anew.
    """
    heading, _, text = cells[0].source.partition("\n")
    shown = [cell for cell in cells[1:] if cell.cell_type == "markdown" or visible(cell)]
    opening = [cell for cell in shown if is_opening(cell)]
    rest = [cell for cell in shown if cell not in opening]
    intro, lacks = text_cell(text), text_cell(beside)
    verdicts, rest = apart(rest, judged) if result else ([], rest)
    before, figure, rest = around_figure(rest)
    if result:
        led = [without_heading(cell) for cell in before]
        title = [text_cell("## Verdicts")] if verdicts else []
        top = [*figure, lacks, *led, intro, *title, *verdicts]
    else:
        top = [intro, *before, *figure, lacks]
    for cell in shown:
        if cell.cell_type == "code":
            cell.metadata["tags"] = ["remove-input"]
            cell.outputs = [one for one in cell.outputs if not one.get("metadata", {}).get("finding")]
    parts = [text_cell(f"{heading}\n\n{result}"), *top, *rest]
    parts = [one for cell in parts if not blank(cell) for one in with_curves(cell, curves or {})]
    return [*parts, text_cell(folded(cells, opening, about))]


def with_curves(cell: NotebookNode, curves: Mapping[str, str]) -> list[NotebookNode]:
    """A cell, split after each picture whose curves the site can draw, with the element in which it draws them."""
    if cell.cell_type != "code" or not curves:
        return [cell]
    out: list[NotebookNode] = []
    waiting: list[NotebookNode] = []
    for output in cell.outputs:
        waiting.append(output)
        if name := curves.get(output.get("metadata", {}).get("picture")):
            out += [
                copy_with(cell, waiting),
                text_cell(f'<div class="interactive" data-figure="{name}"></div>'),
            ]
            waiting = []
    return [*out, *([copy_with(cell, waiting)] if waiting else [])]


def copy_with(cell: NotebookNode, outputs: list[NotebookNode]) -> NotebookNode:
    return NotebookNode(cell | {"outputs": outputs, "metadata": NotebookNode(cell.metadata)})


def around_figure(
    cells: list[NotebookNode],
) -> tuple[list[NotebookNode], list[NotebookNode], list[NotebookNode]]:
    """The cells before the first picture or table, that cell, and those after; all are after if there is none."""
    k = next((k for k, cell in enumerate(cells) if drawn(cell)), None)
    if k is None:
        return [], [], cells
    return cells[:k], cells[k : k + 1], cells[k + 1 :]


def apart(
    cells: list[NotebookNode], wanted: Callable[[NotebookNode], bool]
) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """The wanted cells, and the others without the heading "Claims" above the verdicts."""
    rest = [cell for cell in cells if not wanted(cell)]
    for cell in rest:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("## Claims", "").strip()
    return [cell for cell in cells if wanted(cell)], rest


def visible(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.outputs)


def drawn(cell: NotebookNode) -> bool:
    """Whether a cell shows a picture or a table."""
    return cell.cell_type == "code" and any(
        {"image/svg+xml", "image/png", "text/html"} & set(kinds(output)) for output in cell.outputs
    )


def blank(cell: NotebookNode) -> bool:
    return cell.cell_type == "markdown" and not cell.source.strip()


def is_opening(cell: NotebookNode) -> bool:
    """Whether a cell only says what the page is made from (`Artifact.open`)."""
    return cell.cell_type == "code" and all("text/markdown" in kinds(output) for output in cell.outputs)


def judged(cell: NotebookNode) -> bool:
    """Whether a cell shows the verdicts on the page's own claims (`Artifact.judge`)."""
    return cell.cell_type == "code" and any(
        'class="dataframe verdicts"' in "".join(output["data"].get("text/html", ""))
        for output in cell.outputs
        if "data" in output
    )


def kinds(output: NotebookNode) -> Mapping[str, Any]:
    return output.get("data", {})


def without_heading(cell: NotebookNode) -> NotebookNode:
    if cell.cell_type == "code":
        return cell
    return text_cell("\n".join(line for line in cell.source.splitlines() if not line.startswith("#")))


def text_cell(text: str) -> NotebookNode:
    return new_markdown_cell(text.strip(), id="text")


def folded(cells: list[NotebookNode], opening: list[NotebookNode], about: str) -> str:
    """The end of a page, as Markdown: settings and provenance, code, downloads, each folded."""
    made = "\n".join("".join(output["data"]["text/markdown"]) for cell in opening for output in cell.outputs)
    code = "\n\n".join(
        cell.source.strip() for cell in cells if cell.cell_type == "code" and cell.source.strip()
    )
    parts = [
        dropdown("Settings and provenance", made),
        dropdown("Code", f"```python\n{code}\n```" if code else ""),
    ]
    return "\n\n".join(filter(None, [*parts, about]))


def dropdown(title: str, text: str) -> str:
    return f":::::{{dropdown}} {title}\n{text}\n:::::" if text.strip() else ""


def result(rows: list[Mapping[str, Any]], finding: str = "") -> str:
    """A page's finding and verdicts as Markdown: one line per claim if there are few, otherwise counts."""
    lead = f"{escaped(finding)}\n\n" if finding else ""
    if not rows:
        return lead
    if len(rows) <= FEW:
        return lead + "\n".join(f"- {mark(row)} {escaped(row['claim'])}" for row in rows)
    counts = Counter(mark(row) for row in rows)
    return lead + " · ".join(f"{said} {n} of {len(rows)} claims" for said, n in counts.most_common())


def mark(row: Mapping[str, Any]) -> str:
    """The headline of a verdict (a row of `judging.verdicts`) in its colour, as HTML."""
    said = html.escape(row["headline"])
    return f'<span class="verdict {said.replace(" ", "-")}">{said}</span>'


def escaped(text: str) -> str:
    """Text of settings or results as Markdown that shows it as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$|~&" else c for c in text)
