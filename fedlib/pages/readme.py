"""README's results: the scoreboard and the papers' headline tables, written from the archive between two marks.

Every number is computed from archived runs that are still valid, as on the pages, under the name of its scale. A row
without runs says what it would take to run it.
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
from fedlib.analysis.headline import ALL, DRAWS, Closest, Headline, Row, closest, headlines
from fedlib.analysis.headline import table as in_readings
from fedlib.analysis.judging import INFORMATIVE, totals, verdicts
from fedlib.analysis.paper import papers
from fedlib.analysis.readings import AS_RUN, AS_WRITTEN, CLOSEST, Reading, named, readings
from fedlib.analysis.verdict import STATUSES
from fedlib.errors import ConfigError, DataError, Unfinished
from fedlib.files import write_whole
from fedlib.pages import front
from fedlib.runs import archive as archives
from fedlib.runs.results import open_results
from fedlib.runs.simulate import simulate
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale

README = ROOT / "README.md"
START, END = "<!-- results: written by `fedlib readme` -->", "<!-- end of results -->"
SCALES: tuple[Scale, ...] = ("paper", "cpu")  # demo's digits say nothing about the papers
DATA = front.DATA | {"mini_imagenet": "Mini-ImageNet, which only a mirror can give (`data/README.md`)"}


@dataclass(frozen=True)
class Archived:
    """The archived, still valid results of one scale: tables and their records."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)


def archived(scale: Scale, settings: Experiments, root: Path = archives.ARCHIVE) -> Archived:
    """Open all archived results of a scale, gathered as for the pages, without those in the store.

    Raises:
        StoreError: a damaged archive.
    """
    from fedlib.analysis.plans import plan
    from fedlib.runs.place import Place

    found = Archived()
    with tempfile.TemporaryDirectory() as folder:
        nowhere = Place(runs=Path(folder, "runs"), datasets=Path(folder, "datasets"))
        results = Path(folder, "results")
        for name in [*settings.names, *settings.studies]:
            try:
                simulate(
                    plan(name, scale, settings),
                    place=nowhere,
                    results=results,
                    archive=root,
                    tell=lambda line: None,
                    only_finished=True,
                )
                found.tables[name], found.info[name] = open_results(name, scale, results)
            except (Unfinished, DataError):  # nothing is archived, or its settings have changed since
                continue
    return found


def block(settings: Experiments, root: Path = archives.ARCHIVE) -> str:
    """The text of README between the marks, as Markdown."""
    found = {scale: archived(scale, settings, root) for scale in SCALES}
    there = [scale for scale in SCALES if any((root / scale).glob("*.parquet"))] or list(SCALES[:1])
    every = [claim for paper in papers() for claim in claims(paper)]
    judged = {scale: verdicts(every, found[scale].tables) for scale in there}
    return "\n\n".join(
        [
            "## Results",
            *(part for scale in there for part in scoreboard(scale, judged[scale], found[scale], settings)),
            *elsewhere(judged),
            "Claims are judged on the runs that exist, dataset by dataset. To see every claim and the reason for its "
            f"verdict, run `fedlib report --scale {there[0]}`: it makes every page from the archive in "
            "`data/archive/`, without training. If a page lacks runs, the site also has the same page at scale cpu.",
            "### Headline tables",
            "Rounds to a test accuracy: the printed row and one row per reading, on the same seeds. A cell has the "
            "median (lowest to highest) and the mean ± standard deviation; if some seeds miss the target, it lists "
            "those that arrive. If a reading has more seeds than all compared cells share, a second row has all of "
            "them (n: number of seeds). *As written* follows the paper's text, *as run* follows the authors' program.",
            *(
                line
                for paper, one in headlines().items()
                if one.rows
                for line in headline(paper, one, found, settings)
            ),
        ]
    )


