"""The site: rendered from what exists; every page opened in a browser, from the file system, offline.

The browser's tests look at a small site made here, or at the one that FEDLIB_SITE names (`FEDLIB_SITE=reports/paper`).
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

import matplotlib as mpl
import nbformat
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from fedlib.errors import ConfigError
from fedlib.files import sealed
from fedlib.settings import params, schema
from fedlib.settings.params import Experiments
from fedlib.settings.schema import ROOT
from workspace.analysis import effects
from workspace.analysis.readings import primary
from workspace.commands import notebooks
from workspace.figures import interactive, picture
from workspace.pages import chooser, forest, layout, seals, site, tables
from workspace.pages.artifact import Artifact
from workspace.pages.evidence import Evidence
from workspace.pages.origin import cut, described
from workspace.pages.page import Page

PARAMS = """\
scale: demo
experiments:
  tiny: &run
    title: A very small <script>hurt()</script> experiment
    paper: fedcor
    dataset: digits
    partition: {scheme: iid}
    model: logistic
    N: 4
    m: 2
    T: 3
    local: {lr: 0.1, batch: 10, epochs: 1}
    methods: {Random: {sampler: uniform}}
  untouched: {<<: *run, title: Never run}
studies: {}
artifacts:
  fedcor-table_1: {experiments: [tiny]}
  fedcor-figure_1: {experiments: [untouched]}
  scoreboard: {experiments: []}
  arena: {experiments: []}
"""
RUN = {
    "data": {"name": "digits", "provenance": "scikit-learn's digits", "digest": "0" * 64},
    "device": "a cpu <script>hurt()</script>",
    "versions": {"torch": "2.0"},
    "date": "2026-01-02T03:04:05+00:00",
}


def figure() -> Figure:
    made = Figure(figsize=(4, 3))
    made.add_subplot(title="left").plot(range(1, 11), range(3, 13), label="MD")
    return made


def evidence() -> Evidence:
    """Twenty claims a paper that hold; HCSFed's are supporting, and one of them has not been run."""
    rows = []
    for paper, kind in (("fedcor", "core"), ("hcsfed", "supporting")):
        for k in range(20):
            ran = (paper, k) != ("hcsfed", 3)
            about = {
                "paper": paper,
                "reading": primary(paper).reading,
                "claim": f"{paper}.{k}",
                "artifact": f"{paper}/table_1",
                "kind": kind,
            }
            found = {"outcome": "shown", "n": 3} if ran else {"outcome": "not run", "n": 0}
            rows.append(
                about | found | {"values": [0.6, 0.7, 0.8] if ran else [], "estimate": 2.0 if ran else nan}
            )
    common = {
        "estimator": "log-ratio of rounds",
        "commit": "",
        "cell": "a <b>cell</b>",
        "data": "MNIST",
        "partition": "",
        "participation": "",
        "unit": "times",
        "null": 1.0,
        "margin": 1.0,
        "low": 1.5,
        "high": 2.5,
        "test": "more",
        "printed": 3.0,
        "shown": "6 and 2",
        "censored": 0,
        "open": False,
        "under": False,
        "finest": 0.0,
        "late": 0,
        "lost": 0,
        "over": "all",
        "primary": True,
        "arms": "",
        "p": 0.001,
        "p_reversed": 0.999,
        "needed": 0,
        "runs": "",
        "words": "",
    }
    table = pd.DataFrame(rows).assign(**common)
    table["seeds"] = [list(range(n)) for n in table["n"]]
    table["runs"] = table["claim"]
    return Evidence.of(table[effects.COLUMNS])


def arena_points() -> pd.DataFrame:
    """Two settings, three samplers and an oracle, four seeds, ten checkpoints; MD is better than Random by 4 and 8."""
    rng = np.random.default_rng(0)
    rows = []
    for setting, gain in (("one label", 4.0), ("mixed", 8.0)):
        for seed in range(4):
            base = 50 + rng.normal()
            for method, more, cost in (
                ("Random", 0, 1.0),
                ("MD", gain, 1.0),
                ("Pow-d", -1, 2.0),
                ("Oracle", -9, 1.0),
            ):
                end = base + more + rng.normal(scale=0.5)
                for t in range(1, 11):
                    spent = {
                        "round": t,
                        "megabytes": cost * t,
                        "client_steps": 5 * t,
                        "server_seconds": 0.1 * t,
                    }
                    about = {"experiment": "arena_a", "setting": setting, "method": method, "seed": seed}
                    rows.append(about | spent | {"accuracy": end * t / 10})
    return pd.DataFrame(rows)


def arena_plan() -> list[tuple[str, Any]]:
    splits = {"one label": {"scheme": "one_class", "n": 4}, "mixed": {"scheme": "shards", "shards": 2}}
    samplers = {"Random": "uniform", "MD": "md", "Pow-d": "power_of_choice", "Oracle": "oracle"}
    planned = []
    for setting, split in splits.items():
        run = {
            "dataset": "digits",
            "model": "logistic",
            "N": 20,
            "m": 2,
            "T": 10,
            "seed": 0,
            "partition": split,
        }
        run |= {"local": {"lr": 0.1, "batch": 10, "epochs": 1}}
        for method, sampler in samplers.items():
            made = schema.Run.model_validate(run | {"method": {"sampler": sampler}})
            planned.append(("arena_a", SimpleNamespace(setting=setting, method=method, run=made)))
    return planned


