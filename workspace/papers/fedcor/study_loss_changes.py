"""FedCor, Figures 2 and 3 (and appendix D.2, D.3): how the clients' losses would change if other clients were selected.

At a probed round all N clients train from the run's model. Averaging C of them, for many random C-subsets, gives as
many vectors of loss changes (N,), which FedCor models by a Gaussian process. Each probe keeps the projections on the
first principal components with their share of the variance (Figure 2), and the cosine of the samples' covariance
(biased form, flattened) with that of `every` rounds before (Figure 3), plain and after subtracting its mean diagonal.
The procedure is that of the authors' code.

Deviations: the losses are exact means over the clients' hold-out samples; Figure 3 probes every update interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch

from fedlib.runs.measuring import Halfway, everyone, follow
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit, units_of
from fedlib.samplers.base import Count
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from fedlib.settings.sections import Study
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live
from fedlib.streams import stream

COMPONENTS = 3
MODELS_AT_ONCE = 25


class LossChangesKeys(Study):
    """subsets: number drawn per probe. first, every: {label of the dataset: first probed round, rounds between}."""

    subsets: Count
    first: dict[str, Count]
    every: dict[str, Count]


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """settings: `subsets` per probe, `first` probed round and rounds between (`every`) by label of the dataset."""
    for unit in units_of(settings, experiments, scale, "subsets"):
        yield unit | {key: settings[key][unit["labels"]["data"]] for key in ("first", "every")}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per probed round: round, cosine, cosine_centred, explained (a list), component_1, ... (lists)."""
    gathered: dict[str, Any] = {"rows": [], "covariance": None}
    for lockstep in follow(unit["run"], place, halfway, unit["run"]["T"], gathered):
        live = lockstep.live[0]
        if live.t < unit["first"] or (live.t - unit["first"]) % unit["every"] or live.diverged:
            continue
        changes = probe(lockstep, live, unit["subsets"])
        covariance = np.cov(changes, rowvar=False, bias=True)
        explained, projections = components(changes)
        row: dict[str, Any] = {"round": live.t, "cosine": np.nan, "cosine_centred": np.nan}
        if (previous := gathered["covariance"]) is not None:
            row["cosine"] = cosine(previous, covariance)
            row["cosine_centred"] = cosine(centred(previous), centred(covariance))
        row["explained"] = explained.tolist()
        row |= {f"component_{i + 1}": p.astype(np.float32).tolist() for i, p in enumerate(projections)}
        gathered["rows"].append(row)
        gathered["covariance"] = covariance
    return pd.DataFrame(gathered["rows"])


def probe(lockstep: Lockstep, live: Live, subsets: int) -> np.ndarray:
    """(subsets, N) changes of all clients' losses, one row per random set of m clients that are averaged."""
    trained = lockstep.train(everyone(lockstep, live), "probe").updates
    rng = stream(live.run.seed, "probe", live.t)
    chosen = np.stack([rng.choice(live.fed.N, live.fed.m, replace=False) for _ in range(subsets)])
    start = losses(lockstep, live, live.models)
    parts = np.array_split(chosen, -(-subsets // MODELS_AT_ONCE))
    losses_then = [
        losses(lockstep, live, live.models[0] + trained[torch.as_tensor(part)].mean(1)) for part in parts
    ]
    return np.concatenate(losses_then) - start


def losses(lockstep: Lockstep, live: Live, models: torch.Tensor) -> np.ndarray:
    """(R, N) loss of each of the models (R, d) on each client's data."""
    return np.stack(lockstep.client_losses(models, [(live, live.fed.everyone)] * len(models)))


def components(changes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of variance (c,) and projections (c, S) of the samples (S, N) on their first principal components."""
    u, s, _ = np.linalg.svd(changes - changes.mean(axis=0), full_matrices=False)
    return (s**2 / (s**2).sum())[:COMPONENTS], (u * s).T[:COMPONENTS]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def centred(covariance: np.ndarray) -> np.ndarray:
    """The matrix minus its mean variance on the diagonal, which makes any two covariances look alike."""
    return covariance - np.diag(covariance).mean() * np.eye(len(covariance))
