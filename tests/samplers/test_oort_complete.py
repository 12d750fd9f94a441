"""Oort with its clock: utilities, the penalty of slow clients, the pacer, the pool and the blacklist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Federation, Report, Sampler
from fedlib.samplers.oort_complete import OortComplete
from fedlib.streams import stream

from .contract import SamplerContract, federation


class TestOortComplete(SamplerContract):
    rounds = 12

    def count(self, fed: Federation) -> int | None:
        """None: it selects fewer than m once where unexplored clients run out."""
        return None

    def make(self) -> Sampler:
        return OortComplete(pacer_step=2)


class TestBlacklist(TestOortComplete):
    rounds = 12

    def make(self) -> Sampler:
        return OortComplete(blacklist=1, blacklisted=1.0)


def ready(fed: Federation, **settings: object) -> OortComplete:
    sampler = OortComplete(**settings)
    sampler.setup(fed, stream(0, "setup"))
    return sampler


def told(
    sampler: OortComplete, t: int, clients: list[int], seconds: list[float] | None = None, **more
) -> None:
    n = len(clients)
    report = Report(
        np.array(clients, dtype=int),
        np.zeros((n, sampler.fed.d), np.float32),
        np.full(n, 2.0),
        seconds=None if seconds is None else np.array(seconds),
        **more,
    )
    sampler.observe(sampler.fed.round(t, stream(0, "observe", t)), report)


def test_utility_is_size_times_root_of_the_mean_squared_loss() -> None:
    fed = federation()
    paper, mean = ready(fed), ready(fed, squared=False)
    for sampler in (paper, mean):
        told(sampler, 3, [4, 7], squared=np.array([9.0, np.nan]))
    assert paper.utility[[4, 7, 0]].tolist() == [3 * fed.sizes[4], 0, fed.sizes[0]]
    assert mean.utility[[4, 7]] == pytest.approx(2 * fed.sizes[[4, 7]])
    assert paper.last.tolist() == [0, 0, 0, 0, 3, 0, 0, 3, 0, 0, 0, 0]


@given(st.lists(st.floats(0.1, 100), min_size=2, max_size=12), st.floats(0, 99), st.floats(0, 3))
def test_slow_clients_are_penalised_beyond_the_preferred_duration(
    seconds: list[float], threshold: float, penalty: float
) -> None:
    sampler = ready(federation(), threshold=threshold, penalty=penalty)
    n = len(seconds)
    told(sampler, 1, list(range(n)), seconds)
    preferred = sorted(seconds)[int(n * threshold / 100)]
    factor = sampler.slowness(sampler.fed.everyone)
    for k in range(12):
        slow = k < n and seconds[k] > preferred
        assert factor[k] == pytest.approx((preferred / seconds[k]) ** penalty if slow else 1)
    sampler.percentile = 100.0
    assert (sampler.slowness(sampler.fed.everyone) == 1).all()


def test_who_does_not_answer_counts_as_slow_and_average() -> None:
    fed = federation()
    sampler = ready(fed)
    told(sampler, 1, [0, 1], [1.0, 5.0], squared=np.array([1.0, 4.0]), missing=[2])
    assert sampler.duration[2] == 5
    assert sampler.utility[2] == pytest.approx((fed.sizes[0] + 2 * fed.sizes[1]) / 2)
    assert sampler.last[2] == 1
    told(sampler, 2, [], [], squared=np.zeros(0), missing=[3])
    assert np.isnan(sampler.duration[3]), "nobody answered, so nothing is known of the time"


def test_scores_against_a_plain_loop() -> None:
    fed, rng = federation(), np.random.default_rng(0)
    sampler = ready(fed, clip=0.5)
    sampler.utility, sampler.last = rng.random(12) * 9 + 1, rng.integers(1, 9, 12)
    clients, usable = np.arange(2, 11), np.arange(1, 12)
    utility = sorted(sampler.utility[usable].tolist())
    low, high = 0.999 * utility[0], utility[int(0.5 * len(utility))]
    expected = [
        (min(sampler.utility[k], high) - low) / (utility[-1] - low)
        + np.sqrt(0.1 * np.log(9) / sampler.last[k])
        for k in clients
    ]
    assert sampler.scores(clients, usable, 9) == pytest.approx(expected)


@given(st.lists(st.floats(0, 10), min_size=12, max_size=12), st.integers(1, 3))
def test_the_pacer_against_its_rule(history: list[float], step: int) -> None:
    sampler = ready(federation(), pacer_step=step, pacer_delta=5.0, threshold=30.0)
    percentile = 30.0
    for t in range(1, 13):
        sampler.history = np.array(history[:t])
        sampler.pace(t)
        if t >= 2 * step and t % step == 0:
            previous, now = sum(history[t - 2 * step : t - step]), sum(history[t - step : t])
            if abs(now - previous) <= 0.1 * previous:
                percentile = min(100, percentile + 5)
            elif abs(now - previous) >= 5 * previous:
                percentile = max(5, percentile - 5)
        assert sampler.percentile == percentile


def test_the_history_is_of_exploited_clients_that_came() -> None:
    sampler = ready(federation(), exploration=0.0, exploration_min=0.0)
    told(sampler, 1, [0, 1], [1.0, 1.0], squared=np.array([1.0, 1.0]))
    sampler.exploited = np.array([2, 3])
    told(sampler, 2, [3, 4], [1.0, 1.0], squared=np.array([4.0, 9.0]))
    assert sampler.history.tolist() == [0, 2 * sampler.fed.sizes[3]]


def test_the_pool_is_cut_off_but_holds_ten_per_exploited_client() -> None:
    """30 clients, one of them exploited: the best 12 may be drawn, even where the cut-off leaves one."""
    fed = federation(N=30, m=1)
    sampler = ready(fed, cut_off=1.0, clip=1.0, exploration=0.0, exploration_min=0.0)
    sampler.last, sampler.utility = np.ones(30, dtype=int), np.arange(1.0, 31)
    pool, score = sampler.lottery(fed.everyone, fed.everyone, 1, 1)
    assert set(pool.tolist()) == set(range(19, 30))
    assert score == pytest.approx((pool + 1 - 0.999) / (30 - 0.999))
    drawn = {int(sampler.select(fed.round(1, stream(s, "select", 1))).clients[0]) for s in range(300)}
    assert drawn <= set(pool.tolist())
    assert len(drawn) > 2


def test_explores_less_and_less_and_the_preferred_first() -> None:
    fed = federation(m=4)
    sampler = ready(fed, exploration=1.0, decay=0.5, exploration_min=0.25, window=1.0)
    first = sampler.select(fed.round(1, stream(0, "select", 1)))
    assert sorted(first.clients.tolist()) == [8, 9, 10, 11], "the largest; nobody was explored yet"
    told(sampler, 1, first.clients.tolist(), [1.0, 2.0, 3.0, 4.0])
    sampler.duration[7], sampler.utility[6] = 100.0, fed.sizes[7]
    explored = [sampler.select(fed.round(t, stream(0, "select", t))).notes["explored"] for t in (2, 3, 4)]
    assert explored == [1, 1, 1]
    clients = sampler.select(fed.round(5, stream(0, "select", 5))).clients
    assert 6 in clients, "client 7 is as large, and slow"
    assert 7 not in clients


def test_clients_on_the_blacklist_wait() -> None:
    sampler = ready(federation(), blacklist=2, blacklisted=0.25)
    sampler.times = np.array([3, 5, 4, 3, 0, 0, 0, 0, 0, 0, 0, 9])
    assert sorted(sampler.worn().tolist()) == [1, 2, 11], "a quarter of twelve clients"
    sampler.times = np.array([2, 2, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0])
    assert sampler.worn().tolist() == [3]


def test_utilities_are_scaled_over_unexplored_clients_too() -> None:
    """Sizes 100, 10, 10, 10; 1 and 2 came with mean squared losses 1 and .25: FedScale draws by .5454, .4546."""
    fed = federation(m=1, sizes=np.array([100, 10, 10, 10]))
    sampler = ready(fed, threshold=100.0)
    told(sampler, 1, [1, 2], squared=np.array([1.0, 0.25]))
    pool, score = sampler.lottery(np.array([1, 2]), fed.everyone, 1, 2)
    assert dict(zip(pool.tolist(), score / score.sum(), strict=True)) == pytest.approx(
        {1: 0.5454, 2: 0.4546}, abs=5e-5
    )


def test_a_round_that_runs_out_of_unexplored_clients_is_short() -> None:
    """N = 6, m = 4, one unexplored client and a share .9: one is exploited, one explored, as in FedScale."""
    fed = federation(N=6, m=4)
    sampler = ready(fed, decay=1.0)
    told(sampler, 1, [0, 1, 2, 3, 4])
    for seed in range(20):
        clients = sampler.select(fed.round(2, stream(seed, "select", 2))).clients
        assert len(clients) == 2
        assert 5 in clients


def test_a_short_round_is_not_filled_from_the_blacklist() -> None:
    fed = federation(N=6, m=4)
    sampler = ready(fed, decay=1.0, blacklist=1, blacklisted=0.5)
    told(sampler, 1, [0, 1, 2, 3, 4])
    sampler.times[:2] = 2
    for seed in range(20):
        assert not {0, 1} & set(sampler.select(fed.round(2, stream(seed, "select", 2))).clients.tolist())
    sampler.times[:] = 2
    only = sampler.select(fed.round(2, stream(0, "select", 2), np.array([0]))).clients
    assert only.tolist() == [0], "nobody else is there"
