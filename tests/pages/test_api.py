"""The API reference: every public name with its docstring, word by word, made without a warning."""

from __future__ import annotations

import html
import inspect
import io
import re
import shutil
from contextlib import redirect_stderr
from typing import NamedTuple

import pytest
from test_site import small_project

import fedlib
from fedlib import samplers
from fedlib.settings.schema import ROOT, model_names
from workspace.pages import docstrings, site

MODULES = ("algorithms", "samplers")  # of classes; their bases have entries of their own
QUESTIONS = ("Losses", "Updates", "Gradients", "TrialLosses")
CONTRACT = (*QUESTIONS, "Sampler", "Federation", "Round", "Selection", "Report", "register")
PUBLIC = {f"fedlib.{name}": getattr(fedlib, name) for name in fedlib.__all__ if name not in MODULES}
PUBLIC |= {f"fedlib.samplers.{name}": getattr(samplers, name) for name in CONTRACT}


class Made(NamedTuple):
    """The page, and what Sphinx complained of."""

    page: str
    said: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Of a small site with the project's documentation."""
    folder = small_project(tmp_path_factory.mktemp("project"))
    shutil.copytree(ROOT / "docs", folder / "docs")
    with redirect_stderr(io.StringIO()) as said:
        index = site.render("demo", folder / "reports", folder)
    assert 'href="docs/README.html"' in index.read_text()
    assert 'href="api.html"' in (index.parent / "docs" / "README.html").read_text()
    return Made((index.parent / "docs" / "api.html").read_text(), said.getvalue())


def entries(page: str) -> dict[str, str]:
    """Name -> its entry."""
    parts = re.split(r'<dt class="sig sig-object py" id="([\w.]+)">', page)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def words(text: str) -> str:
    """Text alone, without marks that are typeset: quotes, dashes, dots, and what stands for code."""
    bare = html.unescape(re.sub(r"<[^>]+>", "", text))
    return " ".join(re.sub(r"[`'\"‘’“”…–—-]|\.\.\.", "", bare).split())


def test_every_public_name_has_an_entry_with_its_docstring(made: Made) -> None:
    found = entries(made.page)
    assert set(PUBLIC) <= set(found)
    for name, thing in PUBLIC.items():
        assert words(inspect.getdoc(thing)) in words(found[name]), name
    assert {"fedlib.Result.summary", "fedlib.samplers.Sampler.observe", "fedlib.Partition.sizes"} <= set(
        found
    )


def test_flower_has_its_entries_where_flower_is_not_installed(made: Made) -> None:
    found = entries(made.page)
    assert {f"fedlib.flower.{name}" for name in ("Answers", "Metrics", "SamplerStrategy")} <= set(found)
    assert "SamplerStrategy(sampler, *, N, m, seed=0, aggregation=None" in words(
        found["fedlib.flower.SamplerStrategy"]
    )


def test_every_model_is_named(made: Made) -> None:
    for model in model_names():
        assert f">{model}</span>" in made.page, model


def test_the_site_is_made_without_a_warning(made: Made) -> None:
    assert "WARNING" not in made.said, made.said
    assert "ERROR" not in made.said, made.said


def test_shapes_formulas_and_code_stand_as_they_are_written(made: Made) -> None:
    shown = html.unescape(re.sub(r"<[^>]+>", "", made.page))
    for part in (
        "(n, ...)",
        "(N, K)",
        "(mu/2)||w - w_t||^2",
        "new = old + sum_k weights_k * update_k",
        "p_k = n_k / sum n",
    ):
        assert part in shown, f"{part}\n{shown}"
    assert "\n        losses = yield Losses(A)\n" in shown


def test_a_docstring_becomes_words_items_and_blocks() -> None:
    text = (
        "What it is, *so* to say.\n\na, b: `x` of (n, d).\n    And more. c: too.\nd: y\n\n"
        "Raises:\n    E: why.\n\nAs::\n\n    f(*x)\n\nEnd."
    )
    assert docstrings.as_rest(text.splitlines()) == [
        "What it is, \\*so\\* to say.",
        "",
        "- **a, b**: ``x`` of ``(n, d)``. And more. c\\: too.",
        "",
        "- **d**: y",
        "",
        "Raises\\:",
        "",
        "- **E**: why.",
        "",
        "As\\:",
        "",
        "::",
        "",
        "    f(*x)",
        "",
        "End.",
        "",
    ]
