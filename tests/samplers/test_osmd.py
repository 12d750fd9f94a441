"""OSMD: the contract, its projection, and weights that are unbiased. Golden numbers: tests/golden/test_methods.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Sampler
from fedlib.samplers.osmd import OSMD, floored

from .contract import SamplerContract, World, federation


class TestOSMD(SamplerContract):
    def make(self) -> Sampler:
        return OSMD()


@given(st.lists(st.floats(-800, 800), min_size=1, max_size=12), st.floats(0.01, 1))
def test_the_projection_keeps_ratios_above_the_floor(logs: list[float], alpha: float) -> None:
    """The conditions of the nearest point: sum 1, at least the floor, and above it in proportion to exp(logs)."""
    least = alpha / len(logs)
    p = floored(np.array(logs), least)
    assert p.sum() == pytest.approx(1)
    assert (p >= least * (1 - 1e-12)).all()
    free = p > least * (1 + 1e-9)
    shift = np.log(p) - np.array(logs)
    assert np.ptp(shift[free]) < 1e-6 if free.any() else True
    if free.any():
        assert (shift[~free] >= shift[free].min() - 1e-6).all(), "only raised, never lowered"


@given(st.integers(0, 50), st.lists(st.integers(1, 100), min_size=3, max_size=8))
def test_weights_are_unbiased_whoever_is_there(seed: int, sizes: list[int]) -> None:
    """Summed over the possible draws, draws x weight is each available client's share."""
    fed, rng = federation(N=len(sizes), m=2, sizes=np.array(sizes)), np.random.default_rng(seed)
    sampler, world = OSMD(), World(fed)
    sampler.setup(fed, rng)
    world.play(sampler, 5, seed=seed)
    A = np.sort(rng.choice(len(sizes), rng.integers(1, len(sizes) + 1), replace=False))
    q, m, share = sampler.mixed(A), min(2, len(A)), dict(zip(A.tolist(), fed.shares(A), strict=True))
    assert q.sum() == pytest.approx(1)
    for s in range(10):
        selection = sampler.select(fed.round(6, np.random.default_rng(s), A))
        for k, weight in zip(selection.clients.tolist(), selection.weights, strict=True):
            assert m * q[A.tolist().index(k)] * weight == pytest.approx(share[k])


def test_probabilities_follow_the_norms() -> None:
    """Updates of client 0 are ten times as long as the others': it is drawn more often, the others not too rarely."""
    fed = federation(N=6, m=3, sizes=np.full(6, 10), T=60)
    sampler, rng = OSMD(), np.random.default_rng(0)
    sampler.setup(fed, rng)
    world = World(fed, change=lambda u, clients: np.where((clients == 0)[:, None], 10, 1) * np.ones_like(u))
    world.play(sampler, 60)
    q = sampler.mixed(fed.everyone)
    assert q.argmax() == 0
    assert q[0] > 1.5 / 6
    assert (q >= 0.4 / 6 - 1e-12).all()