def shown_table(frame: pd.DataFrame) -> list:
    return [new_output("display_data", data={"text/html": tables.html_of(frame)})]


def several_readings() -> dict[str, Any]:
    """A claim under four readings, of two rates and two rules; the effect is 1, 2, 3 and 4."""
    options = [(rate, rule) for rate in ("0.01", "0.1") for rule in ("mean", "attrition")]
    known = {"e/s/A/x": {"column": "test_accuracy", "x": [0, 1, 2], "y": [1.0, 2.0, 3.0]}}
    readings_of = [
        {
            "name": f"{rate}; {rule}",
            "choices": {"rate": rate, "rule": rule},
            "estimate": k,
            "low": k - 0.5,
            "high": k + 0.5,
            "margin": 1.0,
            "n": 5,
            "primary": k == 4,
            "badge": "",
            "cells": [
                {
                    "cell": "MNIST",
                    "estimate": k,
                    "low": k - 0.5,
                    "high": k + 0.5,
                    "printed": 2.5,
                    "n": 5,
                    "shown": "200+ and 80 rounds",
                    "arms": [["A", "e/s/A/x"]],
                }
            ],
        }
        for k, (rate, rule) in enumerate(options, start=1)
    ]
    about = {
        "id": "p.T1.a",
        "paper": "P",
        "page": "p.html",
        "text": "A is faster.",
        "unit": "times",
        "null": 1.0,
        "told": "not shown",
        "levels": [
            {
                "choice": "rule",
                "option": rule,
                "lowest": k,
                "highest": k + 2,
                "estimate": k + 1,
                "low": k + 0.5,
                "high": k + 1.5,
            }
            for k, rule in enumerate(("mean", "attrition"), start=1)
        ],
    }
    choices = {"rate": ["0.01", "0.1"], "rule": ["mean", "attrition"]}
    return {
        "claims": [about | {"printed": 2.5, "choices": choices, "readings": readings_of}],
        "curves": known,
    }


def kept(folder: Path, cells: list, **files: str | bytes) -> None:
    """A page as the pipeline keeps it: its files, and its notebook with a seal."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    notebook = new_notebook(cells=cells, metadata=notebooks.METADATA)
    seals.seal(notebook, [path for path in folder.iterdir() if path.suffix in seals.FILES], [])
    nbformat.write(notebook, folder / "notebook.ipynb")


def small_project(folder: Path, scale: str = "demo") -> Path:
    """One experiment that was run, one that was not; an artifact of each."""
    shutil.copytree(ROOT / "site", folder / "site")
    (folder / "params.yaml").write_text(PARAMS)
    results, made = folder / "data" / "results" / scale, folder / "data" / "artifacts" / scale
    results.mkdir(parents=True)
    (results / "tiny.json").write_text(json.dumps(sealed({"planned": 2, "runs": [RUN, RUN]})))
    with mpl.rc_context({"svg.fonttype": "none"}):  # as the house's style has it: text stays text
        drawn, still = picture.svg(figure(), "tiny"), picture.svg(figure(), "still")
    shown = [
        new_output("display_data", data={"image/svg+xml": drawn.decode()}, metadata={"picture": "figure"}),
        new_output("display_data", data={"image/svg+xml": still.decode()}),
        new_output("display_data", data={"text/html": tables.html_of(pd.DataFrame({"x": [1.5]}))}),
    ]
    cells = [
        new_markdown_cell("# FedCor, Table 1: a test"),
        new_markdown_cell("It holds that $\\bar x = \\frac{1}{n} \\sum_k x_k$."),
        new_code_cell("prepare_it()"),
        new_code_cell("show_it()", outputs=shown),
    ]
    log = new_notebook(cells=cells, metadata=notebooks.METADATA)
    seals.seal(log, [], [])
    nbformat.write(log, results / "tiny.ipynb")
    judged = new_output("display_data", data={"text/html": "<table></table>"}, metadata={"claims": True})
    kept(
        made / "fedcor-table_1",
        [*cells, new_code_cell("judge_it()", outputs=[judged])],
        figure_svg=drawn,
        figure_json=json.dumps(interactive.panels(figure())),
        figure_csv="x\n1.5\n",
        finding_txt="FedCor <script>hurt()</script> needs *fewer* rounds.\n\nMore of it.",
    )
    found = evidence()
    boards = []
    for paper, claims in found.claims.groupby("paper"):
        rows = {
            claim: (kind, found.outcome(claim), found.row(claim, "fedcor/table_1.html"))
            for claim, kind in zip(claims["claim"], claims["kind"], strict=True)
        }
        boards.append(new_output("display_data", data={"text/html": forest.board(rows, main=f"{paper}.0")}))
    cells = [new_markdown_cell("# Scoreboard"), new_code_cell("board()", outputs=boards)]
    parts = {f"{name}_csv": table.to_csv(index=False) for name, table in found.parts().items()}
    kept(made / "scoreboard", cells, multiverse_json=json.dumps(several_readings()), **parts)
    runs = arena_points()
    cells = [new_markdown_cell("# Arena"), new_code_cell("arena()", outputs=shown_table(runs.head()))]
    content = json.dumps(chooser.data(runs, arena_plan()))
    kept(made / "arena", cells, chooser_json=content, chooser_csv=runs.to_csv(index=False))
    return folder


def text(page: Path) -> str:
    """What a page says, without its markup."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_project(tmp_path_factory.mktemp("project"), "cpu")
    return site.render("cpu", folder / "reports", folder).parent


