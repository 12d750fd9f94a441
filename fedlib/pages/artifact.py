"""What all figure, table and theory notebooks share: they read results and write pictures, numbers and verdicts.

    artifact = Artifact.open("clustered_sampling-figure_1", scale)  # says what it is made from, or what to run first
    results = artifact.results["cs_mnist"]                          # the experiment's tidy table
    artifact.show(plots.curves(results, ...), data=...)             # picture as SVG, data as CSV
    artifact.table(frame, "table_1")                                # table, also as CSV
    artifact.judge()                                                # decides this artifact's claims

The cells need not handle missing results: `artifact.results[...]` ends the notebook with a notice that names the
command to run. An artifact that can show a part loops over `artifact.available`. All files are byte-stable and go to
`data/artifacts/<scale>/<artifact>/`; the number of verdicts goes to `data/metrics/<scale>/<artifact>.json`.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from IPython.display import HTML, Markdown, display

from fedlib.analysis.claims import claims_of
from fedlib.analysis.collect import opened
from fedlib.analysis.judging import verdicts
from fedlib.analysis.paper import papers
from fedlib.analysis.verdict import STATUSES
from fedlib.drawing import interactive
from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.pages.layout import escaped, mark
from fedlib.runs.results import failed, lacking, record
from fedlib.settings import params
from fedlib.settings.params import Experiments, Labelled
from fedlib.settings.schema import ROOT, Scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THUMBNAIL_WIDTH = 480  # pixels


class ResultsMissing(Exception):
    """An experiment has not been run at this scale; the notebook ends with a notice and no traceback."""

    def __init__(self, experiment: str, scale: str) -> None:
        super().__init__(f"{experiment} has not been run at scale {scale}")
        self.experiment, self.scale = experiment, scale

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{self}."]


@dataclass(frozen=True)
class Results(Mapping[str, pd.DataFrame]):
    """Experiment -> tidy table, for those that have been run; a lookup of another one ends the notebook."""

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

    info: experiment -> the record of its runs (settings, data, versions, device, date).
    """

    name: str
    scale: Scale
    experiments: tuple[str, ...]
    results: Results
    info: dict[str, dict[str, Any]]
    root: Path = ROOT

    @classmethod
    def open(cls, name: str, scale: Scale | None = None, root: Path = ROOT) -> Artifact:
        """Open an artifact of `params.yaml` at the given or the current scale, and display what it is made from.

        Results that are not there are collected from the store and the archive first.

        Raises:
            ConfigError: there is no such artifact.
        """
        settings = params.load(root / params.PARAMS.name)
        if name not in settings.artifacts:
            raise ConfigError(f"params.yaml: no artifact {name!r}; `fedlib list` lists all artifacts.")
        scale = scale or settings.scale
        experiments = tuple((settings.artifacts[name] or {}).get("experiments", []))
        tables, info = {}, {}
        for experiment in experiments:
            if (found := opened(experiment, scale, settings, root)) and len(found[0]):
                tables[experiment], info[experiment] = found
        artifact = cls(name, scale, experiments, Results(scale, tables), info, root)
        artifact._write_verdicts(verdicts(artifact.claims, {}))  # until judged
        if experiments:
            display(Markdown(artifact.describe()))
        return artifact

    @property
    def place(self) -> str:
        """The place of its notebook below `notebooks/`, without suffix: "clustered_sampling/figure_1"."""
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

    def everything(self) -> dict[str, pd.DataFrame]:
        """The tables of all experiments and studies at this scale, collected where they are not there yet."""
        settings = params.load(self.root / params.PARAMS.name)
        found = {
            name: opened(name, self.scale, settings, self.root)
            for name in [*settings.names, *settings.studies]
        }
        return {name: one[0] for name, one in sorted(found.items()) if one}

    @cached_property
    def claims(self) -> list:
        return claims_of(self.place) if self.place.split("/")[0] in papers() else []

    def describe(self) -> str:
        """In Markdown: scale, data, the number of finished and planned runs, reductions, and missing runs."""
        settings, lines = params.load(self.root / params.PARAMS.name), []
        for experiment, info in self.info.items():
            data = ", ".join(sorted({run["data"]["provenance"] for run in info["runs"]}))
            done = f"{len(info['runs'])} of {info['planned']} runs"
            missing = f" Missing: {escaped(lacking(info))}." if info.get("missing") else ""
            missing += "".join(f" Failed: {escaped(one)}" for one in failed(info))
            less = cut(settings, experiment, self.scale)
            less = f" Reduced from scale paper: {less}." if less else ""
            lines.append(f"`{experiment}` at scale **{self.scale}**: {done}, {escaped(data)}.{less}{missing}")
        for experiment in self.missing:
            command = f"`fedlib run {experiment} --scale {self.scale}`"
            why = "".join(
                f" Failed: {escaped(one)}"
                for one in failed(record(experiment, self.scale, self.root / "data" / "results"))
            )
            lines.append(f"`{experiment}` has not been run at scale **{self.scale}**: {command}{why}")
        if self.missing:
            lines.append(
                f"To make everything this page needs: `fedlib scale {self.scale} && dvc repro {self.name}`"
            )
        return "\n".join(f"- {line}" for line in lines)

    def show(self, figure: Figure, name: str = "figure", data: pd.DataFrame | None = None) -> None:
        """Display a figure; save it as `<name>.svg`, with a thumbnail and its data as `<name>.csv`.

        data: the numbers behind it; by default the points of its lines.
        """
        picture = svg(figure, self.name)
        write_whole(self.folder / f"{name}.svg", picture)
        small = io.BytesIO()
        figure.savefig(small, format="png", dpi=THUMBNAIL_WIDTH / figure.get_size_inches()[0])
        write_whole(self.folder / f"{name}.png", small.getvalue())
        if (panels := interactive.panels(figure)) is not None:
            write_whole(self.folder / f"{name}.json", json.dumps(panels, separators=(",", ":")).encode())
        self._write_csv(drawn_lines(figure) if data is None else data, name)
        show_picture(picture, picture=name)  # the site finds its data by this name

    def table(self, frame: pd.DataFrame, name: str = "table", index: bool = True) -> None:
        """Display a table and save it as `<name>.csv`."""
        self._write_csv(frame, name, index)
        show_frame(frame, index)

    def say(self, finding: str) -> None:
        """Display a finding in words; it leads the page, its first paragraph the paper on the first page."""
        path = self.folder / "finding.txt"
        if finding:
            if self.scale == "demo":
                finding = f"(Scale demo: digits in place of every dataset.) {finding}"
            write_whole(path, finding.encode())
            display(Markdown(finding), metadata={"finding": True})  # which the site has said already
        else:
            path.unlink(missing_ok=True)

    def judge(self) -> pd.DataFrame:
        """Decide this artifact's claims, display and save the verdicts; one row per claim (`judging.verdicts`)."""
        decided = verdicts(self.claims, self.available)
        self._write_verdicts(decided)
        display(HTML(verdict_table(decided)))
        return decided

    def board(self, decided: pd.DataFrame, name: str) -> None:
        """Display verdicts on claims of other artifacts, with links to their pages, and save them as `<name>.csv`."""
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
    """How an experiment or study is reduced from scale `paper`, in words; empty if it is not."""
    if scale == "paper":
        return ""
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
    """setting -> the largest T of its runs."""
    return {one.setting: one.run.T for one in sorted(plan, key=lambda one: one.run.T)}


