"""Uniform, MD, target and full: the contract, and each scheme's law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedlib.samplers import Federation, Sampler
from fedlib.samplers.basic import MD, Full, Target, Uniform

from .contract import K, SamplerContract, World, federation


def draws(sampler: Sampler, fed: Federation, times: int = 3000) -> np.ndarray:
    """(N,) mean number of draws of each client a round."""
    rng = np.random.default_rng(0)
    sampler.setup(fed, rng)
    clients = np.concatenate([sampler.select(sampler.fed.round(t, rng)).clients for t in range(times)])
    return np.bincount(clients, minlength=fed.N) / times


class TestUniform(SamplerContract):
    def make(self) -> Sampler:
        return Uniform()

    def test_law(self) -> None:
        """Everyone is drawn with probability m / N = 4 / 12; a mean of 3000 rounds deviates by 0.0086."""
        np.testing.assert_allclose(draws(self.make(), federation()), 4 / 12, atol=4 * 0.0086)


class TestMD(SamplerContract):
    def make(self) -> Sampler:
        return MD()

    def test_law(self) -> None:
        """A client is drawn m p_k times in the mean, with variance m p_k (1 - p_k)."""
        fed = federation()
        deviation = np.sqrt(fed.m * fed.p * (1 - fed.p) / 3000)
        assert (abs(draws(self.make(), fed) - fed.m * fed.p) < 4 * deviation).all()


class TestTarget(SamplerContract):
    any_m = False

    def make(self) -> Sampler:
        return Target()

    def started(self, fed: Federation, seed: int = 0) -> Sampler:
        m = K if fed.m == 4 else fed.m  # the contract's usual federation, at this scheme's m
        return super().started(replace(fed, m=m), seed)

    def count(self, fed: Federation) -> int:
        return K

    def test_one_client_of_each_label(self) -> None:
        for selection in World(federation()).play(self.started(federation()), 20):
            assert sorted(selection.clients % K) == list(range(K))

    def test_names_the_right_m(self) -> None:
        with pytest.raises(ValueError, match=f"m = {K}"):
            self.started(federation(m=5))


class TestFull(SamplerContract):
    def make(self) -> Sampler:
        return Full()

    def count(self, fed: Federation) -> int:
        return fed.N
