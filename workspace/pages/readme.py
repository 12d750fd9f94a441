"""README's findings: a block per paper from the effects of archived runs, written between two marks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.runs import archive as archives
from fedlib.runs.experiment import tidy
from fedlib.runs.lookup import Finished
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import effects
from workspace.analysis.paper import papers
from workspace.pages import chooser, first, front
from workspace.pages.evidence import Evidence

README = ROOT / "README.md"
START, END = "<!-- results: written by `fedlib readme` -->", "<!-- end of results -->"
ANSWER = "<!-- answer: written by `fedlib readme` -->", "<!-- end of answer -->"
LETTERS = ROOT / "docs" / "letters"
HEADLINES = "docs/images/headlines.svg"


@dataclass(frozen=True)
class Archived:
    """The archived, still valid results of one scale: tables, and the records of their runs."""

    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def archived(
    scale: Scale, settings: Experiments, root: Path = archives.ARCHIVE, names: Iterable[str] = ()
) -> Archived:
    """All archived results of a scale, gathered as for the pages, without those in the store.

    names: of experiments and studies; by default all.

    Raises:
        StoreError: a damaged archive.
    """
    from fedlib.runs.place import Place
    from workspace.analysis.experiments import plan

    gathered = Archived()
    with tempfile.TemporaryDirectory() as folder:
        nowhere = Place(runs=Path(folder, "runs"), datasets=Path(folder, "datasets"))
        for name in names or [*settings.names, *settings.studies]:
            work = plan(name, scale, settings)
            finished = Finished(work, nowhere, Path(folder, "results"), root, any_data=True)
            table, records, _, _ = tidy(work, finished)
            if records:
                gathered.tables[name], gathered.records[name] = table, records
    return gathered


def block(settings: Experiments, root: Path = archives.ARCHIVE) -> str:
    """The text of README between the marks, as Markdown."""
    archive = archived("paper", settings, root)
    planned: dict[str, str] = {}
    finished: set[str] = set()
    for name in experiments_of_papers(settings):
        asked, there = front.planned_and_finished(
            settings, name, "paper", {"runs": archive.records.get(name, [])}
        )
        planned |= asked
        finished |= there
    return "\n\n".join(
        [
            "## What was found",
            *(
                f"### {papers()[paper].title}\n\n{text}"
                for paper, text in findings(Evidence.of(effects.table(archive.tables))).items()
            ),
            "### How to read it",
            front.MEANINGS.removeprefix("*How to read it.* "),
            f"{len(finished):,} of {len(planned):,} planned runs of the papers' own settings are "
            "archived in `data/archive/`, with their data, versions and dates. All claims, readings and tables are on "
            "the site.",
        ]
    )


def experiments_of_papers(settings: Experiments) -> list[str]:
    """The experiments on the papers' own pages: without those of the arena, the worlds and the other pages."""
    pages = {name: parts for name, parts in settings.artifacts.items() if name.split("-")[0] in papers()}
    return sorted({part for parts in pages.values() for part in parts} & set(settings.names))


def findings(evidence: Evidence) -> dict[str, str]:
    """Paper -> its main claim in its own words, what is measured, what it comes to, and a list of its effects."""
    return {paper["section"]: finding(paper) for paper in front.story(evidence, {})}


def finding(paper: Mapping[str, Any]) -> str:
    """A paper's part of `findings`. paper: of `front.story`."""
    claim = f"“{paper['said']}” ({paper['place']})" if paper["said"] else paper["claim"]
    outcome, *sentences = paper["sentences"] or ["not run"]
    lines = [f"> {claim}", f"*Measured:* {paper['measured']}.", f"**Found: {outcome}.**"]
    return "\n\n".join([*lines, "\n".join(f"- {sentence}" for sentence in sentences)]).strip()


def write(path: Path = README, root: Path = archives.ARCHIVE) -> bool:
    """Update README's results from the archive; True if that changed the file.

    Raises:
        ConfigError: the marks are gone. StoreError: a damaged archive.
    """
    return replace_between(path, START, END, block(params.load(), root))


def write_letters(evidence: Evidence, folder: Path = LETTERS) -> bool:
    """Update what came out in the letters to papers' authors, where one is drafted; True if that changed one.

    Raises:
        ConfigError: the marks are gone.
    """
    letters = {folder / f"{paper}.md": text for paper, text in findings(evidence).items()}
    changed = [replace_between(path, START, END, text) for path, text in letters.items() if path.exists()]
    return any(changed)


def write_answer(path: Path = README, root: Path = archives.ARCHIVE) -> bool:
    """Update README's first answer, from the archived runs of the arena; True if that changed the file.

    Raises:
        ConfigError: the marks are gone. StoreError: a damaged archive.
    """
    settings = params.load()
    names = settings.artifacts["arena"]
    points = chooser.points(archived("paper", settings, root, names).tables)
    planned = [(name, labelled) for name in names for labelled in settings.runs(name, "paper")]
    return replace_between(path, *ANSWER, first.listed(first.answers(chooser.data(points, planned))))


def draw_headlines(evidence: Evidence, root: Path = ROOT) -> None:
    """Draw README's picture, the papers' main claims, from the effects table at scale paper."""
    svg = first.figure(first.headlines(evidence), ink="#24292f", paper="#ffffff")
    write_whole(root / HEADLINES, svg.encode() + b"\n")


def replace_between(path: Path, start: str, end: str, text: str) -> bool:
    """Replace the text between two marks of a file; True if that changed the file.

    Raises:
        ConfigError: the marks are gone.
    """
    old = path.read_text(encoding="utf-8")
    if start not in old or end not in old:
        raise ConfigError(f"{path.name} has lost its marks; put {start!r} and {end!r} back.")
    new = f"{old.split(start)[0]}{start}\n\n{text}\n\n{end}{old.split(end)[1]}"
    if new != old:
        write_whole(path, new.encode())
    return new != old