def test_pages_are_those_of_the_settings(rendered: Path) -> None:
    pages = {path.relative_to(rendered).as_posix() for path in rendered.rglob("*.html")}
    assert {"index.html", "fedcor/table_1.html", "fedcor/figure_1.html", "scoreboard.html"} <= pages
    assert {"logs/tiny.html", "logs/untouched.html", "samplers.html", "search.html"} <= pages


def test_an_artifact_that_was_made_shows_it_and_leads_on(rendered: Path) -> None:
    page = rendered / "fedcor" / "table_1.html"
    assert text(page).index("show_it()") > text(page).index("x")  # the code stands folded at the end
    for part in (
        "prepare_it()",
        "show_it()",
        "All 20 claims here",
        "6 and 2",
        "dvc repro fedcor-table_1",
        "Printed: Table 1 of the paper",
    ):
        assert part in text(page)
    for part in ("logs/tiny.html", "<math"):
        assert part in page.read_text()
    assert len(list(rendered.rglob("figure.csv"))) == 1


def test_a_paper_has_an_article_that_its_section_and_the_front_page_lead_to(rendered: Path) -> None:
    page = rendered / "fedcor" / "article.html"
    assert [text(page).count(f"fedcor.{k}.") for k in range(20)] == [1] * 20
    assert "a <b>cell</b>" not in page.read_text()
    assert (rendered / "fedcor" / "article.pdf").read_bytes().startswith(b"%PDF-")
    for leads, link in (("index.html", "fedcor/article.html"), ("fedcor/index.html", "article.pdf")):
        assert f'href="{link}"' in (rendered / leads).read_text()
    assert not list(rendered.rglob("hcsfed/article.*")), "the site has no page of that paper"


def test_one_that_was_not_says_how_to_make_it(rendered: Path) -> None:
    page = text(rendered / "fedcor" / "figure_1.html")
    assert "Not made at scale cpu" in page
    assert "dvc repro fedcor-figure_1" in page
    assert "fedlib run untouched --scale cpu" in text(rendered / "logs" / "untouched.html")


def test_beside_a_page_that_lacks_runs_stands_that_of_another_scale(tmp_path: Path) -> None:
    folder = small_project(tmp_path, "cpu")
    reports = site.render("paper", folder / "reports", folder).parent
    assert "Not made at scale paper" in text(reports / "fedcor" / "table_1.html")
    assert "table_1-cpu.html" in (reports / "fedcor" / "table_1.html").read_text()
    assert "same page at scale cpu" in text(reports / "fedcor" / "table_1.html")
    other = reports / "fedcor" / "table_1-cpu.html"
    for part in (site.meaning("cpu"), "Table 1: a test (scale cpu)", "show_it()", "Scale cpu · scikit-learn"):
        assert part in text(other)
    assert site.meaning("paper") not in text(other)
    assert not (reports / "fedcor" / "figure_1-cpu.html").exists()  # of which that scale has nothing, too

    def is_current() -> bool:
        return site.is_current("paper", reports.parent, folder)

    assert is_current()
    results = shutil.copytree(folder / "data" / "results" / "cpu", folder / "data" / "results" / "paper")
    assert not is_current()
    site.render("paper", reports.parent, folder)
    assert not other.exists()
    assert is_current()
    (reports / "index.html").unlink()
    assert not is_current(), "a page of it is gone"
    shutil.rmtree(results)
    site.render("paper", reports.parent, folder)
    assert other.exists()


def test_a_page_of_which_nothing_was_run_says_so_and_how_to_run_it(tmp_path: Path) -> None:
    small = site.Site("cpu", tmp_path / "source", small_project(tmp_path, "cpu"))
    ran, untouched = (
        small._filled("beside.md", page=Page("fedcor-table_1", "cpu", (name,), small.root))
        for name in ("tiny", "untouched")
    )
    assert "Not run at scale cpu" not in ran
    assert "Not run at scale cpu" in untouched
    assert "fedlib run untouched --scale cpu" in untouched


def test_the_index_says_what_made_it(rendered: Path) -> None:
    page = (rendered / "index.html").read_text()
    for part in (
        "Scale cpu",
        "scikit-learn’s digits",
        "a cpu",
        "torch 2.0",
        "2026-01-02",
        "Table 1: a test",
    ):
        assert part in page


