"""An experiment's results: trained where missing, gathered into one tidy table, opened by every notebook.

`data/results/<scale>/<experiment>.parquet` has one row a (setting, method, seed, round), with the columns that
ARCHITECTURE.md lists; `<experiment>.json` beside it says what made each run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from fedlib import config
from fedlib.config import ROOT, ConfigError, Labelled, Scale
from fedlib.files import write_whole
from fedlib.store import Store, to_parquet

if TYPE_CHECKING:
    from fedlib.parallel import Place

RESULTS = ROOT / "data" / "results"
MEASURES = [
    "test_loss",
    "test_accuracy",
    "train_loss",
    "train_loss_std",
    "client_accuracy",
    "client_accuracy_std",
    "local_loss",
    "local_loss_std",
]


def path_of(experiment: str, scale: Scale, results: Path = RESULTS) -> Path:
    return results / scale / f"{experiment}.parquet"


def simulate(
    experiment: str,
    scale: Scale | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    experiments: config.Experiments | None = None,
    place: Place | None = None,
    results: Path = RESULTS,
    tell: Callable[[str], None] = print,
) -> Path:
    """Train what an experiment still lacks at a scale and write its table; returns the table's path.

    methods, seeds: train only these; the table then holds them and whatever else was finished before.

    Raises:
        ConfigError: no such experiment, method or seed, or settings that cannot be run.
    """
    from fedlib.parallel import Place, train  # here, so that opening results imports no torch

    experiments = experiments or config.load()
    place = place or Place.from_environment()
    scale = scale or experiments.scale
    labelled = experiments.runs(experiment, scale)
    wanted = [
        one
        for one in labelled
        if (methods is None or one.method in methods) and (seeds is None or one.run.seed in seeds)
    ]
    for name in methods or []:
        if name not in {one.method for one in labelled}:
            known = ", ".join(dict.fromkeys(one.method for one in labelled))
            raise ConfigError(f"experiment {experiment!r} has no method {name!r}; it has {known}.")
    if not wanted:
        raise ConfigError(f"experiment {experiment!r} has no run with seeds {list(seeds or [])}.")
    train([one.run for one in wanted], place, tell, f"{experiment} [{scale}]")
    return gather(experiment, scale, labelled, place, results)


def gather(
    experiment: str, scale: Scale, labelled: Sequence[Labelled], place: Place, results: Path = RESULTS
) -> Path:
    """Write the tidy table of all finished runs of an experiment, and beside it what made them."""
    from fedlib.parallel import address

    store = Store(place.runs)
    frames, records = [], []
    for one in labelled:
        a = address(one.run, place)
        if not store.finished(a):
            continue
        rounds, record = store.read(a)
        rounds.insert(0, "experiment", experiment)
        rounds.insert(1, "setting", one.setting)
        rounds.insert(2, "method", one.method)
        rounds.insert(3, "seed", one.run.seed)
        frames.append(rounds)
        records.append({"setting": one.setting, "method": one.method, "seed": one.run.seed, **record})
    table = pd.concat(frames, ignore_index=True)
    for column in MEASURES:
        if column not in table:
            table[column] = float("nan")
    path = path_of(experiment, scale, results)
    info = {"experiment": experiment, "scale": scale, "planned": len(labelled), "runs": records}
    write_whole(path.with_suffix(".json"), json.dumps(info, indent=1, sort_keys=True).encode())
    write_whole(path, to_parquet(table))
    return path


def open_results(
    experiment: str, scale: Scale, results: Path = RESULTS
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The tidy table of an experiment and what made it.

    Raises:
        FileNotFoundError: the experiment has not been run at this scale.
    """
    path = path_of(experiment, scale, results)
    return pd.read_parquet(path), json.loads(path.with_suffix(".json").read_text())
