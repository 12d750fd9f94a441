"""Measures of global models: on the official test set, clients' training sets and clients' own test parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedlib.training.contract import Executor

if TYPE_CHECKING:
    from fedlib.data.partition import Partition
    from fedlib.simulation.live import Live


def segment_means(values: np.ndarray, sizes: Sequence[int], weights: np.ndarray | None = None) -> np.ndarray:
    """Mean of each consecutive segment of `values`; each segment is summed separately, an empty one gives NaN.

    weights: of the values in their means, None for equal ones.
    """
    if weights is not None:
        total = segment_means(weights, sizes)
        return np.divide(
            segment_means(values * weights, sizes), total, where=total > 0, out=np.full(len(total), np.nan)
        )
    counts = np.asarray(sizes)
    means = np.full(len(counts), np.nan)
    filled = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[filled]
    means[filled] = np.add.reduceat(values, starts, dtype=float) / counts[filled]
    return means


def weights_of(executor: Executor, split: str, rows: np.ndarray | slice = slice(None)) -> np.ndarray | None:
    """Weight of each of these samples in a mean loss; None for equal weights, as in all but a program's own loss."""
    weights = getattr(executor, "weights", {}).get(split)
    return None if weights is None else weights.cpu().numpy()[rows]


def part_means(executor: Executor, losses: np.ndarray, parts: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) mean loss of each part of the training set, from the losses of their samples, one part after another."""
    weights = weights_of(executor, "train", np.concatenate(parts))
    return segment_means(losses, [len(part) for part in parts], weights)


def evaluate(executor: Executor, lives: Sequence[Live]) -> list[dict[str, float]]:
    """The metrics that each run's settings ask for, measured for all runs together.

    For a run with several models (IFCA), the official test set measures the best one (by accuracy, or by loss where
    there is no accuracy). Each client uses the model with the lowest loss on its training data, as IFCA's authors do.
    """
    if not lives:
        return []
    models = torch.cat([live.models for live in lives])
    owner = np.repeat(np.arange(len(lives)), [len(live.models) for live in lives])
    rows: list[dict[str, float]] = [{} for _ in lives]
    accuracy = executor.measures == "test_accuracy"
    test_weights = weights_of(executor, "test")
    if any(live.run.evaluate.test or live.run.evaluate.clients for live in lives):
        test_loss, test_hit = executor.evaluate(models, "test")
    for r, live in enumerate(lives):
        if live.run.evaluate.test:
            mine = np.flatnonzero(owner == r)
            best = max(
                mine, key=lambda j: test_hit[j].mean() if accuracy else -mean_loss(test_loss[j], test_weights)
            )
            rows[r]["test_loss"] = mean_loss(test_loss[best], test_weights)
            if executor.measures:
                rows[r][executor.measures] = float(test_hit[best].mean())
    due = [train_is_due(live, row) for live, row in zip(lives, rows, strict=True)]
    training = [live for live, is_due in zip(lives, due, strict=True) if is_due or must_choose(live)]
    train_loss = dict(zip(map(id, training), client_losses(executor, training), strict=True))
    for r, live in enumerate(lives):
        mine = np.flatnonzero(owner == r)
        chosen = np.full(live.fed.N, mine[0])
        if id(live) in train_loss:
            chosen = mine[train_loss[id(live)].argmin(axis=0)]
        if due[r]:
            loss = train_loss[id(live)].min(axis=0)
            rows[r]["train_loss"], rows[r]["train_loss_std"] = spread(loss, live.fed.p)
        if live.run.world and live.run.evaluate.test and accuracy:
            rows[r] |= worst(test_hit[mine[0]], executor.y["test"].cpu().numpy(), live.partition.shares)
        if live.run.evaluate.clients and live.partition.test and accuracy:
            hits = [test_hit[model][part] for model, part in zip(chosen, live.partition.test, strict=True)]
            accuracies = segment_means(np.concatenate(hits), [len(part) for part in hits])
            rows[r]["client_accuracy"], rows[r]["client_accuracy_std"] = spread(accuracies, live.fed.p)
    return rows


def mean_loss(losses: np.ndarray, weights: np.ndarray | None) -> float:
    """The mean of samples' losses."""
    return float(losses.mean(dtype=float) if weights is None else np.average(losses, weights=weights))


def worst(hits: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> dict[str, float]:
    """Accuracy of the class, and of the tenth of clients, for which the model is worst.

    hits: (n,) correctness on the official test set; labels: (n,); shares: (N, K) label shares of the clients. A
    client's accuracy is that on test samples with its label shares.
    """
    K = shares.shape[1]
    by_class = np.bincount(labels, hits, K) / np.maximum(np.bincount(labels, minlength=K), 1)
    clients = np.sort(shares @ by_class)
    tenth = clients[: max(1, len(clients) // 10)]
    return {"worst_class": float(by_class.min()), "worst_tenth": float(tenth.mean())}


def train_is_due(live: Live, measured: dict[str, float]) -> bool:
    """Whether the training loss is measured in this round. measured: this round's measures on the test set."""
    settings = live.run.evaluate
    if not settings.train:
        return False
    return live.t % (settings.train_every or 1) == 0 or live.ends(measured.get("test_accuracy", np.nan))


def must_choose(live: Live) -> bool:
    """Whether clients must find out which of several models they test."""
    return live.run.evaluate.clients and len(live.models) > 1


def client_losses(executor: Executor, lives: Sequence[Live]) -> list[np.ndarray]:
    """(models, N) mean loss on each client's training data, for each run."""
    if not lives:
        return []
    used = [live.partition.used for live in lives for _ in live.models]
    losses = iter(executor.evaluate(torch.cat([live.models for live in lives]), "train", used)[0])

    def by_client(partition: Partition) -> np.ndarray:
        return part_means(executor, next(losses)[partition.place_in_used], partition.train)

    return [np.stack([by_client(live.partition) for _ in live.models]) for live in lives]


def spread(values: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Weighted mean and standard deviation of one number per client; p: (N,) weights that sum to 1."""
    mean = float(p @ values)
    return mean, float(np.sqrt(p @ (values - mean) ** 2))
