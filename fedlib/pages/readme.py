"""README's results: the scoreboard and the papers' headline tables, written from the archive between two marks.

Every number is decided or counted over archived runs that are still valid, as the pages do it, each under the name of
its scale; a row without any says what it would take.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.analysis.claims import ONE_SEED, Missing, Runs, claims
from fedlib.analysis.headline import DRAWS, Closest, Headline, Row, closest, headlines
from fedlib.analysis.headline import table as in_readings
from fedlib.analysis.judging import totals, verdicts
from fedlib.analysis.paper import papers
from fedlib.analysis.readings import AS_RUN, AS_WRITTEN, CLOSEST, Reading, named, readings
from fedlib.analysis.verdict import STATUSES
from fedlib.data.sources import DataError
from fedlib.files import Unfinished, write_whole
from fedlib.runs import archive as archives
from fedlib.runs.results import open_results, simulate
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, ConfigError, Scale

README = ROOT / "README.md"
START, END = "<!-- results: written by `fedlib readme` -->", "<!-- end of results -->"
SCALES: tuple[Scale, ...] = ("paper", "cpu")  # demo's digits say nothing about the papers
DATA = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini_imagenet": "Mini-ImageNet, which only a mirror can give (`data/README.md`)",
    "digits": "scikit-learn's digits",
}


@dataclass(frozen=True)
class Archived:
    """What is archived at one scale and still valid: tables of results, and what made them."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)


def archived(scale: Scale, settings: Experiments, root: Path = archives.ARCHIVE) -> Archived:
    """Open all that is archived at a scale, gathered as for the pages, without what is in the store.

    Raises:
        StoreError: a damaged archive.
    """
    from fedlib.analysis.studies import run_study
    from fedlib.runs.place import Place

    found = Archived()
    with tempfile.TemporaryDirectory() as folder:
        nowhere = Place(runs=Path(folder, "runs"), datasets=Path(folder, "datasets"))
        results = Path(folder, "results")
        shared = {"experiments": settings, "place": nowhere, "results": results, "archive": root}
        for name in [*settings.names, *settings.studies]:
            make = run_study if name in settings.studies else simulate
            try:
                make(name, scale, tell=lambda line: None, only_finished=True, **shared)
                found.tables[name], found.info[name] = open_results(name, scale, results)
            except (Unfinished, DataError):  # nothing of it, or its settings have changed since
                continue
    return found


def block(settings: Experiments, root: Path = archives.ARCHIVE) -> str:
    """The part of README between the marks, as Markdown."""
    found = {scale: archived(scale, settings, root) for scale in SCALES}
    there = [scale for scale in SCALES if any((root / scale).glob("*.parquet"))] or list(SCALES[:1])
    every = [claim for paper in papers() for claim in claims(paper)]
    judged = {scale: verdicts(every, found[scale].tables) for scale in there}
    return "\n\n".join(
        [
            "## Results",
            *(part for scale in there for part in scoreboard(scale, judged[scale], found[scale], settings)),
            *elsewhere(judged),
            "Claims are judged over what was run, data set by data set. Which claims, and why not: `fedlib report "
            f"--scale {there[0]}` makes every page from the archive in `data/archive/`, training nothing; beside "
            "a page that lacks runs stands the same one at scale cpu.",
            "### Headline tables",
            "Rounds to a test accuracy: the printed row, and one row a reading, on the same seeds: median (lowest to "
            "highest); mean ± standard deviation. Where seeds miss the target, those that arrive are listed. *As "
            "written*: the paper's text; *as run*: what the authors' program does.",
            *(
                line
                for paper, one in headlines().items()
                if one.rows
                for line in headline(paper, one, found, settings)
            ),
        ]
    )


def scoreboard(scale: Scale, judged: pd.DataFrame, found: Archived, settings: Experiments) -> list[str]:
    """What became of every claim at a scale, by paper, and what it was decided over."""
    board, alone = totals(judged), int(judged["detail"].str.contains(ONE_SEED, regex=False).sum())
    rows = [
        [papers()[paper].title if paper in papers() else "all", *(str(n) for n in counts)]
        for paper, counts in zip(board.index, board.to_numpy(), strict=True)
    ]
    known = {run["address"]: run for info in found.info.values() for run in info["runs"] if "run" in run}
    runs = list(known.values())  # each once, whichever experiments show it
    planned = len(
        {one.run.model_dump_json() for name in settings.names for one in settings.runs(name, scale)}
    )
    text = f"Scale **{scale}**: {len(runs):,} of {planned:,} planned runs are archived"
    if runs:
        devices = ", ".join(sorted({run["device"] for run in runs}))
        dates = sorted(run["date"][:10] for run in runs)
        made = [one["data"] for info in found.info.values() for one in info["runs"]]  # studies' units as well
        data = "; ".join(sorted({source["provenance"] for source in made if source["name"] != "synthetic"}))
        when = f"from {dates[0]} to {dates[-1]}" if dates[0] < dates[-1] else f"on {dates[0]}"
        text += f", trained {when}, device {devices}. Data: {data}"
    lines = [text + ". Claims that need no training are decided by the algorithms alone."]
    settled = int((judged["strength"] == "settled").sum())
    ran = int(judged["strength"].isin(["settled", "indicated"]).sum())
    notes = [
        f"Of the {ran} verdicts as written that rest on runs, {settled} are settled (each of at least three seeds "
        f"gives the verdict by itself), the others indicated; {alone} rest, wholly or in part, on one seed."
    ]
    return [*lines, markdown(["paper", *board.columns], rows, right=len(board.columns)), *notes]


