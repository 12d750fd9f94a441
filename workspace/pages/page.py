"""One artifact as the site shows it, and the site's sections and scales."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from fedlib.runs.results import covered, present, record
from fedlib.settings.schema import Scale
from workspace.analysis.paper import papers
from workspace.pages import seals

SECTIONS = {  # section -> title, what it is about
    **{name: (paper.title, paper.citation) for name, paper in papers().items()},
    "theory": ("Theory", "The papers' identities and inequalities, checked numerically."),
    "world": ("Worlds", "Every method where clients come and go, differ in speed, or are too late."),
}
SCALES = {
    "demo": "scikit-learn's digits in place of images, few clients and rounds; it shows that everything runs",
    "cpu": "the papers' datasets, with rounds and seeds cut to what two cores train in nights",
    "paper": "the papers' own settings",
}
INSTEAD: dict[Scale, Scale] = {"paper": "cpu"}  # the scale whose pages are added where runs are missing


@dataclass(frozen=True)
class Page:
    """One artifact as the site shows it: its notebook if it was run at this scale, otherwise how to run it.

    ending: suffix of its place, if the site is of another scale.
    """

    name: str
    scale: Scale
    experiments: tuple[str, ...]
    root: Path
    ending: str = ""

    @property
    def place(self) -> str:
        """Its place in the site: "fedcor/table_1"."""
        return self.name.replace("-", "/", 1) + self.ending

    @property
    def section(self) -> str:
        return self.place.split("/")[0] if "/" in self.place else ""

    @property
    def folder(self) -> Path:
        return self.root / "data" / "artifacts" / self.scale / self.name

    @cached_property
    def notebook(self) -> NotebookNode | None:
        path = self.folder / "notebook.ipynb"
        return seals.opened(path) if path.exists() else None

    @cached_property
    def title(self) -> str:
        """The first heading of its notebook without the paper's name, because it is in the paper's section."""
        source = self.root / "notebooks" / f"{self.place.removesuffix(self.ending)}.ipynb"
        notebook = self.notebook or (nbformat.read(source, as_version=4) if source.exists() else None)
        if notebook is None:
            return self.place.split("/")[-1].replace("_", " ").capitalize()
        title = heading(notebook).removeprefix(f"{SECTIONS.get(self.section, ('',))[0]}, ")
        return title[:1].upper() + title[1:]

    @cached_property
    def instead(self) -> Page | None:
        """Its page at another scale, if that has a method in a setting for which this scale has no run."""
        if self.scale not in INSTEAD:
            return None
        page = replace(self, scale=INSTEAD[self.scale], ending=f"-{INSTEAD[self.scale]}")
        runs, other_runs = (
            covered(self.experiments, scale, self.root / "data" / "results")
            for scale in (self.scale, page.scale)
        )
        return page if page.notebook and other_runs - runs else None

    @property
    def finding(self) -> str:
        """The finding of its notebook in words (`Artifact.say`)."""
        path = self.folder / "finding.txt"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    @property
    def printed(self) -> tuple[str, str] | None:
        """What the page regenerates, as its paper names it, and the paper's address: ("Figure 4", "https://...")."""
        named = re.fullmatch(r"(figure|table)_(\d+)", self.place.removesuffix(self.ending).split("/")[-1])
        if named is None or self.section not in papers():
            return None
        return f"{named[1].capitalize()} {named[2]}", papers()[self.section].url

    @property
    def picture(self) -> str | None:
        """Its main picture."""
        pictures = sorted(self.folder.glob("*.svg"), key=lambda p: (p.stem != "figure", p.name))
        return pictures[0].name if pictures else None

    @property
    def incomplete(self) -> list[tuple[str, int, int, str]]:
        """Of each experiment of which runs are missing: its name, runs, planned runs, and what there is in words."""
        incomplete = []
        for name in self.experiments:
            info = record(name, self.scale, self.root / "data" / "results")
            if info.get("missing") and info.get("runs"):
                incomplete.append((name, len(info["runs"]), info["planned"], present(info)))
        return incomplete

    @property
    def absent(self) -> list[str]:
        """The experiments of which nothing has been run."""
        results = self.root / "data" / "results"
        return [name for name in self.experiments if not record(name, self.scale, results).get("runs")]

    @property
    def downloads(self) -> list[str]:
        """Its tables and its notebook; a browser saves a picture from where it stands."""
        return sorted(p.name for p in self.folder.glob("*") if p.suffix in (".csv", ".ipynb"))


def heading(notebook: NotebookNode) -> str:
    lines = (
        line for cell in notebook.cells if cell.cell_type == "markdown" for line in cell.source.splitlines()
    )
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "Untitled")


def meaning(scale: Scale) -> str:
    return f"Scale {scale}: {SCALES[scale]}."


def texts(folder: Path) -> set[Path]:
    """The sources from which pages are made."""
    return {path for path in folder.rglob("*") if path.suffix in (".md", ".ipynb")}
