"""Every archived run has the address that it was archived under.

A change that gives archived runs another address makes others train them again. Where that is meant, because a method
was wrong, its runs are trained and archived again.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedlib.runs import archive
from fedlib.runs.work import addresses, is_measurement
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.schema import Run


@pytest.mark.parametrize(
    ("scale", "path"),
    [pytest.param(scale, path, id=f"{scale}-{path.stem}") for scale, path in archive.all_of()],
)
def test_archived_runs_keep_their_addresses(scale: Any, path: Any) -> None:
    records = archive.read(path.stem, scale).runs
    assert records
    for record in records:
        assert record["numerics"] == NUMERICS
        digest = record["data"]["digest"]
        if is_measurement(record):
            (now,) = addresses(path.stem, record, NUMERICS, digest, code_of(record["unit"]))
        else:
            now = Run(**record["run"]).address(NUMERICS, digest)
        assert now == record["address"], f"{record.get('method')}, seed {record.get('seed')}"
