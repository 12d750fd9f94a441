"""The pipeline: in step with its settings, and a small one really run by DVC in a folder of its own."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from copies import PARAMS, Project
from nbformat.v4 import new_code_cell, new_notebook
from papermill import inspect_notebook

from fedlib.runs import archive, results
from fedlib.runs.work import Plan, Work
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.settings.reading import parse
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import power
from workspace.analysis.paper import papers
from workspace.commands import notebooks, pipeline, uses
from workspace.pages import seals

SETTINGS = params.load(ROOT / "params.yaml")


def test_dvc_yaml_is_in_step_with_params() -> None:
    text = (ROOT / "dvc.yaml").read_text()
    written = text[text.index(pipeline.MARK) + len(pipeline.MARK) :]
    assert written == pipeline.stages(SETTINGS), "run: fedlib pipeline"


def test_every_stage_says_what_it_is_for() -> None:
    text = (ROOT / "dvc.yaml").read_text()
    assert text.count("desc: ") == text.count("cmd: ")


def test_every_artifact_has_its_notebook_and_every_notebook_its_artifact() -> None:
    found = {path.relative_to(ROOT / "notebooks").with_suffix("").as_posix() for path in _notebooks()}
    listed = {name.replace("-", "/", 1) for name in SETTINGS.artifacts}
    assert found - {"simulate", "explore"} == listed


def test_every_page_of_a_papers_runs_takes_methods_seeds_and_settings() -> None:
    """Of a paper all pages or none."""
    takes: dict[str, set[bool]] = {}
    for name, experiments in SETTINGS.artifacts.items():
        section = name.partition("-")[0]
        if section in papers() and set(experiments) & set(SETTINGS.names):
            declared = {"methods", "seeds", "settings"} & set(_parameters(name))
            assert len(declared) in (0, 3), name
            takes.setdefault(section, set()).add(bool(declared))
    assert all(len(kinds) == 1 for kinds in takes.values()), takes
    assert {True} in takes.values()


@pytest.mark.parametrize("name", SETTINGS.artifacts)
def test_every_parameter_is_explained_and_checked_as_the_page_opens(name: str) -> None:
    source = notebooks.read(notebooks.SOURCES / f"{notebooks.place(name)}.ipynb")
    code = "\n".join(cell.source for cell in source.cells if cell.cell_type == "code")
    cell = next(cell.source for cell in source.cells if "parameters" in cell.metadata.get("tags", []))
    assert all("  # " in line for line in cell.splitlines()), "what may it be?"
    opened = next(
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Artifact.open"
    )
    given = [ast.unparse(argument) for argument in opened.args]
    given += [f"{word.arg}={ast.unparse(word.value)}" for word in opened.keywords]
    first = [p for p in ("scale", "methods", "seeds", "settings") if p in _parameters(name)]
    others = [f"{p}={p}" for p in _parameters(name) if p not in first]
    assert given == [repr(name), *first, *others]


def _parameters(artifact: str) -> list[str]:
    source = notebooks.read(notebooks.SOURCES / f"{notebooks.place(artifact)}.ipynb")
    return list(inspect_notebook(notebooks.normalise(source)))


def test_every_artifact_takes_the_scale() -> None:
    for path in _notebooks():
        if path.stem != "explore":
            assert "scale" in inspect_notebook(notebooks.normalise(notebooks.read(path))), path


def test_a_simulation_depends_on_neither_plots_nor_claims() -> None:
    used = uses.digests("simulate", notebooks.read(ROOT / "notebooks" / "simulate.ipynb"), ROOT)
    assert {"fedlib/simulation/engine.py", "fedlib/samplers/base.py", "fedlib/training/stacked.py"} <= set(
        used
    )
    assert not any("plots" in file or "claims" in file or "site" in file for file in used)
    assert all(list(ROOT.glob(pattern)) for pattern in uses.NUMBERS)


def test_a_study_depends_on_all_that_its_numbers_are_made_by() -> None:
    """Whatever those modules import, be it only when they need it, but for how runs are fetched, spread and kept."""
    plumbing = {
        "errors.py",
        "files.py",
        "place.py",
        "progress.py",
        "train.py",
        "store.py",
        "coverage.py",
        "group.py",
    }
    used = {file for pattern in uses.NUMBERS for file in ROOT.glob(pattern)}
    for file in used:
        nodes = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        found = uses.imported("\n".join(map(ast.unparse, nodes)), ROOT)
        assert {path for path in found if path.name not in plumbing} <= used, file


def test_a_page_depends_on_what_its_notebook_imports_and_its_claims(tmp_path: Path) -> None:
    code = {
        "workspace/a": "from fedlib import b",
        "fedlib/b": "import fedlib.c",
        "fedlib/c": "x = 0",
        "fedlib/d": "x = 1",
        "workspace/papers/p/claims": "",
        "workspace/papers/q/claims": "",
    }
    for name, text in code.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    notebook = new_notebook(cells=[new_code_cell("def f():\n    import fedlib.d\nfrom workspace.a import x")])
    found = uses.digests("p/figure_1", notebook, tmp_path)
    assert set(found) == {"workspace/a.py", "fedlib/b.py", "fedlib/c.py", "workspace/papers/p/claims.py"}
    (tmp_path / "fedlib" / "c.py").write_text("x = 2\n")
    changed = uses.digests("p/figure_1", notebook, tmp_path)
    assert {file for file in found if found[file] != changed[file]} == {"fedlib/c.py"}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    """A copy of the code, and what each stage depends on there."""
    root = tmp_path_factory.mktemp("code")
    for name in ("fedlib", "workspace"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root, _used(root)


def _used(root: Path) -> dict[str, dict[str, str]]:
    """Artifact, `simulate`, `log` or `site` -> the digests that it depends on."""
    names = {name: notebooks.place(name) for name in SETTINGS.artifacts} | {"simulate": "simulate"}
    sources = {place: notebooks.read(notebooks.SOURCES / f"{place}.ipynb") for place in names.values()}
    found = {name: uses.digests(place, sources[place], root) for name, place in names.items()}
    return found | {"site": uses.digests_of_site(root), "log": uses.digests_of_log(root)}


@pytest.mark.parametrize(
    ("file", "old", "new", "stale", "fresh"),
    [
        ("fedlib/samplers/fedcor.py", "import numpy", "# A comment.\nimport numpy", "", ".*"),
        ("fedlib/samplers/fedcor.py", '"""', '"""Another word. ', "site", "(?!site).*"),
        (
            "workspace/papers/fedcor/claims.py",
            "CLAIMS",
            "X = 1\nCLAIMS",
            "fedcor-.*|scoreboard",
            "simulate|hcsfed-.*",
        ),
        (
            "workspace/analysis/estimators.py",
            "ALPHA =",
            "X = 1\nALPHA =",
            "fedcor-figure_4|scoreboard",
            "simulate",
        ),
        (
            "fedlib/drawing/plots.py",
            "def curves",
            "X = 1\n\n\ndef curves",
            "fedcor-figure_4|arena|log",
            "simulate",
        ),
        (
            "workspace/pages/logbook.py",
            "def flat",
            "X = 1\n\n\ndef flat",
            "log",
            "simulate|fedcor-figure_4",
        ),
        ("fedlib/simulation/engine.py", "import numpy", "X = 1\nimport numpy", "simulate", "fedcor-figure_4"),
        ("workspace/lab/panel.py", "import", "X = 1\nimport", "", ".*"),
    ],
)
def test_an_edit_makes_stale_what_uses_it_and_nothing_else(code, file, old, new, stale, fresh) -> None:
    """By the digests alone; stale and fresh: patterns of names."""
    root, before = code
    path = root / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    after = _used(root)
    path.write_text(text)
    changed = {name for name in before if before[name] != after[name]}
    assert {name for name in before if re.fullmatch(stale, name)} <= changed
    assert not {name for name in changed if re.fullmatch(fresh, name)}


def _notebooks() -> list[Path]:
    """All but the library's examples, which no stage runs."""
    found = (ROOT / "notebooks").rglob("*.ipynb")
    return [p for p in found if ".ipynb_checkpoints" not in p.parts and p.parent != notebooks.EXAMPLES]


