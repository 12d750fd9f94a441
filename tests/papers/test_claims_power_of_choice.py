"""Power-of-Choice's claims on made-up tables whose outcomes follow by hand, and its quadratic clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from outcome import judge

from workspace.analysis.claim import claims_of
from workspace.papers.power_of_choice import study_quadratic as quadratic

ALL = [claim.id for claim in claims_of("power_of_choice")]
# How fast a method's loss falls and where it ends, and its accuracy: as the paper has it, and the other way round.
LOSSES = {"Random": (0.01, 0.1), "pow-d, d = m": (0.01, 0.1), "pow-d, d = 2m": (0.02, 0.15),
          "pow-d, d = 10m": (0.05, 0.2),
          "cpow-d, d = 2m": (0.018, 0.15), "rpow-d, d = 10m": (0.03, 0.18), "adapow-d": (0.05, 0.12)}  # fmt: skip
TURNED = {"Random": (0.05, 0.25), "pow-d, d = m": (0.05, 0.25), "pow-d, d = 2m": (0.02, 0.2),
          "pow-d, d = 10m": (0.01, 0.1),
          "cpow-d, d = 2m": (0.02, 0.2), "rpow-d, d = 10m": (0.02, 0.2), "adapow-d": (0.02, 0.15)}  # fmt: skip
HEIGHTS = {
    "Random": 0.7,
    "pow-d, d = 2m": 0.75,
    "pow-d, d = 5m": 0.8,
    "cpow-d, d = 2m": 0.74,
    "rpow-d, d = 50": 0.73,
}
LOWER = dict.fromkeys(HEIGHTS, 0.68) | {"Random": 0.8}


def table(
    column: str, settings: tuple[str, ...], t: np.ndarray, curves: dict[str, np.ndarray]
) -> pd.DataFrame:
    """One curve per method in every setting; seeds differ by a thousandth."""
    parts = [
        pd.DataFrame({"round": t, column: curve * (1 + 1e-3 * seed), "seed": seed}).assign(
            method=method, setting=setting
        )
        for setting in settings
        for method, curve in curves.items()
        for seed in range(5)
    ]  # fmt: skip
    return pd.concat(parts).assign(diverged=False, notes=None)


def tables(losses: dict[str, tuple[float, float]], heights: dict[str, float]) -> dict[str, pd.DataFrame]:
    t, late, long = np.arange(0, 801, 2), np.arange(0, 301, 5), np.arange(0, 1501, 5)
    falling = {method: end + (2.3 - end) * np.exp(-rate * t) for method, (rate, end) in losses.items()}
    gaps = {method: end + 20 * np.exp(-rate * long) for method, (rate, end) in losses.items()}
    rising = {method: top * (1 - np.exp(-0.02 * late)) for method, top in heights.items()}
    return {
        "poc_synthetic": table("train_loss", ("m = 1", "m = 2", "m = 3"), t, falling),
        "poc_fmnist": table("test_accuracy", ("alpha = 2", "alpha = 0.3"), late, rising),
        "poc_quadratic": table("gap", ("",), long, gaps),
    }


def test_nothing_is_judged_without_results():
    assert {judge(id, {}).outcome for id in ALL} == {"not run"}


# "poc.F2.a", "poc.F2.b", "poc.F3.a", "poc.F3.b", "poc.F3.c", "poc.F3.d", "poc.F3.e", "poc.F4.a", "poc.F4.b", "poc.F4.c"
@pytest.mark.parametrize("id", ALL)
def test_claims_hold_where_methods_are_as_the_paper_says_and_are_contradicted_where_not(id: str):
    assert judge(id, tables(LOSSES, HEIGHTS)).outcome == "holds"
    assert judge(id, tables(TURNED, LOWER)).outcome == "contradicted"


UNIT: dict[str, Any] = {
    "draw": 0, "N": 10, "m": 3, "tau": 3, "lr": 0.01, "rounds": 20,
    "samplers": {"Full": {"sampler": "full"}, "pow-d, d = 10m": {"sampler": "power_of_choice", "d": 10}},
}  # fmt: skip


def test_the_quadratic_clients_follow_plain_gradient_descent():
    rng = np.random.default_rng(1)
    h, c, w = rng.uniform(1, 20, 10), rng.normal(size=(10, 5)), np.ones(5)
    for _ in range(20):
        chosen = np.argsort(-h / 2 * ((w - c) ** 2).sum(axis=1))[:3]
        models = []
        for k in chosen:
            local = w.copy()
            for _ in range(3):
                local -= 0.01 * h[k] * (local - c[k])
            models.append(local)
        w = np.mean(models, axis=0)
    p = np.full(10, 0.1)

    def loss(w: np.ndarray) -> float:
        return float(p @ (h / 2 * ((w - c) ** 2).sum(axis=1)))

    best = (p * h) @ c / (p @ h)
    told = quadratic.follow("pow", {"sampler": "power_of_choice", "d": 10}, h, c, np.full(10, 50), UNIT)
    assert told["gap"].iloc[-1] == pytest.approx(loss(w) - loss(best))


def test_the_quadratic_study_has_a_row_per_method_and_fifth_round():
    table = quadratic.measure(UNIT | {"samplers": {"Random": {"sampler": "md"}}}, None, None)  # ty: ignore[invalid-argument-type]
    assert table["round"].tolist() == [0, 5, 10, 15, 20]
    assert (table["gap"] >= 0).all()
