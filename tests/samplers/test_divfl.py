"""DivFL: the lazy greedy choice is the plain one, and close to the best."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Sampler
from fedlib.samplers.divfl import DivFL, distances, gain, lazy_greedy, stochastic_greedy
from fedlib.streams import stream

from .contract import SamplerContract, World, federation


class TestIdeal(SamplerContract):
    def make(self) -> Sampler:
        return DivFL()


class TestCode(SamplerContract):
    def make(self) -> Sampler:
        return DivFL(gradients="previous", greedy="stochastic")


def plain_greedy(D: np.ndarray, m: int) -> list[int]:
    """Every step compares all clients; the first of equals."""
    chosen = [int(D.sum(axis=1).argmin())]
    nearest = D[chosen[0]]
    while len(chosen) < m:
        gains = [-np.inf if k in chosen else gain(D[k], nearest) for k in range(len(D))]
        chosen.append(int(np.argmax(gains)))
        nearest = np.minimum(nearest, D[chosen[-1]])
    return chosen


@given(st.integers(1, 14), st.integers(0, 10_000), st.booleans(), st.data())
def test_lazy_greedy_is_plain_greedy(n: int, seed: int, ties: bool, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    m = data.draw(st.integers(1, n))
    D = distances(rng.integers(0, 3, (n, 2)).astype(float) if ties else rng.normal(size=(n, 4)))
    assert lazy_greedy(D, m).tolist() == plain_greedy(D, m)


def test_greedy_reduces_at_least_1_minus_1_over_e_of_what_the_best_reduces() -> None:
    """Nemhauser, Wolsey, Fisher 1978, for the reduction from the worst-case distance to everybody."""
    for seed in range(20):
        D = distances(np.random.default_rng(seed).normal(size=(9, 3)))
        worst = D.max() * len(D)
        reduced = [worst - D[:, list(S)].min(axis=1).sum() for S in combinations(range(9), 3)]
        ours = worst - D[:, lazy_greedy(D, 3)].min(axis=1).sum()
        assert ours >= (1 - 1 / np.e) * max(reduced)


def test_one_of_each_group_is_chosen() -> None:
    centres = 10 * np.eye(4)
    G = np.repeat(centres, 5, axis=0) + 0.1 * np.random.default_rng(0).normal(size=(20, 4))
    assert sorted(lazy_greedy(distances(G), 4) // 5) == [0, 1, 2, 3]
    assert sorted(stochastic_greedy(distances(G), 20, np.random.default_rng(0))) == list(range(20))


def test_distances_equal_the_definition_and_take_a_bad_row_for_zero() -> None:
    G = np.random.default_rng(0).normal(size=(6, 20_000)).astype(np.float32)
    G[4] = np.nan
    zeroed = np.nan_to_num(G).astype(float)
    expected = np.linalg.norm(zeroed[:, None] - zeroed, axis=2)
    np.testing.assert_allclose(distances(G), expected, atol=1e-5)
    np.testing.assert_array_equal(distances(np.zeros((3, 5))), np.zeros((3, 3)))


def test_code_uses_the_updates_of_the_round_before() -> None:
    world = World(federation())
    sampler = DivFL(gradients="previous")
    sampler.setup(world.fed, stream(0, "setup"))
    assert not sampler.D.any()
    before = distances(world.updates(world.fed.everyone))
    world.play(sampler, 1)
    np.testing.assert_array_equal(sampler.D, before)
    (second,) = world.play(sampler, 1, start=2)
    assert second.clients.tolist() == lazy_greedy(before, world.fed.m).tolist()


def test_unknown_setting_is_named() -> None:
    with pytest.raises(ValueError, match="greedy is 'eager'; it must be one of lazy, stochastic"):
        DivFL(greedy="eager").setup(federation(), stream(0, "setup"))
