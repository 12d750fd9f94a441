"""Aggregation rules and server-side algorithms against what their equations say."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.algorithms import FedAvg, aggregation_weights
from fedlib.algorithms.feddyn import FedDyn
from fedlib.algorithms.fednova import FedNova
from fedlib.algorithms.ifca import IFCA
from fedlib.algorithms.scaffold import Scaffold
from fedlib.samplers import Selection
from fedlib.settings.schema import Local

SIZES = np.array([10, 20, 30, 40])


@pytest.mark.parametrize(
    ("rule", "weights"),
    [
        ("mean", [1 / 2, 1 / 2]),
        ("data_size", [0.2, 0.8]),  # 10 / (10 + 40), 40 / (10 + 40)
        ("attrition", [0.1, 0.4]),  # p_k: half of the weight stays on the old model
        ("ipw", [0.1 / 0.25, 0.4 / 0.5]),
    ],
)
def test_weights_by_rule(rule, weights):
    selection = Selection(np.array([0, 3]), expected=np.array([0.25, 0.5]))
    np.testing.assert_allclose(aggregation_weights(rule, selection, SIZES), weights)


def test_a_samplers_own_weights_win():
    selection = Selection(np.array([1, 2]), weights=np.array([0.3, 0.3]))
    np.testing.assert_array_equal(aggregation_weights("mean", selection, SIZES), [0.3, 0.3])


@given(st.integers(0, 2**32 - 1))
def test_ipw_is_unbiased_for_independent_inclusion(seed):
    """E[sum_S p_k x_k / pi_k] = sum p_k x_k, enumerated over all 16 subsets of 4 clients."""
    rng = np.random.default_rng(seed)
    inclusion, x = rng.uniform(0.1, 1, 4), rng.normal(size=4)
    total = 0.0
    for subset in range(16):
        drawn = np.array([k for k in range(4) if subset >> k & 1], dtype=int)
        chance = np.prod([inclusion[k] if subset >> k & 1 else 1 - inclusion[k] for k in range(4)])
        selection = Selection(drawn, expected=inclusion[drawn])
        total += chance * (aggregation_weights("ipw", selection, SIZES) @ x[drawn])
    assert total == pytest.approx(SIZES / SIZES.sum() @ x)


def step(algorithm, models, clients, updates, weights, steps=None, assigned=None, lr=0.1):
    n = len(clients)
    return algorithm.aggregate(
        models,
        np.array(clients),
        np.zeros(n, int) if assigned is None else np.array(assigned),
        np.array(weights),
        torch.as_tensor(updates),
        np.full(n, 5) if steps is None else np.array(steps),
        lr,
    )


def test_fedavg_adds_weighted_updates():
    new = step(FedAvg(), torch.tensor([[1.0, 2.0]]), [0, 1], [[1.0, 0.0], [3.0, 2.0]], [0.5, 0.25])
    torch.testing.assert_close(new, torch.tensor([[2.25, 2.5]]))


def test_scaffold_control_variates_by_hand():
    """Option II from zero: c_k+ = (w - y_k) / (steps lr) = -update / 0.5; c = sum c_k / N."""
    scaffold = Scaffold()
    scaffold.setup(N=4, d=2, n_trainable=2, device=torch.device("cpu"))
    step(scaffold, torch.zeros(1, 2), [1, 3], [[1.0, 0.0], [0.0, -2.0]], [0.5, 0.5])
    torch.testing.assert_close(scaffold.c_k[1], torch.tensor([-2.0, 0.0]))
    torch.testing.assert_close(scaffold.c_k[3], torch.tensor([0.0, 4.0]))
    torch.testing.assert_close(scaffold.c, torch.tensor([-0.5, 1.0]))
    torch.testing.assert_close(scaffold.linear([1]), scaffold.c - scaffold.c_k[[1]])
    torch.testing.assert_close(scaffold.c, scaffold.c_k.mean(0))  # an invariant of option II from zero


def test_feddyn_by_hand():
    """mu = 0.5, N = 2, one client moved by u: g = -0.5 u, h = -0.25 u, w = u - h / mu = 1.5 u."""
    dyn = FedDyn(mu=0.5)
    dyn.setup(N=2, d=1, n_trainable=1, device=torch.device("cpu"))
    new = step(dyn, torch.zeros(1, 1), [0], [[2.0]], [1.0])
    torch.testing.assert_close(dyn.g_k, torch.tensor([[-1.0], [0.0]]))
    torch.testing.assert_close(dyn.linear([0]), torch.tensor([[1.0]]))
    torch.testing.assert_close(new, torch.tensor([[3.0]]))


def test_ifca_averages_each_model_over_its_own_clients():
    ifca = IFCA(models=3)
    np.testing.assert_array_equal(ifca.assign(np.array([[3.0, 1.0], [2.0, 5.0], [9.0, 9.0]])), [1, 0])
    new = step(ifca, torch.zeros(3, 1), [0, 1, 2], [[1.0], [3.0], [5.0]], [1 / 3] * 3, assigned=[1, 1, 0])
    torch.testing.assert_close(new, torch.tensor([[5.0], [2.0], [0.0]]))


def test_state_round_trip():
    one, other = Scaffold(), Scaffold()
    for algorithm in (one, other):
        algorithm.setup(N=3, d=2, n_trainable=2, device=torch.device("cpu"))
    step(one, torch.zeros(1, 2), [0], [[1.0, -1.0]], [1.0])
    other.load_state_dict(one.state_dict())
    torch.testing.assert_close(other.c_k, one.c_k)


@given(st.integers(1, 30), st.integers(0, 100))
def test_fednova_is_fedavg_where_all_take_as_many_steps(tau: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    updates, weights = rng.normal(size=(3, 2)), rng.dirichlet(np.ones(3))
    for settings in ({}, {"momentum": 0.9}, {"mu": 0.3}):
        nova = FedNova(**settings)
        nova.setup(N=3, d=2, n_trainable=2, device=torch.device("cpu"))
        w = weights if "mu" not in settings else weights / float(nova.lengths(np.array([tau]), 0.1)[0]) * tau
        ours = step(nova, torch.zeros(1, 2).double(), [0, 1, 2], updates, weights, steps=[tau] * 3)
        torch.testing.assert_close(ours, torch.from_numpy(w @ updates)[None])


def test_fednova_follows_the_mean_objective_where_steps_differ():
    """Two quadratics with optima -1 and 1, of which the second takes nine steps for one: FedAvg ends near 1."""
    ends = {}
    for algorithm in (FedAvg(), FedNova()):
        algorithm.setup(N=2, d=1, n_trainable=1, device=torch.device("cpu"))
        w, taus = torch.zeros(1, 1).double(), np.array([1, 9])
        for _ in range(2000):
            x = w.expand(2, 1).numpy()
            shrunk = (1 - 0.01) ** taus[:, None]
            updates = (shrunk - 1) * (x - np.array([[-1.0], [1.0]]))
            w = step(algorithm, w, [0, 1], updates, [0.5, 0.5], steps=taus, lr=0.01)
        ends[type(algorithm).__name__] = float(w)
    assert ends["FedAvg"] == pytest.approx(0.8, abs=0.05)
    assert ends["FedNova"] == pytest.approx(0, abs=0.05)


def test_fednova_averages_statistics_as_fedavg_does():
    nova = FedNova()
    nova.setup(N=2, d=2, n_trainable=1, device=torch.device("cpu"))
    new = step(nova, torch.zeros(1, 2), [0, 1], [[1.0, 1.0], [3.0, 3.0]], [0.5, 0.5], steps=[1, 3])
    torch.testing.assert_close(new, torch.tensor([[2 * (0.5 + 0.5), 2.0]]))


@pytest.mark.parametrize(
    ("settings", "local", "words"),
    [
        ({}, {"momentum": 0.9}, "local.momentum = 0.9 must be FedNova's momentum = 0.0"),
        ({"mu": 0.1}, {}, "local.mu = 0.0 must be FedNova's mu = 0.1"),
        ({"mu": 0.1, "momentum": 0.5}, {"mu": 0.1, "momentum": 0.5}, "not with both"),
        ({}, {"optimizer": "adam"}, "FedNova takes SGD"),
        ({}, {"halve_every": 2}, "FedNova takes SGD"),
    ],
)
def test_fednova_refuses_paths_whose_length_it_does_not_know(settings, local, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        FedNova(**settings).check(Local(lr=0.1, batch=10, steps=5, **local))
    FedNova(momentum=0.9).check(Local(lr=0.1, batch=10, steps=5, momentum=0.9))
