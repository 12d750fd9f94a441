"""`fedlib new`: what an addition begins with, files and entries in their places; `check` runs what it must pass.

What is written passes those tests as it stands, once claims are frozen and a sampler is pinned: an example to replace.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable, Container, Mapping
from datetime import date
from pathlib import Path
from string import Template
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from ruamel.yaml import YAML

from fedlib.errors import ConfigError
from fedlib.files import write_whole
from fedlib.samplers import SAMPLERS
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.analysis.claim import claims_of
from workspace.analysis.paper import papers
from workspace.commands import notebooks, pipeline

AFTER_PAPERS = {"world", "arena", "theory"}  # what follows the papers in params.yaml
CHECKS = (  # the tests that read all entries, files and records, besides those of what was added
    "tests/test_architecture.py::test_a_room_imports_only_from_rooms_above_it",
    "tests/test_architecture.py::test_the_library_knows_no_experiment_and_no_paper",
    "tests/settings/test_params.py",
    "tests/settings/test_released.py::test_the_record_is_that_of_the_code",
    "tests/samplers/test_registry.py::test_all_that_is_shipped_is_recorded_and_only_that",
    "tests/papers/test_frozen.py::test_claims_are_as_they_were_frozen",
    "tests/papers/test_claims_by_kind.py::test_every_claim_is_named_in_a_test",
    "tests/papers/test_primary.py",
    "tests/analysis/test_power.py::test_the_committed_table_is_that_of_these_claims",
    "tests/analysis/test_readings.py",
    "tests/commands/test_pipeline.py::test_dvc_yaml_is_in_step_with_params",
    "tests/commands/test_pipeline.py::test_every_page_of_a_papers_runs_takes_methods_seeds_and_settings",
    "tests/commands/test_pipeline.py::test_every_artifact_takes_the_scale",
    "tests/pages/test_article.py::test_what_is_written_by_hand_has_all_parts_and_no_result",
    "tests/pages/test_discrepancies.py::test_what_is_left_open_stands_in_one_place",
)
CHECKS_OF_A_SAMPLER = (
    "tests/test_pins.py::test_choices_are_the_pinned_ones",
    "tests/runs/test_cost.py::test_the_cost_of_every_sampler_is_known",
)

PAPER = {
    "__init__.py": '''
"""$title ($year)."""

from workspace.analysis.paper import Paper

PAPER = Paper(title="$title", year=$year, citation="$authors: $title. $year.")
''',
    "claims.py": '''
"""The claims of $title. Write them before the runs that they judge, then `fedlib freeze $name`."""

from __future__ import annotations

from functools import partial

from fedlib.measure import end_mean
from workspace.analysis.claim import Level, claim_on, versus
from workspace.analysis.readings import Where

claim = partial(claim_on, "$short", "$name")
OURS, RANDOM = (Where("${short}_first", "", method) for method in ("Pow-d", "Random"))
END = Level(end_mean, "points", 100)
CLAIMS = (
    claim("F1.a", "An example: Pow-d ends at a higher test accuracy than random selection.", "supporting", END,
          [versus("digits", OURS, RANDOM, data="digits")]),
)  # fmt: skip
''',
    "readings.py": '''
"""The readings of $title: how it is understood where its text leaves something open."""

from __future__ import annotations

from workspace.analysis.readings import AS_WRITTEN, Reading

READINGS = [Reading(AS_WRITTEN, "the paper's text")]
LEFT_OPEN = [("an example: the learning rate", "not printed", "0.1")]  # what, what the sources say, what is taken
''',
    "sentences.py": '''
"""The paper's own sentences: claim -> (sentence, place)."""

from __future__ import annotations

SENTENCES = {"$short.F1.a": ("an example: ours ends higher than random selection", "abstract")}
''',
    "article.md": """
# $title

## Scope

An example: what the paper proposes.

An example: what is run here, and what is not.

## What was easy

- An example: the method is a few lines.
- An example: a run takes seconds.

## What was hard

- An example: no program is public.
- An example: the learning rate is not printed.

## What to ask the authors

- An example: which learning rate was used?
- An example: over how many seeds are the curves averaged?
""",
}
TEST_OF_CLAIMS = '''
"""The claims of $title on made-up tables, which decide them both ways."""

from __future__ import annotations

import pandas as pd
import pytest
from outcome import judge

HIGH, LOW = 0.8, 0.6


def table(heights: dict[str, float]) -> dict[str, pd.DataFrame]:
    """One level curve per method; seeds differ by a thousandth."""
    parts = [
        pd.DataFrame({"round": range(31), "test_accuracy": height + 1e-3 * seed, "seed": seed, "method": method})
        for method, height in heights.items()
        for seed in range(5)
    ]
    return {"${short}_first": pd.concat(parts).assign(setting="", diverged=False, notes=None)}


