"""What a run of the authors' program starts from, and our engine from the same start.

Clients, initial model and the draws of the warm-up follow from the program's seed by numpy's and torch's generators, in
the order in which the program asks them (Yoruko-Tang/FedCor, commit a89bd66). From there on its run differs from ours
by the mini-batches and dropout masks, which are ours, and by which images of a class lie in which shard: the program
sorts labels by an unstable sort, here the sort is stable.

`write` keeps two tables of this in `data/reference/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import nn

from fedlib.data.datasets import Dataset, load, tensors
from fedlib.data.partition import Partition
from fedlib.samplers.base import Round, Sampler, Selection
from fedlib.samplers.fedcor import FedCor
from fedlib.settings import params
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor
from workspace.analysis import kept
from workspace.analysis.experiments import opened
from workspace.analysis.reference import REFERENCE, reference

WARM_UP = 16  # rounds of uniform draws before FedCor's own


def clients(y: np.ndarray, N: int, seed: int, holdout: float = 0.2) -> Partition:
    """One shard of the samples, sorted by label, to each of N clients; the last `holdout` of each is kept aside."""
    rng, order = np.random.RandomState(seed), np.argsort(y, kind="stable")
    size, free, parts = len(y) // N, list(range(N)), []
    for _ in range(N):
        shard = rng.choice(free, 1, replace=False)[0]
        free = list(set(free) - {shard})  # in the order of a set, as in the program
        part = order[shard * size : (shard + 1) * size].astype(float)
        rng.shuffle(part)
        parts.append(part.astype(np.int64))
    cut = int((1 - holdout) * size + 1e-9)
    labels = np.stack([np.bincount(y[part], minlength=int(y.max()) + 1) for part in parts])
    return Partition([np.sort(p[:cut]) for p in parts], [np.sort(p[cut:]) for p in parts], None, labels)


def model(seed: int, shape: Sequence[int] = (1, 28, 28), K: int = 10) -> torch.Tensor:
    """(d,) the initial model."""
    return model_and_embedding(seed, shape, K, N=1)[0]


def model_and_embedding(
    seed: int, shape: Sequence[int], K: int, N: int, d: int = 15
) -> tuple[torch.Tensor, np.ndarray]:
    """The initial model and FedCor's initial embedding (d, N), drawn after it.

    The program builds a model for each entry of the images' shape and keeps the last.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for n in np.cumprod(shape).tolist():
            layers = [nn.Linear(n, 64), nn.Linear(64, 30), nn.Linear(30, K)]
        X = torch.randn(d, N) / np.sqrt(d)
    flat = torch.cat([p.detach().flatten() for layer in layers for p in (layer.weight, layer.bias)])
    return flat, X.numpy().astype(float)


def draws(seed: int, N: int, m: int, rounds: int) -> list[np.ndarray]:
    """The m clients of each round of uniform selection: of the warm-up, or of the whole run of Random."""
    rng = np.random.RandomState(seed)
    return [rng.choice(N, m, replace=False) for _ in range(rounds)]


@dataclass
class Told(Sampler):
    """Selects the clients that it is given for each round."""

    rounds: Sequence[np.ndarray] = field(default_factory=list)

    def select(self, round: Round) -> Selection:
        return Selection(self.rounds[round.t - 1])


@dataclass
class Started(FedCor):
    """FedCor whose draws of the warm-up are given."""

    told: list[np.ndarray] = field(default_factory=list)

    def at_random(self, round: Round) -> np.ndarray:
        return self.told.pop(0) if self.told else super().at_random(round)


