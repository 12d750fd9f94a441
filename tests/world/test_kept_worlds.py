"""Runs in a world through the pipeline: settings as documented, the table, the archive, and nothing trained twice."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from small import Small

from fedlib.runs import results
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from fedlib.settings.world import World
from fedlib.world import LiveWorld

GRID = {"grid": {"ideal": {}, "world": {"world": {"mean": 0.5, "absences": "hidden"}}}}
COLUMNS = ["clock", "available", "arrived", "wasted_steps", "jain", "coverage", "worst_class", "worst_tenth"]


def test_the_documented_settings_are_valid() -> None:
    page = (ROOT / "docs" / "world.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    world, *_ = [World(**yaml.safe_load(block)["world"]) for block in blocks]
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


@pytest.mark.parametrize("rho", [-0.8, 0.0, 0.8])
def test_the_deadlines_of_world_deadlines_are_the_stated_quantiles(rho: float) -> None:
    """Share of clients that 20 steps of 20 samples and a logistic model on MNIST take no longer than the deadline."""
    world, rng = World(speeds={"of": "entropy", "rho": rho}), np.random.default_rng(0)
    grid = params.load().raw["experiments"]["world_deadlines"]["grid"]
    seconds = []
    for seed in range(40):
        labels = rng.multinomial(600, rng.dirichlet(np.full(10, 0.2), 100))
        clocked = LiveWorld(world, labels.sum(axis=1), labels, 7850, seed)
        d = np.full(100, 7850)
        seconds.append(clocked.seconds(np.arange(100), np.full(100, 400), d, d))
    for name, share in (("median", 0.5), ("80 %", 0.8), ("95 %", 0.95)):
        deadline = grid[f"{name}, rho = 0"]["world"]["ends"]["seconds"]
        assert np.mean(np.concatenate(seconds) <= deadline) == pytest.approx(share, abs=0.02)
