"""`fedlib set` changes one value of params.yaml and no other byte, and says which entries that concerns."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from fedlib.errors import ConfigError
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.commands.change import set_value


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "params.yaml"
    path.write_bytes((ROOT / "params.yaml").read_bytes())
    monkeypatch.setattr(params, "PARAMS", path)
    return path


def lines_changed(path: Path) -> list[str]:
    old, new = (file.read_text().splitlines() for file in (ROOT / "params.yaml", path))
    return [line for line in difflib.ndiff(old, new) if line[0] in "+-"]


@pytest.mark.parametrize(
    ("key", "value", "before", "found"),
    [
        ("experiments.cs_cifar.scales.cpu.T", "90", "80", 90),
        ("experiments.cs_cifar.local.lr", "0.07", "0.05", 0.07),
        ("experiments.cs_cifar.grid.alpha = 0.1.partition.alpha", "0.2", "0.1", 0.2),
        ("experiments.poc_synthetic.seeds", "7", "", 7),
        ("experiments.cs_cifar.scales.cpu.m", "4", "", 4),
        ("scale", "cpu", "demo", "cpu"),
    ],
)
def test_one_line_changes(copy: Path, key: str, value: str, before: str, found: object) -> None:
    assert set_value(key, value)[0] == before
    added, removed = ([line for line in lines_changed(copy) if line[0] == sign] for sign in "+-")
    assert len(added) == 1
    assert len(removed) <= 1
    assert value in added[0]
    raw = params.load(copy).raw
    for step in key.replace("alpha = 0.1", "alpha = 0,1").split("."):
        raw = raw[step.replace(",", ".")]
    assert raw == found


def test_a_shared_block_names_all_that_change(copy: Path) -> None:
    _, entries = set_value("experiments.cs_cifar.scales.demo.T", "50")
    assert {"experiments.cs_cifar", "experiments.cs_rates"} <= set(entries)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("experiments.cs_mnits.T", "5", "did you mean cs_mnist"),
        ("experiments.cs_mnist.local", "5", "has the keys lr, batch, steps; name one of them"),
        ("experiments.cs_mnist.T.x", "5", "is a value"),
        ("experiments.cs_mnist.TT", "5", "TT"),
        ("experiments.cs_mnist.T", "-5", "T"),
        ("experiments.cs_mnist.T", "[", "not valid YAML"),
        ("scale", "dmeo", "scale"),
    ],
)
def test_what_is_no_setting_there_is_refused_and_nothing_is_written(copy, key, value, words) -> None:
    before = copy.read_bytes()
    with pytest.raises(ConfigError, match=words):
        set_value(key, value)
    assert copy.read_bytes() == before
