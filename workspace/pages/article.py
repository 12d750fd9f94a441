"""An article about the replication of each paper, in the form of ReScience C, for a page and a PDF.

All results come from the effects table. What no table can say stands in `workspace/papers/<paper>/article.md`: what the
paper proposes, what was easy, what was hard, and what to ask its authors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError
from workspace.analysis import power, words
from workspace.analysis.claim import sentence
from workspace.analysis.paper import papers
from workspace.analysis.readings import how_many, left_open, primary, readings
from workspace.pages import forest, front, layout, tables
from workspace.pages.evidence import Evidence, pooled

PARTS = ("Scope", "What was easy", "What was hard", "What to ask the authors")
METHODS = (
    "All methods run in one simulator. The methods of a seed share its partition, its initial model and its "
    "mini-batches, so that effects are differences or log-ratios of paired seeds, with 95 % t-intervals. The order of "
    "a claim is tested in every cell that its sentence names, its size by the mean over the cells for which the paper "
    "prints numbers. Core claims are corrected together by Holm's method. Claims are tested under one reading alone."
)


def handwritten(paper: str) -> dict[str, list[str]]:
    """The hand-written parts: heading -> its paragraphs or items, and "title" -> the paper's title; empty without any.

    Raises:
        ConfigError: a part is missing.
    """
    source = files("workspace") / "papers" / paper / "article.md"
    if not source.is_file():
        return {}
    title, *parts = re.split(r"^##? ", source.read_text(encoding="utf-8"), flags=re.M)[1:]
    sections = {"title": [title.strip()]}
    for part in parts:
        heading, _, text = part.partition("\n")
        items = re.split(r"\n\s*\n|^- ", text, flags=re.M)
        sections[heading.strip()] = [" ".join(item.split()) for item in items if item.strip()]
    for heading in PARTS:
        if not sections.get(heading):
            raise ConfigError(f"workspace/papers/{paper}/article.md: no text under {heading!r}; write some.")
    return sections


def replies(paper: str) -> str:
    """What a paper's authors replied (`workspace/papers/<paper>/reply.md`); empty until they do."""
    reply = files("workspace") / "papers" / paper / "reply.md"
    return reply.read_text(encoding="utf-8") if reply.is_file() else ""


def content(paper: str, evidence: Evidence, ran: str, reply: str = "") -> dict[str, Any]:
    """What the article of a paper says; empty if it has no hand-written parts or no claims in the table.

    ran: how many of its runs there are, by data set. reply: of its authors.
    """
    by_hand = handwritten(paper)
    claims = evidence.summary[evidence.summary["paper"] == paper]
    if not by_hand or claims.empty:
        return {}
    paper_facts = papers()[paper]
    core = list(claims.loc[claims["kind"] == "core", "claim"])
    rates = power.stored().set_index("claim")
    cells = evidence.table[evidence.table["claim"].isin(core) & evidence.table["primary"]]
    by_claim = dict(list(cells.groupby("claim")))
    rates = rates[rates["seeds"] == power.SEEDS[1]]
    tally = evidence.tally(paper)
    return {
        "title": f"[Re] {by_hand['title'][0]}",
        "paper": paper_facts.title,
        "citation": paper_facts.citation,
        "url": paper_facts.url,
        "programs": front.programs(paper),
        "scope": [
            *by_hand["Scope"],
            f"The paper makes {len(core)} core claims (abstract, introduction, conclusion, tables). All are listed "
            "below, also those that could not be run; "
            f"others ({(~claims['kind'].isin(['core', 'control'])).sum()}) stand on the pages of their figures.",
        ],
        "methods": [METHODS, front.MEANINGS.replace("*", ""), _readings(paper), f"Runs: {ran}."],
        "open": left_open(paper).to_dict("records"),
        "counted": ", ".join(f"{n} {outcome}" for outcome, n in tally.items()),
        "claims": [
            {
                "id": claim,
                "text": evidence.text(claim),
                "page": str(by_claim[claim]["artifact"].iloc[0]),
                "outcome": evidence.outcome(claim),
                "said": layout.unmarked(evidence.in_words(claim), evidence.outcome(claim)),
                "quoted": " ".join(
                    f"“{part}”" if k == 0 else f"({part})" for k, part in enumerate(sentence(claim)) if part
                ),
                "rows": _rows(evidence, claim, by_claim[claim]),
                "notes": " ".join(
                    [
                        *_notes(evidence.primary(claim), by_claim[claim]),
                        *_left_open(evidence, claim),
                        *_errors(rates, claim),
                    ]
                ),
            }
            for claim in core
        ],
        "easy": by_hand["What was easy"],
        "hard": by_hand["What was hard"],
        "ask": by_hand["What to ask the authors"],
        "reply": reply or "The authors have not been asked yet. Their reply will stand here.",
    }


