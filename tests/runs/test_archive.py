"""The archive: what was packed is not trained again, what changed is, and no other file is taken for it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small import Small

from fedlib import files
from fedlib.data import datasets
from fedlib.errors import ConfigError, DataError, StoreError, Unfinished
from fedlib.runs import archive, results, sealed, train, work
from fedlib.runs.experiment import simulate
from fedlib.runs.lookup import Finished
from fedlib.runs.work import Plan
from fedlib.settings import params, schema
from workspace.analysis import experiments, study_partitions
from workspace.analysis.experiments import plan

CHANGES = {
    "methods": {"MD": {"sampler": "md"}, "Random": {"sampler": "uniform"}, "the same": {"sampler": "md"}},
    "grid": {"few": {}, "many": {"m": 4}},
}
STUDIES = {"x_partitions": {"experiments": {"D": "e"}, "seeds": 2}}


def made_by(path: Path) -> dict[str, Any]:
    """The record beside a table, without the digest of the table's file: an archive rounds what it keeps."""
    record = files.read_sealed(path.with_suffix(".json"))
    del record["table"]
    return record


class Folder(Small):
    """A place of one's own: runs, results and archive; `trained` counts the runs that were trained."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(root, CHANGES, studies=STUDIES)
        self.trained: list[schema.Run] = []
        whole = train.train

        def counted(runs, place, *rest):
            self.trained += runs
            whole(runs, place, lambda line: None, *rest[1:])

        monkeypatch.setattr(train, "train", counted)

    def simulate(self, **options) -> tuple[pd.DataFrame, dict]:
        self.trained.clear()
        path = super().simulate(**options)
        return pd.read_parquet(path), made_by(path)

    def study(self, **options) -> tuple[pd.DataFrame, dict]:
        whole = plan("x_partitions", "demo", self.settings)
        where = (self.place, self.results, self.archive)
        path = simulate(whole, None, *where, lambda line: None, **options)
        return pd.read_parquet(path), made_by(path)

    def wipe(self) -> None:
        for folder in (self.place.runs, self.results):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


def test_what_is_archived_is_not_trained_again(folder: Folder) -> None:
    first, made = folder.simulate()
    path = folder.pack(first, made)
    packed = path.read_bytes()
    assert len(folder.trained) == 12

    folder.wipe()
    again, remade = folder.simulate()
    assert folder.trained == []
    assert remade == made
    columns = [c for c in first if c not in (*params.OPTIONAL, *archive.TIMES)]
    assert list(again[columns]) == columns
    pd.testing.assert_frame_equal(again[columns], first[columns], check_exact=False, rtol=1e-6)
    assert (again["test_accuracy"].dropna() == first["test_accuracy"].dropna()).all()
    assert np.allclose(again["seconds"], first["seconds"], rtol=2**-archive.TIME_BITS)

    assert folder.pack(again, remade).read_bytes() == packed


def test_runs_of_different_lengths_are_packed_as_they_are(folder: Folder) -> None:
    changes = {"T": 6, "until": {"test_accuracy": 0.3}, "evaluate": {"every": 1, "train_every": 2}}
    folder.settings.raw["experiments"]["e"] |= changes | {"local": {"lr": 0.05, "batch": 8, "steps": 2}}
    folder.settings.raw["experiments"]["e"]["evaluate"]["train"] = True
    first, made = folder.simulate()
    lengths = first.groupby([*work.LABELS])["round"].max()
    assert lengths.nunique() > 1
    assert made["runs"][0]["run"]["until"] == {"test_accuracy": 0.3, "least": 1}
    folder.pack(first, made)
    folder.wipe()
    again, remade = folder.simulate()
    assert folder.trained == []
    assert remade == made
    pd.testing.assert_series_equal(again.groupby([*work.LABELS])["round"].max(), lengths)
    assert (again["train_loss"].isna() == first["train_loss"].isna()).all()
    curves = results.accuracy_curves(first)  # as far as all seeds go
    ends = curves.groupby(["setting", "method"])["round"].max()
    assert ends.to_dict() == lengths.groupby(level=[0, 1]).min().to_dict()


def test_what_another_experiment_or_scale_archived_is_not_trained_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, info = folder.simulate(methods=["MD"])
    folder.pack(table, info, "another")
    folder.wipe()
    again, remade = folder.simulate(seeds=[0])
    assert {run.method.sampler for run in folder.trained} == {"uniform"}
    of = ["setting", "method", "seed", "round"]
    columns = [*of, "test_accuracy"]
    both = again[columns].merge(table[columns], on=of)
    assert set(both["method"]) == {"MD", "the same"}
    pd.testing.assert_series_equal(both["test_accuracy_x"], both["test_accuracy_y"], check_names=False)

    (folder.archive / "paper").mkdir()
    (folder.archive / "demo" / "another.parquet").unlink()
    archive.write("e", "paper", (), table, info["runs"], folder.archive)
    folder.wipe()
    _, info = folder.simulate(only_finished=True)
    assert {run["method"] for run in info["runs"]} == {"MD", "the same"}
    assert {(run["setting"], run["seed"]) for run in info["runs"]} == {
        (s, n) for s in ("few", "many") for n in (0, 1)
    }


def test_what_only_other_archives_hold_needs_none_of_its_own(folder: Folder) -> None:
    _, part = folder.simulate(methods=["MD"])
    folder.pack(*folder.simulate(methods=["MD"]), "another")
    _, whole = folder.simulate()
    assert archive.elsewhere("e", "demo", (), part["runs"], folder.archive)
    assert not archive.elsewhere("e", "demo", ["notes"], part["runs"], folder.archive)  # it lacks the notes
    assert not archive.elsewhere("e", "demo", (), whole["runs"], folder.archive)  # a run of its own
    folder.pack(*folder.simulate())
    assert not archive.elsewhere("e", "demo", (), part["runs"], folder.archive)  # an archive of its own


def test_another_archive_serves_if_it_keeps_what_is_kept_here(folder: Folder) -> None:
    wanted = folder.settings.raw["experiments"]["e"]
    table, info = folder.simulate()
    folder.pack(table, info, "another")
    folder.wipe()
    wanted["archive"] = ["notes"]
    with pytest.raises(Unfinished):
        folder.simulate(only_finished=True)
    folder.simulate()
    folder.pack(*folder.simulate(), "another")
    folder.wipe()
    folder.simulate(only_finished=True)


def test_another_archive_that_is_damaged_stops_nothing(folder: Folder) -> None:
    folder.pack(*folder.simulate(), "another").write_bytes(b"damaged")
    folder.wipe()
    folder.simulate()
    assert len(folder.trained) == 12


def test_one_changed_setting_trains_just_that(folder: Folder) -> None:
    folder.pack(*folder.simulate())
    folder.wipe()
    folder.settings.raw["experiments"]["e"]["methods"]["Random"]["m"] = 3
    _, info = folder.simulate()
    assert [(run.method.sampler, run.m) for run in folder.trained] == [("uniform", 3)] * 4
    assert len(info["runs"]) == 12


def test_a_table_that_could_not_be_written_leaves_the_older_one_with_its_own_record(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = results.path_of("e", "demo", folder.results)
    folder.simulate()
    new = json.loads(path.with_suffix(".json").read_text())
    assert archive.read_results("e", "demo", folder.results).runs
    whole = results.write_whole

    def full_disk(to: Path, content: bytes) -> None:
        if to == path:
            raise OSError("No space left on device")
        whole(to, content)

    monkeypatch.setattr(results, "write_whole", full_disk)
    with pytest.raises(OSError, match="No space"):
        results.write_results(path, pd.read_parquet(path).head(15), new | {"runs": new["runs"][:3]})
    table, info = results.open_results("e", "demo", folder.results)
    assert len(info["runs"]) == 12
    assert len(table) == len(archive.read_results("e", "demo", folder.results).table)


def test_a_part_is_archived_as_a_part_and_said_to_be(folder: Folder) -> None:
    folder.pack(*folder.simulate(methods=["MD"], seeds=[1]))
    folder.wipe()
    table, info = folder.simulate(only_finished=True)
    assert folder.trained == []
    assert set(table["seed"]) == {1}
    assert set(table["method"]) == {"MD", "the same"}  # equal settings are one run
    assert info["planned"] == 12
    assert results.lacking(info) == ("MD / the same of few / many (seeds 0); Random of few / many")
    _, info = folder.simulate(methods=["Random"])
    assert len(folder.trained) == 4
    assert len(info["runs"]) == 8
    assert "Random" not in results.lacking(info)


def test_settings_without_any_run_are_named_as_a_whole() -> None:
    runs = [{"setting": "a", "method": "MD", "seed": 0}]
    missing = [{"setting": "b", "method": m, "seed": s, "reason": ""} for m in "xy" for s in (0, 1)]
    assert results.lacking({"runs": runs, "missing": missing}) == "all of b"
    assert results.lacking({"runs": runs, "missing": []}) == ""

    labels = [{"setting": "2SPC", "method": "", "seed": 0, "data": data} for data in ("MNIST", "CIFAR-10")]
    shown = {"setting": "2SPC", "method": "", "seed": 0}
    measured, missing = [{**shown, "unit": {"labels": labels[0]}}], [{**shown, "labels": labels[1]}]
    assert results.lacking({"runs": measured, "missing": missing}) == "all of CIFAR-10 2SPC"


def test_what_is_there_is_said_in_words() -> None:
    runs = [{"setting": s, "method": m, "seed": k} for s in "ab" for m in "xy" for k in (0, 1)]
    assert results.present({"runs": runs}) == "x / y of a / b, 2 seeds"
    assert results.present({"runs": [*runs, {"setting": "c", "method": "x", "seed": 0}]}) == (
        "x / y of a / b, 2 seeds; x of c, 1 seed"
    )
    assert results.present({"runs": []}) == ""


def test_nothing_finished_is_said(folder: Folder) -> None:
    with pytest.raises(
        Unfinished, match="e at scale demo: none of its 12 planned runs is finished or archived"
    ):
        folder.simulate(only_finished=True)
    with pytest.raises(Unfinished, match="x_partitions at scale demo: none of its"):
        folder.study(only_finished=True)


def test_runs_of_another_place_come_with_their_results(folder: Folder) -> None:
    folder.simulate(seeds=[0])
    shutil.rmtree(folder.place.runs)
    _, info = folder.simulate()
    assert {run.seed for run in folder.trained} == {1}
    assert len(info["runs"]) == 12


def test_archived_runs_stand_in_for_data_that_is_not_here(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.pack(*folder.simulate(seeds=[0]))
    folder.wipe()

    def absent(name: str, root: Path) -> str:
        raise DataError(f"{name} is not prepared")

    monkeypatch.setattr(datasets, "digest", absent)
    table, info = folder.simulate()
    assert folder.trained == []
    assert set(table["seed"]) == {0}
    assert {run["reason"] for run in info["missing"]} == {"digits is not prepared"}


def test_other_data_is_not_taken_for_the_archived(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.pack(*folder.simulate(seeds=[0]))
    folder.wipe()
    monkeypatch.setattr(train, "train", lambda runs, *rest: folder.trained.extend(runs))
    monkeypatch.setattr(datasets, "digest", lambda name, root: "another digest")
    with pytest.raises(Unfinished):
        folder.simulate(seeds=[0])
    assert len(folder.trained) == 6
    table, _ = folder.simulate(only_finished=True)  # pages show what is archived, with its own provenance
    assert set(table["seed"]) == {0}


def test_a_table_is_collected_again_when_its_archive_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `git pull`: else a notebook would show the older runs without a word."""
    collected: list[str] = []
    monkeypatch.setattr(experiments, "collect", lambda name, *_: collected.append(name))
    table, archived = (tmp_path / "data" / kind / "paper" / "e.parquet" for kind in ("results", "archive"))
    for path, when in ((table, 2000), (archived, 1000)):
        path.parent.mkdir(parents=True)
        path.touch()
        os.utime(path, (when, when))
    assert experiments.table_file("e", "paper", params.load(), tmp_path) == table
    assert collected == []
    os.utime(archived, (3000, 3000))
    assert experiments.table_file("e", "paper", params.load(), tmp_path) == table
    assert collected == ["e"]


