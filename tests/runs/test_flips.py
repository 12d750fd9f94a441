"""A flipped bit anywhere: named, or without effect on any number; never taken, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small import Small

from fedlib.data import datasets
from fedlib.errors import DataError, StoreError
from fedlib.files import sealed
from fedlib.runs import archive, results
from fedlib.runs.place import address
from fedlib.runs.sealed import rows_digest
from fedlib.runs.store import Store
from workspace.commands import pipeline

FLIPS = 40  # of each kind of file


@dataclass(frozen=True)
class Kept:
    """A file, and what its reader finds in it; None where the reader says that it cannot be used."""

    path: Path
    read: Callable[[], Any]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    """A file of each kind, as the library writes them."""
    root = tmp_path_factory.mktemp("kinds")
    small = Small(root, {"archive": ["clients"]})
    place, table = small.place, small.simulate()
    frame, info = results.open_results("e", "demo", small.results)
    packed = small.pack(frame, info)
    store, runs = Store(place.runs), [one.run for one in small.settings.runs("e", "demo")]
    run = address(runs[0], place)
    begun = address(runs[1].model_copy(update={"T": 9}), place)
    store.save_checkpoint(begun, {"t": 1, "models": np.arange(50.0), "rows": [{"round": 0}, {"round": 1}]})
    store.fail(begun, "it drew from a global generator", "")
    inputs = root / "inputs" / "demo" / "e.json"
    inputs.parent.mkdir(parents=True)
    inputs.write_text(
        json.dumps(sealed({"data": {"digits": {"digest": "x"}}, "runs": info["runs"]}), indent=1)
    )

    def finished() -> Any:
        return shown(*store.read(run)) if store.finished(run) else None

    def state() -> Any:
        found = store.load_checkpoint(begun)
        return found and (found["t"], found["models"].tobytes(), found["rows"])

    def dataset() -> Any:
        found = datasets.load("digits", place.datasets)
        datasets.verify("digits", place.datasets)
        arrays = [getattr(found, name).tobytes() for name in datasets.KINDS["digits"].arrays]
        return arrays, found.digest, found.provenance, found.classes

    def noted() -> Any:
        content = inputs.read_bytes()
        pipeline.forget_missing(root=root / "inputs")
        return None if not inputs.exists() else known(json.loads(content))

    folder, digits = store.folder(run), place.datasets / "digits"
    return {
        "checkpoint": Kept(store.folder(begun) / "checkpoint.pt", state),
        "record of a run": Kept(folder / "run.json", finished),
        "rounds of a run": Kept(folder / "rounds.parquet", finished),
        "times of a run": Kept(folder / "timing.parquet", finished),
        "results": Kept(table, lambda: shown(*results.open_results("e", "demo", root / "results"))),
        "record of results": Kept(
            table.with_suffix(".json"), lambda: known(results.record("e", "demo", root / "results"))
        ),
        "archive": Kept(packed, lambda: archived(archive.read("e", "demo", root / "archive"))),
        "arrays of a dataset": Kept(digits.with_suffix(".npz"), dataset),
        "record of a dataset": Kept(digits.with_suffix(".json"), dataset),
        "input": Kept(inputs, noted),
        "reason of a failure": Kept(store.folder(begun) / "failed.json", lambda: store.failure(begun)),
    }


def known(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says of what it is asked; a key that is no longer its digest is asked by nobody."""
    return {
        key: record[key]
        for key in ("experiment", "scale", "planned", "runs", "missing", "data")
        if key in record
    }


def shown(table: pd.DataFrame, record: dict[str, Any]) -> Any:
    return rows_digest(table), known(record), record.get("run")


def archived(packed: archive.Packed) -> Any:
    return rows_digest(packed.table), packed.runs


def read(kept: Kept) -> Any:
    try:
        return kept.read()
    except (StoreError, DataError) as error:
        said = str(error)
    assert "\n" not in said
    assert kept.path.stem in said
    return None


NAMES = (
    *("checkpoint", "record of a run", "rounds of a run", "times of a run", "results", "record of results"),
    *("archive", "arrays of a dataset", "record of a dataset", "input"),
    "reason of a failure",
)


@pytest.mark.parametrize("kind", NAMES)
def test_a_flipped_bit_is_found_or_changes_nothing(
    kinds: dict[str, Kept], kind: str, record_property
) -> None:
    record_property("flips found", FLIPS)
    kept, rng = kinds[kind], np.random.default_rng(NAMES.index(kind))
    whole = kept.path.read_bytes()
    right = read(kept)
    assert right is not None
    found = 0
    try:
        for _ in range(FLIPS):
            changed = bytearray(whole)
            changed[rng.integers(len(whole))] ^= 1 << rng.integers(8)
            kept.path.write_bytes(changed)
            back = read(kept)
            assert back is None or back == right
            found += back is None
        for content in (b"", whole[: len(whole) // 2], b"[]", b"{}"):
            kept.path.write_bytes(content)
            assert read(kept) in (None, {})
    finally:
        kept.path.write_bytes(whole)
    assert found > FLIPS / 4
    assert read(kept) == right


@pytest.mark.bad_input
@pytest.mark.parametrize("edit", ["accuracies", "methods", "doubled", "shuffled", "provenance", "a run less"])
def test_results_that_were_edited_are_refused(kinds: dict[str, Kept], edit: str) -> None:
    """With the tools that everybody has: the record that the file carries is kept, or changed too."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from fedlib.runs import sealed as rule

    for kind in ("results", "archive"):
        kept = kinds[kind]
        whole = kept.path.read_bytes()
        info = rule.unpacked(rule._metadata(whole).metadata[rule.KEY])
        table = pq.read_table(pa.BufferReader(whole)).to_pandas(ignore_metadata=True)
        if edit == "accuracies":
            table["test_accuracy"] = 0.99
        elif edit == "methods":
            table["method"] = table["method"].map({"MD": "Random", "Random": "MD"})
        elif edit == "doubled":
            table = pd.concat([table, table])
        elif edit == "shuffled":
            table = table.sample(frac=1, random_state=0)
        elif edit == "provenance":
            info["runs"][0]["data"]["provenance"] = "better data"
        else:
            info["runs"] = info["runs"][1:]
        arrow = pa.Table.from_pandas(table, preserve_index=False)
        metadata = {rule.KEY: rule.packed(info)}
        try:
            pq.write_table(arrow.replace_schema_metadata(metadata), kept.path, store_schema=False)
            assert read(kept) is None
        finally:
            kept.path.write_bytes(whole)


def test_damaged_results_are_said_and_made_again(kinds: dict[str, Kept], tmp_path: Path, capsys) -> None:
    path = kinds["results"].path
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-20])
        assert not archive.read_results("e", "demo", path.parents[1]).runs
        assert "then run: fedlib results e --scale demo" in capsys.readouterr().err
        assert not results.shows("e", "demo", [], path.parents[1])
    finally:
        path.write_bytes(whole)