def test_the_first_page_has_every_sentence_of_a_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its outcome stands before the first; effects by data set, other readings and a control follow."""
    sentences = [
        "shown in at least 1 of 2",
        "MNIST: 2 ×",
        "read otherwise (a): 3 ×",
        "read otherwise (b): 4 ×",
        "a control",
    ]
    texts = dict.fromkeys(("section", "title", "claim", "ran", "page", "url"), "fedcor")
    card = {**texts, "sentences": sentences, "outcome": "shown in part", "tally": {}, "programs": []}
    monkeypatch.setattr(site.Site, "story", lambda self: [card])
    first_page = site.Site("cpu", tmp_path / "source", small_project(tmp_path, "cpu"))._index()
    assert all(f"{sentence}\n" in first_page for sentence in sentences)
    assert first_page.count(layout.mark("shown in part")) == 1


def test_what_settings_claims_and_results_say_is_text(rendered: Path) -> None:
    said = {
        "index.html": ["a cpu <script>hurt()</script>"],
        "fedcor/table_1.html": [
            "FedCor <script>hurt()</script> needs *fewer* rounds.",
            "a <b>cell</b>",
            "a cpu <script>hurt()</script>",  # the foot of the page
        ],
        "logs/index.html": ["A very small <script>hurt()</script> experiment"],
        "logs/tiny.html": ["A very small <script>hurt()</script> experiment"],
    }
    for page in rendered.rglob("*.html"):
        assert "<script>hurt" not in page.read_text(), page
    for page, parts in said.items():
        for part in parts:
            assert part in text(rendered / page), (page, part)


def test_nothing_is_asked_of_the_net(rendered: Path) -> None:
    for page in rendered.rglob("*.html"):
        for attribute in ('src="http', "src='http", '<link rel="stylesheet" href="http', "url(http"):
            assert attribute not in page.read_text(), page


def test_rendering_again_replaces_the_site_whole(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    old = folder / "reports" / "demo" / "old.html"
    old.parent.mkdir(parents=True)
    old.write_text("old")
    (folder / "site" / "conf.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(ConfigError, match="could not be built"):
        site.render("demo", folder / "reports", folder)
    assert old.read_text() == "old"


def test_a_figure_is_the_same_bytes_every_time() -> None:
    assert picture.svg(figure(), "a") == picture.svg(figure(), "a")
    points = [{"panel": "left", "line": "MD", "x": x, "y": x + 2} for x in range(1, 11)]
    assert picture.lines(figure()).to_dict("records") == points


def test_lines_beside_the_legend_go_by_their_own_names() -> None:
    shown = figure()
    shown.axes[0].axhline(5, label="_target")
    shown.axes[0].axhline(6)
    assert list(dict.fromkeys(picture.lines(shown)["line"])) == ["MD", "target", ""]


def test_numbers_are_kept_without_the_noise_of_binary_arithmetic(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    made = Artifact.open("scoreboard", root=tmp_path)
    made.table(pd.DataFrame({"share": [100 * 0.347, 0.1 + 0.2, 2e-9], "rounds": [3, 40, 0]}), index=False)
    assert (made.folder / "table.csv").read_text() == "share,rounds\n34.7,3\n0.3,40\n2e-09,0\n"


def test_at_scale_demo_nothing_is_said_about_a_paper(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    reports = site.render("demo", folder / "reports", folder).parent
    said = text(reports / "fedcor" / "table_1.html")
    for words in ("claims here", "6 and 2", "needs *fewer* rounds"):
        assert words not in said, words
    front = text(reports / "index.html")
    assert "make report SCALE=paper" in front
    for word in ("contradicted", "shown in part", "needs *fewer* rounds", "×"):
        assert word not in front.lower(), word
    assert json.loads((reports / "verdicts.json").read_text())["claims"] == []
    assert not (reports / "chooser.html").exists()
    assert not list(reports.rglob("article.*"))


def test_a_page_says_what_its_scale_cuts() -> None:
    run = {"dataset": "digits", "partition": {"scheme": "iid"}, "model": "logistic", "N": 4, "m": 2}
    run |= {"local": {"lr": 0.1, "batch": 10, "epochs": 1}}
    run |= {"methods": {"MD": {"sampler": "md"}, "MD, less": {"sampler": "md", "T": 5}}}
    grid = {"short": {"T": 10}, "long": {"T": 2000}, "left out": {"T": 5}}
    cpu = {"seeds": 2, "evaluate": {"every": 5}, "grid": {"long": {"T": 50}, "left out": None}}
    study = {"seeds": 3, "subsets": 1000, "scales": {"cpu": {"subsets": 300}}}
    trains = {"rounds": 500, "every": 10, "scales": {"cpu": {"rounds": 50}}}
    studies = {"s": study, "trains": trains, "follows": {"experiments": {"digits": "e"}, "every": 10}}
    settings = Experiments(
        {"experiments": {"e": {**run, "grid": grid, "scales": {"cpu": cpu}}}, "studies": studies}
    )
    assert (
        cut(settings, "e", "cpu")
        == "50 of 2,000 rounds, 2 of 3 settings, 2 of 5 seeds, measured every 5 rounds"
    )
    assert cut(settings, "s", "cpu") == "300 of 1,000 subsets"
    assert cut(settings, "trains", "cpu") == "50 of 500 rounds"
    assert cut(settings, "follows", "cpu") == "50 of 2,000 rounds"
    assert cut(settings, "e", "paper") == cut(settings, "s", "paper") == ""


def test_an_artifact_says_what_is_missing_and_how_to_run_it(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    artifact = Artifact.open("fedcor-figure_1", root=folder)
    assert artifact.missing == ["untouched"]
    settings = params.load(folder / "params.yaml")
    said = described(artifact.name, "demo", artifact.info, artifact.missing, settings, folder)
    assert "fedlib run untouched --scale demo" in said
    with pytest.raises(ConfigError, match="no artifact 'fedcor-figure_9'"):
        Artifact.open("fedcor-figure_9", root=folder)


# -- in a browser ------------------------------------------------------------------------------------------------------


PATIENCE = 180_000  # ms: the curves' library takes a browser 2 s of a processor, which others may hold


class Browser:
    """Chromium with one page, which notes every request, every error and every message that is one."""

    def __init__(self, chromium: object, root: Path) -> None:
        self.root, self.chromium = root, chromium
        self.requests: list[str] = []
        self.problems: list[str] = []

    def open(self, name: str, width: int = 1280, scheme: str = "light") -> object:
        context = self.chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("requestfailed", lambda request: self.failed(name, request))
        page.on("pageerror", lambda error: self.problems.append(f"{name}: {error}"))
        page.on("console", lambda m: m.type == "error" and self.problems.append(f"{name}: {m.text}"))
        page.goto(f"{self.root.as_uri()}/{name}", wait_until="load")
        return page

    def failed(self, name: str, request: Any) -> None:
        """Note a request that failed; a download aborts its own, as the page stays."""
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"{name}: {request.failure} {request.url}")

    def each(
        self, names: Iterable[str], width: int = 1280, scheme: str = "light"
    ) -> Iterator[tuple[str, object]]:
        """(name, the page loaded), one after the other."""
        first, *others = names
        page = self.open(first, width, scheme)
        yield first, page
        for name in others:
            page.goto(f"{self.root.as_uri()}/{name}", wait_until="load")
            yield name, page
        page.context.close()

    def names(self, pattern: str) -> list[str]:
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.glob(pattern))


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    named = os.environ.get("FEDLIB_SITE")
    root = Path(named).resolve() if named else request.getfixturevalue("rendered")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield Browser(chromium, root)
        chromium.close()


WIDTHS = (390, 1280, 1440)
LINKS = "[...document.querySelectorAll('a[href], img[src]')].map(e => e.href || e.src)"
BROKEN = """Promise.all([...document.images].map(image => {
  image.loading = 'eager';  // those out of view are loaded later
  return image.decode().then(() => '', () => image.src);
})).then(sources => sources.filter(source => source))"""
# What an article says before its first figure or table.
LEAD = """() => {
  const article = document.querySelector('.bd-article');
  const first = article && [...article.querySelectorAll('img, table')].find(e => !e.closest('details'));
  if (!first) return '';
  const range = document.createRange();
  range.setStart(article, 0);
  range.setEndBefore(first);
  return range.toString();
}"""
FIGURES = """() => [...document.querySelectorAll(':is(.cell_output, .other-scale) img[src$=".svg"]')]
  .map(e => [decodeURIComponent(new URL(e.src).pathname), e.getBoundingClientRect().width]).filter(e => e[1])"""


@dataclass
class Seen:
    """What a page shows."""

    links: list[str]
    broken: list[str]
    lead: str
    figures: dict[int, list[tuple[str, float]]]  # at each width: the file and the width at which it is shown


@pytest.fixture(scope="module")
def seen(browser: Browser) -> dict[str, Seen]:
    """All pages by their names, each loaded once and then made narrower and wider."""
    found, widths = {}, WIDTHS
    for name, page in browser.each(browser.names("**/*.html"), widths[0]):
        links, broken, lead = (page.evaluate(asked) for asked in (LINKS, BROKEN, LEAD))
        found[name] = Seen(links, broken, lead, {})
        if any(link.endswith(".svg") for link in links):
            for width in widths:
                page.set_viewport_size({"width": width, "height": 900})
                found[name].figures[width] = page.evaluate(FIGURES)
            widths = widths[::-1]  # the next page begins at the width of this one: to change it takes long
    return found


@pytest.mark.browser
def test_every_page_opens_and_leads_to_what_is_there(browser: Browser, seen: dict[str, Seen]) -> None:
    lost = []
    for name, page in seen.items():
        lost += [f"{name}: image {source}" for source in page.broken]
        for link in page.links:
            target = urlsplit(link)
            if target.scheme == "file" and not Path(unquote(target.path)).exists():
                lost.append(f"{name}: {link}")
    assert lost == []
    assert browser.problems == []
    assert {url.split(":")[0] for url in browser.requests} <= {"file", "data"}


@pytest.mark.browser
def test_pages_show_results_and_the_numbers_behind_them(browser: Browser) -> None:
    for page in browser.root.rglob("*.html"):
        text = page.read_text()
        assert "&lt;IPython.core" not in text, page
        shown = html.unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL))
        if "docs" not in page.parts:  # which speak of errors
            assert not re.search(r"Traceback \(most|\b[A-Z]\w+Error: |is not prepared; run", shown), page
        assert not re.search(r"<td[^>]*>\s*(nan|NaN|None|<NA>)\s*</td>", text), page
        words = re.sub(r"<(script|style|code|pre)\b.*?</\1>|<[^>]+>", " ", text, flags=re.DOTALL)
        words = words.replace("*fewer*", "")  # of the made-up finding, which is text
        assert not re.findall(r"(?<![\w*])\*[A-Za-z][^*\n]{0,60}\*(?![\w*])|`[^`\n]{1,40}`", words), (
            f"{page}: markup"
        )
        assert "docs" in page.parts or not re.search(r"\bnan\b", words), f"{page}: nan"
        assert 'border="1"' not in text, f"{page}: a table as pandas writes it"
    for numbers in (browser.root / "_downloads").rglob("*.csv"):
        assert len(numbers.read_text().splitlines()) > 1, numbers


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_phone(browser: Browser, scheme: str) -> None:
    """In the dark, pages of one paper are enough: their widths are those of the light ones."""
    names = (
        browser.names("**/*.html") if scheme == "light" else ["index.html", *browser.names("fedcor/*.html")]
    )
    for name, page in browser.each(names, 390, scheme):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        assert page.evaluate("document.documentElement.dataset.theme") == scheme


LONGEST = 6500  # pixels of a page of results on a wide screen: seven screens
SHAPE = "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"


@pytest.mark.browser
def test_no_page_of_results_but_the_scoreboard_is_longer_than_a_few_screens(browser: Browser) -> None:
    shapes = {name: page.evaluate(SHAPE) for name, page in browser.each(browser.names("**/*.html"), 1440)}
    assert {name: width for name, (_, width) in shapes.items() if width > 1440} == {}
    texts = {name for name in shapes if name.startswith("docs/")} | {
        "samplers.html",
        "scoreboard.html",
        "study.html",
    }
    long = {name: height for name, (height, _) in shapes.items() if height > LONGEST and name not in texts}
    assert long == {}


VIOLATIONS = """axe.run(document, {resultTypes: ['violations'], preload: false}).then(result => result.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => `${one.id}: ${one.nodes.length}, as ${one.nodes[0].html.slice(0, 200)}`))"""


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser: Browser, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.base").AXE_SCRIPT
    names = [
        "index.html",
        "chooser.html",
        "multiverse.html",
        "scoreboard.html",
        "search.html",
        "samplers.html",
    ]
    names += ["reply.html", "logs/index.html", *browser.names("fedcor/*.html")]
    names = [name for name in names if (browser.root / name).exists()]  # at scale demo there is no chooser
    assert len(names) > 5
    for name, page in browser.each(names, 1280, scheme):
        page.evaluate(axe)
        assert page.evaluate(VIOLATIONS) == [], name


CUT = """() => [...document.querySelectorAll('.bd-article table, .bd-article img, .interactive')].filter(e => {
  const box = e.getBoundingClientRect();
  if (!box.width || box.right <= document.documentElement.clientWidth + 1) return false;
  for (let up = e.parentElement; up; up = up.parentElement)
    if (['auto', 'scroll'].includes(getComputedStyle(up).overflowX)) return false;
  return true;
}).map(e => e.outerHTML.slice(0, 80))"""


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_without_a_way_to_see_the_rest(browser: Browser, width: int) -> None:
    for name, page in browser.each(
        ["index.html", "scoreboard.html", *browser.names("*/table_1.html")], width
    ):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.evaluate(CUT) == [], name


@pytest.mark.browser
def test_a_figure_stands_before_the_sentences_about_it(seen: dict[str, Seen]) -> None:
    said = {name: re.search(r".*(\bAbove\b|planned runs \().*", page.lead) for name, page in seen.items()}
    assert [f"{name}: {found[0]}" for name, found in said.items() if found] == []


SCROLLED = """() => [document.querySelector('.bd-article table')?.closest('.output, .cell_output')]
  .filter(e => e && e.scrollWidth > e.clientWidth + 1).map(e => e.scrollWidth - e.clientWidth)"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 1440])
