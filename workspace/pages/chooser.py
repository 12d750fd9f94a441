"""The data of the chooser ("Which sampler should I use?"): what each run of the arena reached for what it cost.

`site/static/chooser.js` filters the settings, compares each sampler with Random on paired seeds at a budget, and ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedlib.drawing.style import NAMES
from fedlib.measure import RUN, comparable, cumulative_cost
from fedlib.samplers import SAMPLERS, Sampler
from fedlib.settings.params import Labelled
from fedlib.settings.schema import Run
from workspace.pages import front

NOTHING, LOSSES, UPDATES = ASKED = (
    "nothing beyond their training",
    "other clients' losses, too",
    "other clients' updates, too",
)
ONE, MORE = HELD = "one label each, or nearly", "several labels each, or mixed"
POINTS = 40  # checkpoints of a run
COSTS = ("round", "megabytes", "client_steps", "server_seconds")
LABELS = "their labels"
LEVELS = {NOTHING: 0, LOSSES: 1, UPDATES: 2, LABELS: 3}
CONTROLS = ("Random", "Target", "Oracle", "Full participation")  # to compare with, not to choose


def asks(sampler: type[Sampler]) -> str:
    """What a sampler asks of clients beside the training of those it chose (one of `ASKED`)."""
    if sampler.asks is None:
        return UPDATES
    reveals = {question.reveals for question in sampler.asks}
    return UPDATES if "updates" in reveals else LOSSES if "losses" in reveals else NOTHING


def holds(run: Run) -> str:
    """Which labels a client holds in a run's partition (one of `HELD`)."""
    return ONE if run.partition.mostly_one_label else MORE


def points(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Every run at its checkpoints: experiment, setting, method, seed, `COSTS` so far, and accuracy in percent.

    tables: experiment -> tidy table of the arena. Methods of a setting share their seeds and rounds. The accuracy is
    the mean over the measurements since the checkpoint before.
    """
    parts = []
    for experiment, table in tables.items():
        spent = cumulative_cost(comparable(table))
        spent = spent.assign(megabytes=spent["megabytes"], client_steps=spent["work"])
        spent["server_seconds"] = spent.groupby(RUN, sort=False)["server_seconds"].cumsum()
        runs: list[tuple[Any, pd.DataFrame]] = list(spent.groupby(RUN, sort=False))
        for (setting, method, seed), run in runs:
            last = int(run["round"].max())
            ends = np.unique(np.ceil(np.arange(1, POINTS + 1) * last / POINTS).astype(int))
            run = run[run["round"] > 0]
            bins = pd.Index(np.searchsorted(ends, run["round"]), name="bin")
            means = 100 * run["test_accuracy"].groupby(bins).mean()
            checkpoints = run.set_index("round").reindex(ends)[list(COSTS[1:])].ffill()
            part = checkpoints.assign(accuracy=means.reindex(range(len(ends))).to_numpy()).dropna()
            labels = {"experiment": experiment, "setting": setting, "method": method, "seed": seed}
            parts.append(part.rename_axis("round").reset_index().assign(**labels))
    columns = ["experiment", "setting", "method", "seed", *COSTS, "accuracy"]
    return pd.concat(parts)[columns].reset_index(drop=True) if parts else pd.DataFrame(columns=columns)


def level_asked(sampler: type[Sampler]) -> int:
    """What a sampler asks beside training (an index into `LEVELS`)."""
    return 3 if "labels" in sampler.needs else LEVELS[asks(sampler)]


def data(runs: pd.DataFrame, planned: Iterable[tuple[str, Labelled]]) -> dict[str, Any]:
    """What the page's script reads, without numbers that it could compute.

    runs: `points`. planned: (experiment, run) of the arena.
    """
    runs = runs.assign(method=runs["method"].replace(NAMES))
    with_runs = runs[["experiment", "setting"]].drop_duplicates().itertuples(index=False, name=None)
    plan: dict[tuple[str, str], Any] = {}
    samplers: dict[str, type[Sampler]] = {}
    for experiment, labelled in planned:
        plan.setdefault((experiment, labelled.setting), labelled.run)
        samplers[NAMES.get(labelled.method, labelled.method)] = SAMPLERS[labelled.run.method.sampler]
    settings = [
        described(experiment, setting, plan[experiment, setting])
        for experiment, setting in with_runs
        if (experiment, setting) in plan
    ]
    methods = [name for name in dict.fromkeys(runs["method"]) if name in samplers]
    return {
        "asks": list(LEVELS),
        "settings": settings,
        "methods": [
            {"name": name, "asks": level_asked(samplers[name]), "control": name in CONTROLS}
            for name in methods
        ],
        "runs": [
            {
                "s": k,
                "m": methods.index(method),
                "seed": int(seed),
                "at": {cost: short(run[cost]) for cost in COSTS},
                "accuracy": short(run["accuracy"]),
            }
            for k, setting in enumerate(settings)
            for (method, seed), run in runs[
                (runs["experiment"] == setting["experiment"]) & (runs["setting"] == setting["setting"])
            ].groupby(["method", "seed"], sort=False)
            if method in methods
        ],
    }


def short(values: pd.Series) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def described(experiment: str, setting: str, run: Any) -> dict[str, Any]:
    """A setting in the words of the page's filters."""
    sizes = getattr(run.partition, "sizes", None)
    unequal = (
        bool(sizes and len({size for _, size in sizes}) > 1) or run.partition.scheme == "dirichlet_prior"
    )
    data = front.DATA.get(run.dataset, run.dataset)
    return {
        "experiment": experiment,
        "setting": setting,
        "name": f"{data}: {setting}" if setting else f"{data}: one digit a client, {run.T} rounds",
        "data": data,
        "labels": holds(run),
        "sizes": "of different size" if unequal else "of one size",
        "share": f"{100 * run.m / run.N:g} % of {run.N}",
        "T": run.T,
    }