def show_frame(frame: pd.DataFrame, index: bool = False) -> None:
    """Display a whole table; cells without a value, such as those of methods without runs, show a dash."""
    named = frame.index.name
    if index and frame.index.nlevels == 1:  # its name in the head's first row, not in a row of its own
        frame = frame.rename_axis(index=None)
        frame.columns = frame.columns.set_names([named, *[None] * (frame.columns.nlevels - 1)])
    with pd.option_context("display.max_colwidth", None):
        display(HTML(stacked(unbroken(one_head(frame.to_html(index=index, border=0, na_rep="–"))))))


def verdict_table(decided: pd.DataFrame, links: bool = False) -> str:
    """Verdicts (rows of `judging.verdicts`) as an HTML table: the claim, printed, replicated, verdict.

    The replicated value and the verdict are those as written; the verdict as run, if there is one, is below. links: to
    the page that shows a claim, relative to the site's first page. A row's id is its claim's.
    """
    rows, titles = [], {name: html.escape(paper.title) for name, paper in papers().items()}
    for row in decided.map(html.escape).map(unbroken).to_dict("records"):
        pill = mark(row)
        words = ", ".join(filter(None, [row["words"], row["strength"]]))
        run = f"As run: {row['as run']}." if row["as run"] else ""
        verdict = "<br>".join([pill, *(f"<small>{text}</small>" for text in (words, run) if text)])
        name = f"<code>{row['id']}</code>"
        if links:
            name = f'<a href="{row["artifact"]}.html#{row["id"]}">{name}</a>'
        about = f"<small>{name} {row['detail']}</small>"
        replicated = "<br>".join(filter(None, [row["replicated"], row["interval"]]))
        cells = {
            "claim": f"{row['claim']}<br>{about}",
            "printed": row["printed"],
            "replicated": replicated,
            "verdict": verdict,
        }
        shown = "".join(f'<td data-label="{name}">{cell}</td>' for name, cell in cells.items())
        about = f'id="{row["id"]}" data-paper="{titles.get(row["paper"], row["paper"])}"'
        rows.append(f'<tr {about} data-strength="{row["strength"]}">{shown}</tr>\n')
    head = "".join(f"<th>{name}</th>" for name in ("claim", "printed", "replicated", "verdict"))
    body = "".join(rows)
    kind = "dataframe verdicts board" if links else "dataframe verdicts"
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'


