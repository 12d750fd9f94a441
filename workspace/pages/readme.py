"""README's findings: a sentence per paper and data set from the effects of archived runs, written between two marks."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.runs import archive as archives
from fedlib.runs.finished import Finished
from fedlib.runs.simulate import tidy
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import effects
from workspace.pages import front
from workspace.pages.evidence import Evidence

README = ROOT / "README.md"
START, END = "<!-- results: written by `fedlib readme` -->", "<!-- end of results -->"


@dataclass(frozen=True)
class Archived:
    """The archived, still valid results of one scale: tables, and the records of their runs."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def archived(scale: Scale, settings: Experiments, root: Path = archives.ARCHIVE) -> Archived:
    """All archived results of a scale, gathered as for the pages, without those in the store.

    Raises:
        StoreError: a damaged archive.
    """
    from fedlib.runs.place import Place
    from workspace.analysis.plans import plan

    gathered = Archived()
    with tempfile.TemporaryDirectory() as folder:
        nowhere = Place(runs=Path(folder, "runs"), datasets=Path(folder, "datasets"))
        for name in [*settings.names, *settings.studies]:
            work = plan(name, scale, settings)
            finished = Finished(work, nowhere, Path(folder, "results"), root, any_data=True)
            table, records, _, _ = tidy(work, finished)
            if records:
                gathered.tables[name], gathered.records[name] = table, records
    return gathered


def block(settings: Experiments, root: Path = archives.ARCHIVE) -> str:
    """The text of README between the marks, as Markdown."""
    archive = archived("paper", settings, root)
    planned = {
        labelled.run.model_dump_json() for name in settings.names for labelled in settings.runs(name, "paper")
    }
    runs = {run["address"] for records in archive.records.values() for run in records if "run" in run}
    return "\n\n".join(
        [
            "## What was found",
            *findings(effects.table(archive.tables)),
            f"{front.MEANINGS} {len(runs):,} of {len(planned):,} planned runs of the papers' own settings are archived "
            "in `data/archive/`, with their data, versions and dates. All claims, every reading and the tables are on "
            "the site.",
        ]
    )


def findings(table: pd.DataFrame) -> list[str]:
    """Two sentences a paper: its main claim, and what it comes to on each data set.

    table: `effects.table`.
    """
    return [
        f"**{paper['title']}.** *Claim:* {paper['claim']} *Found:* {' · '.join(paper['sentences'])}."
        for paper in front.story(Evidence.of(table), {})
    ]


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
