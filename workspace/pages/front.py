"""The text of the site's first page, of README and of the printed report: what was found, from the effects table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from workspace.analysis import effects
from workspace.analysis.paper import papers
from workspace.analysis.readings import readings
from workspace.pages import forest, layout, tables
from workspace.pages.evidence import Evidence, over_readings, pooled

SUMMARY = (
    "Four papers propose how a server selects the clients that train in a round of federated learning. Each of their "
    "claims is run again with one simulator, and judged by an effect with its interval under every reading that the "
    "paper allows."
)
MEANINGS = (
    "Replicated: the 95 % interval over seeds excludes no effect, in the paper's direction, and does not exclude the "
    "claimed size. Refuted: it excludes that size, or lies on the other side. Undecided: neither. One seed decides "
    "nothing. ≥: the effect may be larger, as runs ended before they reached the target."
)
DATA = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini_imagenet": "Mini-ImageNet",
    "digits": "scikit-learn's digits",
}


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
        texts.append(f"{DATA.get(data, data)} {f'{n:,}' if n else 'none'} of {len(mine):,}")
    return ", ".join(texts)


def readings_said(judged: pd.DataFrame) -> str:
    """A claim's outcomes over its readings, in words (`effects.in_words`)."""
    counts = judged["outcome"].value_counts()
    return effects.in_words({name: int(counts.get(name, 0)) for name in effects.OUTCOMES})


def sentence(data: str, rows: pd.DataFrame, cells: pd.DataFrame) -> str:
    """What a claim comes to on one data set, in words: effect, interval, seeds, printed value, outcome over readings.

    rows: of `effects.by_data`. cells: of `effects.table`, on this data set.
    """
    where, outcomes = f"{data}: " if data else "", readings_said(rows)
    reading, printed = forest.standing(rows), pooled(cells)
    if reading["outcome"] in ("not run", "infeasible"):
        return f"{where}{outcomes}"
    effect, n = effect_and_seeds(reading, cells)
    reading_words = f" ({reading['which']})" if n > 1 and len(rows) > 1 else ""
    effect, seeds = f"{effect}{reading_words}", f"{n} seeds" if n > 1 else "one seed"
    printed_words = "" if math.isnan(printed) else f", printed {forest.number(printed)}"
    outcome = "" if outcomes == seeds else f"; {outcomes}"
    return f"{where}{effect}, {seeds}{printed_words}{outcome}"


def effect_and_seeds(row: Mapping[str, Any], cells: pd.DataFrame) -> tuple[str, int]:
    """The effect under a reading in words, and its seeds; one seed has no interval, and its effect is in the cells."""
    if row["outcome"] != "one seed" or math.isfinite(row["estimate"]):
        return forest.effect(row), row["n"]
    alone = pooled(cells[cells["reading"] == row["reading"]], "estimate")
    return forest.effect({**row, "estimate": alone, "low": math.nan}), 1


def finding(evidence: Evidence, claim: str) -> str:
    """A claim and what it comes to over all data sets, as one sentence."""
    cells, judged = (table[table["claim"] == claim] for table in (evidence.table, evidence.claims))
    return f"{evidence.text(claim).rstrip('.')}: {sentence('', effects.counted(judged), cells)}."


def programs(name: str) -> list[tuple[str, str]]:
    """The commits of a paper's program that are followed here, by its readings or as a whole: address and commit."""
    code = papers()[name].code
    if not code:
        return []
    commits = dict.fromkeys(reading.commit for reading in readings(name) if reading.commit)
    return [(f"{code[0]}/tree/{commit}", commit) for commit in commits or [code[1]]]


def grid(evidence: Evidence) -> pd.DataFrame:
    """The outcomes of the papers' main claims: a row per paper, data set and reading; of many readings, one row."""
    rows = []
    for paper, judged in evidence.outcomes.groupby("paper", sort=False):
        title = papers()[str(paper)].title
        cells = evidence.table[evidence.table["claim"] == judged["claim"].iloc[0]]
        for data, several in judged.groupby("data", sort=False):
            if len(several) > forest.MANY:
                reading, counted = forest.standing(several), tables.Markup(readings_said(several))
                rows.append((title, data, reading["which"], forest.effect(reading), reading["n"], counted))
                continue
            for row in several.to_dict("records"):
                mark = tables.Markup(layout.mark(row["outcome"]))
                effect, n = effect_and_seeds(row, cells[cells["data"] == data])
                rows.append((title, data, row["reading"], effect, n, mark))
    return pd.DataFrame(rows, columns=["paper", "data", "reading", "effect", "seeds", "outcome"])


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
            stories.append(card | {"claim": "", "page": "", "sentences": [], "outcomes": [], "tally": {}})
            continue
        name = mine["claim"].iloc[0]
        cells = evidence.table[evidence.table["claim"] == name]
        by_data = dict(list(mine.groupby("data", sort=False)))
        outcomes = {data: over_readings(rows) for data, rows in by_data.items()}
        sentences = {
            data: sentence(str(data), rows, cells[cells["data"] == data])
            for data, rows in by_data.items()
            if outcomes[data] != "not run"
        }
        if lacking := [str(data) for data, outcome in outcomes.items() if outcome == "not run"]:
            sentences["not run"], outcomes["not run"] = f"{listed(lacking)}: not run", "not run"
        texts = {"sentences": list(sentences.values()), "outcomes": [outcomes[data] for data in sentences]}
        texts["tally"] = evidence.tally(section)
        stories.append(card | texts | {"claim": evidence.text(name), "page": mine["artifact"].iloc[0]})
    return stories
