"""What a notebook is given is checked where it enters: nothing is written for what there is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_site import small_project

from fedlib.errors import ConfigError
from fedlib.settings import params
from workspace.pages.artifact import Artifact
from workspace.pages.logbook import Logbook


@pytest.mark.bad_input
def test_a_scale_that_there_is_not_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    before = sorted(folder.rglob("*"))
    with pytest.raises(ConfigError, match="no scale 'dmeo'; did you mean demo"):
        Artifact.open("fedcor-figure_1", "dmeo", root=folder)
    assert sorted(folder.rglob("*")) == before


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (("cs_mnsit", None), "no experiment 'cs_mnsit'; did you mean cs_mnist"),
        (("cs_mnist", "dmeo"), "no scale 'dmeo'"),
        (("cs_mnist", "demo", "yes"), "only_finished is 'yes'; write True or False"),
        (("cs_partitions", "papper"), "no scale 'papper'; did you mean paper"),
    ],
)
def test_a_log_of_what_there_is_not_is_refused(parameters, words) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        Logbook.make(*parameters)
    assert refused.value._render_traceback_() == [f"ConfigError: {refused.value}"], (
        "a notebook shows one sentence"
    )


@pytest.mark.bad_input
def test_settings_at_a_scale_that_there_is_not_are_refused() -> None:
    with pytest.raises(ConfigError, match="no scale 'dmeo'"):
        params.load().describe("cs_mnist", "dmeo")


def test_at_scale_demo_no_claim_is_judged_in_files_either(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    artifact = Artifact.open("fedcor-figure_1", "demo", root=folder)
    assert artifact.claims
    artifact.judge()
    assert json.loads((folder / "data/metrics/demo/fedcor-figure_1.json").read_text()) == {"judged": 0}
    assert json.loads((artifact.folder / "verdicts.json").read_text()) == []
