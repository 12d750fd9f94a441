"""The oracle: true label entropies in place of estimates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedlib.samplers import Sampler
from fedlib.samplers.oracle import Oracle, label_entropy

from .contract import SamplerContract, World, federation


class TestOracle(SamplerContract):
    def make(self) -> Sampler:
        return Oracle(M=3)


def test_label_entropy() -> None:
    counts = np.array([[8, 0, 0], [4, 4, 0], [2, 2, 2], [0, 0, 0]])
    np.testing.assert_allclose(label_entropy(counts), [0, np.log(2), np.log(3), 0])


def test_balanced_clients_are_preferred_while_gamma_is_large() -> None:
    """Half of the clients hold one label, half hold all: at gamma 10 and ln 3 of difference the odds are 59000 : 1."""
    fed = federation(m=3, T=1000)
    counts = np.zeros_like(fed.label_counts)
    counts[:6, 0] = 30
    counts[6:] = 10
    fed = replace(fed, label_counts=counts)
    sampler = Oracle(M=2, gamma=10)
    sampler.setup(fed, np.random.default_rng(0))
    chosen = [k for selection in World(fed).play(sampler, 20) for k in selection.clients]
    assert min(chosen) >= 6
