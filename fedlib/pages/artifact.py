"""What every figure, table and theory notebook shares: results in; pictures, numbers and verdicts out.

    artifact = Artifact.open("clustered_sampling-figure_1", scale)  # says what it shows, or what to run first
    results = artifact.results["cs_mnist"]                          # the experiment's tidy table
    artifact.show(plots.curves(results, ...), data=...)             # picture as SVG, data as CSV
    artifact.table(frame, "table_1")                                # table, and as CSV
    artifact.judge()                                                # this artifact's claims, decided

The cells need no care for results that are not there: `artifact.results[...]` then ends the notebook with a
notice that names the command to run. An artifact that can show a part loops over `artifact.available`.
Everything goes to `data/artifacts/<scale>/<artifact>/`, byte-stable; its count of verdicts to
`data/metrics/<scale>/<artifact>.json`.
"""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import HTML, SVG, Markdown, display

from fedlib.analysis.claims import claims_of
from fedlib.analysis.judging import verdicts
from fedlib.analysis.paper import papers
from fedlib.analysis.verdict import STATUSES
from fedlib.files import write_whole
from fedlib.pages import interactive
from fedlib.runs.results import failed, lacking, open_results, record
from fedlib.settings import params
from fedlib.settings.params import Experiments, Labelled
from fedlib.settings.schema import ROOT, ConfigError, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THUMBNAIL_WIDTH = 480  # pixels


class ResultsMissing(Exception):
    """An experiment has not been run at this scale. It ends a notebook in order: a notice, no traceback."""

    def __init__(self, experiment: str, scale: str) -> None:
        super().__init__(f"{experiment} has not been run at scale {scale}")
        self.experiment, self.scale = experiment, scale

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{self}."]


@dataclass(frozen=True)
class Results(Mapping[str, pd.DataFrame]):
    """Experiment -> tidy table, of those that have been run; asking for another one ends the notebook."""

    scale: Scale
    tables: dict[str, pd.DataFrame]

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        if experiment not in self.tables:
            raise ResultsMissing(experiment, self.scale)
        return self.tables[experiment]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __contains__(self, experiment: object) -> bool:
        return experiment in self.tables