def ran(told: str) -> set[str]:
    by_dvc, by_us = r"Running stage '(.+)'", r"\d+ of \d+: (\S+)"
    return {name for found in re.findall(f"{by_dvc}|{by_us}", told) for name in found if name}


def ran_by(project: Project, *arguments: str) -> set[str]:
    """The stages that `dvc repro` ran."""
    return ran(project.dvc("repro", *arguments))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


@pytest.mark.slow
def test_dvc_repro_makes_what_is_stale_and_nothing_else(project: Project) -> None:
    made = {"data", "notebooks", "simulate@tiny", "theory-tiny"}
    assert ran_by(project, "theory-tiny") == made
    folder = project.folder / "data" / "artifacts" / "demo" / "theory-tiny"
    assert {p.name for p in folder.iterdir()} == {"notebook.ipynb", "table.csv", "verdicts.json"}
    first = (folder / "notebook.ipynb").read_bytes()

    assert ran_by(project, "theory-tiny") == set()

    opened = nbformat.read(project.notebook("tiny"), as_version=4)
    opened.cells[2].execution_count, opened.cells[2].id = 7, "another"
    nbformat.write(opened, project.notebook("tiny"))
    assert ran_by(project, "theory-tiny") == {"notebooks"}

    opened.cells[0].source = "# Another title"
    nbformat.write(opened, project.notebook("tiny"))
    assert ran_by(project, "theory-tiny") == {"notebooks", "theory-tiny"}

    opened.cells[0].source = "# Tiny"
    nbformat.write(opened, project.notebook("tiny"))
    ran_by(project, "--force", "--single-item", "notebooks")
    assert ran_by(project, "--force", "--single-item", "theory-tiny") == {"theory-tiny"}
    assert (folder / "notebook.ipynb").read_bytes() == first


