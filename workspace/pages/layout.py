"""The layout of a page of the site, independent of the order of its notebook.

A page shows in this order: the title, the result in a few lines, the figure or table, its explanation, the verdicts,
and the rest of the notebook. Sections for which a page of `ROOM` has no room open on a click. Folded at the end are the
settings and provenance, the code and the downloads.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat import NotebookNode

NO_VERDICTS = "At scale demo no claim is judged: scikit-learn's digits say nothing about the papers."
LONG = 150  # cells of a table that is folded, unless it leads the page
ROOM = 4200  # pixels of a wide screen that a page may fill before its sections are folded, by `height`
WIDE = 1000  # pixels: of a figure on a wide screen
FEW = 4  # claims that the result lists one by one; for more it gives the counts


def arranged(
    cells: list[NotebookNode],
    result: str = "",
    about: str = "",
    beside: str = "",
    curves: Mapping[str, str] | None = None,
    claims: str = "",
) -> list[NotebookNode]:
    """The cells of an executed notebook in the page's order.

    result: the result in a few lines, under the title; a page without one keeps its order. about: Markdown for the
    folded part at the end (downloads, how to reproduce it). beside: Markdown that goes under the first picture or
    table: what it lacks. curves: name of a picture (`Artifact.show`) -> name of the data with which the site's script
    draws it anew. claims: HTML in place of the verdicts that the notebook shows.
    """
    heading, _, text = cells[0].source.partition("\n")
    visible_cells = [cell for cell in cells[1:] if cell.cell_type == "markdown" or visible(cell)]
    opening = [cell for cell in visible_cells if is_opening(cell)]
    remaining = [cell for cell in visible_cells if cell not in opening]
    intro, lacks = text_cell(text), text_cell(beside)
    verdicts, remaining = apart(remaining, judged) if result or claims else ([], remaining)
    verdicts = [text_cell(claims)] if claims else verdicts
    leading, figure, remaining = around_figure(remaining)
    if result or claims:
        led = [without_heading(cell) for cell in leading]
        title = [text_cell("## Claims")] if verdicts else []
        top = [*figure, lacks, *led, intro, *title, *verdicts]
    else:
        top = [intro, *leading, *figure, lacks]
    for cell in visible_cells:
        if cell.cell_type == "code":
            cell.metadata["tags"] = ["remove-input"]
            cell.outputs = [output for output in cell.outputs if not is_finding(output)]
    remaining = [fold_long(cell) for cell in remaining]
    top = [text_cell(f"{heading}\n\n{result}"), *(fold_high(cell) for cell in top)]
    parts = [*top, *fold_sections(remaining, ROOM - sum(map(height, top)))]
    parts = [part for cell in parts if not blank(cell) for part in with_curves(cell, curves or {})]
    return [*parts, text_cell(folded(cells, opening, about))]


def with_curves(cell: NotebookNode, curves: Mapping[str, str]) -> list[NotebookNode]:
    """A cell, split after each picture whose curves the site can draw, with the element in which it draws them."""
    if cell.cell_type != "code" or not curves:
        return [cell]
    split: list[NotebookNode] = []
    waiting: list[NotebookNode] = []
    for output in cell.outputs:
        waiting.append(output)
        if name := curves.get(output.get("metadata", {}).get("picture")):
            split += [
                copy_with(cell, waiting),
                text_cell(f'<div class="interactive" data-figure="{name}"></div>'),
            ]
            waiting = []
    return [*split, *([copy_with(cell, waiting)] if waiting else [])]


def copy_with(cell: NotebookNode, outputs: list[NotebookNode]) -> NotebookNode:
    kind = type(cell)
    return kind(cell | {"outputs": outputs, "metadata": kind(cell.metadata)})


def around_figure(
    cells: list[NotebookNode],
) -> tuple[list[NotebookNode], list[NotebookNode], list[NotebookNode]]:
    """The cells before the first picture or table, that cell, and those after; all are after if there is none."""
    k = next((k for k, cell in enumerate(cells) if is_drawn(cell)), None)
    if k is None:
        return [], [], cells
    return cells[:k], cells[k : k + 1], cells[k + 1 :]


def apart(
    cells: list[NotebookNode], chosen: Callable[[NotebookNode], bool]
) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """The wanted cells, and the others without the heading "Claims" above the verdicts."""
    remaining = [cell for cell in cells if not chosen(cell)]
    for cell in remaining:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("## Claims", "").strip()
    return [cell for cell in cells if chosen(cell)], remaining


def is_finding(output: NotebookNode) -> bool:
    """Whether an output is the page's finding (`Artifact.say`), which stands under the title."""
    return bool(output.get("metadata", {}).get("finding"))


