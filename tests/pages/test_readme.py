"""README's results are those of the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlib.errors import ConfigError
from fedlib.settings import params
from workspace.analysis import effects
from workspace.analysis.paper import papers
from workspace.pages import front, readme
from workspace.pages.evidence import Evidence


def test_readme_is_in_step_with_the_archive() -> None:
    text = readme.README.read_text()
    written = text.split(readme.START)[1].split(readme.END)[0].strip()
    assert written == readme.block(params.load()), "run: fedlib readme"


def test_findings_are_those_of_the_effects_table() -> None:
    """A paper whose claims have no runs says so; a claim's sentence is that of the front page."""
    table = effects.table({})
    lines = readme.findings(table)
    assert len(lines) == len(papers())
    for line, paper in zip(lines, front.story(Evidence.of(table), {}), strict=True):
        assert line.startswith(f"**{paper['title']}.**")
        assert all(said in line for said in paper["sentences"])
        assert "holds" not in line


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