def follow(run: Run, data: Dataset, seed: int, rounds: int = WARM_UP) -> Lockstep:
    """A run of ours after `rounds` rounds from the start of the program's run with that seed, with its draws.

    FedCor has the program's draws in the warm-up, and starts from its embedding; any other run is Random.
    """
    evaluate = run.evaluate.model_copy(update={"every": 1, "train": False})
    run = run.model_copy(update={"T": rounds, "until": None, "evaluate": evaluate})
    parts = clients(data.y_train, run.N, seed, run.holdout or 0.2)
    lockstep = Lockstep([run], [parts], make_executor(run.model, tensors(data, run.scaling), threads=1))
    live = lockstep.live[0]
    live.models[0], X = model_and_embedding(seed, data.x_train.shape[1:], data.n_classes, run.N)
    if run.method.sampler == "fedcor":
        live.sampler = Started(**run.method.params, told=draws(seed, run.N, run.m, WARM_UP))
        live.sampler.setup(live.fed, np.random.default_rng(0))
        live.sampler.X = X
    else:
        live.sampler = Told(draws(seed, run.N, run.m, rounds))
        live.sampler.setup(live.fed, np.random.default_rng(0))
    while lockstep.active:
        lockstep.advance()
    return lockstep


def accuracy(lockstep: Lockstep) -> np.ndarray:
    """(rounds,) test accuracy after each round of its one run."""
    return np.array([row["test_accuracy"] for row in lockstep.live[0].rows[1:]])


def compare(run: Run, data: Dataset, authors: pd.DataFrame, seeds: Sequence[int] = (1, 2, 3)) -> pd.DataFrame:
    """Our accuracy in the warm-up from each start beside the program's; one row per authors' seed and method.

    authors: rows of `reference`, of one setting. Columns: the largest and the mean difference over the rounds, in
    points of accuracy, and the mean difference from the program's curves of the other seeds.
    """
    theirs = authors[authors["round"] <= WARM_UP].pivot_table(
        index="round", columns=["method", "seed"], values="test_accuracy"
    )
    rows = {}
    for seed in seeds:
        ours = accuracy(follow(run, data, seed))
        for method in dict.fromkeys(theirs.columns.get_level_values("method")):
            apart = 100 * theirs[method].sub(ours, axis=0).abs()
            rows[method, seed] = {
                "largest difference": apart[seed].max(),
                "mean difference": apart[seed].mean(),
                "from the other seeds": apart.drop(columns=seed).to_numpy().mean(),
            }
    return pd.DataFrame(rows).T.sort_index().rename_axis(["method", "authors' seed"])


def to_its_end(run: Run, data: Dataset, authors: pd.DataFrame, ours: pd.DataFrame) -> pd.Series:
    """Mean accuracy from round 50 on, in percent: of the program's seed 1, of ours from its start, of our own seeds.

    run: FedCor in 1SPC. authors, ours: rows of `reference` and of our results, of that setting and method.
    """
    last = int(authors["round"].max())
    followed = pd.Series(accuracy(follow(run, data, 1, last)), range(1, last + 1))
    free = ours[ours["round"].between(50, last)].groupby("seed")["test_accuracy"].mean()
    means = {
        "the program, seed 1": authors[authors["seed"] == 1]
        .set_index("round")["test_accuracy"]
        .loc[50:]
        .mean(),
        "ours from its start": followed.loc[50:].mean(),
        "our highest seed": free.max(),
        "our lowest seed": free.min(),
    }
    return 100 * pd.Series(means, name="accuracy (%)")


def write() -> None:
    """Compute `same_start.csv` and `open_seed.csv` anew, from Fashion-MNIST and the archived runs."""
    settings, data = params.load(), load("fmnist")
    planned = settings.runs("fedcor_fmnist", "paper")
    runs = {entry.method: entry.run for entry in planned if entry.setting == "1SPC" and entry.run.seed == 1}
    authors = reference("fedcor").query("experiment == 'fedcor_fmnist' and setting == '1SPC'")
    same_start = compare(runs["Random"], data, authors[authors["method"].isin(["Random", "FedCor"])])
    kept.write(REFERENCE / "same_start.csv", same_start.round(2).to_csv().encode())
    archived = opened("fedcor_fmnist", "paper", settings)
    assert archived  # it is in git
    ours = archived[0].query("setting == '1SPC' and method == 'FedCor'")
    late = to_its_end(runs["FedCor"], data, authors[authors["method"] == "FedCor"], ours)
    kept.write(REFERENCE / "open_seed.csv", late.round(1).to_frame().to_csv().encode())
