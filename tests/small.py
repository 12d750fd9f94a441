"""A small experiment on digits, in a folder of its own: its runs, results and archive."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.runs import archive
from fedlib.runs.experiment import simulate
from fedlib.runs.place import Place
from fedlib.runs.work import Plan
from fedlib.settings.params import Experiments

EXPERIMENT = {
    "title": "a small one",
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 6,
    "m": 2,
    "T": 4,
    "seeds": 2,
    "local": {"lr": 0.1, "batch": 8, "steps": 2},
    "evaluate": {"every": 2, "train": True},
    "methods": {"MD": {"sampler": "md"}, "Random": {"sampler": "uniform"}},
}


class Small:
    """The experiment `e` at scale demo; `changes` of its settings, `more` besides the experiments."""

    def __init__(self, root: Path, changes: dict[str, Any], **more: Any) -> None:
        self.results, self.archive, self.inputs = root / "results", root / "archive", root / "inputs"
        self.place = Place(runs=root / "runs", datasets=root / "datasets", workers=1)
        self.settings = Experiments(deepcopy({"experiments": {"e": EXPERIMENT | changes}, **more}))

    def simulate(self, only_finished: bool = False, **part: Any) -> Path:
        """Train what is lacking, or the part with these methods, seeds and settings; returns the table's path."""
        plan = Plan.of_experiment("e", "demo", self.settings)
        where = (self.place, self.results, self.archive)
        return simulate(plan, plan.only(**part), *where, lambda line: None, only_finished)

    def pack(self, table: pd.DataFrame, info: dict[str, Any], name: str = "e") -> Path:
        """Archive what `results.open_results` gives, under a name."""
        kept = self.settings.archived("e")
        return archive.write(name, "demo", kept, table, info["runs"], self.archive)