def test_an_experiment_without_its_data_says_so_and_stops_nothing(project: Project) -> None:
    assert "theory-elsewhere" in ran_by(project, "theory-elsewhere")
    info = json.loads((project.folder / "data/results/demo/elsewhere.json").read_text())
    assert info["runs"] == []
    assert "mini_imagenet" in info["missing"][0]["reason"]
    page = (project.folder / "data/artifacts/demo/theory-elsewhere/notebook.ipynb").read_text()
    assert "fedlib run elsewhere --scale demo" in page
    assert "Traceback" not in page


def test_data_that_was_not_there_is_looked_for_again(project: Project) -> None:
    project.dvc("repro", "simulate@elsewhere", "simulate@tiny")
    assert ran_by(project, "simulate@elsewhere") == set()
    assert ran(project.fedlib("repro", "simulate@elsewhere")) == {"data"}
    left = project.folder / "data" / "inputs" / "demo" / "no_longer_planned.json"
    left.write_text("{}")
    assert ran(project.fedlib("repro", "simulate@tiny")) == {"data"}
    assert not left.exists()


@pytest.mark.slow
def test_a_repro_leaves_what_dvc_leaves_and_goes_on_after_a_stage_that_failed(project: Project) -> None:
    good = project.notebook("tiny").read_text()
    project.notebook("tiny").write_text(good.replace("artifact.judge()", "1 / 0"))
    failed = project.call("fedlib", "repro", "theory-tiny", status=255)
    assert "theory-tiny: ZeroDivisionError" in failed
    assert "simulate@tiny: " not in failed
    assert "failed to reproduce 'theory-tiny'" in failed
    # Nothing like it has run, so DVC has nothing to restore.
    project.notebook("tiny").write_text(good.replace("# Tiny", "# Tiny, mended"))
    told = project.fedlib("repro", "theory-tiny")
    assert "theory-tiny" in ran(told)
    assert told.rstrip().endswith("the log is data/repro.log.")
    assert "Running stage 'theory-tiny'" in (project.folder / "data" / "repro.log").read_text()
    assert "up to date" in project.dvc("status", "theory-tiny")
    lock = (project.folder / "dvc.lock").read_bytes()
    project.dvc("commit", "--force", "theory-tiny")
    assert (project.folder / "dvc.lock").read_bytes() == lock
    project.notebook("tiny").write_text(good)


