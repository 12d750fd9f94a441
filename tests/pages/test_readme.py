"""README's results are those of the archive."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedlib.errors import ConfigError
from fedlib.settings import params
from workspace.analysis import effects, words
from workspace.analysis.paper import papers
from workspace.pages import front, readme
from workspace.pages.evidence import Evidence


def test_readme_is_in_step_with_the_archive() -> None:
    text = readme.README.read_text()
    written = text.split(readme.START)[1].split(readme.END)[0].strip()
    assert written == readme.block(params.load()), "run: fedlib readme"


def test_findings_are_those_of_the_effects_table() -> None:
    """A paper whose claims have no runs says so; a claim's sentence is that of the front page."""
    evidence = Evidence.of(effects.table({}))
    texts = readme.findings(evidence)
    assert list(texts) == list(papers())
    for paper in front.story(evidence, {}):
        text, (found, *further) = texts[paper["section"]], paper["sentences"]
        assert text.startswith("> ")
        assert f"**Found: {found}.**" in text
        assert re.findall(r"(?m)^- (.*)$", text) == further
        assert "holds" not in text


def test_letters_say_what_the_archive_says() -> None:
    """Each has three questions, says that nobody has sent it, and quotes README's finding."""
    blocks = re.split(r"\n### .*\n\n", readme.README.read_text().split(readme.START)[1])[1:]
    finding = dict(zip(papers(), blocks, strict=False))
    drafted = [paper for paper in papers() if (readme.LETTERS / f"{paper}.md").exists()]
    assert len(drafted) >= 4
    for paper in drafted:
        letter = (readme.LETTERS / f"{paper}.md").read_text()
        written = letter.split(readme.START)[1].split(readme.END)[0].strip()
        assert written == finding[paper].strip(), "run: fedlib readme"
        assert len(re.findall(r"(?m)^\d\. ", letter)) == 3
        assert "sent by nobody" in letter


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


def test_the_legend_says_what_the_rules_are() -> None:
    """Every word of an order that a claim can come to has its meaning, and no word has the meaning of another."""
    legend = front.MEANINGS.lower()
    for word in (
        *words.DECIDED,
        "not after correction",
        "not shown",
        "as large as printed",
        "smaller than printed",
    ):
        assert f"*{word}*" in legend, word
    assert "holm" in legend
    assert "half of the effect" in legend
    assert "exclude" not in legend, "what an interval does not exclude is not what it shows"


def test_planned_runs_are_counted_of_the_papers_alone() -> None:
    settings = params.load()
    names = readme.experiments_of_papers(settings)
    assert names
    for artifact in ("arena", "world-claims", "world-methods"):
        assert not set(settings.artifacts[artifact]) & set(names), artifact
