"""README's results are those of the archive."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedlib.analysis import measure
from fedlib.analysis.claims import claims
from fedlib.analysis.judging import totals, verdicts
from fedlib.analysis.paper import papers
from fedlib.errors import ConfigError
from fedlib.pages import readme
from fedlib.runs import archive, results
from fedlib.runs.place import Place
from fedlib.runs.simulate import simulate
from fedlib.runs.work import Plan
from fedlib.settings import params, schema

TINY = {
    "title": "a small one",
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 6,
    "m": 3,
    "T": 6,
    "seeds": 2,
    "local": {"lr": 1.0, "batch": 8, "steps": 5},
    "methods": {"Random": {"sampler": "uniform"}, "Full participation": {"sampler": "full"}},
    "grid": {"MNIST, q = 10 %": {}},
    "scales": {"cpu": {"grid": {"FMNIST, q = 30 %": {"T": 4}}, "seeds": 1}},
}


def test_readme_is_in_step_with_the_archive() -> None:
    text = readme.README.read_text()
    written = text.split(readme.START)[1].split(readme.END)[0].strip()
    assert written == readme.block(params.load()), "run: fedlib readme"


@pytest.fixture
def settings() -> params.Experiments:
    settings = params.load()
    settings.raw["experiments"]["hcsfed_table_1"] = TINY
    return settings


def pack(settings: params.Experiments, scale: schema.Scale, folder: Path) -> dict:
    place, out = Place(runs=folder / "runs", workers=1), folder / "results"
    plan = Plan.of_experiment("hcsfed_table_1", scale, settings)
    simulate(plan, place=place, results=out, tell=lambda line: None)
    table, info = results.open_results("hcsfed_table_1", scale, out)
    archive.write("hcsfed_table_1", scale, (), table, info["runs"], folder / "archive")
    return {"hcsfed_table_1": table}


def row(block: str, name: str) -> list[str]:
    line = next(line for line in block.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def following(block: str, name: str) -> list[str]:
    """The row below a printed one: that of the first reading."""
    lines = block.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in lines[at + 1].strip("|").split("|")]


def test_every_number_is_the_archives_under_its_scale(settings: params.Experiments, tmp_path: Path) -> None:
    paper = pack(settings, "paper", tmp_path)
    block = readme.block(settings, tmp_path / "archive")
    rounds = measure.per_run(paper["hcsfed_table_1"], "test_accuracy", measure.rounds_to_target, target=0.8)
    median = rounds.groupby("method").median()
    cells = row(block, "MNIST, q = 10 %")
    assert cells[1:3] == ["printed", "96"]
    written = following(block, "MNIST, q = 10 %")
    assert written[1] == "as written, scale paper, 2 seeds"
    assert written[2].startswith(f"{median['Random']:g} (")
    assert written[3] == "not run"
    assert row(block, "FMNIST, q = 30 %")[1] == "*not run*: not planned at scale paper"
    assert row(block, "FMNIST 2SPC, 69 %")[1].startswith(
        "*not run*: needs Fashion-MNIST; 20 runs of 500 rounds"
    )
    assert row(block, "Mini-ImageNet (2), 50 %")[1].startswith(
        "*not run*: needs Mini-ImageNet, which only a mirror"
    )

    board = verdicts([claim for name in papers() for claim in claims(name)], paper)
    assert row(block, "all")[1:] == [str(n) for n in totals(board).loc["all papers"]]
    assert "Scale **paper**: 4 of" in block
    assert "scikit-learn's digits" in block
    assert "Scale **cpu**" not in block

    pack(settings, "cpu", tmp_path)
    block = readme.block(settings, tmp_path / "archive")
    assert following(block, "MNIST, q = 10 %") == written  # paper first
    assert following(block, "FMNIST, q = 30 %")[1] == "as written, scale cpu, 1 seed"
    absent = ((board["verdict"] == "not run") & (board["headline"] != "informative")).sum()
    said = re.search(rf"^Of the {absent} claims not run at scale paper, at scale cpu: (.*)\.$", block, re.M)
    assert sum(map(int, re.findall(r"\d+", said.group(1)))) == absent
    assert len(re.findall(r"^Scale \*\*", block, flags=re.MULTILINE)) == 2


def test_runs_of_other_settings_are_not_shown(settings: params.Experiments, tmp_path: Path) -> None:
    pack(settings, "paper", tmp_path)
    settings.raw["experiments"]["hcsfed_table_1"] = TINY | {"m": 2}
    block = readme.block(settings, tmp_path / "archive")
    assert "Scale **paper**: 0 of" in block
    assert row(block, "MNIST, q = 10 %")[1].startswith("*not run*")


def test_only_what_is_between_the_marks_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme, "block", lambda settings, root: f"## Results of {root.name}")
    path = tmp_path / "README.md"
    path.write_text(f"before\n{readme.START}\nold\n{readme.END}\nafter\n")
    assert readme.write(path, tmp_path)
    text = path.read_text()
    assert text.startswith(f"before\n{readme.START}\n\n## Results of {tmp_path.name}")
    assert text.endswith(f"{readme.END}\nafter\n")
    assert not readme.write(path, tmp_path)
    path.write_text("no marks")
    with pytest.raises(ConfigError, match="lost its marks"):
        readme.write(path, tmp_path)