def test_the_headline_tables_are_seen_whole(browser: Browser, width: int) -> None:
    for name, page in browser.each(browser.names("*/table_1.html"), width):
        assert page.evaluate(SCROLLED) == [], name


SIZE = re.compile(r"font(?:-size)?:[^;\"']*?([\d.]+)px")


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_text_in_figures_can_be_read(seen: dict[str, Seen], width: int) -> None:
    """The smallest text of each figure at the size shown: the file's sizes are in units of its view box."""
    small, some = [], 0
    for name, page in seen.items():
        for source, shown in page.figures.get(width, []):
            drawn = Path(source).read_text()
            scale = shown / float(re.search(r'viewBox="0 0 ([\d.]+)', drawn)[1])
            sizes = [float(size) * scale for size in SIZE.findall(drawn)]
            some += bool(sizes)
            if sizes and min(sizes) < 8.95:
                small.append(f"{name}: {Path(source).name}: {min(sizes):.1f} px")
    assert some
    assert small == []


SHOWN = """all => all.filter(e => e.checkVisibility()).map(e => [e.clientWidth / e.viewBox.baseVal.width,
  e.closest('figure').scrollWidth - e.closest('figure').clientWidth])"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_the_first_figure_fits_its_screen_and_can_be_read(browser: Browser, width: int) -> None:
    (_, page) = next(browser.each(["index.html"], width))
    ((scale, hidden),) = page.locator("figure.first svg").evaluate_all(SHOWN)
    assert 11 * scale >= 9, "its smallest letters"
    assert hidden <= 0


def with_curves(browser: Browser) -> str:
    return next(
        n for n in browser.names("*/*.html") if 'class="interactive"' in (browser.root / n).read_text()
    )


@pytest.mark.browser
def test_curves_answer_and_their_picture_stands_back(browser: Browser) -> None:
    page = browser.open(with_curves(browser))
    page.locator(".interactive .js-plotly-plot").first.wait_for()
    assert page.locator(".interactive-replaced").first.is_hidden()
    page.get_by_role("button", name="Logarithmic axis").first.click()
    assert page.get_by_role("button", name="Linear axis").first.is_visible()
    assert browser.problems == []


LINES = "[...document.querySelectorAll('.js-plotly-plot')].flatMap(p => p.data.map(d => d.line?.color)).filter(c => c)"


@pytest.mark.browser
def test_curves_can_be_seen_on_a_dark_page_and_follow_its_theme(browser: Browser) -> None:
    page = browser.open(with_curves(browser), scheme="dark")
    page.locator(".interactive .js-plotly-plot").first.wait_for()

    def darkest() -> float:
        parts = [[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in page.evaluate(LINES)]
        return min(0.299 * r + 0.587 * g + 0.114 * b for r, g, b in parts)

    assert darkest() > 115
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.wait_for_timeout(500)
    assert darkest() < 115


@pytest.mark.browser
def test_a_few_clicks_lead_from_the_front_page_to_a_table_and_its_numbers(browser: Browser) -> None:
    page = browser.open("index.html", width=390)
    page.locator("details.sd-dropdown > summary", has_text="FedCor").first.click()
    page.locator(".sd-card-hover:has(a[href='fedcor/table_1.html'])").first.click()
    page.wait_for_url("**/fedcor/table_1.html")
    page.locator("details.sd-dropdown > summary", has_text="Downloads").click()
    with page.expect_download() as download:
        page.locator("a.download", has_text=".csv").first.click()
    assert len(pd.read_csv(download.value.path()))


ROWS = """() => [...document.querySelectorAll('table.board > tbody > tr')].filter(r => r.checkVisibility())
  .map(r => r.id)"""


@pytest.mark.browser
def test_the_board_can_be_filtered_and_each_claim_linked(browser: Browser) -> None:
    page = browser.open("scoreboard.html")
    bar = page.locator(".board-filter")
    main = page.evaluate(ROWS)
    assert len(main) == page.locator("table.board").evaluate_all(
        "tables => tables.filter(t => !t.closest('details')).length"
    ), "a paper's main claim stands open"
    every = page.locator("table.board > tbody > tr").evaluate_all("rows => rows.map(r => r.id)")
    bar.get_by_label("paper").select_option("HCSFed")
    bar.get_by_label("kind").select_option("supporting")
    shown = page.evaluate(ROWS)
    assert 1 < len(shown) < len(every)
    assert all(name.startswith("hcsfed.") for name in shown)
    assert f"{len(shown)} of {len(every)} claims" in bar.inner_text()
    bar.get_by_label("kind").select_option("")
    bar.get_by_label("outcome").select_option("not run")
    assert 0 < len(page.evaluate(ROWS)) < len(every)
    bar.get_by_label("outcome").select_option("")
    bar.get_by_label("paper").select_option("")
    assert page.evaluate(ROWS) == main, "without a filter it is as it was"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert sorted(page.evaluate(ROWS)) == sorted(every), "in print all stand open"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(ROWS) == main

    folded = next(name for name in reversed(every) if name not in main)
    page = browser.open(f"scoreboard.html#{folded}")
    row = page.locator(f"tr[id='{folded}']")
    row.wait_for()
    head = row.locator("xpath=ancestor::table").locator("thead th").first.bounding_box()
    top = page.locator(".bd-header").bounding_box()
    assert head["y"] >= top["y"] + top["height"] - 1  # the head is in view, below that of the site
    assert row.bounding_box()["y"] >= head["y"]


SCREEN = 1000  # pixels of a phone's screen, and some for the heading
BOARDS = """() => [...document.querySelectorAll('section:has(table.board)')]
  .filter(s => s.querySelector('h2') && !s.querySelector('h1')).map(s => s.getBoundingClientRect().height)"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_the_scoreboard_has_a_screen_a_paper(browser: Browser, width: int) -> None:
    (_, page) = next(browser.each(["scoreboard.html"], width))
    assert max(page.evaluate(BOARDS), default=0) <= SCREEN


