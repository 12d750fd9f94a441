"""FedVARP and MIFA against a plain loop over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlib import algorithms

N, D = 5, 4


def rounds(n: int = 12) -> list[tuple[np.ndarray, torch.Tensor]]:
    rng = np.random.default_rng(0)
    drawn = [np.sort(rng.choice(N, rng.integers(1, 4), replace=False)) for _ in range(n)]
    return [(clients, torch.from_numpy(rng.normal(size=(len(clients), D)))) for clients in drawn]


def after(algorithm: algorithms.FedAvg, lr: float = 0.5) -> np.ndarray:
    algorithm.setup(N, D, D, torch.device("cpu"))
    for name, value in algorithm.state_dict().items():
        if value.is_floating_point():
            algorithm.load_state_dict({name: value.double()})
    models = torch.zeros(1, D, dtype=torch.float64)
    for t, (clients, updates) in enumerate(rounds(), 1):
        n = len(clients)
        models = algorithm.aggregate(
            models, clients, np.zeros(n, int), np.full(n, 1 / n), updates, np.ones(n, int), lr / t
        )
    return models[0].numpy()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_fedvarp(beta: float) -> None:
    w, y = np.zeros(D), np.zeros((N, D))
    for clients, updates in rounds():
        mean = y.mean(axis=0)
        step = sum(u - beta * y[k] for k, u in zip(clients, updates.numpy(), strict=True)) / len(clients)
        w = w + step + beta * mean
        for k, u in zip(clients, updates.numpy(), strict=True):
            y[k] = u
    assert after(algorithms.find("fedvarp")(beta=beta)) == pytest.approx(w)


def test_mifa() -> None:
    w, G = np.zeros(D), {}
    for t, (clients, updates) in enumerate(rounds(), 1):
        for k, u in zip(clients, updates.numpy(), strict=True):
            G[k] = u / (0.5 / t)
        w = w + 0.5 / t * sum(G.values()) / len(G)
    assert after(algorithms.find("mifa")()) == pytest.approx(w)
