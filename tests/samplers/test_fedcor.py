"""FedCor: Lemma 2, the posterior, the schedules, and what is asked of whom when."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Losses, Sampler, Selection, TrialLosses
from fedlib.samplers.fedcor import (
    FedCor,
    Schedule,
    choose,
    condition,
    covariance,
    log_likelihood,
    log_likelihood_gradient,
    posterior,
    prior,
    retained,
    train,
)
from fedlib.streams import stream

from .contract import SamplerContract, World, federation

FAST = {"warmup": 2, "dt": 2, "d": 3}


class Contract(SamplerContract):
    settings: dict = {}

    def make(self) -> Sampler:
        return FedCor(**FAST, **self.settings)

    @pytest.fixture(autouse=True)
    def few_iterations(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Three steps of Adam in place of a hundred and more."""
        monkeypatch.setattr(
            "fedlib.samplers.fedcor.SCHEDULES", {"2022": Schedule(1, 3, 3), "head": Schedule(0, 3, 3)}
        )


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """What `train` is called with: (samples, their weights, mean, iterations), and no training done."""
    made: list[tuple] = []

    def noted(X, changes, weights, mean, sigma_n, iterations, likelihood):
        made.append((changes.copy(), weights.copy(), mean.copy(), iterations))
        return X + 0.01, 0.0

    monkeypatch.setattr("fedlib.samplers.fedcor.train", noted)
    return made


def questions(sampler: FedCor, rounds: int, N: int = 12) -> tuple[list[list], list[Selection]]:
    """Play `rounds` rounds -> per round the questions asked, and the selections."""
    world = World(federation(N))
    asked: list[list] = []
    answer = world.answer
    world.answer = lambda question: (asked[-1].append(question), answer(question))[1]
    sampler.setup(world.fed, stream(0, "setup"))
    selections = []
    for t in range(1, rounds + 1):
        asked.append([])
        selections += world.play(sampler, 1, start=t)
    return asked, selections


def random_covariance(rng: np.random.Generator, N: int, d: int, sigma_n: float) -> np.ndarray:
    return covariance(rng.normal(size=(d, N)) / np.sqrt(d), sigma_n)


@given(st.integers(3, 20), st.integers(1, 8), st.sampled_from([0.01, 0.1, 1.0]), st.integers(0, 10_000))
def test_greedy_choice_is_lemma_2s_closed_form_for_two_clients(
    N: int, d: int, sigma_n: float, seed: int
) -> None:
    """Equations 12 and 13, in the paper's own quantities sigma_k, r_ij and tau_k."""
    rng = np.random.default_rng(seed)
    Sigma = random_covariance(rng, N, d, sigma_n)
    p, alpha = rng.dirichlet(np.ones(N)), 0.9 ** rng.integers(0, 5, N)
    sigma = np.sqrt(Sigma.diagonal())
    r = Sigma / np.outer(sigma, sigma)
    A = (p * sigma) @ r
    k1 = int(np.argmax(alpha * A))
    rest = np.delete(np.arange(N), k1)
    second = alpha[rest] * (A[rest] - r[k1, rest] * A[k1]) / np.sqrt(1 - r[k1, rest] ** 2)
    chosen = choose(Sigma, p, alpha, 2)
    assert chosen[0] == k1
    assert second[rest.tolist().index(chosen[1])] == pytest.approx(second.max(), rel=1e-6, abs=1e-9)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10_000))
def test_posterior_covariance_stays_positive_semi_definite(N: int, d: int, seed: int) -> None:
    Sigma = random_covariance(np.random.default_rng(seed), N, d, 0.01)
    for k in choose(Sigma, np.full(N, 1 / N), np.ones(N), N):
        Sigma = condition(Sigma, k)
        assert np.linalg.eigvalsh(Sigma).min() > -1e-9
        np.testing.assert_allclose(Sigma[k], 0, atol=1e-9)


