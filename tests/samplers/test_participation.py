"""FedAU, DELTA, Fed-CBS and F3AST: the contract, and each against a plain loop or its invariant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Report, Sampler
from fedlib.samplers.delta import Delta
from fedlib.samplers.f3ast import F3AST
from fedlib.samplers.fed_cbs import FedCBS, qcid
from fedlib.samplers.fedau import FedAU

from .contract import SamplerContract, World, federation


class TestFedAU(SamplerContract):
    def make(self) -> Sampler:
        return FedAU(K=4)


class TestDelta(SamplerContract):
    def make(self) -> Sampler:
        return Delta()


class TestDeltaWithoutReplacement(SamplerContract):
    def make(self) -> Sampler:
        return Delta(replacement=False)


class TestFedCBS(SamplerContract):
    def make(self) -> Sampler:
        return FedCBS()


class TestF3AST(SamplerContract):
    def make(self) -> Sampler:
        return F3AST()


def report(clients: list[int], updates: np.ndarray | None = None, losses: np.ndarray | None = None) -> Report:
    n = len(clients)
    return Report(
        np.array(clients, dtype=int),
        np.zeros((n, 3), np.float32) if updates is None else updates.astype(np.float32),
        np.ones(n) if losses is None else losses,
    )


@given(st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=30), st.integers(1, 8))
def test_fedau_estimates_mean_intervals_as_a_counter_does(came: list[set[int]], K: int) -> None:
    """The authors' bookkeeping: a counter per client, closed when it takes part or reaches K."""
    sampler = FedAU(K=K)
    sampler.setup(fed := federation(N=4, m=2), np.random.default_rng(0))
    counter, closed = [0] * 4, [[] for _ in range(4)]
    for t, present in enumerate(came, 1):
        sampler.observe(fed.round(t, np.random.default_rng(t)), report(sorted(present)))
        for k in range(4):
            counter[k] += 1
            if k in present or counter[k] == K:
                closed[k].append(counter[k])
                counter[k] = 0
    assert np.allclose(sampler.omega, [np.mean(c) if c else 1 for c in closed])


def test_fedau_closes_intervals_in_rounds_in_which_nobody_is_there() -> None:
    """K = 3, nobody in rounds 2 to 6: client 0, there in 1 and 7, has the intervals 1, 3, 3; client 1 has 3, 3."""
    sampler = FedAU(K=3)
    sampler.setup(fed := federation(N=2, m=2), np.random.default_rng(0))
    sampler.observe(fed.round(1, np.random.default_rng(1)), report([0]))
    weights = sampler.select(fed.round(7, np.random.default_rng(2))).weights
    assert sampler.omega.tolist() == [2, 3]  # before round 7: 1, 3; 3, 3
    assert sampler.intervals.tolist() == [2, 2]
    assert sorted(weights.tolist()) == [1, 1.5]
    sampler.observe(fed.round(7, np.random.default_rng(7)), report([0]))
    assert sampler.omega == pytest.approx([(1 + 3 + 3) / 3, 3])


def test_fedau_finds_the_inverse_of_unknown_rates() -> None:
    p, rng = np.array([0.9, 0.5, 0.2]), np.random.default_rng(0)
    sampler = FedAU(K=50)
    sampler.setup(fed := federation(N=3, m=3), rng)
    for t in range(1, 4001):
        sampler.observe(fed.round(t, rng), report(np.flatnonzero(rng.random(3) < p).tolist()))
    assert sampler.omega == pytest.approx(1 / p, rel=0.05)
    selection = sampler.select(fed.round(4001, rng))
    assert selection.weights == pytest.approx(sampler.omega[selection.clients] / 3)


def test_deltas_weights_are_unbiased() -> None:
    """Over many draws, sum of weight x update is the mean of all updates by size, within 4.5 deviations."""
    world = World(federation())
    sampler = Delta()
    sampler.setup(world.fed, np.random.default_rng(0))
    world.play(sampler, 6)
    assert sampler.P.std() > 0.01, "it has learnt something"
    full, rng = world.updates(world.fed.everyone), np.random.default_rng(1)
    sums = []
    for _ in range(2000):
        selection = sampler.select(world.fed.round(7, rng))
        sums.append(selection.weights @ full[selection.clients])
    error = np.mean(sums, axis=0) - world.fed.p @ full
    assert (abs(error) < 4.5 * np.std(sums, axis=0) / np.sqrt(2000)).all()