def _readings(paper: str) -> str:
    """Which reading is tested and why, and how many others show what depends on the paper's open choices."""
    listed, code, first = readings(paper), papers()[paper].code, primary(paper)
    words = [
        f"The paper leaves choices open. One reading of it is tested, “{first.called}”: {' '.join(first.why)} The "
        f"other {len(listed) - 1} show how an effect depends on these choices; they are neither tested nor counted.",
    ]
    if combined := how_many(paper):
        words.append(combined)
    if commits := list(dict.fromkeys(reading.commit for reading in listed if reading.commit)):
        words.append(f"Some follow a commit of the authors' program: {', '.join(commits)}.")
    elif code:
        words.append(f"The authors' program was read at commit {code[1]}.")
    return " ".join(words)


def _rows(evidence: Evidence, claim: str, cells: pd.DataFrame) -> list[dict[str, Any]]:
    """The effect under the primary reading, and under those that are shown beside it."""
    judged = evidence.primary(claim)
    first = primary(judged["paper"])
    rows = [_row(first.called, judged, cells)] if judged["outcome"] != "not run" else []
    for reading, row in evidence.beside(claim):
        called = first.beside[reading.name]
        label = f"{called}: {row['cell']}" if reading.part else called
        rows.append(_row(label, row, cells.iloc[:0]))
    return rows


def _row(label: str, reading: Mapping[Any, Any], cells: pd.DataFrame) -> dict[str, Any]:
    effect = forest.effect(reading)
    if not math.isfinite(reading["estimate"]) and len(cells):  # one seed has no mean effect
        effect = forest.effect({**reading, "estimate": pooled(cells, "estimate"), "low": math.nan})
    return {
        "reading": label,
        "effect [95 %]": effect,
        "seeds": int(reading["n"]) or int(cells["n"].max() if len(cells) else 0),
        "cells": f"{reading['cells']} of {reading['of']}",
    }


def _notes(judged: Mapping[Any, Any], cells: pd.DataFrame) -> list[str]:
    """Size against print, the ends of a claim's cells, what was not seen, and what would decide what is open."""
    ran = cells[(cells["n"] > 0) & cells["estimate"].notna()]
    notes = []
    if size := forest.size_of(judged):
        margin = f" (the margin: {forest.number(judged['least'])})"
        notes.append(f"{size[0].upper()}{size[1:]}{margin}, without correction.")
    elif judged["margin"] != judged["null"] and math.isfinite(judged["margin"]):
        notes.append(f"Its bound: {forest.number(judged['margin'])} {judged['unit']}.".replace("times", "×"))
    if len(ran) > 1:
        ordered = ran.sort_values("estimate", kind="stable").to_dict("records")
        low, high = ordered[0], ordered[-1]
        ends = f"reach from {forest.effect(low)} ({low['cell']}) to {forest.effect(high)} ({high['cell']})"
        if forest.effect(low) == forest.effect(high):
            ends = f"all have {forest.effect(low)}"
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in ran["outcome"].value_counts().items())
        notes.append(f"Its cells {ends}: {outcomes}.")
    if judged["badge"]:
        notes.append(f"Compared: {judged['badge']}.")
    if judged["outcome"] in words.TESTED:
        ps = ", ".join(
            f"{name} {judged[raw]:.2g} ({judged[adjusted]:.2g} after correction)"
            for name, raw, adjusted in (
                ("p of the claim", "p", "adjusted"), ("of its reverse", "p_reversed", "adjusted_reversed"),
            )
        )  # fmt: skip
        notes.append(f"{ps}.")
    if late := int(ran["late"].sum()):
        notes.append(
            f"{late} runs came later than twice their arm's median: the order is that of a typical run."
        )
    if needed := forest.seeds_of(judged):
        notes.append(f"{needed[0].upper()}{needed[1:]}.")
    return notes


def _left_open(evidence: Evidence, claim: str) -> list[str]:
    """How much the effect depends on what the paper leaves open."""
    levels = evidence.levels[evidence.levels["claim"] == claim]
    spread = forest.spread(levels, str(evidence.primary(claim)["unit"])) if len(levels) else ""
    return [f"{spread}."] if spread else []


def _errors(rates: pd.DataFrame, claim: str) -> list[str]:
    """How often five simulated seeds show the order, if it is true and if one cell has no effect."""
    if claim not in rates.index:
        return []
    rate = rates.loc[claim]
    one_null = f", in {percent(rate['one null'])} if one has none" if math.isfinite(rate["one null"]) else ""
    return [
        f"Simulated with {int(rate['seeds'])} seeds, before correction: the order is shown in {percent(rate['full'])} "
        f"of draws if every cell has its effect{one_null}."
    ]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the site's HTML."""
    return tables.html_of(pd.DataFrame(list(rows)), kind="words")
