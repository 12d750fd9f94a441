"""The first screen of the site and of README: which sampler beats random selection, where, by how much, how surely.

A sentence a kind of clients comes from the arena's runs, by the rule of `ranking.py`; one figure has a row for each
paper's main claim, from the effects table.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from workspace.analysis.paper import papers
from workspace.pages import chooser, forest, ranking
from workspace.pages.evidence import Evidence, pooled

WIDTH, ROW, LEFT, RIGHT, HEAD, FOOT = 880, 56, 330, 190, 22, 24  # pixels
PHONE, TALL, MARKS = 360, 98, 26  # pixels: of the narrow figure its width, a row, and the axis in it
TICKS = (0.5, 1, 2, 4, 8, 16)
QUESTION = "Which sampler beats random selection? That depends on what the clients hold:"
WORDS = {
    chooser.ONE: "holds one label, or nearly",
    chooser.TWO: "holds two labels",
    chooser.MORE: "holds several",
}


def runs_of(data: Mapping[str, Any]) -> pd.DataFrame:
    """The runs of the chooser's data (`chooser.data`), as `chooser.points` has them."""
    runs = pd.DataFrame(
        {
            **run["at"],
            "accuracy": run["accuracy"],
            "experiment": data["settings"][run["s"]]["experiment"],
            "setting": data["settings"][run["s"]]["setting"],
            "method": data["methods"][run["m"]]["name"],
            "seed": run["seed"],
        }
        for run in data["runs"]
    )
    return runs.explode([*chooser.COSTS, "accuracy"]).astype(
        dict.fromkeys([*chooser.COSTS, "accuracy"], float)
    )


def by_labels(data: Mapping[str, Any]) -> dict[str, ranking.Ranking]:
    """The ranking when all rounds are done, for clients that hold one label, two, or several (`chooser.HELD`)."""
    ends = ranking.at_budget(runs_of(data))
    kinds: dict[str, ranking.Kind] = {
        method["name"]: method["kind"] for method in data["methods"] if method["name"] != ranking.BASE
    }
    places = {
        label: [(s["experiment"], s["setting"]) for s in data["settings"] if s["labels"] == label]
        for label in chooser.HELD
    }
    return {label: ranking.ranking(ends, kinds, settings) for label, settings in places.items() if settings}


def answers(data: Mapping[str, Any]) -> list[str]:
    """Which sampler beats random selection and by how much: a sentence a kind of clients, its best sampler in bold."""
    sentences = []
    for label, ranked in by_labels(data).items():
        first, n = ranked.first, len(ranked.settings)
        if first is None:
            continue
        where = f"Where each client {WORDS[label]} ({n} setting{'s' * (n > 1)})"
        gain = f"{ranking.signed(first.gain.value)} points"
        if first.gain.verdict == ranking.ABOVE:
            tied = [row.method for row in ranked.ranked if row.behind and not row.behind.high < 0]
            words = f"{where}, **{first.method}** ends {gain} of accuracy above random selection"
            words += f" (95 % interval {ranking.interval(first.gain)})"
            words += (
                f"; {', '.join(tied)} may be as good"
                if tied
                else f", the most of {len(ranked.ranked)} samplers"
            )
            sentences.append(f"{words}.")
        elif math.isnan(first.gain.low):
            sentences.append(f"{where}, {first.method} has {gain}, in one seed that decides nothing.")
        else:
            sentences.append(
                f"{where}, no sampler is surely a point or more above it; the highest, {first.method}, has {gain} "
                f"({ranking.interval(first.gain)})."
            )
    return sentences


def listed(sentences: Iterable[str]) -> str:
    """`answers` as a question and a list, in Markdown."""
    return "\n".join([QUESTION, "", *(f"- {sentence}" for sentence in sentences)])


@dataclass(frozen=True)
class MainClaim:
    """A paper's main claim as a row: ours with its interval, and the printed effect (NaN if there is none), as ratios.

    ratio: of what, in words. open: the effect may be larger, as runs ended before they reached the target.
    """

    title: str
    claim: str
    ratio: str
    data: str
    estimate: float
    low: float
    high: float
    printed: float
    open: bool
    seeds: int


def headlines(evidence: Evidence) -> list[MainClaim]:
    """A row a paper: its main claim under the primary reading, on the data set with the most seeds."""
    rows = []
    for name, paper in papers().items():
        mine = evidence.outcomes[evidence.outcomes["paper"] == name]
        ran = [row for row in mine.to_dict("records") if math.isfinite(row["low"]) and row["unit"] == "times"]
        if not ran:
            continue
        lead = max(ran, key=lambda row: row["n"])
        table = evidence.table[(evidence.table["claim"] == lead["claim"]) & evidence.table["primary"]]
        cells = table[(table["data"] == lead["data"]) & (table["n"] > 1)]
        numbers = (
            lead["estimate"],
            lead["low"],
            lead["high"],
            pooled(cells),
            bool(lead["open"]),
            int(lead["n"]),
        )
        claim = paper.says or evidence.text(lead["claim"])
        rows.append(MainClaim(paper.title, claim, paper.ratio, str(lead["data"]), *numbers))
    return rows