def test_one_by_one_is_jointly() -> None:
    """Downdating client after client equals GPyTorch's posterior on all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 10))
    Sigma = covariance(X, 0.01)
    for k in (7, 2, 5):
        Sigma = condition(Sigma, k)
    process = prior(torch.tensor(X), torch.zeros(10, dtype=torch.float64), 0.01)
    after = posterior(process, torch.tensor([2, 5, 7]), torch.zeros(3, dtype=torch.float64))
    np.testing.assert_allclose(after.lazy_covariance_matrix.to_dense().numpy(), Sigma, atol=1e-9)


def test_zero_equal_and_degenerate_covariances_still_choose_distinct_clients() -> None:
    for Sigma in (np.zeros((6, 6)), np.ones((6, 6)), np.eye(6)):
        chosen = choose(Sigma, np.full(6, 1 / 6), np.ones(6), 6)
        assert sorted(chosen) == list(range(6))
    assert choose(np.eye(6), np.full(6, 1 / 6), np.ones(6), 2).tolist() == [0, 1]


def test_training_groups_clients_whose_losses_move_together() -> None:
    """12 samples in which clients of one half share their change: after training they lie on one side of the others."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 5)
    changes = rng.normal(size=(12, 2))[:, group] + 0.05 * rng.normal(size=(12, 10))
    X0 = rng.normal(size=(3, 10)) / np.sqrt(3)
    X, after = train(X0, changes, np.ones(12), np.zeros(10), 0.01, 120)
    _, before = train(X0, changes, np.ones(12), np.zeros(10), 0.01, 1)
    assert after < before
    unit = X / np.linalg.norm(X, axis=0)
    cosine, same = unit.T @ unit, group[:, None] == group
    assert cosine[same].mean() > np.abs(cosine[~same]).mean() + 0.3


def test_closed_form_of_the_gradient_is_what_differentiation_gives() -> None:
    rng = np.random.default_rng(0)
    X = torch.tensor(rng.normal(size=(3, 9)), requires_grad=True)
    mean, values, weights = (torch.tensor(rng.normal(size=shape)) for shape in (9, (4, 9), 4))
    process = prior(X, mean, 0.1)
    (expected,) = torch.autograd.grad(weights @ log_likelihood(process, values), X, retain_graph=True)
    torch.testing.assert_close(
        log_likelihood_gradient(process, values, weights, X), expected, rtol=1e-9, atol=1e-9
    )


def test_loo_upstream_moves_nothing_but_what_client_0_tells() -> None:
    """The crippled likelihood: on one sample its gradient is that of log p(y_0 | all others)."""
    rng = np.random.default_rng(0)
    X0, y = rng.normal(size=(3, 6)), rng.normal(size=(1, 6))
    _, objective = train(X0, y, np.ones(1), np.zeros(6), 0.1, 1, "loo_upstream")
    Sigma = covariance(X0, 0.1)
    weights = np.linalg.solve(Sigma[1:, 1:], Sigma[1:, 0])
    mean, variance = weights @ y[0, 1:], Sigma[0, 0] - weights @ Sigma[1:, 0]
    expected = 0.5 * (np.log(2 * np.pi * variance) + (y[0, 0] - mean) ** 2 / variance)
    assert objective == pytest.approx(expected, rel=1e-8)


def test_schedule_2022(calls: list[tuple]) -> None:
    """warmup 12: samples of rounds 10, 11, 12 (150 iterations); then one sample each dt = 4 rounds, M = 1 re-used."""
    sampler = FedCor(warmup=12, dt=4, gamma=0.5, d=2)
    asked, selections = questions(sampler, 22)
    assert [len(c[0]) for c in calls] == [1, 2, 3, 2, 2]
    assert [c[3] for c in calls] == [150, 150, 150, 100, 100]
    assert calls[2][1].tolist() == [0.25, 0.5, 1]
    assert calls[3][1].tolist() == [0.5**4, 1]
    np.testing.assert_array_equal(
        calls[3][0][0], calls[2][0][2]
    )  # at first the last warm-up sample is re-used
    np.testing.assert_array_equal(calls[4][0][0], calls[3][0][1])
    assert not any(c[2].any() for c in calls)
    kinds = [[type(q) for q in round] for round in asked]
    assert kinds[:10] == [[]] * 10
    assert kinds[10:13] == [[Losses, Losses], [Losses], [Losses]]
    assert [e for e, kind in enumerate(kinds) if TrialLosses in kind] == [16, 20]
    assert kinds[16] == [Losses, TrialLosses]
    assert kinds[17] == []
    assert ["embedding" in s.notes for s in selections] == [e == 13 for e in range(22)]
    assert np.shape(selections[13].notes["embedding"]) == (12, 2)