@pytest.mark.parametrize("id", ["$short.F1.a"])
def test_a_claim_holds_as_the_paper_has_it_and_is_contradicted_the_other_way_round(id: str):
    assert judge(id, table({"Pow-d": HIGH, "Random": LOW})).outcome == "holds"
    assert judge(id, table({"Pow-d": LOW, "Random": HIGH})).outcome == "contradicted"
'''
EXPERIMENT = """
  # ---------------------------------------------------------------- $title ($year)

  ${short}_first:
    title: An example
    paper: $name
    dataset: digits
    partition: {scheme: dirichlet_clients, alpha: 0.3, sizes: [[20, 30]]}
    model: logistic
    N: 20
    m: 4
    T: 30
    local: {lr: 0.1, batch: 10, steps: 5}
    methods:
      Random: {sampler: uniform}
      Pow-d: {sampler: power_of_choice, d: 8}
    scales:
      demo: {seeds: 2}
"""
CHOICE = """
scale = None  # demo, cpu or paper; None: the scale in params.yaml
methods = None  # only these, such as ["Random", "Pow-d"]; None: all
seeds = None  # only these, such as [0, 1]; None: all
settings = None  # only these, by the names that the page shows; None: all
"""
CELLS = (
    """
from fedlib.drawing import plots
from workspace.pages.artifact import Artifact

plots.style()
artifact = Artifact.open("$artifact", scale, methods, seeds, settings)
""",
    'artifact.show(plots.curves(artifact.results["$experiment"], "test_accuracy"))',
)
SAMPLER = '''
"""An example: m different clients, uniformly. Name the paper, section and equation here."""

from __future__ import annotations

from dataclasses import dataclass

from fedlib.samplers.base import Round, Sampler, Selection, register


@register("$name")
@dataclass
class $Class(Sampler):
    """m different clients, uniformly. Its fields are its parameters."""

    def select(self, round: Round) -> Selection:
        return Selection(round.rng.choice(round.available, round.m, replace=False))
'''
TEST_OF_SAMPLER = '''
"""$Class: the contract of all samplers, and what is its own."""

from __future__ import annotations

from fedlib.samplers import Sampler
from fedlib.samplers.$name import $Class

from .contract import SamplerContract


class Test$Class(SamplerContract):
    def make(self) -> Sampler:
        return $Class()
'''
DATASET = '''
"""An example: two blurred classes, drawn when they are prepared. Name the source here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlib.data.sources.base import Found, Kind, register

CLASSES = ("left", "right")
KIND = Kind(400, 100, (5,), CLASSES, title="$title", embedded="fedlib", values="numbers")


@register("$name", KIND)
def read(name: str, kind: Kind, folder: Path) -> Found:
    """folder: the mirror's folder of the dataset; of one that is embedded, nothing stands there."""
    rng, arrays = np.random.default_rng(0), {}
    for part, n in (("train", kind.n_train), ("test", kind.n_test)):
        y = rng.integers(len(CLASSES), size=n)
        x = rng.normal(2.0 * y[:, None] - 1.0, 1.0, (n, *kind.shape))
        arrays |= {f"x_{part}": x.astype(np.float32), f"y_{part}": y.astype(np.int64)}
    return Found(arrays, CLASSES, "$title: drawn at random, an example")