def test_a_lock_file_that_a_kill_left_empty_stops_nothing(project: Project) -> None:
    project.dvc("repro", "theory-tiny")
    lock = project.folder / "dvc.lock"
    whole = parse(lock.read_bytes(), "dvc.lock")["stages"]
    lock.write_bytes(b"")
    project.fedlib("repro", "theory-tiny")
    again = parse(lock.read_bytes(), "dvc.lock")["stages"]
    assert again == {name: whole[name] for name in again}
    assert "theory-tiny" in again


def test_plots_are_dvcs(project: Project) -> None:
    """The curves of what has been trained; a table without rows is no error."""
    project.dvc("repro", "theory-tiny", "simulate@elsewhere")
    curves = pd.read_csv(project.folder / "data/results/demo/tiny.csv")
    table = pd.read_parquet(project.folder / "data/results/demo/tiny.parquet")
    last = table[table["round"] == table["round"].max()].groupby("method")["test_accuracy"].mean()
    drawn = curves[curves["round"] == curves["round"].max()].set_index("method")["accuracy"]
    assert (drawn - 100 * last).abs().max() < 1e-3
    project.dvc("plots", "show", "--out", "plots")
    page = (project.folder / "plots" / "index.html").read_text()
    assert "test accuracy (%)" in page
    assert all(f'"method": "{method}"' in page for method in drawn.index)


