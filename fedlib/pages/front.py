"""The text of the site's first page, of README and of the printed report: what was found, from the effects table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from fedlib.analysis import effects
from fedlib.analysis.paper import papers
from fedlib.pages import forest, layout, tables
from fedlib.pages.evidence import Evidence, pooled

SUMMARY = (
    "Four papers propose how a server selects the clients that train in a round of federated learning. Each of their "
    "claims is run again with one simulator, and judged by an effect with its interval under every reading that the "
    "paper allows."
)
MEANINGS = (
    "Replicated: the 95 % interval over seeds excludes no effect, in the paper's direction, and does not exclude the "
    "claimed size. Refuted: it excludes that size, or lies on the other side. Undecided: neither. One seed decides "
    "nothing."
)
DATA = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini_imagenet": "Mini-ImageNet",
    "digits": "scikit-learn's digits",
}


def runs_by_data(planned: Mapping[str, str], there: Iterable[str]) -> str:
    """How many runs there are, dataset by dataset: "Fashion-MNIST 305 of 305 runs, CIFAR-10 none of 300 runs".

    planned: run -> its dataset. there: the runs that are finished.
    """
    done = set(there)
    texts = []
    for data in dict.fromkeys(planned.values()):
        mine = [run for run, of in planned.items() if of == data]
        n = len(done.intersection(mine))
        texts.append(f"{DATA.get(data, data)} {f'{n:,}' if n else 'none'} of {len(mine):,}")
    return ", ".join(texts)


def readings_said(judged: pd.DataFrame) -> str:
    """A claim's outcomes over its readings, in words (`effects.told`)."""
    counts = judged["outcome"].value_counts()
    return effects.told({name: int(counts.get(name, 0)) for name in effects.OUTCOMES})


def sentence(paper: str, data: str, rows: pd.DataFrame, cells: pd.DataFrame) -> str:
    """What a claim comes to on one data set, in words: effect, interval, seeds, the printed value, the outcome.

    rows: one per reading. cells: of `effects.table`, on this data set.
    """
    where = f"{paper} on {data}" if data else paper
    ran = rows[rows["outcome"] != "not run"]
    if ran.empty:
        return f"{where}: not run."
    one, printed = forest.standing(ran), pooled(cells)
    n, unit = int(one["n"]), one["unit"]
    seeds = f"{n} seed{'s' * (n != 1)}"
    unit = " ×" if unit == "times" else f" {unit}"
    print_said = "" if math.isnan(printed) else f" Printed: {forest.number(printed)}{unit}."
    if math.isnan(one["estimate"]):  # one seed has no pooled effect
        alone = forest.number(pooled(cells[cells["reading"] == one["reading"]], "estimate"))
        return f"{where}: {alone}{unit}, {one['outcome']}, which decides nothing.{print_said}"
    if len(ran) > forest.MANY:
        low, high = forest.number(ran["estimate"].min()), forest.number(ran["estimate"].max())
        over = f"{forest.effect(one)} in the median of {len(ran)} readings ({seeds}), from {low} to {high}"
        return f"{where}: {over}; {readings_said(ran)}.{print_said}"
    said = "; ".join(
        f"{row['reading']} {forest.effect(row)}, {row['outcome']}" for row in ran.to_dict("records")
    )
    return f"{where}: {said} ({seeds}).{print_said}"


def grid(outcomes: pd.DataFrame) -> pd.DataFrame:
    """The outcomes of the papers' main claims: a row per paper, data set and reading; of many readings, one row.

    outcomes: `evidence.by_data`.
    """
    rows = []
    for paper, judged in outcomes.groupby("paper", sort=False):
        title = papers()[str(paper)].title
        for data, readings in judged.groupby("data", sort=False):
            if len(readings) > forest.MANY:
                one, name = forest.standing(readings), f"{len(readings)} readings, the median"
                counted = tables.Markup(readings_said(readings))
                rows.append((title, data, name, forest.effect(one), one["n"], counted))
                continue
            for row in readings.to_dict("records"):
                mark = tables.Markup(layout.mark(row["outcome"]))
                rows.append((title, data, row["reading"], forest.effect(row), row["n"], mark))
    return pd.DataFrame(rows, columns=["paper", "data", "reading", "effect", "seeds", "outcome"])


def story(evidence: Evidence, ran: Mapping[str, str]) -> list[dict[str, Any]]:
    """Paper by paper: what its main claim comes to on each data set, and how many core claims have each outcome.

    ran: paper -> how many of its runs there are, by dataset.
    """
    out = []
    for section, paper in papers().items():
        about = {
            "section": section,
            "title": paper.title,
            "citation": paper.citation,
            "url": paper.url,
            "code": list(paper.code),
            "ran": ran.get(section, ""),
        }
        mine = evidence.outcomes[evidence.outcomes["paper"] == section]
        if mine.empty:
            out.append(about | {"claim": "", "page": "", "sentences": [], "tally": {}})
            continue
        name = mine["claim"].iloc[0]
        cells = evidence.table[evidence.table["claim"] == name]
        sentences = [
            sentence(paper.title, str(data), rows, cells[cells["data"] == data])
            for data, rows in mine.groupby("data", sort=False)
        ]
        found = {"sentences": sentences, "tally": evidence.tally(section)}
        out.append(about | found | {"claim": evidence.text(name), "page": mine["artifact"].iloc[0]})
    return out
