"""`fedlib verify`: what is damaged is counted and named; archives without seals are refused; runs are trained again."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from small import EXPERIMENT, Small

from fedlib import files
from fedlib.data import datasets, sources
from fedlib.errors import StoreError
from fedlib.runs import archive, results, retrain, sealed
from fedlib.runs.place import Place
from fedlib.settings.params import Experiments
from workspace.commands import cli, verify

KINDS = ["datasets", "inputs", "finished runs", "checkpoints", "results", "archives"]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """Trained and archived, and what `fedlib verify` looks at; b has other runs, c the same as e."""
    small = Small(tmp_path, {"archive": ["clients"]})
    small.simulate()
    table, info = results.open_results("e", "demo", small.results)
    for name in ("c", "e"):
        small.pack(table, info, name)
    monkeypatch.setattr(Place, "from_environment", lambda: small.place)
    for name in ("RESULTS", "ARCHIVE", "INPUTS"):
        monkeypatch.setattr(verify, name, tmp_path / name.lower())
    monkeypatch.setattr(verify, "ROOT", tmp_path)
    return small


def fedlib(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedlib", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.app()
    return end.value.code


def everything(small: Small) -> list[verify.Checked]:
    return verify.everything(small.place, small.results, small.archive, small.inputs)


def test_a_table_whose_whole_file_is_as_written_has_no_row_checked(small: Small, monkeypatch) -> None:
    """Its digest stands in the record beside it; without this record its rows are checked."""
    path = small.results / "demo" / "e.parquet"
    record = path.with_suffix(".json").read_text()
    checked: list[int] = []
    monkeypatch.setattr(results, "check", lambda table, labels, expected: checked.append(len(table)))
    table, _ = results.read_table(path)
    assert not checked
    for other in (None, "{", record.replace('"table": "', '"table": "0')):
        path.with_suffix(".json").unlink() if other is None else path.with_suffix(".json").write_text(other)
        results.read_table(path)
        assert checked.pop() == len(table)
    path.with_suffix(".json").write_text(record)
    path.write_bytes(path.read_bytes() + b" ")  # which a reader of parquet does not see
    with pytest.raises(StoreError):
        results.read_table(path)


def test_all_that_is_there_is_checked(small: Small, monkeypatch, capsys) -> None:
    found = everything(small)
    assert [one.kind for one in found] == KINDS
    assert {one.kind: one.files for one in found if one.files} == {
        "datasets": 1,
        "finished runs": 4,
        "results": 1,
        "archives": 2,
    }
    assert not any(one.wrong for one in found)
    assert fedlib(monkeypatch, "verify") == 0
    assert "as written" in capsys.readouterr().out


@pytest.mark.bad_input
@pytest.mark.parametrize("edit", ["another", "gone"])
def test_curves_that_are_not_those_of_the_table_are_named(small: Small, edit: str) -> None:
    path = small.results / "demo" / "e.csv"
    path.write_text(
        path.read_text(encoding="utf-8").replace(",1", ",9")
    ) if edit == "another" else path.unlink()
    found = {one.kind: one for one in everything(small)}
    assert [name for name, one in found.items() if one.wrong] == ["results"]
    assert "e.csv" in found["results"].wrong[0]


@pytest.mark.bad_input
@pytest.mark.parametrize("kind", ["datasets", "finished runs", "results", "archives"])
def test_what_is_damaged_is_counted_and_named(small: Small, kind: str, monkeypatch, capsys) -> None:
    path = {
        "datasets": small.place.datasets / "digits.npz",
        "finished runs": next(small.place.runs.glob("??/*/rounds.parquet")),
        "results": small.results / "demo" / "e.parquet",
        "archives": small.archive / "demo" / "c.parquet",
    }[kind]
    path.write_bytes(path.read_bytes()[:-100])
    found = {one.kind: one for one in everything(small)}
    assert [name for name, one in found.items() if one.wrong] == [kind]
    (said,) = found[kind].wrong
    assert path.stem in said
    assert fedlib(monkeypatch, "verify") == 1
    assert said in capsys.readouterr().err


def rewritten(path: Path, record: bytes) -> None:
    """The archive with another record in its metadata."""
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({sealed.KEY: record}), path)


def test_an_archive_without_its_seals_is_refused(small: Small) -> None:
    path = small.archive / "demo" / "c.parquet"
    info, _ = sealed.info_of(path.read_bytes())
    whole, bare = path.read_bytes(), {key: value for key, value in info.items() if key != "seals"}
    for record, reason in (
        (files.sealed(bare), "seals"),
        (info, "its record has no digest of itself"),
        (bare, "its record has no digest of itself"),
    ):
        path.write_bytes(whole)
        rewritten(path, sealed.packed(record))
        wrong = {one.kind: one.wrong for one in everything(small)}["archives"]
        assert len(wrong) == 1
        assert reason in wrong[0]


def test_what_waits_or_is_too_large_is_refused(small: Small, monkeypatch) -> None:
    path = small.archive / "demo" / "c.parquet"
    monkeypatch.setattr(sealed, "LONGEST", 2**20)
    rewritten(path, sealed.packed({"name": "0" * 2**21}))
    with pytest.raises(StoreError, match="longer than 1 MB"):
        archive.read("c", "demo", small.archive)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match="it is not a file"):
        archive.read("c", "demo", small.archive)


def test_renewed_archives_keep_their_rows(small: Small, monkeypatch, capsys) -> None:
    before = {path: path.read_bytes() for path in (small.archive / "demo").iterdir()}
    assert fedlib(monkeypatch, "verify", "--renew") == 0
    told = capsys.readouterr().out
    assert "e.parquet: unchanged" in told
    assert "\n2 files, 8 runs, 40 rows\n" in told
    assert all(path.read_bytes() == content for path, content in before.items())


def sample(small: Small, n: int, seed: int = 0) -> list[retrain.ArchivedRun]:
    return retrain.sample("demo", n, seed, small.archive, small.place)


def test_a_sample_goes_over_experiments_and_takes_no_run_twice(tmp_path: Path) -> None:
    """Of a large experiment and a small one, two runs are one of each; c and e have the same runs."""
    small = Small(tmp_path, {})
    other = {**EXPERIMENT, "seeds": 1, "T": 3, "methods": {"MD": {"sampler": "md"}}}
    small.simulate()
    for name in ("c", "e"):
        small.pack(*results.open_results("e", "demo", small.results), name)
    small.settings = Experiments({"experiments": {"e": other}})
    small.simulate()
    small.pack(*results.open_results("e", "demo", small.results), "b")

    whole = sample(small, 10)
    assert len(whole) == 5
    assert len({one.record["address"] for one in whole}) == 5
    for seed in range(5):
        assert [one.experiment == "b" for one in sample(small, 2, seed)].count(True) == 1
    drawn = [[one.record["address"] for one in sample(small, 5, seed)] for seed in (0, 0, 1, 2, 3)]
    assert drawn[0] == drawn[1]
    assert len(set(map(tuple, drawn))) > 1


def test_a_sample_is_of_what_can_be_trained_here(small: Small, monkeypatch) -> None:
    monkeypatch.setattr(retrain, "NUMERICS", retrain.NUMERICS + 1)
    with pytest.raises(StoreError, match="no run that this code would train"):
        sample(small, 1)
    monkeypatch.undo()
    (small.place.datasets / "digits.json").unlink()
    monkeypatch.setattr(datasets, "KINDS", {})
    with pytest.raises(StoreError, match="fedlib data status"):
        sample(small, 1)


def test_a_long_run_is_trained_for_its_first_rounds(small: Small) -> None:
    (run,) = sample(small, 1)
    times = replace(run, rows=run.rows.assign(seconds=[0.0, 1.0, 1.0, 2.0, 9.0]))
    assert [retrain.rounds_within(times, seconds) for seconds in (0.5, 2.0, 5.0, 99.0)] == [1, 2, 3, 4]
    assert retrain.train_again(run, 2, small.place).rounds == 2


def test_archived_runs_come_out_the_same_and_edited_ones_do_not(small: Small, monkeypatch, capsys) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no cell of the table breaks
    arguments = ("verify", "--retrain", "2", "--scale", "demo")
    assert fedlib(monkeypatch, *arguments) == 0
    assert capsys.readouterr().out.count("the same") == 2
    table, info = results.open_results("e", "demo", small.results)
    edited = table.assign(test_loss=table["test_loss"] * 1.01)
    for name in ("c", "e"):  # with digests of its own: nothing but training finds it
        small.pack(edited, info, name)
    assert fedlib(monkeypatch, "verify") == 0
    capsys.readouterr()
    assert fedlib(monkeypatch, *arguments) == 1
    assert "differs from round 0 on" in capsys.readouterr().out


@pytest.mark.parametrize("samples", [1, 2, 3, 200])
def test_an_accuracy_may_differ_by_two_test_samples(small: Small, samples: int) -> None:
    (run,) = sample(small, 1)
    n = sources.KINDS[run.record["data"]["name"]].n_test
    moved = run.rows.assign(test_accuracy=run.rows["test_accuracy"] + samples / n)
    assert retrain.compare(run, moved, informed=False).first_different == (None if samples <= 2 else 0)


@pytest.mark.parametrize("outcomes", [(True, True), (True, False), (False, True), (False, False)])
def test_one_run_that_differs_is_enough_to_fail(
    small: Small, outcomes: tuple[bool, bool], monkeypatch
) -> None:
    runs = sample(small, 2)
    monkeypatch.setattr(retrain, "sample", lambda *_: runs)
    compared = iter(
        [retrain.Compared(run, 2, 0.0, None, allowed) for run, allowed in zip(runs, outcomes, strict=True)]
    )
    monkeypatch.setattr(retrain, "train_again", lambda *_: next(compared))
    table, passed = verify.trained_again("demo", 2, 2, 0, lambda line: None)
    assert passed == all(outcomes)
    assert list(table.columns[2].cells) == [f"2 of {run.rows['round'].max()}" for run in runs]


@pytest.mark.slow
def test_every_file_in_git_that_a_page_can_show_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is added below data/ or arena/ must be read by `fedlib verify`, or it can be edited unseen."""
    command = ["git", "ls-files", "-z", "data", "arena"]
    names = subprocess.run(command, cwd=verify.ROOT, capture_output=True, text=True, check=True).stdout
    shown = {
        Path(name) for name in names.split("\0") if Path(name).suffix in (".csv", ".parquet", ".json", ".npz")
    }
    assert Path("data/error_rates.csv") in shown
    seen: set[Path] = set()
    read_bytes = Path.read_bytes

    def reading(path: Path) -> bytes:
        seen.add(path)
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", reading)
    monkeypatch.setattr(
        verify.archives, "read", lambda name, scale, root: opened(root / scale / f"{name}.parquet")
    )
    _, wrong = verify.checked()
    assert not wrong
    assert {path for path in shown if verify.ROOT / path not in seen} == set()


def opened(path: Path) -> SimpleNamespace:
    """Reads an archive's file, without its rows, which takes long."""
    path.read_bytes()
    return SimpleNamespace(table=None)
