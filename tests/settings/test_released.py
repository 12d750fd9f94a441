"""Changed code never brings back old numbers, and what computes nothing changes no address."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import forked
import pytest
from copies import copy_project

from fedlib import released
from fedlib.digests import HOUSE
from fedlib.settings import code

SAMPLERS, MODELS = HOUSE / "samplers", HOUSE / "training" / "models"
DRAW = "drawn = round.rng.choice(len(p), round.m, p=p)"


def test_the_record_is_that_of_the_code():
    differing = "\n".join(code.departures().values())
    assert not differing, (
        f"{differing}\nAfter a rebase, or once the numbers are right: `fedlib revision keep --all`."
    )
    assert set(released.record()) == set(code.everything()), "all that this package has is shipped"


@pytest.fixture
def edited(monkeypatch) -> Callable[[Path, str, str], None]:
    """Replace words in a file, as this process sees it; "" puts them at its end."""

    def edit(path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert old in text
        changed = text.replace(old, new) if old else text + new
        monkeypatch.setattr(
            released, "text_of", lambda other: changed if other == path else other.read_text()
        )
        released.parsed.cache_clear()

    yield edit
    monkeypatch.undo()
    released.parsed.cache_clear()


def digests() -> dict[str, str]:
    """What the code of some samplers, an algorithm, a scheme and a model is known by."""
    of = {
        "uniform": (SAMPLERS / "basic.py", "Uniform"),
        "md": (SAMPLERS / "basic.py", "MD"),
        "size_clusters": (SAMPLERS / "clustered_sampling.py", None),
        "hcsfed": (SAMPLERS / "hcsfed.py", "HCSFed"),
        "scaffold": (HOUSE / "algorithms" / "scaffold.py", "Scaffold"),
        "moon": (HOUSE / "algorithms" / "moon.py", "Moon"),
        "equal": (HOUSE / "data" / "schemes" / "equal.py", None),
        "mlp": (MODELS / "mlp.py", None),
    }
    return {name: released.digest(released.behaviour(*place)) for name, place in of.items()}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (SAMPLERS / "basic.py", DRAW, f"{DRAW}  # with replacement"),
        (SAMPLERS / "basic.py", "m independent draws with replacement", "m draws"),
        (SAMPLERS / "basic.py", "def multinomial(fed: Federation,", "def multinomial(fed: object,"),
        (SAMPLERS / "basic.py", "draws one client per label: set", "wants one client a label: set"),
        (SAMPLERS / "basic.py", "", "\n\ndef unused() -> int:\n    return 1\n"),
        (SAMPLERS / "base.py", "class Selection:", "class Selection:\n    more = 1\n"),
        (MODELS / "mlp.py", '"""One hidden layer', '"""A hidden layer'),
    ],
)
def test_what_computes_nothing_is_no_part_of_the_code(path, old, new, edited):
    before = digests()
    edited(path, old, new)
    assert digests() == before


@pytest.mark.parametrize(
    ("path", "old", "new", "changed"),
    [
        (SAMPLERS / "basic.py", DRAW, "drawn = np.arange(round.m)", {"md", "size_clusters"}),
        (SAMPLERS / "basic.py", "replace=False", "replace=True", {"uniform"}),
        (SAMPLERS / "basic.py", "", "\nMD.draws = 'distinct'\n", {"md", "uniform", "size_clusters"}),
        (HOUSE / "kernels" / "lloyd.py", "range(1, k)", "range(0, k)", {"hcsfed"}),
        (HOUSE / "algorithms" / "base.py", "return models + ", "return models - ", {"scaffold", "moon"}),
        (HOUSE / "algorithms" / "moon.py", "if not local.mu", "if local.mu is None", {"moon"}),
        (HOUSE / "data" / "schemes" / "equal.py", "rng.permutation", "np.arange", {"equal"}),
        (MODELS / "mlp.py", "50", "60", {"mlp"}),
    ],
)
def test_what_computes_is_part_of_the_code_of_all_that_use_it_and_of_no_other(
    path, old, new, changed, edited
):
    before = digests()
    edited(path, old, new)
    assert {name for name, now in digests().items() if now != before[name]} == changed


ADDRESSES = """
import json
from fedlib.settings.code import code_of
print(json.dumps(code_of({"model": "MODEL", "method": {"sampler": "SAMPLER"}})))
"""


@pytest.fixture
def ask(tmp_path):
    """A copy of the project, and what its addresses say of a sampler and a model."""
    environment = copy_project(tmp_path) | {
        "PYTHONDONTWRITEBYTECODE": "1"
    }  # edits of one second and one size

    def said(sampler: str = "md", model: str = "mlp") -> tuple[dict[str, int | str], str]:
        program = ADDRESSES.replace("MODEL", model).replace("SAMPLER", sampler)
        done = forked.run(["python", "-c", program], tmp_path, environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr

    def keep(*names: str) -> None:
        program = f"from fedlib.settings import code; code.keep({list(names)})"
        done = forked.run(["python", "-c", program], tmp_path, environment)
        assert done.returncode == 0, done.stderr

    said.root, said.keep = tmp_path / "fedlib", keep
    return said


def test_an_address_says_unreleased_raised_or_neutral(ask):
    path = ask.root / "samplers" / "basic.py"
    path.write_text(path.read_text().replace(DRAW, "drawn = np.arange(round.m)"))
    unreleased, words = ask()
    assert list(unreleased) == ["sampler md"]
    assert "fedlib/samplers/basic.py changed what sampler md computes" in words
    assert ask("uniform") == ({}, "")
    ask.keep("md")
    assert ask() == ({}, ""), "declared neutral"
    path.write_text(path.read_text().replace("np.arange(round.m)", "np.zeros(round.m, dtype=int)"))
    other, _ = ask()
    path.write_text(path.read_text().replace('"md", revision=0', '"md", revision=1'))
    raised, words = ask()
    assert raised == other != unreleased
    assert "revision 1 of sampler md is not recorded yet" in words
    ask.keep("md")
    assert ask() == (raised, ""), "what was trained before it was recorded stays"


OWN = """
from dataclasses import dataclass
from fedlib.samplers.base import Sampler, Selection, register

@register("mine")
@dataclass
class Mine(Sampler):
    def select(self, round):
        return Selection(self.fed.everyone[: self.fed.m])
"""


def test_taking_a_sampler_and_a_model_into_the_house_moves_no_address(ask):
    sampler, model = ask.root / "samplers" / "mine.py", ask.root / "training" / "models" / "wide.py"
    sampler.write_text(OWN)
    model.write_text((MODELS / "mlp.py").read_text().replace("mlp", "wide").replace("50", "70"))
    before, words = ask("mine", "wide")
    assert set(before) == {"sampler mine", "model wide"}
    assert words == "", "what is not shipped has no record"
    ask.keep("mine", "wide")
    assert ask("mine", "wide") == (before, "")
    for path in (sampler, model):
        path.write_text("# A comment.\n" + path.read_text().replace('"mine"', '"mine", revision=0'))
    assert ask("mine", "wide") == (before, "")
    model.write_text(model.read_text().replace("70", "80"))
    after, words = ask("mine", "wide")
    assert after["model wide"] != before["model wide"]
    assert "fedlib/training/models/wide.py changed" in words