def test_a_study_is_archived_too(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    first, info = folder.study()
    folder.pack(first, info, "x_partitions")
    folder.wipe()
    monkeypatch.setattr(study_partitions, "measure", lambda *_: pytest.fail("measured again"))
    again, remade = folder.study()
    pd.testing.assert_frame_equal(again, first)
    assert remade == info
    folder.wipe()
    folder.settings.raw["experiments"]["e"]["N"] = 8
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        folder.study()


def test_lists_of_archived_and_of_new_results_stand_in_one_table(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive keeps them in fewer bits: a study's samples, and the clients that trained."""
    measure = study_partitions.measure

    def sampled(*given) -> pd.DataFrame:
        rows = measure(*given)
        return rows.assign(samples=[[0.1, 0.2]] * len(rows))

    monkeypatch.setattr(study_partitions, "measure", sampled)
    whole = plan("x_partitions", "demo", folder.settings)
    part = whole.only(None, [0], None, None)
    path = simulate(whole, part, folder.place, folder.results, folder.archive, lambda line: None)
    folder.pack(pd.read_parquet(path), json.loads(path.with_suffix(".json").read_text()), "x_partitions")
    folder.pack(*folder.simulate(methods=["MD"]))
    folder.wipe()
    table, _ = folder.study()
    assert set(table["seed"]) == {0, 1}
    np.testing.assert_allclose(np.stack(list(table["samples"])), [[0.1, 0.2]] * len(table), rtol=2**-12)
    runs, _ = folder.simulate()
    assert {len(clients) for clients in runs["clients"][runs["round"] > 0]} == {2, 4}


def test_a_file_that_is_damaged_or_of_something_else_is_named(folder: Folder, tmp_path: Path) -> None:
    table, info = folder.simulate(seeds=[0])
    path = folder.pack(table, info)
    whole = path.read_bytes()
    packed = pq.read_table(path)
    whole_info, _ = sealed.info_of(whole)

    def refused(content: bytes) -> str:
        path.write_bytes(content)
        with pytest.raises(StoreError) as error:
            _ = archive.read("e", "demo", folder.archive).table
        message = str(error.value)
        assert str(path) in message
        assert "git checkout" in message
        assert "\n" not in message
        return message

    def changed(runs: list[dict], table: pa.Table = packed, **others) -> bytes:
        record = files.sealed(
            {"name": "e", "scale": "demo", "runs": runs, "seals": whole_info["seals"]} | others
        )
        other = tmp_path / "other.parquet"
        pq.write_table(table.replace_schema_metadata({sealed.KEY: sealed.packed(record)}), other)
        return other.read_bytes()

    refused(b"")
    refused(whole[: len(whole) // 2])
    refused(pickle.dumps({"runs": []}))
    for place in range(4, len(whole) - 8, 97):  # a byte anywhere: named, or without effect
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = archive.read("e", "demo", folder.archive)
            rows = found.table
        except StoreError:
            continue
        assert list(found.runs) == info["runs"]
        pd.testing.assert_frame_equal(
            rows, pq.read_table(pa.BufferReader(whole)).to_pandas(), check_dtype=False
        )
    refused(_bytes(packed.replace_schema_metadata({}), tmp_path))
    refused(_bytes(packed.replace_schema_metadata({sealed.KEY: pickle.dumps(info)}), tmp_path))
    assert "holds e at scale paper" in refused(changed(info["runs"], scale="paper"))
    assert "holds f at scale demo" in refused(changed(info["runs"], name="f"))
    assert "rows are not those of its runs" in refused(changed(info["runs"][1:]))
    assert "rows are not those of its runs" in refused(changed(info["runs"], packed.slice(10)))
    foreign = json.loads(json.dumps(info["runs"]))
    foreign[0]["run"]["local"]["lr"] = 0.2
    assert "do not match its address" in refused(changed(foreign))
    with pytest.raises(StoreError, match=r"e\.parquet"):
        folder.simulate()


def test_a_file_that_has_settled_is_opened_once_and_again_after_every_change(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder.pack(*folder.simulate(seeds=[0]))
    whole, as_written = path.read_bytes(), path.stat()
    later = time.time() + 2 * archive.SETTLED
    monkeypatch.setattr(archive.time, "time", lambda: later)
    assert archive.read("e", "demo", folder.archive) is archive.read("e", "demo", folder.archive)
    while path.stat().st_ctime_ns == as_written.st_ctime_ns:  # of one size, and seemingly not changed
        path.write_bytes(whole[:-9] + bytes(9))
        os.utime(path, ns=(as_written.st_atime_ns, as_written.st_mtime_ns))
    with pytest.raises(StoreError, match=r"e\.parquet"):
        archive.read("e", "demo", folder.archive)
    path.unlink()
    assert archive.read("e", "demo", folder.archive).runs == ()


def _bytes(table: pa.Table, folder: Path) -> bytes:
    pq.write_table(table, folder / "other.parquet")
    return (folder / "other.parquet").read_bytes()


def test_a_small_file_of_its_own_size(folder: Folder) -> None:
    """Settings repeat from run to run: 12 runs of 5 rounds and their records together take a few KiB."""
    table, info = folder.simulate()
    packed = folder.pack(table, info)
    loose = folder.results / "demo" / "e.json"
    assert packed.stat().st_size < loose.stat().st_size / 2


def test_times_keep_eight_bits() -> None:
    values = np.array([0.0, 1.0, 0.1, 123.456, np.nan, 3e-9], dtype=np.float32)
    kept = archive.rounded(values, 8)
    np.testing.assert_allclose(kept, values, rtol=2**-8)
    assert kept.dtype == np.float32


def test_samples_of_a_study_keep_twelve_bits_once_and_twice() -> None:
    values = np.random.default_rng(0).normal(size=1000) * 20
    table = pd.DataFrame({"round": [3], "cosine": [0.1], "component_1": [values], "clients": [[1, 2]]})
    lean = archive._lean_study(table)
    np.testing.assert_allclose(lean["component_1"][0], values, rtol=2**-12)
    assert lean["component_1"][0].dtype == np.float32
    assert lean["cosine"][0] == 0.1
    assert lean["clients"][0] == [1, 2]
    np.testing.assert_array_equal(archive._lean_study(lean)["component_1"][0], lean["component_1"][0])


def test_a_count_beyond_32_bits_is_kept() -> None:
    table = pd.DataFrame(
        {"seed": [0, 0], "round": [0, 1], "parameters_up": [0, 3 * 2**31], "client_steps": [0, 7]}
    )
    lean = archive._lean(table, [])
    assert lean["parameters_up"].tolist() == [0, 3 * 2**31]
    assert lean["client_steps"].dtype == np.int32


@pytest.mark.parametrize("seeds", [[0, 1, 0, 1], [0, 0, 2, 2], [0, 0]])
def test_rows_that_are_not_those_of_the_runs_are_refused(seeds: list[int]) -> None:
    labels = [{"setting": "", "method": "MD", "seed": seed} for seed in (0, 1)]
    table = pd.DataFrame({"setting": "", "method": "MD", "seed": [0, 0, 1, 1], "round": [0, 1, 0, 1]})
    assert sealed.parts(table, labels) == [(0, 2), (2, 4)]
    with pytest.raises(ValueError, match="its rows are not those of its runs"):
        sealed.parts(table.head(len(seeds)).assign(seed=seeds), labels)


def test_who_trained_is_kept_of_every_run_from_now_on(folder: Folder) -> None:
    """Beside runs that were archived without it, which stay as they are; who needs it gets only runs that have it."""
    table, info = folder.simulate(methods=["MD"])
    path = folder.pack(table.drop(columns="clients"), info)
    before = path.read_bytes()
    folder.wipe()
    again, remade = folder.simulate(only_finished=True)
    assert "clients" not in again
    assert folder.pack(again, remade).read_bytes() == before

    whole, both = folder.simulate()
    assert {run.method.sampler for run in folder.trained} == {"uniform"}
    packed = archive.read(*folder.pack(whole, both).with_suffix("").parts[:-3:-1], folder.archive)
    for record in packed.runs:
        rows = packed.rows(record["address"])
        assert ("clients" in rows) == (record["method"] == "Random")
    drawn = packed.table.loc[packed.table["method"] == "Random", "clients"]
    expected = whole.loc[whole["method"] == "Random", "clients"]
    assert [list(c) for c in drawn] == [list(c) for c in expected]
    old = packed.table[packed.table["method"] != "Random"].drop(columns="clients").reset_index(drop=True)
    pd.testing.assert_frame_equal(
        old,
        archive._rows(path, before, remade["runs"], sealed.info_of(before)[0]["seals"]),
        check_dtype=False,
    )

    folder.settings.raw["experiments"]["f"] = folder.settings.raw["experiments"]["e"] | {
        "archive": ["clients"]
    }
    found = Finished(
        Plan.of_experiment("f", "demo", folder.settings), folder.place, folder.results, folder.archive
    )
    shutil.rmtree(folder.place.runs)
    plan = Plan.of_experiment("f", "demo", folder.settings)
    assert {work.labels["method"] for work in plan.work if found.contains(work)} == {"Random"}


def test_of_notes_the_first_of_a_run_can_be_kept() -> None:
    table = pd.DataFrame(
        {
            "setting": "s",
            "method": "FedCor",
            "seed": [0] * 4 + [1] * 3,
            "round": [0, 1, 2, 3, 0, 1, 2],
            "notes": [None, None, "a", "b", None, "c", "d"],
            "clients": [[], [1], [2], [3], [], [1], [2]],
        }
    )
    kept = archive._lean(table, ["clients", "first_notes"])
    assert [note if isinstance(note, str) else None for note in kept["notes"]] == [
        None,
        None,
        "a",
        None,
        None,
        "c",
        None,
    ]
    assert "clients" in kept
    assert archive._lean(table, ["notes"])["notes"].notna().sum() == 4
    assert "notes" not in archive._lean(table, [])


def test_what_is_kept_is_named_by_each_experiment() -> None:
    settings = params.load()
    assert all(set(settings.archived(name)) <= set(params.OPTIONAL) for name in settings.names)
    settings.raw["experiments"]["cs_mnist"]["archive"] = ["client"]
    with pytest.raises(ConfigError, match=r"experiments\.cs_mnist\.archive must be a list of clients, "):
        settings.archived("cs_mnist")


def test_what_a_page_draws_is_kept() -> None:
    settings = params.load()
    for name, shown in settings.artifacts.items():
        text = (schema.ROOT / "notebooks" / f"{name.replace('-', '/', 1)}.ipynb").read_text()
        for column in ("local_loss", "local_loss_std"):
            if f'\\"{column}\\"' in text:
                opened = {one for one in shown if one in settings.names}
                drawn = {one for one in opened if f'\\"{one}\\"' in text} or opened
                assert all(column in settings.archived(one) for one in drawn), (name, column)


def test_no_archive_is_opened_twice() -> None:
    def passes() -> int:
        for scale, path in archive.all_of():
            archive.read(path.stem, scale)
        return archive._opened.cache_info().misses

    assert passes() == passes()


def test_all_of_the_archive_is_small_enough_for_git() -> None:
    assert sum(path.stat().st_size for path in archive.ARCHIVE.rglob("*.parquet")) < 30e6
