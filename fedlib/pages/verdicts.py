"""Verdicts as an HTML table: a row per claim."""

from __future__ import annotations

import html

import pandas as pd

from fedlib.analysis.paper import papers
from fedlib.pages.layout import mark
from fedlib.pages.tables import text


def table(decided: pd.DataFrame, links: bool = False) -> str:
    """Verdicts (rows of `judging.verdicts`) as an HTML table: the claim, printed, replicated, verdict.

    The replicated value and the verdict are those as written; the verdict as run, if there is one, is below. links: to
    the page that shows a claim, relative to the site's first page. A row's id is its claim's.
    """
    rows, titles = [], {name: html.escape(paper.title) for name, paper in papers().items()}
    for row in decided.map(lambda value: html.escape(text(value))).to_dict("records"):
        words = ", ".join(filter(None, [row["words"], row["strength"]]))
        run = f"As run: {row['as run']}." if row["as run"] else ""
        verdict = "<br>".join(
            [mark(row["headline"]), *(f"<small>{said}</small>" for said in (words, run) if said)]
        )
        name = f"<code>{row['id']}</code>"
        if links:
            name = f'<a href="{row["artifact"]}.html#{row["id"]}">{name}</a>'
        cells = {
            "claim": f"{row['claim']}<br><small>{name} {row['detail']}</small>",
            "printed": row["printed"],
            "replicated": "<br>".join(filter(None, [row["replicated"], row["interval"]])),
            "verdict": verdict,
        }
        shown = "".join(f'<td data-label="{name}">{cell}</td>' for name, cell in cells.items())
        about = f'id="{row["id"]}" data-paper="{titles.get(row["paper"], row["paper"])}"'
        rows.append(f'<tr {about} data-strength="{row["strength"]}">{shown}</tr>\n')
    head = "".join(f"<th>{name}</th>" for name in ("claim", "printed", "replicated", "verdict"))
    kind = "dataframe verdicts board" if links else "dataframe verdicts"
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{"".join(rows)}</tbody></table>'