def visible(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and bool(cell.outputs)


def is_drawn(cell: NotebookNode) -> bool:
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


def fold_high(cell: NotebookNode) -> NotebookNode:
    """A cell whose tables open on a click if they alone would fill a page."""
    return fold_long(cell) if cell.cell_type == "code" and height(cell) > ROOM else cell


def fold_long(cell: NotebookNode) -> NotebookNode:
    """A cell whose long tables open on a click."""
    for output in cell.outputs if cell.cell_type == "code" else ():
        table = "".join(kinds(output).get("text/html", ""))
        if table.startswith("<table") and table.count("<td") > LONG and " board" not in table[:60]:
            summary = f"<summary>Table of {table.count('<tr>')} rows</summary>"
            output["data"]["text/html"] = f"<details>{summary}{table}</details>"
    return cell


def fold_sections(cells: list[NotebookNode], room: float) -> list[NotebookNode]:
    """The cells, with those of each section folded under its heading once the sections before it fill the room."""
    sections: list[list[NotebookNode]] = [[]]
    for cell in cells:
        if cell.cell_type == "markdown" and cell.source.startswith("## "):
            sections.append([])
        sections[-1].append(cell)
    parts = []
    for section in sections:
        room -= sum(map(height, section))
        open_section = room > 0 or not section or any(is_board(cell) for cell in section)
        parts += section if open_section else behind_a_click(section)
    return parts


def is_board(cell: NotebookNode) -> bool:
    """Whether a cell shows a part of the scoreboard, which its reader filters instead."""
    texts = ("".join(kinds(output).get("text/html", "")) for output in cell.get("outputs", ()))
    return any('verdicts board"' in text for text in texts)


def behind_a_click(section: list[NotebookNode]) -> list[NotebookNode]:
    """A section with all but its heading and first paragraph in a fold; unchanged if there is nothing more."""
    first, *contents = section
    contents = [without_section(cell) for cell in contents]
    if first.cell_type != "markdown":
        first, contents = text_cell(""), section
    if not any(is_drawn(cell) for cell in contents):
        return section
    pictures = sum(
        "image/svg+xml" in kinds(output) for cell in contents for output in cell.get("outputs", ())
    )
    tables = sum("text/html" in kinds(output) for cell in contents for output in cell.get("outputs", ()))
    counted = [f"{n} {noun}{'s' * (n > 1)}" for n, noun in ((pictures, "figure"), (tables, "table")) if n]
    title = f"<summary>Show {' and '.join(counted)}</summary>"
    return [first, text_cell(f'<details class="section">{title}'), *contents, text_cell("</details>")]


def without_section(cell: NotebookNode) -> NotebookNode:
    """A cell whose headings are bold: a fold must end in the section in which it begins."""
    if cell.cell_type == "markdown":
        cell.source = re.sub(r"^#{3,} (.*)$", r"**\1**", cell.source, flags=re.M)
    return cell


def height(cell: NotebookNode) -> float:
    """About how many pixels a cell takes on a wide screen."""
    if cell.cell_type == "markdown":
        claims = cell.source.partition("supporting claims</summary>")[0]
        if rows := claims.count("<tr id="):
            return 110.0 * rows + sum(map(int, re.findall(r'viewBox="0 0 300 (\d+)"', claims)))
        return 27.0 * sum(1 + len(line) // 95 for line in cell.source.splitlines() if line.strip()) + 16
    return sum(map(height_of, cell.outputs))


def height_of(output: NotebookNode) -> float:
    data = kinds(output)
    if picture := "".join(data.get("image/svg+xml", "")):
        box = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', picture)
        across, down = map(float, box.groups()) if box else (WIDE, 300.0)
        return down * min(4 / 3, WIDE / across) + 30
    if table := "".join(data.get("text/html", "")):
        return 60.0 if table.startswith("<details") else 40.0 + 44 * table.count("<tr")
    return 27.0 * ("".join(data.get("text/markdown", data.get("text/plain", ""))).count("\n") + 1)


def without_heading(cell: NotebookNode) -> NotebookNode:
    if cell.cell_type == "code":
        return cell
    return text_cell("\n".join(line for line in cell.source.splitlines() if not line.startswith("#")))


def text_cell(text: str) -> NotebookNode:
    from nbformat.v4 import new_markdown_cell

    return new_markdown_cell(text.strip(), id="text")


def folded(cells: list[NotebookNode], opening: list[NotebookNode], about: str) -> str:
    """The end of a page, as Markdown: settings and provenance, code, downloads, each folded."""
    provenance = "\n".join(
        "".join(output["data"]["text/markdown"]) for cell in opening for output in cell.outputs
    )
    code = "\n\n".join(
        cell.source.strip() for cell in cells if cell.cell_type == "code" and cell.source.strip()
    )
    parts = [
        dropdown("Settings and provenance", provenance),
        dropdown("Code", f"```python\n{code}\n```" if code else ""),
    ]
    return "\n\n".join(filter(None, [*parts, about]))


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
    """A sentence without the outcome at its end, for a place that shows the outcome as a mark."""
    ends = (f"; {outcome}.", f": {outcome}.") if text.endswith(".") else (f"; {outcome}", f": {outcome}")
    for end in ends:
        if text.endswith(end):
            return text.removesuffix(end) + ("." if text.endswith(".") else "")
    return text


def mark(outcome: str, n: int = 0) -> str:
    """An outcome in its colour, as HTML. n: a number in front of it."""
    label = html.escape(f"{n} {outcome}" if n else outcome)
    return f'<span class="verdict {html.escape(outcome).replace(" ", "-")}">{label}</span>'


def escaped(text: str) -> str:
    """Text of settings or results as Markdown that shows it as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$|~&" else c for c in text)