def elsewhere(judged: Mapping[Scale, pd.DataFrame]) -> list[str]:
    """What the claims that are not run at one scale are at the next."""
    lines = []
    for scale, other in pairwise(judged):
        absent = judged[scale].loc[judged[scale]["verdict"] == "not run", "id"]
        counts = judged[other].set_index("id").loc[absent, "verdict"].value_counts()
        listed = ", ".join(f"{counts[status]} {status}" for status in STATUSES if status in counts)
        if listed:
            lines.append(f"Of the {len(absent)} claims not run at scale {scale}, at scale {other}: {listed}.")
    return lines


def headline(
    paper: str, table: Headline, found: Mapping[Scale, Archived], settings: Experiments
) -> list[str]:
    """A paper's table: for each setting the printed row and one row a reading, at the first scale that has runs of it.

    Below it, how the reading closest to print was found.
    """
    methods = list(dict.fromkeys(method for row in table.rows for method in row.methods))
    runs = {scale: Runs(found[scale].tables) for scale in SCALES}
    try:
        near = closest(table, readings(paper), runs[SCALES[0]])
    except Missing:
        near = None
    shown = [*named(paper), *([near.reading] if near and near.reading not in named(paper) else [])]
    out = []
    for row in table.rows:
        scale, cells = next(
            (
                (scale, cells)
                for scale in SCALES
                if len(cells := table_of(table, row, shown, runs[scale])) > 1
            ),
            (None, None),
        )
        printed = ["printed" if scale else takes(row, settings), *(row.shown.get(m, "") for m in methods)]
        out.append([row.name, *printed])
        for name, line in {} if cells is None else cells.iloc[1:].iterrows():
            reading = CLOSEST if near and name == near.reading.name not in (AS_WRITTEN, AS_RUN) else name
            seeds = f"{line['seeds']} seed{'s' * (line['seeds'] != '1')}"
            about = f"{reading}, scale {scale}, {seeds}"
            out.append(["", about, *(line.get(m, "") for m in methods)])
    return [
        f"**{table.title}**: {table.words}",
        markdown(["", "reading", *methods], out, right=len(methods)),
        *([nearest(near)] if near else []),
    ]


def table_of(table: Headline, row: Row, shown: Sequence[Reading], runs: Runs) -> pd.DataFrame:
    """One row's part of `headline.table`, by reading."""
    return in_readings(replace(table, rows=(row,)), shown, runs).droplevel("setting")


def nearest(near: Closest) -> str:
    """In words: the reading closest to print, how many were looked at, and how close luck comes."""
    what = "; ".join(f"{key}: {value}" for key, value in near.reading.choices.items())
    if near.looked_at == 1:
        return (
            f"Distance to the print (mean of |log2(ours / printed)| over {near.cells} cells): {near.distance:.2f} as "
            "written, the one reading that has runs of all of them."
        )
    which = "is the one as written" if near.reading.name == AS_WRITTEN else f"({what or near.reading.words})"
    return (
        f"*Closest to print* {which}, found after the fact among {near.looked_at} archived readings ({near.skipped} "
        f"more lack runs) by the mean of |log2(ours / printed)| over {near.cells} cells: {near.distance:.2f}, as "
        f"written {near.written:.2f}. The best of as many readings comes to {near.by_luck:.2f} by luck (each cell's "
        f"values dealt at random to the readings; as close in {100 * near.p:.1f} % of {DRAWS:,} draws). It never "
        "counts as held."
    )


def takes(row: Row, settings: Experiments) -> str:
    """What a row that has not been run would take at scale paper."""
    from fedlib.runs.cost import local_steps, shortest

    runs = [
        one.run
        for one in settings.runs(row.experiment, "paper")
        if one.setting == row.setting and one.method in row.methods
    ]
    if not runs:
        return "*not run*: not planned at scale paper"
    least = shortest(runs[0]).T
    rounds = f"{least:,} to {runs[0].T:,}" if least < runs[0].T else f"{least:,}"
    steps = sum(shortest(run).T * run.m * local_steps(run) for run in runs)
    return (
        f"*not run*: takes {DATA[runs[0].dataset]}; {len(runs)} runs of {rounds} rounds, "
        f"{steps / 1e6:,.0f} million local steps or more"
    )


def markdown(columns: list[str], rows: list[list[str]], right: int) -> str:
    """A Markdown table, its last `right` columns set to the right."""
    align = ["---"] * (len(columns) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, align, *rows))


def write(path: Path = README, root: Path = archives.ARCHIVE) -> bool:
    """Bring README's results up to date with the archive; True if that changed it.

    Raises:
        ConfigError: the marks are gone. StoreError: a damaged archive.
    """
    return replace_between(path, START, END, block(params.load(), root))


def replace_between(path: Path, start: str, end: str, text: str) -> bool:
    """Replace what stands between two marks of a file; True if that changed it.

    Raises:
        ConfigError: the marks are gone.
    """
    old = path.read_text()
    if start not in old or end not in old:
        raise ConfigError(f"{path.name} has lost its marks; put {start!r} and {end!r} back.")
    new = f"{old.split(start)[0]}{start}\n\n{text}\n\n{end}{old.split(end)[1]}"
    if new != old:
        write_whole(path, new.encode())
    return new != old