@pytest.mark.browser
def test_search_finds_a_sampler_by_name(browser: Browser) -> None:
    page = browser.open("search.html?q=clustered_similarity")
    found = page.locator("#search-results li a").filter(has_text="clustered_similarity")
    found.first.wait_for()
    found.first.click()
    page.wait_for_load_state()
    assert "samplers.html" in page.url


@pytest.mark.browser
@pytest.mark.parametrize("query", ["noniid", "non-IID", "label skew", "heterog"])
def test_search_knows_the_words_of_the_field_and_how_words_begin(query: str, browser: Browser) -> None:
    page = browser.open(f"search.html?q={query}")
    page.locator("#search-results li a").first.wait_for()
    assert browser.problems == []


@pytest.mark.browser
def test_search_can_be_about_one_kind_of_page_and_logs_come_last(browser: Browser) -> None:
    page = browser.open(f"search.html?q={'fedcor' if os.environ.get('FEDLIB_SITE') else 'tiny'}")
    page.locator("#search-results li a").first.wait_for()
    kinds = page.locator("#search-kinds button")
    assert kinds.count() > 1
    addresses = [
        link.get_attribute("href") for link in page.locator("#search-results li > a:first-child").all()
    ]
    logs = [address.startswith("logs/") for address in addresses]
    assert logs == sorted(logs), addresses
    kinds.filter(has_text="logs").click()
    addresses = [
        link.get_attribute("href") for link in page.locator("#search-results li > a:first-child").all()
    ]
    assert addresses
    assert all(address.startswith("logs/") for address in addresses)


