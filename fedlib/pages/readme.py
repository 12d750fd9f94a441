"""README's results: the scoreboard and the papers' headline tables, written from the archive between two marks.

Every number is decided or counted over archived runs that are still valid, as the pages do it, each under the name of
its scale; a row without any says what it would take.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.analysis import measure
from fedlib.analysis.claims import ONE_SEED, claims
from fedlib.analysis.judging import totals, verdicts
from fedlib.analysis.paper import papers
from fedlib.analysis.tables import mean_cell, median_cell, reach, short_cell
from fedlib.analysis.verdict import STATUSES
from fedlib.data.sources import DataError
from fedlib.files import Unfinished, write_whole
from fedlib.papers.fedcor.printed import METHODS as FEDCOR
from fedlib.papers.fedcor.printed import PANELS, printed_cells
from fedlib.papers.hcsfed.printed import COLUMNS, TABLE_1, in_print
from fedlib.papers.hcsfed.printed import PRINTED as HCSFED_PRINTED
from fedlib.papers.hics_fl.printed import METHODS as HICS
from fedlib.papers.hics_fl.printed import PRINTED as HICS_PRINTED
from fedlib.papers.hics_fl.printed import TABLE
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

Cell = Callable[[np.ndarray], str]


@dataclass(frozen=True)
class Archived:
    """What is archived at one scale and still valid: tables of results, and what made them."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    info: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row of a headline table: where its runs are, and how each of its numbers is read and printed.

    variants: the experiment that has those of the methods which `experiment` has not.
    """

    name: str
    experiment: str
    setting: str
    target: float
    methods: list[str]
    printed: Mapping[str, str]
    cell: Callable[[int], Cell]  # of the last round
    variants: str = ""


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
            "*Not held*: cannot hold in full, whatever is still to be run. Which claims, and why not: `fedlib report "
            f"--scale {there[0]}` makes every page from the archive in `data/archive/`, training nothing; beside "
            "a page that lacks runs stands the same one at scale cpu.",
            "### Headline tables",
            "Rounds to a test accuracy, *printed → replicated*; of a row that has not been run, the printed alone.",
            "**HCSFed, Table 1**: rounds to 80 %, median over seeds. The paper states neither seeds nor alpha (here "
            "0.01; the page has 0.1 too), and leaves open how Random is aggregated and how updates are compressed "
            "(GC).",
            headline(hcsfed(), found, settings),
            "**FedCor, Table 1**: rounds to the target, mean and standard deviation over seeds (N/A: one did not "
            "arrive; ours says how many did not; 150+: not in so many rounds, fewer than the paper's). The paper "
            "leaves open how its Gaussian process is trained: FedCor is trained as in the code nearest to "
            "publication, and in the last column as in the authors' README of 2023.",
            headline(fedcor(), found, settings),
            "**HiCS-FL, Table 1** (Mini-ImageNet: the slides'): rounds to the target, mean over seeds (≥: one did not "
            "arrive).",
            headline(hics(), found, settings),
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
    notes = [f"Of these verdicts {alone} rest, wholly or in part, on one seed."] if alone else []
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


def headline(rows: list[Row], found: Mapping[Scale, Archived], settings: Experiments) -> str:
    """One table: a row a setting, a column a method; each row at the first scale that has runs of it."""
    methods = list(dict.fromkeys(method for row in rows for method in row.methods))
    out = []
    for row in rows:
        scale, cells, about = _replicated(row, found)
        texts = [
            _beside(row.printed.get(m, ""), cells.get(m), bool(scale) and m in row.methods) for m in methods
        ]
        out.append([row.name, about if scale else takes(row, settings), *texts])
    return markdown(["", "runs", *methods], out, right=len(methods))


def _replicated(row: Row, found: Mapping[Scale, Archived]) -> tuple[Scale | None, dict[str, str], str]:
    for scale in SCALES:
        table = _rows_of(row, found[scale].tables)
        if table.empty:
            continue
        last = table.groupby(measure.RUN)["round"].max().sort_values().to_numpy()
        rounds = measure.per_run(table, "test_accuracy", measure.rounds_to_target, target=row.target)
        cap = measure.followed(table, rounds)
        cells = {m: row.cell(cap)(seeds.to_numpy()) for m, seeds in rounds.groupby("method", sort=False)}
        seeds = sorted({len(group) for _, group in rounds.groupby("method")})
        counted = (
            "1 seed"
            if seeds == [1]
            else f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds"
        )
        return scale, cells, f"scale {scale}, {counted}, {reach(last)} rounds"
    return None, {}, ""


def _rows_of(row: Row, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    parts, there = [], set()
    for name in filter(tables.__contains__, (row.experiment, row.variants)):
        part = tables[name]
        wanted = set(row.methods) - there
        part = part[(part["setting"] == row.setting) & part["method"].isin(wanted)]
        there |= set(part["method"])
        parts.append(part)
    return pd.concat(parts) if parts else pd.DataFrame()


def _beside(printed: str, ours: str | None, ran: bool) -> str:
    if not ran:
        return printed
    return " → ".join(filter(None, [printed, ours or "*not run*"]))


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


def hcsfed() -> list[Row]:
    methods = ["Random", "Random, attrition", "SCAFFOLD", "Importance", "Cluster"]
    methods += ["HCSFed-R (GC-A)", "HCSFed-R (GC-B)", "Full participation"]
    rows = []
    for column in COLUMNS:
        cells = {m: in_print(HCSFED_PRINTED, m, column) for m in methods}
        printed = {m: "200+" if n > 200 else str(n) for m, n in cells.items() if n is not None}
        rows.append(Row(column, TABLE_1, column, 0.8, methods, printed, median_cell))
    return rows


def fedcor() -> list[Row]:
    cells = printed_cells()
    return [
        Row(
            f"{name}, {100 * panel.target:.0f} %",
            panel.experiment,
            panel.setting,
            panel.target,
            [*FEDCOR, "FedCor, README of 2023"],
            {m: cells[name, m] for m in FEDCOR},
            lambda last, T=panel.T: mean_cell if last >= T else partial(short_cell, last),
            panel.experiment + "_variants",
        )
        for name, panel in PANELS.items()
    ]


def hics() -> list[Row]:
    return [
        Row(
            f"{data} {panel.setting}, {100 * panel.target:.0f} %",
            panel.experiment,
            panel.setting,
            panel.target,
            HICS,
            {m: str(HICS_PRINTED[data][m]) for m in HICS},
            lambda last: partial(capped_cell, last),
        )
        for data, panel in TABLE.items()
    ]


def capped_cell(cap: int, rounds: np.ndarray) -> str:
    """As HiCS-FL's Table 1: the mean over seeds, a lower bound where one never arrives."""
    return f"{'≥ ' * bool((rounds > cap).any())}{measure.capped_mean(rounds, cap):.0f}"


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
