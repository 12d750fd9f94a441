"""Work in forks of a process: all of it is done, what failed is named in order; a held table is the file's."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from fedlib.commands import forks
from fedlib.errors import StoreError
from fedlib.runs import results


@pytest.mark.parametrize("at_once", [1, 3])
def test_every_item_is_worked_on_and_failures_are_named_in_order(tmp_path: Path, at_once: int) -> None:
    began: list[int] = []

    def work(item: int) -> None:
        (tmp_path / str(item)).touch()
        if item == 3:
            raise ValueError("no")
        if item == 1:
            sys.exit(1)

    failed = forks.each(range(5), work, began.append, at_once)
    assert failed == [1, 3]
    assert began == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]


def test_a_held_table_is_read_from_a_file_that_has_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "demo" / "e.parquet"
    monkeypatch.setattr(results, "_held", {})
    run = {"setting": "", "method": "MD", "seed": 0}
    for value in (1.0, 2.0):
        rows = pd.DataFrame({**run, "round": [0, 1], "test_loss": value})
        results.write_results(path, rows, {"scale": "demo", "planned": 1, "runs": [run], "missing": []})
        table, info = results.read_table(path)
        assert table["test_loss"].tolist() == [value, value]
        results.hold([path])
        held, same = results.read_table(path)
        pd.testing.assert_frame_equal(held, table)
        assert same == info
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StoreError):
        results.read_table(path)
