"""REFL's selection: forecasts against counts, and the rule against its closed form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Report, Sampler
from fedlib.samplers.refl import REFL

from .contract import SamplerContract, federation


class TestREFL(SamplerContract):
    def make(self) -> Sampler:
        return REFL()


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=20), st.integers(0, 100))
def test_forecasts_count_stays_and_the_least_likely_go_first(there: list[set[int]], seed: int) -> None:
    """Rounds in which nobody is there end every stay; a sampler is not called in them."""
    sampler = REFL(pause=0)
    sampler.setup(fed := federation(N=6, m=2), np.random.default_rng(0))
    for t, present in enumerate(there, 1):
        if not present:
            continue
        available = np.array(sorted(present))
        clients = sampler.select(fed.round(t, np.random.default_rng([seed, t]), available)).clients.tolist()
        past = [
            [k in there[s] for s in range(1, t) if k in there[s - 1]] for k in range(6)
        ]  # for each round before in which k was there, whether it stayed
        forecast = [(1 + sum(stays)) / (2 + len(stays)) for stays in past]
        assert sampler.staying == pytest.approx(forecast)
        assert len(clients) == min(2, len(present))
        worst = max(forecast[k] for k in clients)
        assert all(forecast[k] >= worst for k in present - set(clients))


def test_clients_that_come_for_one_round_are_preferred() -> None:
    """Clients 0 to 3 are always there, 4 and 5 in every second round: once that is known, they train when they come."""
    sampler = REFL()
    sampler.setup(fed := federation(N=6, m=2), np.random.default_rng(0))
    chosen = []
    for t in range(1, 21):
        available = np.arange(6 if t % 2 else 4)
        chosen.append(set(sampler.select(fed.round(t, np.random.default_rng(t), available)).clients.tolist()))
    assert all(clients == {4, 5} for clients in chosen[6::2])


def test_ties_go_by_chance() -> None:
    fed, counts = federation(N=6, m=2), np.zeros(6)
    for seed in range(600):
        sampler = REFL()
        sampler.setup(fed, np.random.default_rng(0))
        counts[sampler.select(fed.round(1, np.random.default_rng(seed))).clients] += 1
    assert (abs(counts / 600 - 1 / 3) < 4 * np.sqrt(2 / 9 / 600)).all()


def test_clients_wait_after_an_update_unless_too_few_others_are_there() -> None:
    """Six clients, two a round, a pause of 3 rounds: all train in turn; then those that waited longest."""
    sampler, seen = REFL(pause=3), []
    sampler.setup(fed := federation(N=6, m=2), np.random.default_rng(0))
    for t in range(1, 10):
        round = fed.round(t, np.random.default_rng(t))
        clients = sampler.select(round).clients
        sampler.observe(round, Report(clients, np.zeros((2, fed.d), np.float32), np.ones(2)))
        seen.append(set(clients.tolist()))
    for t in range(0, 9, 3):
        assert seen[t] | seen[t + 1] | seen[t + 2] == set(range(6))
    few = np.array(sorted(seen[7] | seen[8]))
    assert set(sampler.select(fed.round(10, np.random.default_rng(10), few)).clients.tolist()) == seen[7]