def test_deltas_score_does_not_depend_on_losses() -> None:
    """Equal sizes, two updates of the same length, losses 3 and 1: both keep the probability that they had."""
    sampler = Delta(beta=0)
    sampler.setup(fed := federation(m=2, sizes=np.full(4, 10)), np.random.default_rng(0))
    updates = np.array([[1.0, 0, 0], [0, 1, 0]])
    sampler.observe(fed.round(1, np.random.default_rng(1)), report([0, 1], updates, np.array([3.0, 1.0])))
    assert pytest.approx(np.full(4, 0.25)) == sampler.P


@given(st.integers(0, 1000), st.floats(0, 1))
def test_deltas_probabilities_against_a_plain_loop(seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    sampler = Delta(beta=beta, floor=1e-9)
    sampler.setup(fed := federation(N=6, m=3), rng)
    u = rng.normal(size=(3, 3)).astype(np.float32)
    sampler.observe(fed.round(1, rng), report([4, 0, 2], u))
    c = [sum(float(u[i, j]) for i in range(3)) / 3 for j in range(3)]
    score = []
    for i in range(3):
        length = sum(float(x) ** 2 for x in u[i]) ** 0.5
        apart = sum((float(x) - y) ** 2 for x, y in zip(u[i], c, strict=True)) ** 0.5
        score.append(fed.sizes[[4, 0, 2][i]] * ((1 - beta) * length + beta * apart))
    expected = np.full(6, 1 / 6)
    expected[[4, 0, 2]] = np.array(score) / sum(score) * 0.5
    assert np.allclose(sampler.P, expected, atol=1e-6)
    assert sampler.P.sum() == pytest.approx(1)


@given(st.lists(st.lists(st.integers(0, 50), min_size=3, max_size=3), min_size=1, max_size=5))
def test_qcid_against_the_papers_double_sum(rows: list[list[int]]) -> None:
    """sum_ij n_i n_j <q_i, q_j> / (sum n)^2 - 1/K."""
    counts = np.array(rows) + 1
    n = counts.sum(axis=1)
    q = counts / n[:, None]
    double = sum(n[i] * n[j] * q[i] @ q[j] for i in range(len(n)) for j in range(len(n)))
    assert qcid(counts.sum(axis=0)) == pytest.approx(double / n.sum() ** 2 - 1 / 3, abs=1e-12)


def test_fed_cbs_balances_labels_better_than_chance() -> None:
    fed = federation(N=12, m=3)
    sampler = FedCBS()
    sampler.setup(fed, np.random.default_rng(0))
    rounds = [fed.round(1, np.random.default_rng(s)) for s in range(100)]
    ours = np.mean([qcid(fed.label_counts[sampler.select(r).clients].sum(axis=0)) for r in rounds])
    at_random = [fed.label_counts[r.rng.choice(12, 3, replace=False)].sum(axis=0) for r in rounds]
    assert ours < 0.5 * np.mean([qcid(counts) for counts in at_random])


def test_f3ast_against_a_plain_loop() -> None:
    fed = federation(N=5, m=2)
    sampler = F3AST(beta=0.2)
    sampler.setup(fed, np.random.default_rng(0))
    r = [float(x) for x in fed.p]
    for t in range(1, 20):
        available = np.array([k for k in range(5) if (t + k) % 3])
        selection = sampler.select(fed.round(t, np.random.default_rng(t), available))
        sampler.observe(fed.round(t, np.random.default_rng(t), available), report(selection.clients.tolist()))
        score = {k: fed.p[k] / r[k] for k in available.tolist()}
        worst = min(score[k] for k in selection.clients.tolist())
        assert all(score[k] <= worst + 1e-9 for k in score if k not in selection.clients)
        r = [0.8 * x + 0.2 * (k in selection.clients) for k, x in enumerate(r)]
        assert selection.weights == pytest.approx([fed.p[k] / r[k] for k in selection.clients])


def test_f3ast_weights_make_up_for_absences_that_the_server_does_not_see() -> None:
    """m = 4 of 20 clients that are there with .2 or .9: over the rounds, each has about its share of the weight."""
    fed = federation(N=20, m=4, sizes=np.full(20, 10))
    sampler, rng = F3AST(beta=0.01), np.random.default_rng(0)
    sampler.setup(fed, rng)
    there, total = np.where(np.arange(20) % 2, 0.9, 0.2), np.zeros(20)
    for t in range(1, 4001):
        selection = sampler.select(fed.round(t, rng))
        came = rng.random(4) < there[selection.clients]
        if t > 1000:
            np.add.at(total, selection.clients[came], selection.weights[came])
        sampler.observe(fed.round(t, rng), report(selection.clients[came].tolist()))
    share = total / 3000 / fed.p
    assert share[::2].mean() == pytest.approx(0.93, abs=0.06)
    assert share[1::2].mean() == pytest.approx(0.93, abs=0.06)