def test_pages_of_papers_wait_for_the_effects_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of effects is made once, after all tables, and not by every page that comes first."""
    finished: Any = {name: {"a unit of work": "its address"} for name in ("cs_mnist", "world_claims")}
    monkeypatch.setattr(seals, "is_current", lambda *_: False)
    monkeypatch.setattr(results, "shows", lambda *_: False)
    tables = pipeline._stale_tables(finished, "cpu")
    effects = pipeline._stale_effects("cpu", tables)
    assert {name: step.needs for name, step in effects.items()} == {"effects@cpu": set(tables)}
    pages = {
        "clustered_sampling-figure_1": ["cs_mnist"],
        "world-claims": ["world_claims"],
        "theory-engine": [],
    }
    steps = pipeline._stale_pages(pages, "cpu", finished, tables, effects)
    assert {name: step.needs for name, step in steps.items()} == {
        "clustered_sampling-figure_1": {"table@cs_mnist", "effects@cpu"},
        "world-claims": {"table@world_claims"},
        "theory-engine": set(),
    }
    assert not pipeline._stale_effects("demo", tables), "at scale demo no page judges"


def make_pages(project: Project) -> None:
    """`fedlib report` without the site."""
    code = "from workspace.commands import pipeline; assert not pipeline.make_pages('demo')"
    project.call("python", "-c", code)


@pytest.mark.slow
def test_from_the_archive_nothing_is_trained(project: Project) -> None:
    """Packed, wiped, rendered: pages and site come back without a run; `dvc repro` trains what changed alone."""
    data = project.folder / "data"
    project.dvc("repro", "theory-tiny")
    page = data / "artifacts" / "demo" / "theory-tiny" / "notebook.ipynb"
    first = seals.opened(page)
    project.fedlib("archive", "--scale", "demo")
    assert [path.name for path in (data / "archive").rglob("*.parquet")] == ["tiny.parquet"]
    for name in ("runs", "results", "artifacts", "inputs"):
        shutil.rmtree(data / name)
    shutil.rmtree(project.folder / ".dvc" / "cache")

    project.fedlib("report", "--scale", "demo")
    assert seals.opened(page) == first
    assert (project.folder / "reports" / "demo" / "theory" / "tiny.html").exists()
    assert 'url=demo/index.html"' in (project.folder / "reports" / "index.html").read_text()
    assert not list((data / "runs").rglob("run.json"))
    front = project.folder / "reports" / "demo" / "index.html"
    rendered = front.stat().st_mtime_ns
    project.fedlib("report", "--scale", "demo")
    assert front.stat().st_mtime_ns == rendered, "nothing has changed"

    log = data / "results" / "demo" / "tiny.ipynb"
    made = {path: path.stat().st_mtime_ns for path in (page, log)}
    make_pages(project)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    for module in (
        "workspace/pages/artifact",
        "fedlib/runs/results",
    ):  # the page uses one of them, its log the other
        with open(project.folder / f"{module}.py", "a") as code:
            code.write("CHANGED = 1\n")
    left = page.with_name("no_longer_made.csv")
    left.touch()
    make_pages(project)
    assert all(path.stat().st_mtime_ns > before for path, before in made.items())
    assert not left.exists()

    table = log.with_suffix(".parquet")
    kept, dated = table.read_bytes(), page.stat().st_mtime_ns
    table.write_bytes(kept + b" ")  # with a clock that goes backwards
    os.utime(table, (1, 1))
    assert not seals.is_current(page, [project.folder / "data/notebooks/theory/tiny.ipynb", table])
    table.write_bytes(kept)
    verdicts = page.with_name("verdicts.json")
    verdicts.write_text(verdicts.read_text() + " ")
    told = project.call("fedlib", "report", "--as-is", "--scale", "demo", status=1)
    assert "theory-tiny/verdicts.json is not as it was made; delete" in told
    make_pages(project)
    assert page.stat().st_mtime_ns > dated
    project.fedlib("report", "--as-is", "--scale", "demo")

    params = project.folder / "params.yaml"
    params.write_text(PARAMS.replace("seeds: 2", "seeds: 1"))
    make_pages(project)
    assert json.loads(log.with_suffix(".json").read_text())["planned"] == 1
    params.write_text(PARAMS)
    make_pages(project)
    assert json.loads(log.with_suffix(".json").read_text())["planned"] == 2

    assert {"data", "simulate@tiny"} <= ran_by(project, "theory-tiny")
    assert not list((data / "runs").rglob("run.json"))

    params.write_text(params.read_text().replace("seeds: 2", "seeds: 3"))
    assert {"simulate@tiny", "theory-tiny"} <= ran_by(project, "theory-tiny")
    trained = [json.loads(path.read_text())["run"]["seed"] for path in (data / "runs").rglob("run.json")]
    assert trained == [2]
    params.write_text(PARAMS)


def test_a_report_makes_a_study_that_is_archived_under_another_scale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = {"experiments": "hcsfed_ablation", "studies": "hcsfed_updates"}
    only = params.Experiments({kind: {name: SETTINGS.raw[kind][name]} for kind, name in kept.items()})
    monkeypatch.setattr(results, "shows", lambda *asked: False)
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path))
    commands = [step.words for step in pipeline.steps(only, "cpu").values()]
    assert not archive.path_of("hcsfed_updates", "cpu").exists()
    assert ["notebook", "run", "simulate", "--experiment", "hcsfed_updates", "--only-finished"] in commands


def test_a_report_makes_at_scale_cpu_what_a_page_lacks_at_scale_paper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {("hcsfed_ablation", "paper"), ("hcsfed_ablation", "cpu"), ("cs_work", "cpu")}
    pages = {"whole": ["hcsfed_ablation"], "half": ["hcsfed_ablation", "cs_work"], "empty": ["cs_fedprox"]}
    raw = {"experiments": {name: SETTINGS.raw["experiments"][name] for of in pages.values() for name in of}}
    raw |= {"artifacts": {name: {"experiments": of} for name, of in pages.items()}}
    only = params.Experiments(raw)

    def found(names: Iterable[str], settings: Experiments, scale: Scale) -> dict[str, dict[Work, str | None]]:
        """Of what is there one run at this scale."""
        runs = {name: Plan.of_experiment(name, scale, only).work[:1] for name in names}
        return {name: dict.fromkeys(runs[name], "a" if (name, scale) in there else None) for name in runs}

    monkeypatch.setattr(pipeline, "_finished", found)
    monkeypatch.setattr(results, "shows", lambda *asked: False)
    monkeypatch.setattr(pipeline.seals, "is_current", lambda *asked: False)
    todo = pipeline.steps(only, "paper")
    log = ["notebook", "run", "simulate", "--experiment", "hcsfed_ablation", "--only-finished"]
    assert [(step.scale, step.words) for step in todo.values()] == [
        ("paper", log),
        ("paper", ["effects"]),
        ("cpu", ["results", "cs_work"]),
        ("cpu", ["results", "hcsfed_ablation"]),
        ("cpu", ["effects"]),
        ("paper", ["notebook", "run", "empty"]),
        ("paper", ["notebook", "run", "whole"]),
        ("paper", ["notebook", "run", "half"]),
        ("cpu", ["notebook", "run", "half"]),
    ]
    assert todo["half at scale cpu"].needs == {
        "table@cs_work at scale cpu",
        "table@hcsfed_ablation at scale cpu",
    }
    assert {step.scale for step in pipeline.steps(only, "cpu").values()} == {"cpu"}


def test_of_another_scale_a_report_makes_tables_and_that_scale_still_makes_the_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = ["notebook", "run", "simulate", "--experiment", "hcsfed_ablation", "--only-finished"]
    table = tmp_path / "paper" / "hcsfed_ablation.parquet"
    table.parent.mkdir()
    monkeypatch.setattr(results, "path_of", lambda *asked: table)
    monkeypatch.setattr(pipeline.seals, "is_current", lambda *asked: False)  # also where its log was made
    monkeypatch.setenv("FEDLIB_RUNS", str(tmp_path / "runs"))

    def stale(logs: bool) -> list[list[str]]:
        found = pipeline._finished(["hcsfed_ablation"], SETTINGS, "paper")
        return [step.words for step in pipeline._stale_tables(found, "paper", logs).values()]

    assert stale(False) == [["results", "hcsfed_ablation"]]
    table.touch()
    assert stale(False) == [["results", "hcsfed_ablation"]], "its runs are not those of now"
    monkeypatch.setattr(results, "shows", lambda *asked: True)
    assert (stale(False), stale(True)) == ([], [whole])


def test_a_log_is_made_again_once_the_code_that_shows_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(notebooks, "NORMALISED", tmp_path / "notebooks")
    monkeypatch.setattr(notebooks, "RESULTS", tmp_path / "results")
    (tmp_path / "results" / "demo").mkdir(parents=True)
    notebooks.normalise_all(target=notebooks.NORMALISED)
    log, sources = nbformat.v4.new_notebook(), notebooks.log_sources("tiny", "demo")
    seals.seal(log, [], sources)
    page = tmp_path / "results" / "demo" / "tiny.ipynb"
    nbformat.write(log, page)
    assert seals.is_current(page, sources)
    monkeypatch.setattr(notebooks, "digests_of_log", lambda root: {"fedlib/drawing/plots.py": "changed"})
    notebooks.normalise_all(target=notebooks.NORMALISED)
    assert not seals.is_current(page, sources)


def test_the_scoreboard_depends_on_the_table_of_fair_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    monkeypatch.setattr(pipeline.seals, "is_current", lambda page, sources: asked.extend(sources))
    pipeline._stale_pages({"scoreboard": []}, "demo", {}, {}, {})
    assert power.TABLE in asked
    assert f"- {power.TABLE.relative_to(ROOT)}\n" in pipeline._stage("scoreboard", [])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_change_of_scale_changes_that_word_alone(tmp_path: Path, newline: str) -> None:
    path = tmp_path / "params.yaml"
    text = f"# note{newline}scale: demo  # which{newline}experiments: {{}}{newline}"
    path.write_bytes(text.encode())
    pipeline.set_scale("paper", path)
    assert path.read_bytes() == text.replace("demo", "paper").encode()