def figure(
    rows: Iterable[MainClaim], ink: str = "currentColor", paper: str = "", narrow: bool = False
) -> str:
    """The rows as an SVG on one axis of ratios. narrow: for a phone, with a row's words and numbers above its axis.

    ink, paper: colours of its lines and of its ground ("": none).
    """
    rows = list(rows)
    width, row_height = (PHONE, TALL) if narrow else (WIDTH, ROW)
    left, right = (0, 0) if narrow else (LEFT, RIGHT)
    height = HEAD + row_height * len(rows) + FOOT
    bottom = height - FOOT

    def x(value: float) -> float:
        share = math.log(min(TICKS[-1], max(TICKS[0], value)) / TICKS[0]) / math.log(TICKS[-1] / TICKS[0])
        return round(left + 12 + share * (width - left - right - 24), 1)

    def text(at_x: float, at_y: float, words: str, **attributes: str) -> str:
        extra = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        return f'<text x="{at_x}" y="{at_y}"{extra}>{html.escape(words)}</text>'

    parts = [f'<rect width="{width}" height="{height}" fill="{paper}"/>'] if paper else []
    for k in range(len(rows) if narrow else 1):  # words stand beside the lines, or above each row's
        top = HEAD + row_height * (k + 1) - MARKS if narrow else HEAD
        end = HEAD + row_height * (k + 1) if narrow else bottom
        parts += [
            f'<line x1="{x(tick)}" x2="{x(tick)}" y1="{top}" y2="{end}" stroke="{ink}" '
            f'stroke-opacity="{0.8 if tick == 1 else 0.15}"/>'
            for tick in TICKS
        ]
    parts += [text(x(tick), height - 8, f"× {tick:g}", text_anchor="middle") for tick in TICKS]
    parts.append(text(x(1), 14, "× 1: no effect" if narrow else "no effect", text_anchor="middle"))
    for k, row in enumerate(rows):
        y = HEAD + (row_height * (k + 1) - MARKS / 2 if narrow else row_height * (k + 0.5))
        head = HEAD + row_height * k + 18 if narrow else y - 10
        parts.append(text(0, head, f"{row.title}, {row.data}", font_weight="bold", font_size="13"))
        lines = textwrap.wrap(row.claim, 58, max_lines=1 if row.ratio else 2, placeholder=" …")
        lines += [row.ratio] if row.ratio else []
        parts += [text(0, head + 15 + 14 * n, line, font_size="11") for n, line in enumerate(lines)]
        parts.append(
            f'<line x1="{x(row.low)}" x2="{x(row.high)}" y1="{y}" y2="{y}" stroke="{ink}" stroke-width="2"/>'
        )
        if math.isfinite(row.printed):
            position = x(row.printed)
            parts.append(
                f'<path d="M{position - 6} {y}l6 -6 6 6 -6 6z" fill="none" stroke="#b0469a" stroke-width="2"/>'
            )
        parts.append(f'<circle cx="{x(row.estimate)}" cy="{y}" r="5" fill="#0072B2"/>')
        ours = f"here {'≥ ' if row.open else ''}{forest.number(row.estimate)}"
        upper = f"to {forest.number(row.high)}" if math.isfinite(row.high) else "or more"
        ours += f" [{forest.number(row.low)} {upper}]"
        printed = f"printed {forest.number(row.printed)}" if math.isfinite(row.printed) else "no size printed"
        printed += f"; {row.seeds} seeds"
        if narrow:
            parts.append(text(0, y - MARKS / 2 - 6, f"{ours}, {printed}", font_size="12"))
        else:
            parts.append(text(width - right + 8, y - 3, ours, font_size="12"))
            parts.append(text(width - right + 8, y + 13, printed, font_size="11"))
    label = html.escape(
        "; ".join(
            f"{row.title}: {row.estimate:.3g} times, "
            + (f"printed {row.printed:.3g}" if math.isfinite(row.printed) else "no size printed")
            for row in rows
        )
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="headlines{" narrow" * narrow}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}" font-family="sans-serif" font-size="11" '
        f'fill="{ink}">{"".join(parts)}</svg>'
    )


KEY = "● here, with its 95 % interval over seeds; ◇ printed; × 1: no effect. Ratios above 1 are in the paper's favour."
