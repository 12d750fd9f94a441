"""Runs in a world through the pipeline: settings as documented, the table, the archive, and nothing trained twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from small import Small

from fedlib.runs import results
from fedlib.settings.schema import ROOT
from fedlib.settings.world import World

GRID = {"grid": {"ideal": {}, "world": {"world": {"mean": 0.5, "absences": "hidden"}}}}
COLUMNS = ["clock", "available", "arrived", "wasted_steps", "jain", "coverage", "worst_class", "worst_tenth"]


def test_the_documented_settings_are_valid() -> None:
    page = (ROOT / "docs" / "world.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    world = World(**yaml.safe_load(block)["world"])
    assert world.model_dump().keys() == {*World.model_fields} - {"trace"}


def test_a_world_is_kept_in_table_and_archive(tmp_path: Path) -> None:
    small = Small(tmp_path, GRID)
    small.simulate()
    table, info = results.open_results("e", "demo", small.results)
    world, ideal = (table[table["setting"] == name] for name in ("world", "ideal"))
    assert ideal[COLUMNS].isna().all(axis=None)
    assert world[["clock", "jain", "coverage"]].iloc[-1].notna().all()
    assert (world.groupby(["method", "seed"])["clock"].last() >= 4).all()
    assert {("world" in record["run"], record["setting"]) for record in info["runs"]} == {
        (True, "world"),
        (False, "ideal"),
    }
    small.pack(table, info)
    shutil.rmtree(small.place.runs)
    shutil.rmtree(small.results)
    small.simulate(only_finished=True)
    again, _ = results.open_results("e", "demo", small.results)
    kept = [column for column in COLUMNS if column in again]
    assert kept == COLUMNS
    pd.testing.assert_frame_equal(
        again[COLUMNS].astype(float).reset_index(drop=True),
        table[COLUMNS].astype(float).reset_index(drop=True),
        rtol=1e-6,
    )
    assert np.array_equal(again["test_accuracy"], table["test_accuracy"], equal_nan=True)
