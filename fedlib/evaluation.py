"""What is measured of global models: official test set, clients' training losses, clients' own test parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedlib.local import Executor

if TYPE_CHECKING:
    from fedlib.live import Live


def segment_means(values: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Mean of each consecutive segment of `values`, each summed on its own; empty segments give NaN."""
    sizes = np.asarray(sizes)
    out = np.full(len(sizes), np.nan)
    some = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[some]
    out[some] = np.add.reduceat(values, starts, dtype=float) / sizes[some]
    return out


def evaluate(executor: Executor, lives: Sequence[Live]) -> list[dict[str, float]]:
    """The metrics that each run's settings ask for, all runs' models measured together.

    A run with several models (IFCA) reports the best one on the official test set, and for its clients the model
    with the lowest loss on each client's training data, as IFCA's authors do.
    """
    if not lives:
        return []
    models = torch.cat([live.models for live in lives])
    owner = np.repeat(np.arange(len(lives)), [len(live.models) for live in lives])
    rows: list[dict[str, float]] = [{} for _ in lives]
    need_test = any(live.run.evaluate.test or live.run.evaluate.clients for live in lives)
    need_train = any(_needs_train(live) for live in lives)
    if need_test:
        test_loss, test_hit = executor.evaluate(models, "test")
    if need_train:
        used = [lives[r].partition.used for r in owner]
        train_loss, _ = executor.evaluate(models, "train", used)
    for r, live in enumerate(lives):
        mine = np.flatnonzero(owner == r)
        if live.run.evaluate.test:
            best = max(mine, key=lambda j: test_hit[j].mean())
            rows[r]["test_loss"] = float(test_loss[best].mean(dtype=float))
            rows[r]["test_accuracy"] = float(test_hit[best].mean())
        chosen = np.full(live.fed.N, mine[0])
        if _needs_train(live):
            place = live.partition.place_in_used
            sizes = [len(k) for k in live.partition.train]
            by_model = np.stack([segment_means(train_loss[j][place], sizes) for j in mine])
            chosen = mine[by_model.argmin(axis=0)]
            if live.run.evaluate.train:
                rows[r]["train_loss"], rows[r]["train_loss_std"] = spread(by_model.min(axis=0), live.fed.p)
        if live.run.evaluate.clients:
            accuracy = np.array(
                [test_hit[chosen[k]][part].mean() for k, part in enumerate(live.partition.test)]
            )
            rows[r]["client_accuracy"], rows[r]["client_accuracy_std"] = spread(accuracy, live.fed.p)
    return rows


def _needs_train(live: Live) -> bool:
    return live.run.evaluate.train or (live.run.evaluate.clients and len(live.models) > 1)


def spread(values: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Weighted mean and standard deviation of one number a client; p: (N,) weights that sum to 1."""
    mean = float(p @ values)
    return mean, float(np.sqrt(p @ (values - mean) ** 2))
