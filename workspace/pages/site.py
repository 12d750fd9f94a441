"""The rendered site: every artifact, log and text that exists at one scale, as pages that work from the file system.

`render` collects executed notebooks, pictures and data in a folder of sources, adds tiles, downloads and the command
that makes each page again, and has Sphinx build them with the settings in `site/`.
"""

from __future__ import annotations

import gc
import json
import re
import shutil
import subprocess
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import nbformat
import numpy as np
import pyarrow.parquet as pq
from nbformat import NotebookNode
from ruamel.yaml import YAML

from fedlib.digests import address_of
from fedlib.errors import ConfigError
from fedlib.files import alone, read_sealed, replace_folder, state_of, write_sealed, write_whole
from fedlib.runs.results import record
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis.paper import papers
from workspace.analysis.readings import how_many
from workspace.figures.picture import svg
from workspace.pages import (
    article,
    docstrings,
    first,
    forest,
    front,
    layout,
    published,
    readme,
    seals,
    tables,
)
from workspace.pages.evidence import OUTCOMES, Evidence
from workspace.pages.page import INSTEAD as INSTEAD
from workspace.pages.page import SCALES, Page, meaning, texts
from workspace.pages.page import SECTIONS as SECTIONS
from workspace.pages.study import PLACE, StudyArticle

REPORTS = ROOT / "reports"  # a folder a scale, and a page that leads to the papers' own
STUDY = ROOT / "site" / "study.md"
TOOLS = {"chooser": "arena", "multiverse": "scoreboard"}  # page -> the artifact that makes its data