'''


def paper(name: str, title: str = "", year: int = 0, authors: str = "Nobody") -> list[Path]:
    """The folder of a paper, its first experiment and figure, and a test of its claims; returns the new files.

    year: 0 for this year.
    """
    title, year = title or words(name).title(), year or date.today().year
    prefixes = {claim.id.partition(".")[0] for folder in papers() for claim in claims_of(folder)}
    initials = "".join(word[0] for word in name.split("_"))
    short = name if len(initials) < 2 or initials in prefixes else initials
    fields = {"name": valid(name), "title": title, "year": year, "authors": authors, "short": short}
    folder = ROOT / "workspace" / "papers" / name
    texts = {folder / file: text for file, text in PAPER.items()}
    texts[ROOT / "tests" / "papers" / f"test_claims_{name}.py"] = TEST_OF_CLAIMS
    files = create(texts, fields)
    newer = {key for key, paper in papers().items() if (paper.year, paper.title) > (year, title)}
    later = newer | AFTER_PAPERS
    insert("experiments", Template(EXPERIMENT).substitute(fields), lambda _, entry: entry["paper"] in later)
    return [
        *files,
        *artifact(f"{name}-figure_1", [f"{short}_first"], f"{title}, Figure 1: an example", later),
    ]


def artifact(
    name: str, experiments: list[str], title: str = "", later: Container[str] = AFTER_PAPERS
) -> list[Path]:
    """A page `<folder>-<name>` that opens some experiments: its notebook, its line, its stage.

    later: folders whose pages come after it, if its own folder has none yet.
    """
    folder, _, place = name.partition("-")
    for part in (folder, place):
        valid(part)
    settings = params.load()
    if missing := [key for key in experiments if key not in {*settings.names, *settings.studies}]:
        raise ConfigError(f"there is no experiment or study {missing[0]!r}; `fedlib list` names all.")
    path = ROOT / "notebooks" / folder / f"{place}.ipynb"
    refuse(path)
    fields = {"artifact": name, "experiment": experiments[0] if experiments else ""}
    cells = [cell for cell in CELLS if experiments or "$experiment" not in cell]
    parts = [
        new_markdown_cell(f"# {title or words(place).capitalize()}"),
        new_code_cell(CHOICE.strip(), metadata={"tags": ["parameters"]}),
        *(new_code_cell(Template(cell).substitute(fields).strip()) for cell in cells),
        new_markdown_cell("An example: what is shown."),
    ]
    if (ROOT / "workspace" / "papers" / folder).is_dir():  # other pages have no claims
        parts += [new_markdown_cell("## Claims"), new_code_cell("artifact.judge();")]
    notebook = notebooks.normalise(new_notebook(cells=parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, nbformat.writes(notebook).encode() + b"\n")
    siblings = [key for key in settings.artifacts if key.startswith(f"{folder}-")]
    names = list(settings.artifacts)
    if siblings:
        following = names[names.index(siblings[-1]) + 1 :][:1]
    else:
        following = [key for key in names if key.partition("-")[0] in later][:1]
    entry = f"  {name}: {{experiments: [{', '.join(experiments)}]}}\n"
    insert("artifacts", entry if siblings else f"\n{entry}", lambda key, _: key in following)
    pipeline.write_stages()
    return [path]


def sampler(name: str) -> list[Path]:
    """A file of one sampler, and its test."""
    fields = {"name": valid(name), "Class": words(name).title().replace(" ", "")}
    test = ROOT / "tests" / "samplers" / f"test_{name}.py"
    return create({ROOT / "fedlib" / "samplers" / f"{name}.py": SAMPLER, test: TEST_OF_SAMPLER}, fields)


def dataset(name: str) -> list[Path]:
    """A file of one dataset, which needs no download."""
    fields = {"name": valid(name), "title": words(name).title()}
    return create({ROOT / "fedlib" / "data" / "sources" / f"{name}.py": DATASET}, fields)


def check(name: str) -> int:
    """Run the tests that an addition of this name must pass; returns pytest's status."""
    if not (ROOT / "tests").is_dir():
        raise ConfigError(f"{ROOT} has no tests; work in a clone of the repository.")
    tests = [str(path) for path in (ROOT / "tests").glob(f"*/test_*{name}.py")]
    for sampler_name, cls in SAMPLERS.items():
        if name in (sampler_name, cls.__module__.rpartition(".")[2]):
            tests += [f"{test}[{sampler_name}]" for test in CHECKS_OF_A_SAMPLER]
    return subprocess.call([sys.executable, "-m", "pytest", "-q", *tests, *CHECKS], cwd=ROOT)


# -- writing


def words(name: str) -> str:
    return name.replace("_", " ")


def valid(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise ConfigError(
            f"{name!r} is no name; use small letters, digits and _, as in power_of_choice (a page: folder-name)."
        )
    return name


def refuse(path: Path) -> None:
    if path.exists():
        raise ConfigError(f"{path.relative_to(ROOT)} is there already; choose another name.")


def create(texts: Mapping[Path, str], fields: Mapping[str, Any]) -> list[Path]:
    """Write templates, all or, if one of the files is there already, none."""
    for path in texts:
        refuse(path)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, Template(text.lstrip("\n")).substitute(fields).encode())
    return list(texts)


def insert(section: str, entry: str, follows: Callable[[str, Any], bool]) -> None:
    """Put an entry into a section of params.yaml before the first one that follows it and the comments above that."""
    text = params.PARAMS.read_text(encoding="utf-8")
    lines, values = text.splitlines(keepends=True), params.load().raw[section]
    top = YAML(typ="safe", pure=True).compose(io.StringIO(text)).value
    place = next(k for k, (key, _) in enumerate(top) if key.value == section)
    ends = [key.start_mark.line for key, _ in top[place + 1 :]] + [len(lines)]
    keys = [(key.value, key.start_mark.line) for key, _ in top[place][1].value]
    position = next((line for name, line in keys if follows(name, values[name])), ends[0])
    while not lines[position - 1].strip() or lines[position - 1].lstrip().startswith("#"):
        position -= 1
    write_whole(params.PARAMS, "".join([*lines[:position], entry, *lines[position:]]).encode())