def test_schedule_head(calls: list[tuple]) -> None:
    """One training at the end of the warm-up on all of its samples, their weighted mean taken off."""
    sampler = FedCor(warmup=3, dt=5, gamma=0.5, d=2, schedule="head", window=4)
    questions(sampler, 12)
    assert [len(c[0]) for c in calls] == [4, 4, 1]  # rounds 0-3; 1-3 and 5; 10
    assert [c[3] for c in calls] == [1000, 100, 100]
    assert calls[0][1].tolist() == [0.125, 0.25, 0.5, 1]


def test_samples_are_changes_of_everybodys_loss(calls: list[tuple]) -> None:
    world = World(federation())
    sampler = FedCor(warmup=1, dt=50, d=2, schedule="head")
    sampler.setup(world.fed, stream(0, "setup"))
    before = world.losses(world.fed.everyone, world.model)
    world.play(sampler, 1)
    middle = world.losses(world.fed.everyone, world.model)
    world.play(sampler, 1, start=2)
    after = world.losses(world.fed.everyone, world.model)
    np.testing.assert_allclose(calls[0][0], [middle - before, after - middle])


def test_own_probe_selects_at_random_in_update_rounds(calls: list[tuple]) -> None:
    """HiCS-FL's control: no extra training; the losses around the update round are asked for."""
    asked, selections = questions(FedCor(warmup=1, dt=4, d=2, probe="own", schedule="head"), 10)
    kinds = [[type(q) for q in round] for round in asked]
    assert kinds == [[Losses, Losses], [Losses], [], [], [Losses, Losses], [], [], [], [Losses, Losses], []]
    assert ["alpha" in s.notes for s in selections] == [e not in (0, 1, 4, 8) for e in range(10)]


def test_alpha_is_annealed_and_reset(calls: list[tuple]) -> None:
    sampler = FedCor(warmup=1, dt=4, d=2, beta=0.5)
    _, selections = questions(sampler, 7)
    expected = np.ones(12)
    for e in (2, 3):
        np.testing.assert_allclose(selections[e].notes["alpha"], expected)
        expected[selections[e].clients] *= 0.5
    np.testing.assert_allclose(selections[4].notes["alpha"], expected)  # round 4 selects, then resets
    assert selections[5].notes["alpha"] == [1.0] * 12


def test_a_sample_that_is_not_finite_is_not_learnt_from(calls: list[tuple]) -> None:
    world = World(federation())
    world.losses = lambda clients, model: np.full(len(clients), np.nan)
    sampler = FedCor(warmup=1, dt=2, d=2, schedule="head")
    sampler.setup(world.fed, stream(0, "setup"))
    world.play(sampler, 6)
    assert not calls
    assert len(sampler.changes) == 0


def test_retained_samples_of_2022() -> None:
    by = FedCor(warmup=30, dt=5, M=2, gamma=0.9)
    keep, weights = retained(np.arange(10, 31), 30, by)
    assert keep.tolist() == list(range(10, 21))  # the last M dt + 1 = 11
    np.testing.assert_allclose(weights, 0.9 ** np.arange(10.0, -1, -1))
    keep, weights = retained(np.array([28, 29, 30, 35, 40]), 40, by)
    assert keep.tolist() == [2, 3, 4]
    np.testing.assert_allclose(weights, [0.9**10, 0.9**5, 1])


@pytest.mark.parametrize("key", ["schedule", "likelihood", "probe"])
def test_unknown_option_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"'fedcor': {key} is 'x'; it must be"):
        FedCor(**{key: "x"}).setup(federation(), stream(0, "setup"))


def test_importing_the_samplers_imports_no_gpytorch() -> None:
    code = "import sys, fedlib.samplers; sys.exit('gpytorch' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Test2022(Contract):
    pass


class TestHead(Contract):
    settings = {"schedule": "head"}


class TestHiCSControl(Contract):
    settings = {"schedule": "head", "likelihood": "loo_upstream", "probe": "own"}
