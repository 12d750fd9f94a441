"""Curves of the authors' own programs: the files are what was measured, and each names runs that experiments have."""

from __future__ import annotations

import shutil

import pytest

from fedlib.errors import StoreError
from fedlib.settings import params
from workspace.analysis.reference import NAMED, OURS, REFERENCE, beside, programs, reference


@pytest.mark.parametrize("paper", programs())
def test_every_curve_stands_beside_planned_runs_of_ours(paper: str) -> None:
    table, program = reference(paper), programs()[paper]
    assert list(table) == [*NAMED, *program.columns.values()]
    assert set(table["setting"]) == set(program.settings.values())
    shown = {tuple(row) for row in table[["experiment", "setting", "method"]].to_numpy()}
    assert {row[::2] for row in shown} == set(program.methods.values())
    settings = params.load()
    planned = {
        (one.experiment, one.setting, one.method)
        for experiment in set(table["experiment"])
        for one in settings.runs(experiment, "paper")
    }
    assert shown <= planned
    assert not table.duplicated(["experiment", "setting", "method", "seed", "round"]).any()
    accuracy = table[[column for column in table if column.endswith("accuracy")][0]]
    assert accuracy[table["round"] > 0].between(0, 1).all()


def test_every_file_is_some_papers() -> None:
    assert {path.stem for path in REFERENCE.glob("*.csv")} - set(OURS) == set(programs())


def test_other_scales_have_none_beside_them() -> None:
    assert beside("fedcor", "fedcor_fmnist", "demo").empty
    there = beside("fedcor", "fedcor_fmnist", "paper", prefix="FMNIST ")
    assert set(there["setting"]) == {"FMNIST 1SPC", "FMNIST 2SPC", "FMNIST Dir"}
    assert set(there["method"]) == {"Random", "Pow-d", "FedCor"}


@pytest.mark.bad_input
@pytest.mark.parametrize("fault", ["missing", "changed"])
def test_a_file_that_is_not_what_was_measured_is_refused(fault: str, tmp_path) -> None:
    path = tmp_path / "fedcor.csv"
    if fault == "changed":
        shutil.copy(REFERENCE / "fedcor.csv", path)
        path.write_text(path.read_text().replace("0.1833", "0.8833", 1))
    with pytest.raises(StoreError, match=r"fedcor\.csv: .*git checkout"):
        reference("fedcor", tmp_path)
