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
from workspace.analysis import effects, power
from workspace.analysis.paper import papers
from workspace.analysis.readings import left_open, readings
from workspace.pages import forest, front, layout, tables
from workspace.pages.evidence import Evidence, pooled

PARTS = ("Scope", "What was easy", "What was hard", "What to ask the authors")
METHODS = (
    "All methods run in one simulator. The methods of a seed share its partition, its initial model and its "
    "mini-batches, so that effects are differences or log-ratios of paired seeds, with 95 % t-intervals. A claim's "
    "effect is the mean over its cells, seed by seed; a single cell that is refuted refutes the claim, and a reversed "
    "one keeps it from being replicated. Core claims are corrected together by Holm's method."
)


def handwritten(paper: str) -> dict[str, list[str]]:
    """The hand-written parts: heading -> its paragraphs or items, and "title" -> the paper's title; empty without any.

    Raises:
        ConfigError: a part is missing.
    """
    source = files("workspace") / "papers" / paper / "article.md"
    if not source.is_file():
        return {}
    title, *parts = re.split(r"^##? ", source.read_text(), flags=re.M)[1:]
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
    return reply.read_text() if reply.is_file() else ""


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
    cells, judged = (table[table["claim"].isin(core)] for table in (evidence.table, evidence.claims))
    shares = effects.sensitivity(judged)
    counted = dict(list(effects.counted(judged).groupby("claim")))
    by_claim = dict(list(cells.groupby("claim")))
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
        "methods": [METHODS, front.MEANINGS, _readings(paper), f"Runs: {ran}."],
        "open": left_open(paper).to_dict("records"),
        "counted": ", ".join(f"{n} {outcome}" for outcome, n in tally.items()),
        "claims": [
            {
                "id": claim,
                "text": evidence.text(claim),
                "page": str(by_claim[claim]["artifact"].iloc[0]),
                "outcome": evidence.outcome(claim),
                "said": str(claims.loc[claims["claim"] == claim, "outcome"].iloc[0]),
                "rows": [_row(label, reading, by_claim[claim]) for label, reading in chosen(counted[claim])],
                "notes": " ".join(
                    [
                        *_notes(forest.standing(counted[claim]), by_claim[claim]),
                        *_lost(counted[claim]),
                        *_errors(rates, claim),
                        *_explained(shares[shares["claim"] == claim], len(counted[claim])),
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
    """How many readings there are, how they are named, and which commits of the authors' program they follow."""
    listed, code = readings(paper), papers()[paper].code
    words = [
        f"The paper leaves choices open. {len(listed)} readings fix them; a claim is judged under each that was run."
    ]
    if all(reading.name == "; ".join(reading.choices.values()) for reading in listed):
        words.append(f"A reading is named by its choices, in this order: {'; '.join(listed[0].choices)}.")
    if commits := list(dict.fromkeys(reading.commit for reading in listed if reading.commit)):
        words.append(f"Some follow a commit of the authors' program: {', '.join(commits)}.")
    elif code:
        words.append(f"The authors' program was read at commit {code[1]}.")
    else:
        words.append("No program of the authors is public.")
    return " ".join(words)


def chosen(counted: pd.DataFrame) -> list[tuple[str, Mapping[Any, Any]]]:
    """The readings that are shown, each with its label: all of a few; of many, the lowest, the median and the highest.

    counted: a claim's rows of `effects.counted`.
    """
    ran = counted[counted["outcome"] != "not run"]
    if len(ran) <= forest.MANY:
        return [(str(row["reading"]), row) for row in ran.to_dict("records")]
    able = ran[(ran["outcome"] != "infeasible") & ran["estimate"].notna()].sort_values(
        "estimate", kind="stable"
    )
    if able.empty:
        row = ran.iloc[0].to_dict()
        return [(f"{len(ran)} readings, among them {row['reading']}", row)]
    rows = able.to_dict("records")
    places = {"lowest": 0, f"median of {len(rows)}": (len(rows) - 1) // 2, "highest": len(rows) - 1}
    return [(f"{label}: {rows[k]['reading']}", rows[k]) for label, k in places.items()]


def _row(label: str, reading: Mapping[Any, Any], cells: pd.DataFrame) -> dict[str, Any]:
    judged = f"{reading['cells']} of {reading['of']}"
    effect, mine = forest.effect(reading), cells[cells["reading"] == reading["reading"]]
    if math.isnan(reading["estimate"]):  # one seed has no pooled effect
        alone = {"estimate": pooled(mine, "estimate"), "low": math.nan}
        effect = forest.effect({**reading, **alone})
    return {
        "reading": label,
        "effect [95 %]": effect,
        "seeds": int(reading["n"]) or int(mine["n"].max()),
        "cells": judged,
        "outcome": str(reading["outcome"]),
    }


def _notes(judged: Mapping[Any, Any], cells: pd.DataFrame) -> list[str]:
    """Printed value, margin, the ends of a claim's cells and what keeps it undecided, under the reading that stands."""
    unit = " ×" if judged["unit"] == "times" else f" {judged['unit']}" if judged["unit"] else ""
    mine = cells[cells["reading"] == judged["reading"]]
    ran = mine[(mine["n"] > 0) & mine["estimate"].notna()]
    compared = next(part for part in (ran[ran["n"] > 1], ran, mine) if len(part))
    printed, margin = pooled(compared), forest.number(judged["margin"])
    notes = [] if math.isnan(printed) else [f"Printed, over the same cells: {forest.number(printed)}{unit}."]
    if math.isfinite(judged["margin"]) and margin != forest.number(judged["null"]):
        notes.append(f"Margin: {margin}{unit}.")
    if len(ran) > 1:
        ordered = ran.sort_values("estimate", kind="stable").to_dict("records")
        low, high = ordered[0], ordered[-1]
        ends = f"reach from {forest.effect(low)} ({low['cell']}) to {forest.effect(high)} ({high['cell']})"
        if forest.effect(low) == forest.effect(high):
            ends = f"all have {forest.effect(low)}"
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in ran["outcome"].value_counts().items())
        notes.append(f"Its cells under “{judged['reading']}” {ends}: {outcomes}.")
    if judged["badge"]:
        notes.append(f"Judged on {judged['badge']}.")
    if judged["outcome"] == "undecided":
        notes.append(_undecided(judged))
    return notes


def _undecided(judged: Mapping[Any, Any]) -> str:
    """What keeps a claim undecided under a reading."""
    if judged["p"] < effects.ALPHA:
        return "By itself it would be decided; corrected together with the other core claims it is not."
    if judged["reversed"] and judged["test"] == "more":
        if judged["cells"] == 1:
            return "It lies on the other side of no effect, but not clearly."
        return "Cells on the other side of no effect keep it from being replicated."
    if judged["needed"] > 1000:
        return "Not even 1,000 seeds would decide."
    return (
        f"About {int(judged['needed'])} seeds would decide."
        if judged["needed"] > judged["n"]
        else "More seeds would decide."
    )


def _lost(counted: pd.DataFrame) -> list[str]:
    """The readings, but for the one that stands for all, under which the correction alone leaves a claim undecided."""
    lost = counted[(counted["outcome"] == "undecided") & (counted["p"] < effects.ALPHA)]
    names = [name for name in lost["reading"] if name != forest.standing(counted)["reading"]]
    if not names:
        return []
    where = f"“{names[0]}”" if len(names) == 1 else f"{len(names)} other readings"
    return [f"Under {where} it would be decided by itself, and is not after the correction."]


def _errors(rates: pd.DataFrame, claim: str) -> list[str]:
    """How often five simulated seeds call the claim replicated, if it is true and if there is no difference."""
    if claim not in rates.index:
        return []
    rate = rates.loc[claim]
    true = "" if pd.isna(rate["power"]) else f"in {percent(rate['power'])} of draws if it is true, and "
    no_difference = f"in {percent(rate['false passes'])} of draws if there is no difference"
    words = rate["words"] if isinstance(rate["words"], str) else ""
    weak = " Five seeds cannot decide it." if words.startswith("five") else ""
    return [f"Simulated with five seeds it is called replicated {true}{no_difference}.{weak}"]


def _explained(shares: pd.DataFrame, readings_counted: int) -> list[str]:
    """The choices that explain most of the effect's variance over many readings."""
    large = shares[shares["share"] >= effects.DECIDES].head(3)
    if readings_counted < effects.SEPARATED or large.empty:
        return []
    choices = ", ".join(
        f"{choice} {percent(share)}" for choice, share in zip(large["choice"], large["share"], strict=True)
    )
    return [f"Share of the variance over readings that a choice explains: {choices}."]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as the site's HTML, with outcomes in their colours."""
    frame = pd.DataFrame(list(rows))
    if "outcome" in frame:
        frame["outcome"] = [tables.Markup(layout.mark(outcome)) for outcome in frame["outcome"]]
    return tables.html_of(frame, kind="words")
