"""What all figure, table and theory notebooks share: they read results and write pictures, numbers and verdicts.

    artifact = Artifact.open("clustered_sampling-figure_1", scale)  # says what it is made from, or what to run first
    results = artifact.results["cs_mnist"]                          # the experiment's tidy table
    artifact.show(plots.curves(results, ...), data=...)             # picture as SVG, data as CSV
    artifact.table(frame, "table_1")                                # table, also as CSV
    artifact.judge()                                                # decides this artifact's claims

The cells need not handle missing results: `artifact.results[...]` ends the notebook with a notice that names the
command to run. An artifact that can show a part loops over `artifact.available`. All files are byte-stable and go to
`data/artifacts/<scale>/<artifact>/`; the few numbers that DVC compares go to `data/metrics/<scale>/<artifact>.json`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import HTML, Markdown, display

from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis.claim import Claim, claims_of
from workspace.analysis.experiments import opened
from workspace.analysis.paper import papers, printed_curves
from workspace.figures import interactive, picture, printed
from workspace.pages import forest, tables
from workspace.pages.evidence import Evidence
from workspace.pages.origin import Results, chosen, described, turned
from workspace.pages.seals import PAGES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Artifact:
    """One figure, table or theory page at one scale.

    info: experiment -> the record of its runs (settings, data, versions, device, date). part: whether it shows what
    somebody chose by the notebook's parameters; its files then stand apart from those of the site.
    """

    name: str
    scale: Scale
    experiments: tuple[str, ...]
    results: Results
    info: dict[str, dict[str, Any]]
    root: Path = ROOT
    part: bool = False

    @classmethod
    def open(
        cls,
        name: str,
        scale: Scale | None = None,
        methods: Sequence[str] | str | None = None,
        seeds: Sequence[int] | int | None = None,
        settings: Sequence[str] | str | None = None,
        root: Path = ROOT,
        **numbers: Any,
    ) -> Artifact:
        """Open an artifact of `params.yaml` at the given or the current scale, and display what it is made from.

        Results that are not there are collected from the store and the archive first. methods, seeds, settings: only
        these runs; None: all. numbers: the notebook's other parameters.

        Raises:
            ConfigError: there is no such artifact, scale, method, seed or setting, or another parameter is wrong.
        """
        tables.as_here()
        planned = params.load(root / params.PARAMS.name)
        if name not in planned.artifacts:
            raise ConfigError(f"params.yaml: no artifact {name!r}; `fedlib list` lists all artifacts.")
        scale = planned.scale_of(scale)
        changed = turned(numbers, name.replace("-", "/", 1), root)
        experiments = tuple(planned.artifacts[name])
        frames, info = {}, {}
        for experiment in experiments:
            if (collected := opened(experiment, scale, planned, root)) and len(collected[0]):
                frames[experiment], info[experiment] = collected
        frames, info = chosen(frames, info, methods=methods, seeds=seeds, settings=settings)
        part = changed or any(value is not None for value in (methods, seeds, settings))
        artifact = cls(name, scale, experiments, Results(scale, frames), info, root, part)
        artifact._write_outcomes([])  # until judged
        if experiments:
            results = root / "data" / "results"
            display(
                Markdown(described(name, scale, info, artifact.missing, planned, results)),
                metadata={"provenance": True},
            )
        return artifact

    @property
    def place(self) -> str:
        """The place of its notebook below `notebooks/`, without suffix: "clustered_sampling/figure_1"."""
        return self.name.replace("-", "/", 1)

    @property
    def paper(self) -> str:
        """Its paper's folder; "" if it belongs to none."""
        section = self.place.split("/")[0]
        return section if section in papers() else ""

    @property
    def folder(self) -> Path:
        kind = "chosen" if self.part else os.environ.get(PAGES, "artifacts")
        return self.root / "data" / kind / self.scale / self.name

    @property
    def available(self) -> dict[str, pd.DataFrame]:
        return self.results.tables

    @property
    def missing(self) -> list[str]:
        return [experiment for experiment in self.experiments if experiment not in self.results]

    def everything(self) -> dict[str, pd.DataFrame]:
        """The tables of all experiments and studies at this scale, collected where they are not there yet."""
        settings = params.load(self.root / params.PARAMS.name)
        names = sorted([*settings.names, *settings.studies])
        collected = {name: opened(name, self.scale, settings, self.root) for name in names}
        return {name: results[0] for name, results in collected.items() if results}

    @cached_property
    def claims(self) -> list[Claim]:
        return (
            [claim for claim in claims_of(self.paper) if claim.artifact == self.place] if self.paper else []
        )

    def show(self, figure: Figure, name: str = "figure", data: pd.DataFrame | None = None) -> None:
        """Display a figure; save it as `<name>.svg`, with its data as `<name>.csv`.

        data: the numbers behind it; by default the points of its lines. Over the page's first figure are drawn the
        printed curves that somebody read off (`figures/printed.py`).
        """
        if name == "figure" and (path := printed_curves(self.place, self.root)).exists():
            printed.draw(figure, printed.read(path))
        svg = picture.svg(figure, self.name)
        write_whole(self.folder / f"{name}.svg", svg)
        if (panels := interactive.panels(figure)) is not None:
            self.data(panels, name)
        self.keep(picture.lines(figure) if data is None else data, name)
        picture.show(svg, picture=name)  # the site finds its data by this name

    def table(self, frame: pd.DataFrame, name: str = "table", index: bool = True) -> None:
        """Display a table and save it as `<name>.csv`."""
        self.keep(frame, name, index)
        tables.show(frame, index)

    def say(self, finding: str) -> None:
        """Display a finding in words; it leads the page, its first paragraph the paper on the first page."""
        path = self.folder / "finding.txt"
        if finding:
            if self.scale == "demo":
                finding = f"(Scale demo: digits in place of every dataset.) {finding}"
            write_whole(path, finding.encode())
            display(Markdown(finding), metadata={"finding": True})
        else:
            path.unlink(missing_ok=True)

    def judge(self) -> None:
        """Display and save the outcomes of this artifact's claims, from the one table of all claims.

        A claim is corrected together with all of its paper, also those on other pages.
        """
        if not self.claims:
            return
        if self.scale == "demo":  # digits in place of every dataset say nothing of a paper
            display(
                Markdown(
                    "At scale demo no claim is judged: scikit-learn's digits say nothing about the papers."
                )
            )
            return
        if self.part:
            display(
                Markdown(
                    "Claims are judged by all runs and the paper's numbers, not by what was chosen above."
                )
            )
            return
        evidence = Evidence.load(self.scale, self.root, [self.paper])
        decided = [{"id": claim.id, "verdict": evidence.outcome(claim.id)} for claim in self.claims]
        self._write_outcomes(decided)
        rows = forest.table([evidence.row(claim.id) for claim in self.claims])
        display(HTML(rows), metadata={"claims": True})

    def data(self, content: Any, name: str) -> None:
        """Save what a script of the site reads, as `<name>.json`."""
        write_whole(self.folder / f"{name}.json", json.dumps(content, separators=(",", ":")).encode())

    def keep(self, frame: pd.DataFrame, name: str, index: bool = False) -> None:
        """Save a table as `<name>.csv` without displaying it."""
        write_whole(self.folder / f"{name}.csv", tables.csv_of(frame, index).encode())

    def measure(self, numbers: Mapping[str, Any]) -> None:
        """Save the numbers that `dvc metrics` and `dvc exp` compare, for an artifact of `notebooks.MEASURED`."""
        if not self.part:
            path = self.root / "data" / "metrics" / self.scale / f"{self.name}.json"
            write_whole(path, (json.dumps(numbers, indent=1, ensure_ascii=False) + "\n").encode())

    def _write_outcomes(self, decided: list[dict[str, Any]]) -> None:
        """Save the claims with their outcomes; of a part nothing is said."""
        if not self.part:
            write_whole(self.folder / "verdicts.json", json.dumps(decided, indent=1).encode())
