"""The text of the site's first page, of README and of the printed report: what was found, from the effects table."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd

from fedlib.data.sources import KINDS
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from workspace.analysis.claim import sentence as quoted
from workspace.analysis.paper import papers
from workspace.analysis.readings import primary, readings
from workspace.pages import forest, layout, tables
from workspace.pages.evidence import Evidence, pooled

SUMMARY = (
    "Papers propose how a server selects the clients that train in a round of federated learning. Each of their "
    "claims is run again with one simulator. A claim is tested under one way of reading the paper, chosen before by "
    "reasons that are given; what the paper leaves open is varied beside it."
)
MEANINGS = (
    "*How to read it.* Which method is better (the order) and by how much (the size) are two questions. "
    "*Holds*: in every setting that the claim names, the 95 % interval over seeds lies on the claimed side; "
    "*holds where run*: in every setting that was run; *shown in part*: in some; *contradicted*: in at least "
    "one it lies on the other side; *not shown*: in none on the claimed one; *open*: there are no runs, or too few. "
    "Numbers count comparisons: a data set, a partition, a share of clients, and the method that is compared "
    "with. A paper's main claims are corrected together (Holm's method); *not after correction*: each setting "
    "shows it when taken alone, but the correction takes it back. *As large as printed*: the interval of the mean over "
    "the settings lies above at least half of the effect that the paper prints for them; *smaller than "
    "printed*: below it. ≥: the effect may be larger, as runs ended before they reached the target."
)


def title(data: str) -> str:
    """A data set's name in texts."""
    return KINDS[data].title if data in KINDS else data


def planned_and_finished(
    settings: Experiments, experiment: str, scale: Scale, info: Mapping[str, Any]
) -> tuple[dict[str, str], set[str]]:
    """An experiment's planned runs with their data sets, and those that are finished. info: the record of its runs."""
    labelled = {
        (plan.setting, plan.method, plan.run.seed): plan.run for plan in settings.runs(experiment, scale)
    }
    labels = {
        (run.get("setting", ""), run.get("method", ""), run.get("seed")) for run in info.get("runs", [])
    }
    planned = {run.model_dump_json(): run.dataset for run in labelled.values()}
    return planned, {run.model_dump_json() for label, run in labelled.items() if label in labels}


def runs_by_data(planned: Mapping[str, str], finished: Iterable[str]) -> str:
    """How many runs there are, dataset by dataset: "Fashion-MNIST 305 of 305 runs, CIFAR-10 none of 300 runs".

    planned: run -> its dataset. finished: the runs that are.
    """
    finished_runs = set(finished)
    texts = []
    for data in dict.fromkeys(planned.values()):
        mine = [run for run, dataset in planned.items() if dataset == data]
        n = len(finished_runs.intersection(mine))
        texts.append(f"{title(data)} {f'{n:,}' if n else 'none'} of {len(mine):,}")
    return ", ".join(texts)


def sentence(data: str, row: Mapping[str, Any], cells: pd.DataFrame) -> str:
    """What a claim comes to on one data set, in words: effects with intervals, seeds, and what is printed for them.

    row: of `effects.by_data`. cells: of `effects.table` on this data set, under the primary reading.
    """
    where = f"{data}: " if data else ""
    ran = cells[~cells["outcome"].isin(["not run", "infeasible"])]
    if row["outcome"] in ("not run", "infeasible"):
        return f"{where}{row['outcome']}"
    if 1 < len(ran) <= FEW:
        each = ", ".join(f"{forest.effect(cell)} ({cell['cell']})" for cell in ran.to_dict("records"))
        return f"{where}{each}; {seeds(int(ran['n'].max()))}{printed_words(ran)}"
    effect, n = effect_and_seeds(row, ran)
    several = "on average " if len(ran) > 1 else ""
    return f"{where}{several}{effect}, {seeds(n)}{printed_words(ran)}"


FEW = 2  # cells that are told one by one, not by their mean


def seeds(n: int) -> str:
    return f"{n} seeds" if n != 1 else "one seed"


def printed_words(ran: pd.DataFrame) -> str:
    """What the paper prints for the cells that were run: their mean; "" if it prints nothing."""
    several = ran[ran["n"] > 1]
    printed = pooled(several if len(several) else ran)
    return "" if math.isnan(printed) else f" (printed: {forest.number(printed)})"


def effect_and_seeds(row: Mapping[str, Any], cells: pd.DataFrame) -> tuple[str, int]:
    """The mean effect in words, and its seeds; one seed has no interval, and its effect is in the cells."""
    if math.isfinite(row["estimate"]):
        return forest.effect(row), row["n"]
    alone = pooled(cells, "estimate")
    return forest.effect({**row, "estimate": alone, "low": math.nan}), int(
        cells["n"].max() if len(cells) else 0
    )


def finding(evidence: Evidence, claim: str) -> str:
    """A claim and what it comes to, as one sentence."""
    row = evidence.primary(claim)
    mean = forest.mean_of(row)
    effect = f" {mean[:1].upper()}{mean[1:]}, {seeds(row['n'])}." if math.isfinite(row["estimate"]) else ""
    return f"{evidence.text(claim).rstrip('.')}: {evidence.in_words(claim)}.{effect}"