class Site:
    """The sources of the site at one scale, written to `target`; files with unchanged content are not touched."""

    def __init__(self, scale: Scale, target: Path, root: Path = ROOT) -> None:
        self.scale, self.target, self.root = scale, target, root
        self.settings = params.load(root / "params.yaml")
        self.pages = [
            Page(name, scale, tuple(experiments), root)
            for name, experiments in self.settings.artifacts.items()
        ]
        self.logs = [*self.settings.names, *self.settings.studies]
        loader = jinja2.FileSystemLoader(root / "site" / "pages")
        self.jinja = jinja2.Environment(
            loader=loader, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
        )
        self.jinja.filters["text"] = layout.escaped
        self.sources: set[Path] = set()

    def write(self) -> list[Path]:
        """Write all sources; delete stale ones of an earlier rendering and return them, relative to `target`."""
        for page in self.pages:
            self._page(page)
        for name in self.logs:
            self._log(name)
        for section in self.sections:
            title, citation = SECTIONS.get(section, (section, ""))
            pages = self.of(section)
            self._text(
                f"{section}/index.md",
                self._filled(
                    "section.md",
                    section=section,
                    title=title,
                    by=citation,
                    pages=pages,
                    about=papers().get(section),
                    programs=front.programs(section) if section in papers() else [],
                    article=section in self.articles,
                ),
            )
            if content := self.articles.get(section):
                self._text(f"{section}/article.md", self._article(content))
        self._text(
            "logs/index.md", self._filled("logs.md", logs=[self._describe(name) for name in self.logs])
        )
        self._text("samplers.md", self._filled("samplers.md", samplers=docstrings.samplers()))
        self._text("index.md", self._index())
        self._study()
        self._tools()
        self._glossary()
        self._text("extra/verdicts.json", published.verdicts(self.evidence, self.scale, self.coverage()))
        self._text("extra/verdicts.schema.json", published.schema())
        for path in (self.root / "docs").glob("*.md"):
            contents = self._filled("docs.md", docs=self.guides()) if path.stem == "README" else ""
            self._text(f"docs/{path.name}", path.read_text(encoding="utf-8") + contents)
        for path in (self.root / "site").rglob("*"):
            if path.is_file() and path.relative_to(self.root / "site").parts[0] in (
                "conf.py",
                "static",
                "templates",
            ):
                self._file(str(path.relative_to(self.root / "site")), path.read_bytes())
        dropped = [old for old in set(self.target.rglob("*")) - self.sources if old.is_file()]
        for old in dropped:
            old.unlink()
        return [old.relative_to(self.target) for old in dropped]

    @property
    def sections(self) -> list[str]:
        return list(dict.fromkeys(page.section for page in self.pages if page.section))

    def of(self, section: str) -> list[Page]:
        return [page for page in self.pages if page.section == section]

    def provenance(self, scale: Scale) -> dict[str, list[str]]:
        """Data, versions, devices and dates of the results at a scale, with every value that occurs."""
        facts: dict[str, set[str]] = {key: set() for key in ("data", "device", "versions", "date")}
        for name in self.logs:
            for run in self._info(name, scale).get("runs", []):
                facts["data"].add(run["data"]["provenance"])
                facts["device"].add(run.get("device", ""))
                facts["versions"] |= {f"{key} {value}" for key, value in run.get("versions", {}).items()}
                facts["date"].add(run["date"][:10])
        return {key: sorted(values - {""}) for key, values in facts.items()}

    def line(self, scale: Scale) -> str:
        """`provenance` in one line, for the footer of a page."""
        provenance = self.provenance(scale)
        return " · ".join(
            [
                f"Scale {scale}",
                *provenance["data"],
                *provenance["device"],
                *provenance["versions"],
                *provenance["date"][-1:],
            ]
        )

    def _info(self, name: str, scale: Scale) -> dict[str, Any]:
        return record(name, scale, self.root / "data" / "results")

    def _describe(self, name: str) -> dict[str, Any]:
        """An experiment or study, for the list of logs."""
        study = name in self.settings.studies
        spec = self.settings.study(name, self.scale) if study else self.settings.describe(name, self.scale)
        info = self._info(name, self.scale)
        return {
            "name": name,
            "title": spec.get("title", name),
            "kind": "study" if study else "experiment",
            "paper": SECTIONS.get(spec.get("paper", ""), ("all papers", ""))[0],
            "done": len(info.get("runs", [])),
            "planned": info.get("planned", "?"),
            "used": [page for page in self.pages if name in page.experiments],
        }

    @cached_property
    def evidence(self) -> Evidence | None:
        """The effects table at the site's scale; none at scale demo, whose digits say nothing about the papers."""
        if self.scale == "demo":
            return None
        return Evidence.read(self.root / "data" / "artifacts" / self.scale / "scoreboard")

    def _judged(self, page: Page) -> list[str]:
        """The claims of a page that the effects table of the site's scale has."""
        judged_scale = self.evidence is not None and page.scale == self.scale
        return self.evidence.on_page(page.place) if self.evidence and judged_scale else []

    def outcomes(self, page: Page) -> list[tuple[str, str]]:
        """The outcome of each claim of a page, core claims first, and the claim with its effect in a sentence."""
        if (evidence := self.evidence) is None:
            return []
        names = sorted(self._judged(page), key=lambda name: not evidence.is_core(name))
        return [(evidence.outcome(name), front.finding(evidence, name)) for name in names]

    def forest(self, page: Page) -> str:
        """The claims of a page as rows of a forest plot; "" without any."""
        if (evidence := self.evidence) is None:
            return ""
        return forest.on_page(
            {name: (evidence.is_core(name), evidence.row(name)) for name in self._judged(page)}
        )

    def badges(self, page: Page) -> str:
        """The outcomes of a page's claims, counted, as Markdown."""
        if page.notebook is None:
            return "{bdg-muted}`not made at this scale`"
        outcomes = [outcome for outcome, _ in self.outcomes(page)]
        return " ".join(layout.mark(name, outcomes.count(name)) for name in OUTCOMES if name in outcomes)

    @cached_property
    def links(self) -> dict[str, str]:
        """Where the repository and its tracker are published (`site/links.yaml`)."""
        return YAML(typ="safe").load((self.root / "site" / "links.yaml").read_text(encoding="utf-8"))

    @cached_property
    def runs(self) -> dict[str, tuple[dict[str, str], set[str]]]:
        """Experiment -> its planned runs with their data sets, and those that are there."""
        return {
            name: front.planned_and_finished(self.settings, name, self.scale, self._info(name, self.scale))
            for name in self.settings.names
        }

    def titled(self, place: str) -> str:
        """The title of the page at a place: "fedcor/table_1"."""
        return next((page.title for page in self.pages if page.place == place), place)

    @cached_property
    def ran(self) -> dict[str, str]:
        """Section -> how many of its runs there are, by data set."""
        ran = {}
        for section in self.sections:
            names = {name for page in self.of(section) for name in page.experiments} & set(self.runs)
            planned = {run: data for name in sorted(names) for run, data in self.runs[name][0].items()}
            ran[section] = front.runs_by_data(planned, set().union(*(self.runs[name][1] for name in names)))
        return ran

    def story(self) -> list[dict[str, Any]]:
        """What was found, paper by paper (`front.story`)."""
        return front.story(self.evidence, self.ran) if self.evidence else []

    @cached_property
    def articles(self) -> dict[str, dict[str, Any]]:
        """Paper -> its article (`article.content`), if claims are judged at this scale."""
        if self.evidence is None:
            return {}
        mine = [section for section in self.sections if section in papers()]
        contents = {
            paper: article.content(paper, self.evidence, self.ran[paper], article.replies(paper))
            for paper in mine
        }
        return {paper: content for paper, content in contents.items() if content}

    def _article(self, content: dict[str, Any]) -> str:
        judging = (self.root / "docs" / "judging.md").exists()
        return self._filled("article.md", one=content, judging=judging, table=article.table, mark=layout.mark)

    def _index(self) -> str:
        preview = self.root / "docs" / "images" / "headlines.svg"
        if self.scale == "demo" and preview.exists():
            self._file("files/headlines.svg", preview.read_bytes())
        return self._filled(
            "index.md",
            scale=self.scale,
            meaning=SCALES[self.scale],
            sections=[(s, *SECTIONS.get(s, (s, "")), self.of(s)) for s in self.sections],
            others=self.of(""),
            found=self.story(),
            answer=first.listed(answers) if (answers := self.answers()) else "",
            headlines="".join(
                first.figure(first.headlines(self.evidence), narrow=narrow) for narrow in (False, True)
            )
            if self.evidence
            else "",
            key=first.KEY,
            mark=layout.mark,
            unmarked=layout.unmarked,
            grid=tables.html_of(front.grid(self.evidence)) if self.evidence else "",
            preview="files/headlines.svg" if preview.exists() else "",
            summary=front.SUMMARY,
            meanings=front.MEANINGS,
            docs=self.guides(),
            made=self.provenance(self.scale),
        )

    def guides(self) -> list[str]:
        """The pages of `docs/`, in the order in which its index names them: what a beginner needs comes first."""
        pages = {path.stem: path for path in sorted((self.root / "docs").glob("*.md"))}
        index = pages["README"].read_text(encoding="utf-8") if "README" in pages else ""
        named = [name for name in re.findall(r"\]\(([\w-]+)\.md\)", index) if name in pages]
        return list(dict.fromkeys([*named, *pages]))

    def _glossary(self) -> None:
        """The words of `docs/glossary.md`, which the site's pages explain where a pointer rests on them."""
        page = self.root / "docs" / "glossary.md"
        rows = (
            re.findall(r"^\| (.+?) \| (.+) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
            if page.exists()
            else []
        )
        words = {word: re.sub(r"[*`]", "", meaning) for word, meaning in rows[1:] if "---" not in word}
        self._text("static/glossary-words.js", f"explain({json.dumps(words, ensure_ascii=False)});\n")

    def answers(self) -> list[str]:
        """Which sampler beats random selection, in sentences (`first.answers`); none without the arena's runs."""
        if not self.has("chooser"):
            return []
        return first.answers(json.loads(self._data_of("chooser").read_text(encoding="utf-8")))

    def _tools(self) -> None:
        """The pages that answer questions: the chooser, the multiverse, how to reply; with their data beside them."""
        replies = [(name, paper, article.replies(name)) for name, paper in papers().items()]
        self._text("reply.md", self._filled("reply.md", papers=replies, programs=front.programs))
        for tool in filter(self.has, TOOLS):
            self._text(
                f"static/{tool}-data.js", f"{tool}Data({self._data_of(tool).read_text(encoding='utf-8')});\n"
            )
            texts = [f"{paper.title}: {how_many(name)}" for name, paper in papers().items() if how_many(name)]
            self._text(f"{tool}.md", self._filled(f"{tool}.md", how_many=texts))
            self._plotly()

    def _data_of(self, tool: str) -> Path:
        return self.root / "data" / "artifacts" / self.scale / TOOLS[tool] / f"{tool}.json"

    def has(self, tool: str) -> bool:
        """Whether the site has a tool: its data exists, and is about more than digits."""
        return self.scale != "demo" and self._data_of(tool).exists()

    def _plotly(self) -> None:
        script = files("plotly") / "package_data" / "plotly.min.js"
        self._file("static/plotly.min.js", script.read_bytes())

    def report(self) -> dict[str, Any]:
        """The content of the printed report (`site/report.typ`)."""
        return {
            "title": published.NAME,
            "summary": f"{front.SUMMARY} {meaning(self.scale)[:-1]}; {self.coverage()}. "
            + front.MEANINGS.replace("*", ""),
            "question": first.QUESTION,
            "answers": [sentence.split("**") for sentence in self.answers()],  # every second part is bold
            "figure": first.figure(first.headlines(self.evidence), ink="#1f2328") if self.evidence else "",
            "key": first.KEY,
            "grid": self._grid(),
            "papers": self.story(),
            "footer": " · ".join([f"Scale {self.scale}", *self.provenance(self.scale)["date"][-1:]]),
        }

    def _grid(self) -> list[list[str]]:
        """The effects of the papers' main claims as text, the head first; empty if nothing is judged."""
        if self.evidence is None:
            return []
        return front.plain(front.grid(self.evidence))

    @cached_property
    def study(self) -> StudyArticle | None:
        """The study as an article; None where claims are not judged or the arena has not been made."""
        of_papers = set().union(*(self.runs[name][1] for name in readme.experiments_of_papers(self.settings)))
        provenance = self.provenance(self.scale)
        facts = {
            "runs": self.coverage(),
            "own": f"{len(of_papers):,}",
            "hours": f"{self._seconds() / 3600:,.0f} hours",
            "devices": front.listed(provenance["device"])
            if provenance["device"]
            else "no device that is known",
            "data": "; ".join(provenance["data"]),
        }
        return StudyArticle.of(self.evidence, self.root / "data" / "artifacts" / self.scale, facts)

    def _seconds(self) -> float:
        """How long the rounds of all results took, each round by its share of what was computed together."""
        total = 0.0
        for name in self.settings.names:
            path = self.root / "data" / "results" / self.scale / f"{name}.parquet"
            if path.exists() and "seconds" in pq.read_schema(path).names:
                total += float(np.nansum(pq.read_table(path, columns=["seconds"])["seconds"].to_numpy()))
        return total

    @cached_property
    def pictures(self) -> dict[str, bytes]:
        """The study's figures, by the name of their file."""
        if self.study is None:
            return {}
        return {f"{name}.svg": svg(figure, name) for name, figure in self.study.figures().items()}

    def _study(self) -> None:
        if self.study is None:
            return
        text = (self.root / "site" / STUDY.name).read_text(encoding="utf-8")
        pdf = f'<p><a href="{PLACE}.pdf">As a PDF</a></p>'
        title, _, body = self.study.markdown(text).partition("\n")
        self._text(f"{PLACE}.md", f"{title}\n\n{pdf}\n{body}")
        for name, picture in self.pictures.items():
            self._file(f"files/{PLACE}/{name}", picture)

    def coverage(self) -> str:
        """How many of the planned runs there are at the site's scale, each counted once, in words."""
        planned = set().union(*(planned for planned, _ in self.runs.values()))
        finished = set().union(*(finished for _, finished in self.runs.values()))
        return f"{len(finished):,} of {len(planned):,} planned runs"

    def _page(self, page: Page) -> None:
        """Write an artifact's page: its notebook with folded code, and links; also its page at another scale."""
        if page.instead:
            self._page(page.instead)
        if page.notebook is None:
            self._text(f"{page.place}.md", self._filled("missing.md", page=page, scale=page.scale))
            return
        if page.picture:
            self._file(f"files/{page.place}/{page.picture}", (page.folder / page.picture).read_bytes())
        offered = [published.download(page.folder / name) for name in page.downloads]
        for name, content in offered:
            self._file(f"files/{page.place}/{name}", content)
        self._file("files/params.yaml", (self.root / "params.yaml").read_bytes())
        if page.scale != self.scale:
            title, *text = page.notebook.cells[0].source.split("\n")
            page.notebook.cells[0].source = "\n".join([f"{title} (scale {page.scale})", *text])
            metadata = {"announcement": meaning(page.scale), "provenance": self.line(page.scale)}
            page.notebook.metadata.update(metadata)
        about_papers = self.scale != "demo"  # the digits say nothing about them
        cells = layout.arranged(
            page.notebook.cells,
            layout.result(self.outcomes(page), page.finding) if about_papers else "",
            self._filled(
                "about.md", page=page, commit=commit(self.root), downloads=[name for name, _ in offered]
            ),
            self._filled("beside.md", page=page),
            self._curves(page),
            self.forest(page),
        )
        self._notebook(page.place, page.notebook, cells, page.title)

    def _curves(self, page: Page) -> dict[str, str]:
        """Write the data from which the site's script draws curves; returns picture -> name of its data."""
        names = {}
        for picture in page.folder.glob("*.svg"):
            if (data := picture.with_suffix(".json")).exists():
                name = f"{page.place}/{picture.stem}"
                self._text(
                    f"static/figures/{name}.js",
                    f'figureData("{name}", {data.read_text(encoding="utf-8")});\n',
                )
                names[picture.stem] = name
        if names:
            self._plotly()
        return names

    def _log(self, name: str) -> None:
        path = self.root / "data" / "results" / self.scale / f"{name}.ipynb"
        log = self._describe(name)
        tools = self._filled("log_tools.md", log=log, scale=self.scale)
        if not path.exists():
            self._text(f"logs/{name}.md", self._filled("log_missing.md", log=log, scale=self.scale))
            return
        notebook = seals.opened(path)
        notebook.cells[0].source = f"# {layout.escaped(log['title'])}: `{name}`\n{tools}"
        self._notebook(f"logs/{name}", notebook, layout.arranged(notebook.cells), log["title"])

    def _notebook(self, place: str, notebook: NotebookNode, cells: list[NotebookNode], title: str) -> None:
        for k, cell in enumerate(cells):
            cell.id = f"cell-{k}"
            if cell.cell_type == "code":
                cell.metadata["mystnb"] = {"image": {"alt": title}}
        notebook.cells = cells
        self._text(f"{place}.ipynb", nbformat.writes(notebook))

    def _filled(self, template: str, **values: Any) -> str:
        return self.jinja.get_template(template).render(values, site=self)

    def _text(self, name: str, text: str) -> None:
        self._file(name, text.encode())

    def _file(self, name: str, content: bytes) -> None:
        path = self.target / name
        self.sources.add(path)
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)


