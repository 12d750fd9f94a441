"""FedCor, Figure 1: a two-dimensional toy problem in which every client is one sample and two clients are selected.

There are two Gaussian clouds of one label each, and every point is a client. The global model is a random linear
classifier (logistic loss). Selecting two clients takes one gradient step of rate `lr` on the mean of their gradients.
Ind selects the two highest losses. Cor selects by FedCor's Algorithm 1 from the covariance of the loss changes after
`pairs` random selections. Opt tries all pairs. The paper states none of the sizes; they are set in `params.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fedlib.kinds import Settings
from fedlib.runs.measuring import Halfway
from fedlib.runs.place import Place
from fedlib.runs.studies import Unit
from fedlib.samplers.base import Count, Positive
from fedlib.samplers.fedcor import choose
from fedlib.settings.params import Experiments
from fedlib.settings.schema import Scale
from fedlib.settings.sections import Study
from fedlib.streams import stream


class ToyCase(Settings):
    gap: Positive
    lr: Positive


class ToyKeys(Study):
    """draws: of the toy problem. n: points per label. cases: name -> gap between the means, and learning rate."""

    draws: Count
    n: Count
    pairs: Count
    cases: dict[str, ToyCase]


def units(settings: dict[str, Any], experiments: Experiments, scale: Scale) -> Iterator[Unit]:
    """settings: `draws`, `n` points per label, `pairs`; `cases`: name -> `gap` between the means and `lr`."""
    keys = {k: settings[k] for k in ("draws", "n", "pairs")}
    for name, case in settings["cases"].items():
        yield {"labels": {"data": "toy", "setting": name}, **keys, "gap": case["gap"], "lr": case["lr"]}


def measure(unit: Unit, place: Place, halfway: Halfway) -> pd.DataFrame:
    """One row per (draw, method): chosen, labels (lists), loss before and after, and the line `w` (3,) after the step.

    The method "start" is the model before any step; it also has the points `x` (2n, 2), flattened, and labels `y`.
    """
    return pd.concat([draw_toy(unit, i) for i in range(unit["draws"])], ignore_index=True)


def draw_toy(unit: Unit, draw: int) -> pd.DataFrame:
    rng = stream(draw, "probe")
    y = np.repeat([-1.0, 1.0], unit["n"])
    x = rng.standard_normal((2 * unit["n"], 2)) + np.outer(y, [unit["gap"] / 2, 0])
    x = np.column_stack([x, np.ones(len(x))])
    w = rng.standard_normal(3)
    pairs = np.array(list(combinations(range(len(x)), 2)))
    end = losses(step(w, x, y, pairs, unit["lr"]), x, y)
    start = losses(w[None], x, y)[0]
    sample = rng.integers(len(pairs), size=unit["pairs"])
    p, alpha = np.full(len(x), 1 / len(x)), np.ones(len(x))
    covariance = np.cov(end[sample] - start, rowvar=False, bias=True)
    chosen = {
        "Ind": np.argsort(-start, kind="stable")[:2],
        "Cor": choose(covariance, p, alpha, 2),
        "Opt": pairs[end.mean(axis=1).argmin()],
    }
    common = {"draw": draw, "loss_before": start.mean()}
    rows = [common | {"method": "start", "loss": start.mean(), "w": w, "x": x[:, :2].ravel(), "y": y}]
    for method, pair in chosen.items():
        new = step(w, x, y, pair[None], unit["lr"])
        loss = losses(new, x, y).mean()
        rows.append(common | {"method": method, "loss": loss, "w": new[0], "chosen": pair, "labels": y[pair]})
    return pd.DataFrame(rows)


def step(w: np.ndarray, x: np.ndarray, y: np.ndarray, pairs: np.ndarray, lr: float) -> np.ndarray:
    """(P, 3) the model after a step on each pair (P, 2): w - lr * mean gradient of the logistic loss."""
    gradients = -(y / (1 + np.exp(y * (x @ w))))[:, None] * x
    return w - lr * gradients[pairs].mean(axis=1)


def losses(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(P, N) logistic loss of each model (P, 3) at each point."""
    return np.logaddexp(0, -y * (w @ x.T))