@dataclass(frozen=True)
class Artifact:
    """One figure, table or theory page at one scale.

    info: experiment -> what made its runs (settings, data, versions, device, date).
    """

    name: str
    scale: Scale
    experiments: tuple[str, ...]
    results: Results
    info: dict[str, dict[str, Any]]
    root: Path = ROOT

    @classmethod
    def open(cls, name: str, scale: Scale | None = None, root: Path = ROOT) -> Artifact:
        """Open an artifact of `params.yaml`, at the given or the current scale, and say what it is made from.

        Raises:
            ConfigError: there is no such artifact.
        """
        settings = params.load(root / params.PARAMS.name)
        if name not in settings.artifacts:
            raise ConfigError(f"params.yaml: no artifact {name!r}; `fedlib list` names them all.")
        scale = scale or settings.scale
        experiments = tuple((settings.artifacts[name] or {}).get("experiments", []))
        tables, info = {}, {}
        for experiment in experiments:
            try:
                table, made = open_results(experiment, scale, root / "data" / "results")
            except FileNotFoundError:
                continue
            if len(table):
                tables[experiment], info[experiment] = table, made
        artifact = cls(name, scale, experiments, Results(scale, tables), info, root)
        artifact._write_verdicts(verdicts(artifact.claims, {}))  # until judged
        if experiments:
            display(Markdown(artifact.describe()))
        return artifact

    @property
    def place(self) -> str:
        """Its notebook below `notebooks/`, without the ending: "clustered_sampling/figure_1"."""
        return self.name.replace("-", "/", 1)

    @property
    def folder(self) -> Path:
        return self.root / "data" / "artifacts" / self.scale / self.name

    @property
    def available(self) -> dict[str, pd.DataFrame]:
        return self.results.tables

    @property
    def missing(self) -> list[str]:
        return [experiment for experiment in self.experiments if experiment not in self.results]

    @cached_property
    def claims(self) -> list:
        return claims_of(self.place) if self.place.split("/")[0] in papers() else []

    def describe(self) -> str:
        """In Markdown: scale, data, how many of the planned runs are there, what is cut, and what is missing."""
        settings, lines = params.load(self.root / params.PARAMS.name), []
        for experiment, info in self.info.items():
            data = ", ".join(sorted({run["data"]["provenance"] for run in info["runs"]}))
            done = f"{len(info['runs'])} of {info['planned']} runs"
            missing = f" Missing: {lacking(info)}." if info.get("missing") else ""
            missing += "".join(f" Failed: {html.escape(one)}" for one in failed(info))
            less = cut(settings, experiment, self.scale)
            less = f" Cut against scale paper: {less}." if less else ""
            lines.append(f"`{experiment}` at scale **{self.scale}**: {done}, {data}.{less}{missing}")
        for experiment in self.missing:
            command = f"`fedlib run {experiment} --scale {self.scale}`"
            why = "".join(
                f" Failed: {html.escape(one)}"
                for one in failed(record(experiment, self.scale, self.root / "data" / "results"))
            )
            lines.append(f"`{experiment}` has not been run at scale **{self.scale}**: {command}{why}")
        if self.missing:
            lines.append(f"All that this page needs: `fedlib scale {self.scale} && dvc repro {self.name}`")
        return "\n".join(f"- {line}" for line in lines)

    def show(self, figure: Figure, name: str = "figure", data: pd.DataFrame | None = None) -> None:
        """Display a figure; keep it as `<name>.svg`, a thumbnail, and its data as `<name>.csv`.

        data: the numbers behind it; without them, the points of its lines are kept.
        """
        picture = svg(figure, self.name)
        write_whole(self.folder / f"{name}.svg", picture)
        small = io.BytesIO()
        figure.savefig(small, format="png", dpi=THUMBNAIL_WIDTH / figure.get_size_inches()[0])
        write_whole(self.folder / f"{name}.png", small.getvalue())
        if (panels := interactive.panels(figure)) is not None:
            write_whole(self.folder / f"{name}.json", json.dumps(panels, separators=(",", ":")).encode())
        self._write_csv(drawn_lines(figure) if data is None else data, name)
        display(SVG(picture), metadata={"picture": name})  # by which the site finds its data

    def table(self, frame: pd.DataFrame, name: str = "table", index: bool = True) -> None:
        """Display a table and keep it as `<name>.csv`."""
        self._write_csv(frame, name, index)
        show_frame(frame, index)

    def say(self, finding: str) -> None:
        """Display a finding in words; it leads the page, and the paper on the first page."""
        path = self.folder / "finding.txt"
        if finding:
            write_whole(path, finding.encode())
            display(Markdown(finding))
        else:
            path.unlink(missing_ok=True)

    def judge(self) -> pd.DataFrame:
        """Decide this artifact's claims, show and keep the verdicts; one row a claim (`judging.verdicts`)."""
        decided = verdicts(self.claims, self.available)
        self._write_verdicts(decided)
        display(HTML(verdict_table(decided)))
        return decided

    def board(self, decided: pd.DataFrame, name: str) -> None:
        """Display verdicts on claims of other artifacts, with links to their pages, and keep them as `<name>.csv`."""
        self._write_csv(decided, name)
        display(HTML(verdict_table(decided, links=True)))

    def _write_csv(self, frame: pd.DataFrame, name: str, index: bool = False) -> None:
        # Ten digits: 34.7, where binary arithmetic gave 34.699999999999996.
        text = frame.to_csv(index=index, float_format="%.10g")
        write_whole(self.folder / f"{name}.csv", text.encode())

    def _write_verdicts(self, decided: pd.DataFrame) -> None:
        counts = decided["verdict"].value_counts()
        summary = {status.replace(" ", "_"): int(counts.get(status, 0)) for status in STATUSES}
        metrics = self.root / "data" / "metrics" / self.scale / f"{self.name}.json"
        write_whole(metrics, (json.dumps(summary, indent=1) + "\n").encode())
        write_whole(self.folder / "verdicts.json", decided.to_json(orient="records", indent=1).encode())


