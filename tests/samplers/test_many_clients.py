"""With many clients, samplers make no matrix over all of them; they choose the same clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy
from torch import nn

import fedlib
from fedlib.samplers import clustered_sampling, divfl, fedcor, hics_fl, linear_process, oracle
from fedlib.samplers.apart import Apart, squared_apart, tree_of
from fedlib.samplers.fedcor import choose, covariance, train
from fedlib.simulation import clients as work_of_clients

RNG = np.random.default_rng(0)
N = 24
Y = RNG.integers(4, size=N * 10)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(N * 10, 6))).astype(np.float32)


@pytest.mark.parametrize("sigma_n", [0.01, 0.5])
@pytest.mark.parametrize("clients", [3, 40, 200])
def test_fedcor_chooses_as_with_the_whole_covariance(clients: int, sigma_n: float) -> None:
    rng = np.random.default_rng(clients)
    embedding, p = rng.normal(size=(15, clients)) / 4, rng.dirichlet(np.ones(clients))
    alpha, m = rng.random(clients), min(12, clients)
    wanted = choose(covariance(embedding, sigma_n), p, alpha, m)
    assert linear_process.choose(embedding, sigma_n, p, alpha, m).tolist() == wanted.tolist()


@pytest.mark.parametrize("likelihood", ["mml", "loo_upstream"])
def test_fedcor_trains_as_with_the_whole_covariance(likelihood: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    embedding, changes, mean = rng.normal(size=(5, 40)), rng.normal(size=(3, 40)), rng.normal(size=40)
    arguments = embedding, changes, np.array([0.5, 0.8, 1.0]), mean, 0.3, 20, likelihood
    wanted, objective = train(*arguments)
    monkeypatch.setattr(fedcor, "MANY", 10)
    trained, value = train(*arguments)
    np.testing.assert_allclose(trained, wanted, rtol=1e-9, atol=1e-9)
    assert value == pytest.approx(objective)
    assert not np.allclose(trained, embedding)


def similar(n: int) -> np.ndarray:
    """A similarity matrix with two rows that are zero."""
    rho = RNG.random((n, n))
    rho = rho + rho.T
    rho[[5, 9]] = rho[:, [5, 9]] = 0
    np.fill_diagonal(rho, 0)
    return rho


def test_squared_distances_of_rows_are_those_of_pairs() -> None:
    rho = similar(120)
    wanted = scipy.spatial.distance.squareform(scipy.spatial.distance.pdist(rho, "sqeuclidean"))
    squared = squared_apart(rho)
    np.testing.assert_allclose(squared, wanted, rtol=1e-9, atol=1e-9)
    assert squared[5, 9] == 0


@pytest.mark.parametrize("n", [2, 10, 300])
def test_the_tree_is_scipys(n: int) -> None:
    points = RNG.normal(size=(n, 4))
    distance = scipy.spatial.distance
    tree = tree_of(distance.squareform(distance.pdist(points, "sqeuclidean")))
    wanted = scipy.cluster.hierarchy.ward(points)
    np.testing.assert_array_equal(tree[:, [0, 1, 3]], wanted[:, [0, 1, 3]])
    np.testing.assert_allclose(tree[:, 2], wanted[:, 2])


def test_a_tree_of_ties_is_a_tree() -> None:
    """Clients that were never selected are all at distance 0."""
    points = np.r_[np.zeros((20, 3)), RNG.normal(size=(5, 3)), np.zeros((20, 3))]
    distance = scipy.spatial.distance
    tree = tree_of(distance.squareform(distance.pdist(points, "sqeuclidean")))
    assert scipy.cluster.hierarchy.is_valid_linkage(tree)
    assert scipy.cluster.hierarchy.is_monotonic(tree)
    assert not tree[:39, 2].any()


def test_renewed_distances_are_those_from_the_start() -> None:
    places = RNG.permutation(60)
    apart = Apart(np.zeros((60, 60)), places)
    for changed in ([], [3], [7, 5, 59], [3, 8], [1, 2, 3, 4], range(30)):
        rows = similar(60)[: len(changed)]
        rows[:, changed] = (rows[:, changed] + rows[:, changed].T) / 2
        apart.renew(np.array(changed, dtype=int), rows)
        assert (apart.squared is None) == (len(changed) > 6)
    assert (apart.rho == apart.rho.T).all()
    assert not apart.rho.diagonal().any()
    for changed in ([4], [9, 41]):  # again after all distances were made
        tree = apart.tree(places)
        wanted = tree_of(squared_apart(apart.rho)[np.ix_(places, places)])
        np.testing.assert_allclose(tree, wanted)
        rows = similar(60)[: len(changed)]
        rows[:, changed] = (rows[:, changed] + rows[:, changed].T) / 2
        apart.renew(np.array(changed, dtype=int), rows)
        wanted = squared_apart(apart.rho)[np.ix_(places, places)]
        np.testing.assert_allclose(apart.squared, wanted, atol=1e-9)


def test_rows_of_distances_are_the_matrix() -> None:
    updates = RNG.normal(size=(300, 40)).astype(np.float32)
    updates[3] = np.nan
    D, rows = divfl.distances(updates), divfl.RowsApart(updates)
    np.testing.assert_allclose(rows[np.arange(300)], D, rtol=1e-9, atol=1e-9)
    for candidates in (None, 7):
        chosen = [
            divfl.stochastic_greedy(d, 8, np.random.default_rng(1), candidates).tolist() for d in (D, rows)
        ]
        assert chosen[0] == chosen[1]


def simulate(sampler: Any) -> pd.DataFrame:
    result = fedlib.simulate(
        X,
        Y,
        np.arange(N * 10) // 10,
        test=(X, Y),
        model=lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)),
        methods={"a": sampler},
        m=4,
        T=6,
        local=fedlib.Local(lr=0.1, batch=5, epochs=1),
        threads=1,
        tell=lambda text: None,
    )
    assert not result.failures
    return result.table.drop(columns=["seconds", "server_seconds", "notes"], errors="ignore")


def few_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(work_of_clients, "AT_ONCE", 2048)


def few_clients(patch: pytest.MonkeyPatch) -> None:
    for module in (fedcor, clustered_sampling, divfl, hics_fl, oracle):
        patch.setattr(module, "MANY", 10)


@pytest.mark.outside("samplers for many clients")
@pytest.mark.parametrize(
    ("sampler", "fewer"),
    [
        (fedlib.samplers.HCSFed(R=0.5, H=3), few_bytes),
        (fedlib.samplers.HCSFed(R=0.5, H=3, variant="U"), few_bytes),
        (fedlib.samplers.FedCor(warmup=2, dt=2, gpr_begin=0, sigma_n=0.5), few_clients),
        (fedlib.samplers.ClusteredSimilarity(), few_clients),
        (fedlib.samplers.HiCSFL(), few_clients),
        (fedlib.samplers.HiCSFL(variant="C0", refresh=True), few_clients),
        (fedlib.samplers.Oracle(), few_clients),
        (fedlib.samplers.DivFL(greedy="stochastic"), few_clients),
        (fedlib.samplers.DivFL(greedy="stochastic", gradients="previous", candidates=5), few_clients),
    ],
    ids=[
        *("HCSFed", "HCSFed, U", "FedCor", "Algorithm 2", "HiCS-FL", "HiCS-FL, C0", "Oracle"),
        *("DivFL", "DivFL, previous gradients"),
    ],
)
def test_runs_are_the_same(
    sampler: Any, fewer: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of HCSFed, updates are forgotten once they are encoded, and those of selected clients are made again."""
    wanted = simulate(sampler)
    fewer(monkeypatch)
    pd.testing.assert_frame_equal(simulate(sampler), wanted)


@pytest.mark.bad_input
def test_candidates_need_stochastic_greedy() -> None:
    with pytest.raises(fedlib.SamplerError, match="candidates needs greedy: stochastic"):
        simulate(fedlib.samplers.DivFL(candidates=5))