@pytest.mark.browser
def test_code_is_folded_and_opens(browser: Browser) -> None:
    page = browser.open("fedcor/table_1.html")
    fold = page.locator("details.sd-dropdown").filter(has=page.locator("summary", has_text="Code"))
    assert not fold.locator("pre").first.is_visible()
    fold.locator("summary").click()
    assert fold.locator("pre").first.is_visible()


@pytest.mark.browser
def test_the_data_of_a_page_can_be_taken_along(browser: Browser) -> None:
    page = browser.open("fedcor/table_1.html")
    link = page.locator("a.download", has_text=".csv").first
    path = Path(unquote(urlsplit(link.evaluate("e => e.href")).path))
    assert len(pd.read_csv(path))


def row_of(page: Any, method: str) -> tuple[float, str]:
    """The gain that the chooser's list shows for a sampler, and its words."""
    row = page.locator(f"#chooser tr[data-method='{method}']")
    return float(row.get_attribute("data-gain")), row.inner_text()


@pytest.mark.browser
def test_the_chooser_says_what_its_numbers_say(rendered: Path, browser: Browser) -> None:
    if os.environ.get("FEDLIB_SITE"):
        pytest.skip("looks at the small site")
    runs = pd.read_csv(next((rendered / "_downloads").rglob("chooser.csv")))
    page = browser.open("chooser.html")

    def expected(method: str, settings: list[str], budget: float) -> float:
        some = runs[runs["setting"].isin(settings) & (runs["round"] == 10 * budget)]
        wide = some.pivot_table(index=["setting", "seed"], columns="method", values="accuracy")
        return float((wide[method] - wide["Random"]).groupby("setting").mean().mean())

    gain, words = row_of(page, "MD")
    assert gain == pytest.approx(expected("MD", ["one label", "mixed"], 1), abs=0.01)
    assert "above Random" in words
    cells = page.locator("#chooser tr[data-method='MD'] .strip i:not(.missing)").all_text_contents()
    assert [text[:2] for text in cells] == ["a+", "b+"]
    key = page.locator("#chooser p:has(> b)").inner_text()
    assert re.fullmatch(r"In each setting, .*: a .*; b .*\.", key), "what the letters mean"
    assert "oracle" in page.locator("#chooser").inner_text().lower()
    page.locator("#chooser .js-plotly-plot").wait_for()
    names = page.locator("#chooser .annotation-text").all_text_contents()
    assert {"MD", "Random"} <= set(names), "each line has its name at its end"
    page.locator("select[name=labels]").select_option(index=1)
    gain, _ = row_of(page, "MD")
    assert gain == pytest.approx(expected("MD", ["one label"], 1), abs=0.01)
    assert "labels=one" in unquote(page.url)
    page.locator("select[name=cost]").select_option("megabytes")
    page.locator("select[name=amount]").select_option("0.5")
    gain, _ = row_of(page, "MD")
    assert gain == pytest.approx(expected("MD", ["one label"], 0.5), abs=0.01)
    page.locator("select[name=asks]").select_option("0")
    assert page.locator("#chooser tr[data-method='Pow-d']").count() == 0, "it asks for losses"
    again = browser.open(page.url.split("/")[-1])
    assert row_of(again, "MD")[0] == pytest.approx(gain), "the address keeps the choice"
    page.go_back()
    assert page.locator("#chooser tr[data-method='Pow-d']").count() == 1, "back is the choice before"
    assert page.locator("select[name=amount]").input_value() == "0.5"
    wrong = browser.open("chooser.html#cost=xxx&amount=7&asks=9")
    assert row_of(wrong, "MD")[0] == pytest.approx(expected("MD", ["one label", "mixed"], 1), abs=0.01)
    assert browser.problems == []