def scoreboard(scale: Scale, judged: pd.DataFrame, found: Archived, settings: Experiments) -> list[str]:
    """The verdicts at a scale by paper, and the runs that they are based on."""
    board, mine = totals(judged), judged[judged["headline"] != INFORMATIVE]
    alone = int(mine["detail"].str.contains(ONE_SEED, regex=False).sum())
    rows = [
        [papers()[paper].title if paper in papers() else "all", *(str(n) for n in counts)]
        for paper, counts in zip(board.index, board.to_numpy(), strict=True)
    ]
    known = {run["address"]: run for info in found.info.values() for run in info["runs"] if "run" in run}
    runs = list(known.values())  # each once, even if several experiments show it
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
        f"gives the verdict by itself) and the others are indicated; {alone} rest, wholly or in part, on one seed."
    ]
    return [*lines, markdown(["paper", *board.columns], rows, right=len(board.columns)), *notes]


def elsewhere(judged: Mapping[Scale, pd.DataFrame]) -> list[str]:
    """The verdicts at the next scale of the claims that are not run at one scale."""
    lines = []
    for scale, other in pairwise(judged):
        mine = judged[scale][judged[scale]["headline"] != INFORMATIVE]
        absent = mine.loc[mine["verdict"] == "not run", "id"]
        counts = judged[other].set_index("id").loc[absent, "verdict"].value_counts()
        listed = ", ".join(f"{counts[status]} {status}" for status in STATUSES if status in counts)
        if listed:
            lines.append(f"Of the {len(absent)} claims not run at scale {scale}, at scale {other}: {listed}.")
    return lines


def headline(
    paper: str, table: Headline, found: Mapping[Scale, Archived], settings: Experiments
) -> list[str]:
    """A paper's table: for each setting the printed row and one row per reading, at the first scale with runs.

    The last line says how the reading closest to print was found.
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
            one = name.removesuffix(ALL)
            near_by = near and one == near.reading.name not in (AS_WRITTEN, AS_RUN)
            reading = f"{CLOSEST}{name[len(one) :]}" if near_by else name
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
    """In words: the reading closest to print, how many readings were compared, and how close chance comes."""
    what = "; ".join(f"{key}: {value}" for key, value in near.reading.choices.items())
    if near.looked_at == 1:
        return (
            f"Distance to print (mean of |log2(ours / printed)| over {near.cells} cells): {near.distance:.2f} as "
            "written, the only reading that has runs of all of them."
        )
    as_written = (
        f"; that of the reading as written is {near.written:.2f}" if near.written == near.written else ""
    )
    which = "the reading as written" if near.reading.name == AS_WRITTEN else what or near.reading.words
    return (
        f"*Closest to print* ({which}) was found after the fact among {near.looked_at} archived readings "
        f"({near.skipped} more lack runs). Its distance to print, the mean of |log2(ours / printed)| over {near.cells} "
        f"cells, is {near.distance:.2f}{as_written}. By chance alone (each "
        f"cell's values dealt at random to the readings), the best of as many readings comes to {near.by_luck:.2f} "
        f"and is as close in {100 * near.p:.1f} % of {DRAWS:,} draws. This reading never counts as held."
    )


def takes(row: Row, settings: Experiments) -> str:
    """What it would take to run a row at scale paper."""
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
        f"*not run*: needs {DATA[runs[0].dataset]}; {len(runs)} runs of {rounds} rounds, "
        f"{steps / 1e6:,.0f} million local steps or more"
    )


def markdown(columns: list[str], rows: list[list[str]], right: int) -> str:
    """A Markdown table whose last `right` columns are aligned to the right."""
    align = ["---"] * (len(columns) - right) + ["---:"] * right
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, align, *rows))


def write(path: Path = README, root: Path = archives.ARCHIVE) -> bool:
    """Update README's results from the archive; True if that changed the file.

    Raises:
        ConfigError: the marks are gone. StoreError: a damaged archive.
    """
    return replace_between(path, START, END, block(params.load(), root))


def replace_between(path: Path, start: str, end: str, text: str) -> bool:
    """Replace the text between two marks of a file; True if that changed the file.

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
