"""Runs of the authors' own programs (`data/reference/`), verified, with the names of our corresponding runs.

If a paper's program was run, its folder describes it (`workspace/papers/<paper>/printed.py`)::

    PROGRAM = Program(
        digest="...",                                  # of data/reference/<paper>.csv
        settings={"1SPC": "1SPC"},                     # the program's setting -> ours
        methods={"Random": ("fedcor_fmnist", "Random")},  # the program's method -> experiment and method of ours
        columns={"test_accuracy": "test_accuracy"},    # the program's measure -> ours
    )

    reference("fedcor")  # commit, experiment, setting, method, seed, round, test_accuracy
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import StoreError
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import kept
from workspace.analysis.paper import parts

REFERENCE = ROOT / "data" / "reference"
OURS = ("same_start", "open_seed")  # tables of `papers/fedcor/program_start.py`
GIVEN = ["paper", "program_commit", "setting", "method", "seed", "round"]
NAMED = ["commit", "experiment", "setting", "method", "seed", "round"]


@dataclass(frozen=True)
class Program:
    """The content of a paper's file of reference curves, in our names; entries not named here are left out."""

    digest: str
    settings: Mapping[str, str]
    methods: Mapping[str, tuple[str, str]]
    columns: Mapping[str, str]


def programs() -> dict[str, Program]:
    """Folder name -> program, for the papers whose authors' program was run."""
    return {paper: module.PROGRAM for paper, module in parts("printed").items() if hasattr(module, "PROGRAM")}


def content(paper: str, root: Path = REFERENCE) -> pd.DataFrame:
    """The rounds of the authors' program in its own names, as they were measured.

    Raises:
        StoreError: the file is missing, is not the one that was measured, or lacks a column.
    """
    program, path = programs()[paper], root / f"{paper}.csv"
    restore = (
        f"get it back with `git checkout -- {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}`."
    )
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path}: this file of reference curves is missing; {restore}") from None
    if (digest := hashlib.sha256(content).hexdigest()) != program.digest:
        raise StoreError(f"{path}: its SHA-256 is {digest[:12]}..., not {program.digest[:12]}...; {restore}")
    table = pd.read_csv(io.BytesIO(content), dtype={"program_commit": str, "setting": str, "method": str})
    if lacks := [column for column in [*GIVEN, *program.columns] if column not in table]:
        raise StoreError(f"{path}: it has no column {lacks[0]!r}; {restore}")
    return table


def reference(paper: str, root: Path = REFERENCE) -> pd.DataFrame:
    """The rounds of the authors' program in our names, one row per (experiment, setting, method, seed, round).

    Raises:
        StoreError: the file is missing, is not the one that was measured, or lacks a column.
    """
    program, table = programs()[paper], content(paper, root)
    table = table[table["setting"].isin(program.settings) & table["method"].isin(program.methods)]
    ours = pd.DataFrame(table["method"].map(program.methods).tolist(), table.index, ["experiment", "method"])
    named = table.assign(
        commit=table["program_commit"].str[:7],
        setting=table["setting"].map(program.settings),
        experiment=ours["experiment"],
        method=ours["method"],
    )
    return named.rename(columns=program.columns)[[*NAMED, *program.columns.values()]].reset_index(drop=True)


def beside(paper: str, experiment: str, scale: Scale, prefix: str = "") -> pd.DataFrame:
    """The program's rounds to show next to an experiment's curves; none at scales other than `paper`.

    prefix: text that a figure puts before the experiment's settings (`curves.shown`).
    """
    if scale != "paper":
        return pd.DataFrame(columns=NAMED)
    table = reference(paper)
    table = table[table["experiment"] == experiment]
    return table.assign(setting=prefix + table["setting"])


def own_table(name: str, **options: Any) -> pd.DataFrame:
    """One of the tables `OURS`, as it was written. options: of `pandas.read_csv`.

    Raises:
        StoreError: it is missing, or not as written.
    """
    mend = "`python -c 'from workspace.papers.fedcor import program_start; program_start.write()'` makes it again"
    return kept.table(REFERENCE / f"{name}.csv", mend, **options)