def unbroken(text: str) -> str:
    """Text whose numbers stay in one line with what belongs to them: "259.2 ± 147.4", "80 %"."""
    return re.sub(r"(?<=\d) (?=[±%])|(?<=±) (?=\d)", "\u00a0", text)


def one_head(table: str) -> str:
    """An HTML table whose row of index names, empty but for them, is joined with the row of column names above it."""
    names, blank = r"((?:<th>[^<]+</th>\s*)+)", r"(?:<th></th>\s*)+"
    rows = rf"(<thead>\s*<tr[^>]*>\s*){blank}(.*?</tr>)\s*<tr>\s*{names}{blank}</tr>"
    return re.sub(rows, r"\1\3\2", table, count=1, flags=re.DOTALL)


def stacked(table: str) -> str:
    """An HTML table whose cells of several parts break between them, and so are half as wide.

    The parts: "31 (26–44); 33.4 ± 6.9, n = 5", "2 of 3 arrive: 26, 44", "none of 3 arrive in 200".
    """
    table = re.sub(r"((?<=[\d)]);|arrives?:) (?=\d[^<;]*</td>)", r"\1<br>", table)
    table = re.sub(r"(±\s[\d.]+,) (?=n = \d+</td>)", r"\1<br>", table)
    return re.sub(r"(<td>none of \d+) (?=arrive in)", r"\1<br>", table)


def svg(figure: Figure, salt: str) -> bytes:
    """A figure as byte-stable SVG: without date, with ids that depend only on `salt`."""
    import matplotlib.pyplot as plt

    picture = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": salt}):
        figure.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    figure.set_layout_engine("none")  # it is laid out; a picture of it in another format looks the same
    plt.close(figure)
    return picture.getvalue()


def show_picture(picture: bytes, /, **metadata: Any) -> None:
    """Display an SVG. IPython's own class for it parses it with Python's slow XML parser."""
    text = picture.decode()
    display({"image/svg+xml": text[text.index("<svg") :]}, raw=True, metadata=metadata)


def drawn_lines(figure: Figure) -> pd.DataFrame:
    """The points of every line of a figure: one row per point, with columns panel, line, x, y.

    A line's name is its label without the underscore that keeps it out of the legend; empty if it has no label.
    """
    rows = []
    for k, axes in enumerate(figure.axes):
        panel = axes.get_title() or f"panel {k + 1}"
        for line in axes.get_lines():
            label = str(line.get_label())
            name = "" if label.startswith("_child") else label.removeprefix("_")
            rows += [(panel, name, x, y) for x, y in zip(*line.get_data(), strict=True)]
    return pd.DataFrame(rows, columns=["panel", "line", "x", "y"])