@pytest.mark.browser
def test_the_multiverse_follows_the_choices(rendered: Path, browser: Browser) -> None:
    if os.environ.get("FEDLIB_SITE"):
        pytest.skip("looks at the small site")
    page = browser.open("multiverse.html")
    said = page.locator("#multiverse .chooser-said")
    assert said.inner_text() == "From 1 to 4 ×. Printed: 2.5 ×."
    assert (
        page.locator("#multiverse ul.note li").first.inner_text()
        == "rule, mean: 1 to 3, on average 2 × [1.5, 2.5]"
    )
    assert page.locator("#multiverse .tick").all_text_contents() == ["0.5", "1", "2", "4"]
    page.locator("select[name=rate]").select_option("0.1")
    assert "From 3 to 4" in said.inner_text()
    page.locator("select[name=rule]").select_option("attrition")
    assert "This reading is the one that is tested: not shown." in said.inner_text()
    assert "200+ and 80 rounds" in page.locator("#multiverse table").inner_text()
    page.locator("#multiverse .dot").first.click()
    assert "1 × [0.5, 1.5]" in said.inner_text()
    again = browser.open(page.url.split("/")[-1])
    assert "1 × [0.5, 1.5]" in again.locator("#multiverse .chooser-said").inner_text()
    assert browser.problems == []
