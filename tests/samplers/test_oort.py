"""Oort: random first, then exploitation by utility and exploration by size."""

from __future__ import annotations

import numpy as np

from fedlib.samplers import Report, Sampler
from fedlib.samplers.oort import Oort
from fedlib.streams import stream

from .contract import SamplerContract, federation


class TestOort(SamplerContract):
    def make(self) -> Sampler:
        return Oort(warmup=2)


class TestFromTheStart(SamplerContract):
    def make(self) -> Sampler:
        return Oort(warmup=0)


def ready(fed, seen: np.ndarray, utility: np.ndarray, **settings) -> Oort:
    sampler = Oort(warmup=0, **settings)
    sampler.setup(fed, stream(0, "setup"))
    sampler.seen, sampler.utility = np.array(seen), np.array(utility, dtype=float)
    return sampler


def test_exploits_by_utility_when_all_are_seen() -> None:
    """Without clipping, client 0 scores 0.99 against 11 times 1e-5; all of them pass the cut-off of the second best."""
    fed = federation(m=1)
    sampler = ready(fed, np.ones(12, dtype=int), np.r_[1000.0, np.full(11, 10.0)], clip=1.0)
    chosen = [int(sampler.select(sampler.fed.round(1, stream(0, "select", s))).clients[0]) for s in range(60)]
    assert np.mean(np.array(chosen) == 0) > 0.9


def test_explores_among_the_largest_unseen() -> None:
    """Two clients to explore, window 2: among the 4 largest of the unseen, whatever the seed."""
    fed = federation(m=2)
    for seed in range(20):
        sampler = ready(fed, np.r_[np.ones(6, dtype=int), np.zeros(6, dtype=int)], fed.sizes, window=2)
        selection = sampler.select(sampler.fed.round(1, stream(seed, "select", 1)))
        assert selection.notes["explored"] == 2  # floor(2 * (1 - 0.72)) = 0 exploited
        assert set(selection.clients.tolist()) <= {8, 9, 10, 11}


def test_long_unseen_clients_gain() -> None:
    fed = federation()
    sampler = ready(fed, np.r_[2, np.full(11, 40)], np.ones(12))
    scores = sampler.scores(50)
    assert (scores[0] > scores[1:]).all()


def test_utility_is_size_times_root_of_the_loss() -> None:
    fed = federation()
    sampler = Oort()
    sampler.setup(fed, stream(0, "setup"))
    report = Report(np.array([3, 5]), np.zeros((2, fed.d), np.float32), np.array([4.0, np.nan]))
    sampler.observe(sampler.fed.round(7, stream(0, "observe", 7)), report)
    assert sampler.utility[3] == 2 * fed.sizes[3]
    assert sampler.utility[5] == 0
    assert sampler.utility[0] == fed.sizes[0]
    assert sampler.seen.tolist() == [0, 0, 0, 7, 0, 7, 0, 0, 0, 0, 0, 0]
