"""Importance sampling by norm: the contract, the probabilities, and unbiasedness."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Sampler, Updates
from fedlib.samplers.importance import (
    Importance,
    ImportanceMean,
    draw_by_norm,
    inclusion_probabilities,
    norms,
)

from .contract import SamplerContract, World, federation

norm_lists = st.lists(st.floats(0, 100, width=16), min_size=1, max_size=30).map(np.array)


class TestImportance(SamplerContract):
    def make(self) -> Sampler:
        return Importance()

    def test_everyone_is_asked_for_one_number(self) -> None:
        question = next(self.started(federation()).select(federation().round(1, np.random.default_rng(0))))
        assert isinstance(question, Updates)
        assert (question.parameters, question.scalars, len(question.clients)) == (0, 1, 12)

    def test_estimate_is_unbiased(self) -> None:
        """Mean over rounds of sum_k p_k update_k / expected_k against sum_k p_k update_k, within 4 deviations."""
        check_unbiased(self.started(federation()))


class TestImportanceMean(SamplerContract):
    def make(self) -> Sampler:
        return ImportanceMean()


def check_unbiased(sampler: Sampler, rounds: int = 400) -> None:
    world, rng = World(sampler.fed), np.random.default_rng(0)
    p, full = sampler.fed.p, world.updates(sampler.fed.everyone)
    estimates = []
    for t in range(1, rounds + 1):
        selection = world.ask(sampler.select(sampler.fed.round(t, rng)))
        estimates.append((p[selection.clients] / selection.expected) @ full[selection.clients])
    error = np.mean(estimates, axis=0) - p @ full
    assert (abs(error) < 4 * np.std(estimates, axis=0) / np.sqrt(rounds)).all()


@given(norm_lists, st.data())
def test_inclusion_probabilities(u: np.ndarray, data: st.DataObject) -> None:
    """They sum to m, none exceeds 1, and those below 1 are in proportion to u, as in min(1, c u)."""
    m = data.draw(st.integers(1, len(u)))
    p = inclusion_probabilities(u, m)
    assert p.sum() == pytest.approx(m)
    assert ((p >= 0) & (p <= 1 + 1e-12)).all()
    if (u > 0).sum() > m:
        c = max((p / np.where(u > 0, u, np.inf)).tolist())
        np.testing.assert_allclose(p, np.minimum(1, c * u), rtol=1e-9)


def test_inclusion_probabilities_by_hand() -> None:
    """u = 1 1 2 6, m = 2: c = 2 / 10 gives the last 1.2 > 1; without it c = 1 / 4."""
    np.testing.assert_allclose(inclusion_probabilities(np.array([1.0, 6, 2, 1]), 2), [0.25, 1, 0.5, 0.25])


def test_norms_of_broken_updates_are_zero() -> None:
    updates = np.array([[3, 4], [np.nan, 1], [np.inf, 1], [1e30, 1e30]], dtype=np.float32)
    np.testing.assert_array_equal(norms(updates), [5, 0, 0, 0])


def test_draws_by_norm_leave_zeros_for_last() -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_by_norm(rng, np.array([0.0, 3, 0, 1, 0]), 3) for _ in range(300)]
    assert all({1, 3} < set(d.tolist()) for d in drawn)
    assert {int(d[2]) for d in drawn} == {0, 2, 4}
    assert np.mean([d[0] == 1 for d in drawn]) == pytest.approx(0.75, abs=4 * 0.025)