def cut(settings: Experiments, name: str, scale: Scale) -> str:
    """What a scale has less of than scale `paper` in an experiment or study, in words; empty if nothing."""
    seldom = often = 1
    if name in settings.studies:
        here, paper = (settings.study(name, one) for one in (scale, "paper"))
        keys = [key for key in ("subsets", "seeds", "rounds") if key in here and key in paper]
        pairs = [(here[key], paper[key], key) for key in keys]
        follows = "every" in here and "rounds" not in here  # its experiments' runs, to their end
        followed = here["experiments"].values() if follows else []
    else:
        followed, pairs = [name], []
        here, paper = (settings.runs(name, one) for one in (scale, "paper"))
        for what, key in (("settings", lambda one: one.setting), ("seeds", lambda one: one.run.seed)):
            pairs.append((len(set(map(key, here))), len(set(map(key, paper))), what))
        seldom, often = (max(one.run.evaluate.every for one in plan) for plan in (here, paper))
    rounds = {pair for experiment in followed for pair in _rounds(settings, experiment, scale)}
    pairs = [*((*pair, "rounds") for pair in sorted(rounds)), *pairs]
    less = [f"{some:,} of {most:,} {what}" for some, most, what in pairs if some < most]
    return ", ".join([*less, *([f"measured every {seldom} rounds"] if seldom > often else [])])


def _rounds(settings: Experiments, experiment: str, scale: Scale) -> set[tuple[int, int]]:
    """(T at this scale, T at scale paper) of an experiment's settings; 0 where scale paper has no such setting."""
    here, paper = (_longest(settings.runs(experiment, one)) for one in (scale, "paper"))
    return {(T, paper.get(setting, 0)) for setting, T in here.items()}


def _longest(plan: list[Labelled]) -> dict[str, int]:
    """setting -> T of that of its runs that goes furthest."""
    return {one.setting: one.run.T for one in sorted(plan, key=lambda one: one.run.T)}


def show_frame(frame: pd.DataFrame, index: bool = False) -> None:
    """Display a table whole; a cell without a value, as of a method that has not been run, shows a dash."""
    named = frame.index.name
    if index and frame.index.nlevels == 1:  # its name in the head's first row, not in a row of its own
        frame = frame.rename_axis(index=None)
        frame.columns = frame.columns.set_names([named, *[None] * (frame.columns.nlevels - 1)])
    with pd.option_context("display.max_colwidth", None):
        display(HTML(frame.to_html(index=index, border=0, na_rep="–")))


def verdict_table(decided: pd.DataFrame, links: bool = False) -> str:
    """Verdicts (rows of `judging.verdicts`) as an HTML table: the claim, printed, replicated, verdict.

    What is replicated and the verdict are those as written; below stands the one as run, where there is one.
    links: to the page that shows a claim, as seen from the site's first page.
    """
    rows = []
    for row in decided.map(html.escape).to_dict("records"):
        pill = f'<span class="verdict {row["verdict"].replace(" ", "-")}">{row["headline"]}</span>'
        words = ", ".join(filter(None, [row["words"], row["strength"]]))
        run = f"As run: {row['as run']}." if row["as run"] else ""
        verdict = "<br>".join([pill, *(f"<small>{text}</small>" for text in (words, run) if text)])
        name = f"<code>{row['id']}</code>"
        if links:
            name = f'<a href="{row["artifact"]}.html">{name}</a>'
        about = f"<small>{name} {row['detail']}</small>"
        replicated = "<br>".join(filter(None, [row["replicated"], row["interval"]]))
        cells = {
            "claim": f"{row['claim']}<br>{about}",
            "printed": row["printed"],
            "replicated": replicated,
            "verdict": verdict,
        }
        rows.append("".join(f'<td data-label="{name}">{cell}</td>' for name, cell in cells.items()))
    head = "".join(f"<th>{name}</th>" for name in ("claim", "printed", "replicated", "verdict"))
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    kind = "dataframe verdicts board" if links else "dataframe verdicts"
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'


def svg(figure: Figure, salt: str) -> bytes:
    """A figure as SVG, the same bytes every time: no date, and ids that depend on `salt` only."""
    import matplotlib.pyplot as plt

    picture = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return picture.getvalue()


def drawn_lines(figure: Figure) -> pd.DataFrame:
    """The points of every line of a figure: one row a point, with columns panel, line, x, y.

    A line goes by its label, less the underscore that keeps it out of the legend; without a label it has no name.
    """
    rows = []
    for k, axes in enumerate(figure.axes):
        panel = axes.get_title() or f"panel {k + 1}"
        for line in axes.get_lines():
            label = str(line.get_label())
            name = "" if label.startswith("_child") else label.removeprefix("_")
            rows += [(panel, name, x, y) for x, y in zip(*line.get_data(), strict=True)]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "y"])
