"""Every archived run has the address that it was archived under, but for methods and worlds that were corrected since.

A change that gives archived runs another address makes others train them again. If that is meant, name the part here.
"""

from __future__ import annotations

from typing import Any

import pytest

from fedlib.runs import archive
from fedlib.runs.work import addresses, is_measurement
from fedlib.settings.code import NUMERICS, code_of
from fedlib.settings.schema import Run

CORRECTED = {  # registered name -> what was wrong in the archived runs, until these are replaced
    "delta": "its scores had losses in the place of sizes",
    "f3ast": "it counted selections, not arrivals, where absences are hidden",
    "mifa": "it stood still in rounds in which nothing arrived",
    "oort_complete": "it scaled utilities over explored clients only",
}


def corrected(run: dict[str, Any]) -> bool:
    """Whether a run is of a corrected method, or of a world with speeds, whose clock counted some downloads twice."""
    method, world = run["method"], run.get("world") or {}
    return bool({method["sampler"], method["algorithm"]} & set(CORRECTED)) or bool(world.get("speeds"))


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
            if corrected(record["run"]) and now != record["address"]:
                continue
        assert now == record["address"], f"{record.get('method')}, seed {record.get('seed')}"