FRONT_DOOR = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={scale}/index.html">
<title>Client selection in federated learning</title>
<a href="{scale}/index.html">Client selection in federated learning, re-run</a>
</html>
"""


@cache
def commit(root: Path) -> str:
    """The commit that a clone stands at; "" where there is no git."""
    words = ["git", "-C", str(root), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def render(scale: Scale, reports: Path = REPORTS, root: Path = ROOT) -> Path:
    """Build the site from what exists at a scale in `reports/<scale>`; returns its index page. The old site stays until
    the new one is complete. `reports/index.html` leads to the site of scale paper, or to this one if there is none.

    Raises:
        ConfigError: Sphinx could not build it. StoreError: another process is building it, or a page is not as made.
    """
    work = root / "data" / "site" / scale
    with alone(work):
        sources = _sources(scale, root)
        index = _render(scale, work, reports / scale, root)
        write_sealed(_record(scale, root), {"sources": sources, "pages": _state([reports / scale])})
    if scale == "paper" or not (reports / "paper").exists():
        write_whole(reports / "index.html", FRONT_DOOR.format(scale=scale).encode())
    return index


def is_current(scale: Scale, reports: Path = REPORTS, root: Path = ROOT) -> bool:
    """Whether the site at a scale is there as it was rendered, from what exists now."""
    try:
        record = read_sealed(_record(scale, root))
    except (OSError, ValueError):
        return False
    return record == {"sources": _sources(scale, root), "pages": _state([reports / scale])}


def _record(scale: Scale, root: Path) -> Path:
    return root / "data" / "site" / f"{scale}.json"


def _sources(scale: Scale, root: Path) -> str:
    """The address of what a site is made from: as `dvc.yaml` lists it, pages of another scale, and the commit."""
    data = root / "data"
    scales = [scale, *([INSTEAD[scale]] if scale in INSTEAD else [])]
    folders = [data / kind / name for kind in ("artifacts", "results") for name in scales]
    folders += [root / "site", root / "docs"]
    files = [data / "notebooks" / "site.json", root / params.PARAMS.name]
    return address_of([commit(root), _state([*folders, *files])])


def _state(paths: list[Path]) -> str:
    """The address of the state of files, and of all files in folders."""
    files = [file for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
    return address_of(state_of(files))


def _render(scale: Scale, work: Path, reports: Path, root: Path) -> Path:
    from sphinx.cmd.build import build_main

    site = Site(scale, work / "source", root)
    sources = texts(site.target)
    for old in site.write():  # Sphinx does not delete pages and scripts that it made before
        (work / "html" / old).with_suffix(".html").unlink(missing_ok=True)
        if old.parts[0] == "static":
            (work / "html" / "_static").joinpath(*old.parts[1:]).unlink(missing_ok=True)
    all_pages = ["-a"] if sources != texts(site.target) else []  # its menus stand on all pages
    arguments = ["-q", *all_pages, "-j", "auto", "-b", "html", "-d", work / "doctrees"]
    arguments += ["-A", f"provenance={site.line(scale)}"]
    arguments += ["-D", f"html_theme_options.announcement={meaning(scale)[:-1]}; {site.coverage()}."]
    gc.freeze()  # collecting would walk through everything loaded before, here and in Sphinx's forks
    if build_main([str(part) for part in [*arguments, work / "source", work / "html"]]):
        raise ConfigError("the site could not be built; Sphinx's messages above say why.")
    repeated = [f"{page.instead.place}.html" for page in site.pages if page.instead]
    write_whole(work / "html" / "search-index.js", published.index(work / "html", repeated).encode())
    new = reports.with_name(f".{reports.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(
        work / "html",
        new,
        ignore=shutil.ignore_patterns(
            ".buildinfo*", "_sources", "objects.inv", "webpack-macros.html", "*.map"
        ),
    )
    published.lighten(new)
    published.prune(new)
    report = site.report()
    published.report(new / "report.pdf", root / "site" / "report.typ", report)
    footer = {"footer": report["footer"]}
    for paper, content in site.articles.items():
        published.report(new / paper / "article.pdf", root / "site" / "article.typ", content | footer)
    if site.study is not None:
        article_of = site.study.typst((root / "site" / STUDY.name).read_text(encoding="utf-8"))
        title = {"title": article_of["blocks"][0]["text"]}
        published.report(
            new / f"{PLACE}.pdf", STUDY.with_suffix(".typ"), article_of | title | footer, site.pictures
        )
    published.describe(new, meaning(scale), site.provenance(scale))
    replace_folder(reports, new)
    return reports / "index.html"
