"""GreedyFed and S-FedAvg: Shapley values against permutations and axioms, and what is selected by them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Report, Sampler, ServerLosses
from fedlib.samplers.shapley import GreedyFed, SFedAvg, Values, exact_values, sampled_values

from .contract import SamplerContract, World, federation


class TestGreedyFed(SamplerContract):
    def make(self) -> Sampler:
        return GreedyFed()


class TestGreedyFedSampled(SamplerContract):
    def make(self) -> Sampler:
        return GreedyFed(exact=0, memory=0.5)


class TestSFedAvg(SamplerContract):
    def make(self) -> Sampler:
        return SFedAvg()


Loss = Callable[[frozenset[int]], float]


def answered(step: Values, loss: Loss) -> tuple[np.ndarray, int]:
    """What a computation of values returns, and how many models it asks to be measured."""
    answer, count = None, 0
    while True:
        try:
            question = step.send(answer)
        except StopIteration as stop:
            return stop.value, count
        assert isinstance(question, ServerLosses)
        count += len(question.teams)
        answer = np.array([loss(frozenset(team)) for team in question.teams])


def game(seed: int, n: int) -> Loss:
    table = {0: 0.0} | {code: float(np.random.default_rng([seed, code]).normal()) for code in range(1, 2**n)}
    return lambda team: table[sum(1 << i for i in team)]


@given(st.integers(0, 1000), st.integers(1, 5))
def test_exact_values_against_all_orders_of_joining(seed: int, n: int) -> None:
    loss = game(seed, n)
    expected = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        for j in range(n):
            expected[order[j]] += loss(frozenset(order[:j])) - loss(frozenset(order[: j + 1]))
    shapley, count = answered(exact_values(n), loss)
    assert shapley == pytest.approx(expected / len(orders))
    assert shapley.sum() == pytest.approx(loss(frozenset()) - loss(frozenset(range(n)))), "efficiency"
    assert count == 2**n


@given(st.integers(0, 1000), st.lists(st.floats(-2, 2), min_size=7, max_size=7))
def test_sampled_values_are_exact_where_each_update_adds_its_own(seed: int, gains: list[float]) -> None:
    permute = np.random.default_rng(seed).permutation
    shapley, _ = answered(sampled_values(7, 0.0, 3, permute), lambda team: -sum(gains[i] for i in team))
    assert shapley == pytest.approx(gains, abs=1e-9)


@given(st.integers(0, 1000))
def test_sampled_values_share_out_the_whole_and_come_near(seed: int) -> None:
    loss = game(seed, 4)
    permute = np.random.default_rng(seed).permutation
    shapley, _ = answered(sampled_values(4, 0.0, 300, permute), loss)
    assert shapley.sum() == pytest.approx(loss(frozenset()) - loss(frozenset(range(4))))
    exact, _ = answered(exact_values(4), loss)
    assert abs(shapley - exact).max() < 0.6


def test_truncation_asks_for_less() -> None:
    """The first update alone gives everything: no later place of a permutation that it begins is measured."""

    def loss(team: frozenset[int]) -> float:
        return -1.0 if 0 in team else -0.1 * len(team) / 8

    permute = np.random.default_rng(0).permutation
    _, short = answered(sampled_values(8, 0.05, 5, permute), loss)
    _, whole = answered(sampled_values(8, 0.0, 5, np.random.default_rng(0).permutation), loss)
    assert short < whole
    shapley, count = answered(sampled_values(8, 2.0, 5, permute), loss)
    assert count == 2, "the round as a whole changed less"
    assert not shapley.any()


def told(sampler: Sampler, t: int, clients: list[int], values: list[float]) -> None:
    """A round in which each client's update adds its own value."""
    n = len(clients)
    report = Report(np.array(clients), np.zeros((n, sampler.fed.d), np.float32), np.ones(n))
    step = sampler.observe(sampler.fed.round(t, np.random.default_rng(t)), report)
    answered(step, lambda team: -sum(values[i] for i in team))


def test_greedyfed_sees_everyone_once_and_then_takes_the_best() -> None:
    fed = federation(N=12, m=5)
    sampler = GreedyFed()
    sampler.setup(fed, np.random.default_rng(0))
    seen: list[int] = []
    for t in range(1, 4):
        clients = sampler.select(fed.round(t, np.random.default_rng(t))).clients.tolist()
        told(sampler, t, clients, [float(k) for k in clients])
        seen += clients
    assert set(seen[:12]) == set(range(12)), "three rounds of five, each client before any comes again"
    assert sampler.value == pytest.approx(np.arange(12))
    assert sorted(sampler.select(fed.round(4, np.random.default_rng(4))).clients) == [7, 8, 9, 10, 11]
    few = sampler.select(fed.round(4, np.random.default_rng(4), np.array([0, 3, 5, 6, 8, 9]))).clients
    assert sorted(few) == [3, 5, 6, 8, 9]


def test_values_are_means_or_fade() -> None:
    fed = federation()
    for memory, expected in ((None, 2.0), (0.5, 1.75)):
        sampler = GreedyFed(memory=memory)
        sampler.setup(fed, np.random.default_rng(0))
        for t, value in enumerate([4.0, 1.0, 1.0], 1):
            told(sampler, t, [3], [value])
        assert sampler.value[3] == pytest.approx(expected)
        told(sampler, 4, [3], [float("nan")])
        assert sampler.value[3] == pytest.approx(expected)


def test_s_fedavg_draws_by_relevance() -> None:
    fed = federation(m=1)
    sampler = SFedAvg(alpha=0.5, beta=2.0)
    sampler.setup(fed, np.random.default_rng(0))
    told(sampler, 1, [3], [1.0])
    told(sampler, 2, [3], [2.0])
    phi = 0.5 * (0.5 / 12 + 2 * 1.0) + 2 * 1.5
    assert sampler.phi[3] == pytest.approx(phi)
    assert sampler.phi[0] == pytest.approx(1 / 12)
    drawn = [sampler.select(fed.round(1, np.random.default_rng(s))).clients[0] for s in range(2000)]
    share = np.exp(phi) / (np.exp(phi) + 11 * np.exp(1 / 12))
    assert np.mean(np.array(drawn) == 3) == pytest.approx(share, abs=4 * np.sqrt(0.25 / 2000))


def test_clients_that_help_the_server_come_more_often() -> None:
    """Client 0 pulls away from what the server's samples need; GreedyFed drops it after its first round."""
    fed = federation(N=6, m=2)
    world = World(fed, change=lambda updates, clients: np.where((clients == 0)[:, None], -20, 1) * updates)
    sampler = GreedyFed()
    sampler.setup(fed, np.random.default_rng(0))
    selections = world.play(sampler, 9)
    assert sum(0 in s.clients for s in selections) == 1
    assert sampler.value[0] == sampler.value.min()
