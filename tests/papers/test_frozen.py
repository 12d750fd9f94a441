"""Claims stay as they were frozen, or their paper's amendments say why they changed: whatever decides counts."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedlib import measure
from fedlib.errors import ConfigError
from workspace.analysis import claim as claims
from workspace.analysis import estimators, frozen
from workspace.analysis.claim import claims_of
from workspace.analysis.frozen import FOLDER, changed, digest
from workspace.analysis.paper import papers, part


def claim(id: str) -> claims.Claim:
    return next(one for paper in papers() for one in claims_of(paper) if one.id == id)


@pytest.mark.parametrize("paper", papers())
def test_claims_are_as_they_were_frozen(paper):
    words = "add an entry with the claim's id and its new digest to amendments.md, saying what was known"
    assert changed(paper) == [], words


def copy(paper: str, folder: Path) -> Path:
    (folder / paper).mkdir()
    for name in ("frozen.csv", "amendments.md"):
        (folder / paper / name).write_bytes((FOLDER / paper / name).read_bytes())
    return folder / paper


def test_a_changed_margin_is_noticed_until_an_amendment_names_it(tmp_path):
    folder = copy("hcsfed", tmp_path)
    edited = tuple(replace(c, margin=9.0) if c.id == "hcsfed.F5.a" else c for c in claims_of("hcsfed"))
    assert changed("hcsfed", edited, tmp_path) == ["hcsfed.F5.a"]
    assert changed("hcsfed", edited[:5], tmp_path) != []
    new = next(digest(c) for c in edited if c.id == "hcsfed.F5.a")
    with open(folder / "amendments.md", "a") as file:
        file.write(f"- hcsfed.F5.a ({new}): a wider margin.\n")
    assert changed("hcsfed", edited, tmp_path) == []


def test_a_row_dropped_together_with_a_new_margin_is_noticed(tmp_path):
    folder = copy("hics_fl", tmp_path)
    table = pd.read_csv(folder / "frozen.csv")
    table[table["claim"] != "hics.T1.d"].to_csv(folder / "frozen.csv", index=False)
    edited = tuple(replace(c, margin=1.2) if c.id == "hics.T1.d" else c for c in claims_of("hics_fl"))
    assert changed("hics_fl", edited, tmp_path) == ["hics.T1.d", "frozen.csv"]
    assert changed("hics_fl", folder=tmp_path) == ["hics.T1.d", "frozen.csv"]


def test_a_digest_written_anew_is_noticed(tmp_path):
    folder = copy("fedcor", tmp_path)
    text = (folder / "frozen.csv").read_text()
    edited = tuple(replace(c, margin=1.2) if c.id == "fedcor.F3.a" else c for c in claims_of("fedcor"))
    new = next(digest(c) for c in edited if c.id == "fedcor.F3.a")
    (folder / "frozen.csv").write_text(text.replace(digest(claim("fedcor.F3.a")), new))
    assert changed("fedcor", edited, tmp_path) == ["frozen.csv"]


def other_source(monkeypatch, file: str, before: str, after: str) -> None:
    """The digests as if the file of a module read otherwise."""
    text = Path(file).read_text()
    assert text.count(before) == 1, before
    parsed = frozen.parsed
    tree = ast.parse(text.replace(before, after))
    monkeypatch.setattr(frozen, "parsed", lambda asked: tree if asked == file else parsed(asked))
    frozen.rule.cache_clear()


@pytest.fixture(autouse=True)
def _fresh():
    yield
    frozen.rule.cache_clear()


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        (claims.__file__, "SPREAD = 0.22", "SPREAD = 0.5"),
        (claims.__file__, "BELOW = 1.645", "BELOW = 4.0"),
        (claims.__file__, "HALF = 0.5", "HALF = 0.1"),
        (estimators.__file__, "ALPHA = (1 - LEVEL) / 2", "ALPHA = 1 - LEVEL"),
        (estimators.__file__, "p = np.sort(np.asarray(p, dtype=float), axis=-1)\n    m = p.shape[-1]\n    h =",
         "p = np.sort(np.asarray(p, dtype=float), axis=-1) / 2\n    m = p.shape[-1]\n    h ="),
    ],
)  # fmt: skip
def test_a_constant_or_the_rule_of_judging_changes_every_claim(monkeypatch, file, before, after):
    other = claim("hics.T1.b"), claim("cs.F6.a")
    old = [digest(one) for one in other]
    other_source(monkeypatch, file, before, after)
    assert all(digest(one) != was for one, was in zip(other, old, strict=True))


def test_the_body_of_a_statistic_changes_the_claims_that_use_it(monkeypatch):
    uses, does_not = (
        claim("cs.F6.a"),
        claim("hics.T1.b"),
    )  # the mean over the end of a run; rounds to a target
    old = digest(uses), digest(does_not)
    other_source(monkeypatch, measure.__file__, "share: float = 0.2", "share: float = 0.9")
    assert (digest(uses) != old[0], digest(does_not) != old[1]) == (True, False)


def test_a_comment_or_a_docstring_changes_nothing(monkeypatch):
    old = digest(claim("cs.F6.a"))
    other_source(monkeypatch, estimators.__file__, '"""P-values adjusted', '"""P, adjusted')
    assert digest(claim("cs.F6.a")) == old


def test_a_papers_own_bound_counts(monkeypatch):
    uses, does_not = claim("fedcor.F3.a"), claim("fedcor.T1.b")
    old = digest(uses), digest(does_not)
    monkeypatch.setitem(part("fedcor", "process").BOUNDS, "CIFAR-10", 0.5)
    assert (digest(uses) != old[0], digest(does_not) != old[1]) == (True, False)


def test_the_primary_reading_and_its_reasons_count(monkeypatch):
    module, first = part("fedcor", "readings"), part("fedcor", "readings").PRIMARY
    old = digest(claim("fedcor.T1.b"))
    monkeypatch.setattr(module, "PRIMARY", replace(first, reading="Pow-d, d = 20"))
    assert digest(claim("fedcor.T1.b")) != old
    reasons = dict(first.reasons) | {next(iter(first.reasons)): frozen.REASONS[-1]}
    monkeypatch.setattr(module, "PRIMARY", replace(first, reasons=reasons))
    assert digest(claim("fedcor.T1.b")) != old
    monkeypatch.setattr(module, "PRIMARY", replace(first, why=("Another.", "way.", "to say it.")))
    assert digest(claim("fedcor.T1.b")) == old


def test_a_paper_is_frozen_by_one_command_and_a_change_needs_an_amendment(tmp_path, monkeypatch):
    (tmp_path / "hcsfed").mkdir()
    (tmp_path / "hcsfed" / "claims.py").touch()
    assert frozen.first("hcsfed", tmp_path) in (tmp_path / "hcsfed" / "amendments.md").read_text()
    assert changed("hcsfed", folder=tmp_path) == []
    edited = tuple(replace(c, margin=9.0) if c.id == "hcsfed.F5.a" else c for c in claims_of("hcsfed"))
    monkeypatch.setattr(frozen, "claims_of", lambda paper: edited)
    with pytest.raises(
        ConfigError, match=r"hcsfed\.F5\.a differs from how it was frozen; say in amendments.md why"
    ):
        frozen.first("hcsfed", tmp_path)
    with pytest.raises(ConfigError, match="no 'hcsfedd' with a claims.py; did you mean hcsfed"):
        frozen.first("hcsfedd", tmp_path)