def beside(evidence: Evidence, claim: str, names: Collection[str] = ()) -> list[str]:
    """What a claim's mean effect is under the readings that are shown beside the primary one, in words.

    names: of these readings; by default all.
    """
    texts = []
    for reading, row in evidence.beside(claim):
        if names and reading.name not in names:
            continue
        first = primary(row["paper"])
        words = reading.words if reading.part else f"read otherwise ({reading.words})"
        words = first.beside[reading.name] if reading.name in first.control[1:] else words
        part = f" over {row['cells']} of {row['of']} settings" if row["cells"] < row["of"] else ""
        part = f" ({row['cell']})" if reading.part else part
        texts.append(f"{words}: {forest.mean_of(row)}, {seeds(row['n'])}{part}")
    return texts


def programs(name: str) -> list[tuple[str, str]]:
    """The commits of a paper's program that are followed here, by its readings or as a whole: address and commit."""
    code = papers()[name].code
    if not code:
        return []
    commits = dict.fromkeys(reading.commit for reading in readings(name) if reading.commit)
    return [(f"{code[0]}/tree/{commit}", commit) for commit in commits or [code[1]]]


def grid(evidence: Evidence) -> pd.DataFrame:
    """The papers' main claims: a row per paper and data set with its effect, and what the claim comes to as a whole."""
    rows = []
    for row in evidence.outcomes.to_dict("records"):
        cells = evidence.table[
            (evidence.table["claim"] == row["claim"])
            & evidence.table["primary"]
            & (evidence.table["data"] == row["data"])
        ]
        effect, n = effect_and_seeds(row, cells)
        mark = tables.Markup(layout.mark(evidence.outcome(row["claim"])))
        rows.append(
            (papers()[row["paper"]].title, row["data"], effect, n, printed_words(cells).strip(" ()"), mark)
        )
    columns = ["paper", "data", "effect", "seeds", "printed", "claim as a whole"]
    return pd.DataFrame(rows, columns=columns)


def plain(table: pd.DataFrame) -> list[list[str]]:
    """A table as text, its head first."""
    marked = [
        [value.html if isinstance(value, tables.Markup) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    return [list(table.columns), *([re.sub("<[^>]+>", "", value) for value in row] for row in marked)]


def listed(parts: Iterable[str]) -> str:
    """ "a, b and c" """
    *leading, last = parts
    return f"{', '.join(leading)} and {last}" if leading else last


def story(evidence: Evidence, ran: Mapping[str, str]) -> list[dict[str, Any]]:
    """Paper by paper: what its main claim comes to on each data set, and how many core claims have each outcome.

    ran: paper -> how many of its runs there are, by dataset.
    """
    stories = []
    for section, paper in papers().items():
        card = {
            "section": section,
            "title": paper.title,
            "citation": paper.citation,
            "url": paper.url,
            "programs": programs(section),
            "ran": ran.get(section, ""),
        }
        mine = evidence.outcomes[evidence.outcomes["paper"] == section]
        if mine.empty:
            empty = dict.fromkeys(("claim", "said", "place", "measured", "page"), "")
            stories.append(card | empty | {"sentences": [], "outcome": "", "tally": {}})
            continue
        name = str(mine["claim"].iloc[0])
        cells = evidence.table[(evidence.table["claim"] == name) & evidence.table["primary"]]
        by_data = [
            sentence(str(row["data"]), row, cells[cells["data"] == row["data"]])
            for row in mine.to_dict("records")
            if row["outcome"] != "not run"
        ]
        if lacking := [str(data) for data in mine.loc[mine["outcome"] == "not run", "data"]]:
            by_data.append(f"{listed(lacking)}: not run")
        quote, place = quoted(name)
        outcome = evidence.outcome(name)
        texts = {
            "sentences": [
                evidence.in_words(name),
                *by_data,
                *beside(evidence, name),
                *control(evidence, section),
            ],
            "outcome": outcome,
            "tally": evidence.tally(section),
            "claim": evidence.text(name),
            "said": quote,
            "place": place,
            "measured": paper.measured,
            "page": mine["artifact"].iloc[0],
        }
        stories.append(card | texts)
    return stories


def control(evidence: Evidence, paper: str) -> list[str]:
    """The claim that is said in the same breath as a paper's main one, under its primary reading and the control."""
    control = primary(paper).control
    if not control or evidence.claims[evidence.claims["claim"] == control[0]].empty:
        return []
    claim = control[0]
    row = evidence.primary(claim)
    if not math.isfinite(row["estimate"]):
        return []
    printed = "" if math.isnan(row["printed"]) else f" (printed: {forest.number(row['printed'])})"
    main = f"{evidence.text(claim).rstrip('.')}: {evidence.in_words(claim)}, {forest.mean_of(row)}{printed}"
    return ["; ".join([main, *beside(evidence, claim, control[1:2])])]
