"""What a notebook is given is checked where it enters: nothing is written for what there is not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from test_site import small_project

from fedlib.errors import ConfigError
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.pages.artifact import Artifact
from workspace.pages.logbook import Logbook
from workspace.pages.origin import Results, chosen, one_of, parameters, turned


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


FRAMES = {
    "a": pd.DataFrame({"setting": ["one", "one", "two"], "method": ["MD", "Pow-d", "MD"], "seed": [0, 1, 1]}),
    "b": pd.DataFrame({"setting": ["one"], "method": ["FedCor"], "seed": [2]}),
    "study": pd.DataFrame({"client": [1, 2]}),
}
INFO = {name: {"runs": frame.to_dict("records"), "planned": 9} for name, frame in FRAMES.items()}
INFO["study"]["runs"] = [{"unit": {"labels": {"setting": "another"}}}]


@pytest.mark.parametrize(
    ("choice", "rows"),
    [
        ({}, {"a": 3, "b": 1, "study": 2}),
        ({"methods": "MD"}, {"a": 2, "study": 2}),
        ({"methods": ["MD", "FedCor"], "seeds": [1, 2]}, {"a": 1, "b": 1, "study": 2}),
        ({"seeds": range(2), "settings": "one"}, {"a": 2, "study": 2}),
    ],
)
def test_a_page_shows_the_methods_seeds_and_settings_that_somebody_chose(
    choice: dict[str, Any], rows: dict[str, int]
) -> None:
    frames, info = chosen(FRAMES, INFO, **choice)
    assert {name: len(frame) for name, frame in frames.items()} == rows
    for name in info.keys() - {"study"}:
        assert info[name]["runs"] == frames[name].to_dict("records"), "the record is that of the rows"
    assert len(INFO["a"]["runs"]) == 3, "the whole record stays"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"methods": "Pow-D"}, "methods: no run of this page has the method 'Pow-D'; did you mean Pow-d"),
        ({"methods": ["MD", "FedCr"]}, "method 'FedCr'; did you mean FedCor"),
        ({"seeds": 7}, "seeds: no run of this page has the seed 7; there are 0, 1, 2."),
        (
            {"settings": ["three"]},
            "settings: no run of this page has the setting 'three'; there are one, two.",
        ),
    ],
)
def test_what_no_run_has_is_refused_in_a_sentence(choice: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        chosen(FRAMES, INFO, **choice)


@pytest.mark.bad_input
def test_a_choice_that_leaves_nothing_is_refused() -> None:
    frames = {name: FRAMES[name] for name in ("a", "b")}
    with pytest.raises(ConfigError, match="no run of this page has all of these"):
        chosen(frames, INFO, methods="FedCor", seeds=0)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"target": 80}, "target is 80; write a test accuracy between 0 and 1, such as 0.8."),
        ({"target": "0.8"}, "target is '0.8'; write a test accuracy"),
        ({"target": None}, "target is None; write a test accuracy"),
        ({"smoothing": -3}, "smoothing is -3; write a number of rounds, such as 11, or 0 for raw curves."),
        ({"smoothing": 2.5}, "smoothing is 2.5; write a number of rounds"),
        ({"smoothing": True}, "smoothing is True; write a number of rounds"),
        ({"in_a_row": 0}, "in_a_row is 0; write a whole number from 1."),
        ({"alpha": [0.1]}, "alpha is [0.1]; write a concentration above 0, such as 0.1."),
    ],
)
def test_a_number_that_says_nothing_is_refused_in_a_sentence(given: dict[str, Any], words: str) -> None:
    """Table 1 of HCSFed has all of them; `None` is no number where the file has one."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        turned({"smoothing": 0, **given}, "hcsfed/table_1", ROOT)


def test_what_is_not_in_a_notebooks_file_is_a_readers_choice() -> None:
    file = parameters(ROOT / "notebooks" / "hcsfed" / "table_1.ipynb")
    own = {name: file[name] for name in ("target", "in_a_row", "alpha", "H")}
    assert own == {"target": 0.8, "in_a_row": 3, "alpha": 0.1, "H": 5}
    assert not turned(own, "hcsfed/table_1", ROOT)
    assert turned({**own, "target": 0.7}, "hcsfed/table_1", ROOT)
    with pytest.raises(ConfigError, match="partition: there is no '3SPC'; did you mean"):
        one_of("partition", "3SPC", ["2SPC", "1SPC", "Dir"])


def test_a_chosen_part_touches_nothing_of_the_site(tmp_path: Path) -> None:
    folder = small_project(tmp_path, "cpu")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    artifact = Artifact("fedcor-table_1", "cpu", ("tiny",), Results("cpu", {}), {}, folder, part=True)
    artifact.table(pd.DataFrame({"n": [1]}))
    artifact.judge()
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "data" / "chosen" / "cpu" / "fedcor-table_1" / "table.csv").exists()


def test_at_scale_demo_no_claim_is_judged_in_files_either(tmp_path: Path) -> None:
    folder = small_project(tmp_path)
    artifact = Artifact.open("fedcor-figure_1", "demo", root=folder)
    assert artifact.claims
    artifact.judge()
    assert json.loads((artifact.folder / "verdicts.json").read_text()) == []
