"""Discrepancies: every reading names runs that are planned; its numbers are those of the results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis.choices import Choice, spread
from fedlib.analysis.claims import claims
from fedlib.analysis.judging import verdicts
from fedlib.analysis.paper import papers, part
from fedlib.pages import discrepancies
from fedlib.pages.artifact import Artifact
from fedlib.runs import archive
from fedlib.settings import params

SETTINGS = params.load()
ALL = [choice for paper in papers() for choice in part(paper, "choices").CHOICES]
CHOICES = [choice for choice in ALL if isinstance(choice, Choice)]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.title)
def test_every_reading_is_planned(choice: Choice) -> None:
    planned = {(one.setting, one.method) for one in SETTINGS.runs(choice.experiment, "paper")}
    assert set(choice.readings) <= planned
    assert len(choice.readings) >= 2
    assert {setting for setting, _ in choice.readings} <= set(choice.target) or not choice.target
    assert not choice.printed or set(choice.readings) & set(choice.printed)
    assert not choice.across or {setting for setting, _ in choice.readings} == set(choice.across)


def test_choices_bear_on_pages_that_exist() -> None:
    for choice in ALL:
        artifacts = {artifact.replace("/", "-", 1) for artifact in choice.bears_on}
        assert artifacts
        assert artifacts <= set(SETTINGS.artifacts)
        if not isinstance(choice, Choice):  # a study stands on the pages that it bears on
            assert all(choice.experiment in SETTINGS.artifacts[name]["experiments"] for name in artifacts)


def test_every_paper_has_choices_and_says_what_else_is_open() -> None:
    for paper in papers():
        assert part(paper, "choices").CHOICES
        assert part(paper, "choices").NOT_VARIED


def runs(**curves: list[list[float]]) -> pd.DataFrame:
    """method -> accuracies of each seed, round by round."""
    rows = [
        {"setting": "s", "method": m, "seed": seed, "round": t, "test_accuracy": a, "train_loss": 1 - a}
        for m, seeds in curves.items()
        for seed, accuracies in enumerate(seeds)
        for t, a in enumerate(accuracies)
    ]
    return pd.DataFrame(rows).assign(diverged=False)


def test_a_table_says_how_far_runs_were_followed_that_did_not_arrive() -> None:
    choice = Choice("", "", "", "e", {("s", "A"): "one"}, (), {"s": 0.5})
    ended_with_its_target, followed_further = [0, 0.2, 0.6], [0, 0.1, 0.2, 0.3, 0.4]
    table = choice.table({"e": runs(A=[ended_with_its_target, followed_further])})
    assert table.loc[("s", "one"), "rounds"] == "4+ (2\u20134+)"


def test_a_table_gives_what_the_runs_gave_and_says_what_was_not_run() -> None:
    readings = {("s", "A"): "one", ("s", "B"): "another", ("s", "C"): "a third"}
    choice = Choice("", "", "", "e", readings, (), {"s": 0.5}, {("s", "A"): "42"})
    results = {"e": runs(A=[[0, 0.2, 0.6], [0, 0.5, 0.8]], B=[[0, 0.1, 0.2]])}
    table = choice.table(results)
    one, another, third = (table.loc[("s", name)] for name in readings.values())
    assert one[["seeds", "rounds", "printed"]].tolist() == ["2", "1.5 (1\u20132)", "42"]
    assert one["final accuracy (%)"] == "70 (60\u201380)"
    assert another[["seeds", "rounds", "printed"]].tolist() == ["1", "2+", ""]
    assert third["seeds"] == "not run"
    losses = Choice("", "", "", "e", readings, ()).table(results)
    assert losses.loc[("s", "one"), "mean training loss"] == "0.475 (0.35\u20130.6)"
    longer = results["e"].query("method == 'A'").assign(setting="longer")
    longer = pd.concat([longer, longer.assign(round=longer["round"] + 3)])
    both = Choice("", "", "", "e", {**readings, ("longer", "A"): "longer"}, ())
    found = both.table({"e": pd.concat([results["e"], longer.drop_duplicates(["seed", "round"])])})
    assert found.loc[("longer", "longer"), "mean training loss"] == "0.475 (0.35\u20130.6)"
    early = results["e"][
        (results["e"]["method"] != "A") | (results["e"]["round"] < 2) | (results["e"]["seed"] == 0)
    ]
    cut = choice.table({"e": early}).loc[("s", "one")]  # the second seed ends in round 1, where it arrives
    assert cut[["rounds", "final accuracy (%)"]].tolist() == ["1.5 (1\u20132)", "35 (20\u201350)"]
    assert choice.table({}).empty
    assert spread(np.array([np.inf, 1.0])) == "diverged"


def test_where_settings_are_the_readings_methods_stand_beside_each_other() -> None:
    readings = {(setting, method): method for setting in ("s", "s, mild") for method in ("A", "B")}
    across = {"s": ("the table", "severe"), "s, mild": ("the table", "mild")}
    choice = Choice("", "", "", "e", readings, (), dict.fromkeys(across, 0.5), {("s", "A"): "42"}, across)
    table = choice.table({"e": runs(A=[[0, 0.2, 0.6], [0, 0.5, 0.8]], B=[[0, 0.1, 0.2]])})
    assert table.index.tolist() == [("the table", name) for name in ("printed", "severe", "mild")]
    assert table["A"].tolist() == ["42", "1.5 (1\u20132)", "not run"]
    assert table["B"].tolist() == ["", "2+", "not run"]
    assert table["seeds"].tolist() == ["", "1\u20132", ""]


def test_a_study_that_was_archived_gives_its_readings() -> None:
    results = {"hics_entropy": archive.read("hics_entropy", "paper").table}
    (choice,) = (one for one in ALL if one.experiment == "hics_entropy")
    found = choice.table(results)
    taken = found.loc["warm-up", "bias", 0.0025]
    assert len(found) == 16
    assert taken["cases"] == results["hics_entropy"]["data"].nunique()
    assert 0.5 < taken["AUC"] < 1
    assert choice.table({}).empty


def test_the_page_shows_the_claims_that_did_not_hold_and_every_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "params.yaml").write_text("scale: demo\nexperiments: {}\nartifacts: {discrepancies: {}}\n")
    artifact = Artifact.open("discrepancies", root=tmp_path)
    assert capsys.readouterr().out == ""  # made from no experiment: nothing to say of any
    board = verdicts(claims("hcsfed"), {})
    assert len(discrepancies.unsettled(board, "hcsfed")) == 0
    board.loc[0, "verdict"], board.loc[1, "verdict"], board.loc[2, "verdict"] = (
        "not held",
        "held in part",
        "held",
    )
    some = runs(Random=[[0.1, 0.9]]).assign(setting="MNIST, q = 10 %")
    discrepancies.show(artifact, "hcsfed", board, {"hcsfed_table_1": some})
    made = {path.stem for path in artifact.folder.glob("*.csv")}
    choices = enumerate(part("hcsfed", "choices").CHOICES, start=1)
    with_runs = [k for k, one in choices if ("MNIST, q = 10 %", "Random") in one.readings]
    assert 0 < len(with_runs) < len(part("hcsfed", "choices").CHOICES)
    assert made == {"hcsfed_claims", "hcsfed_not_varied"} | {f"hcsfed_choice_{k}" for k in with_runs}
    shown = pd.read_csv(artifact.folder / "hcsfed_claims.csv")
    assert shown["verdict"].tolist() == ["not held", "held in part"]
