"""AFL and Power-of-Choice, and the weighted draws that they rest on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlib.samplers import Losses, Sampler
from fedlib.samplers.loss_based import AFL, PowerOfChoice, finite, floor, highest, lottery
from fedlib.samplers.weighted import Weighted, draw_distinct, log
from fedlib.streams import stream

from .contract import SamplerContract, World, federation


class TestAFL(SamplerContract):
    def make(self) -> Sampler:
        return AFL()


class TestPowerOfChoice(SamplerContract):
    def make(self) -> Sampler:
        return PowerOfChoice(d=12)


class TestIdealPowerOfChoice(SamplerContract):
    def make(self) -> Sampler:
        return PowerOfChoice(d=None)

    def test_takes_the_highest_losses_of_all(self) -> None:
        world = World(federation())
        losses = world.losses(world.fed.everyone, world.model)
        (selection,) = world.play(self.started(world.fed), 1)
        assert losses[selection.clients].min() >= np.sort(losses)[-4]


class TestWeighted(SamplerContract):
    def make(self) -> Sampler:
        return Weighted()


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=30), st.data())
def test_draws_are_distinct_and_zero_weights_come_last(weights: list[float], data: st.DataObject) -> None:
    weights = np.array(weights)
    n = data.draw(st.integers(0, len(weights)))
    chosen = draw_distinct(np.random.default_rng(0), log(weights), n)
    assert len(set(chosen.tolist())) == n
    positive = int((weights > 0).sum())
    assert (weights[chosen[:positive]] > 0).all()


def test_draws_have_the_law_of_drawing_one_after_another() -> None:
    """Weights 1 : 2 : 3, two draws: P(first = i, second = j) = w_i / 6 * w_j / (6 - w_i)."""
    w, n = np.array([1.0, 2.0, 3.0]), 20_000
    rng = np.random.default_rng(3)
    seen = np.zeros((3, 3))
    for _ in range(n):
        i, j = draw_distinct(rng, np.log(w), 2)
        seen[i, j] += 1 / n
    expected = np.outer(w / 6, w) / (6 - w)[:, None]
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(seen, expected, atol=4 * np.sqrt(0.25 / n))


def test_power_of_choice_asks_its_d_candidates_only() -> None:
    sampler, fed = PowerOfChoice(d=6), federation()
    sampler.setup(fed, stream(0, "setup"))
    talk = sampler.select(sampler.fed.round(1, stream(0, "select", 1)))
    question = next(talk)
    assert isinstance(question, Losses)
    assert len(set(question.clients.tolist())) == 6
    with pytest.raises(StopIteration) as stop:
        talk.send(np.arange(6.0))
    assert set(stop.value.value.clients) == set(question.clients[2:])


def test_power_of_choice_refuses_fewer_candidates_than_clients() -> None:
    with pytest.raises(ValueError, match="d = 3 must lie between m = 4 and N = 12"):
        PowerOfChoice(d=3).setup(federation(), stream(0, "setup"))


def test_highest_breaks_ties_by_id_and_takes_a_diverged_loss_for_the_highest() -> None:
    assert highest(np.array([5, 3, 8]), np.array([1.0, 1.0, 0.5]), 1).tolist() == [3]
    assert set(highest(np.array([5, 3, 8]), np.array([1.0, 2.0, np.nan]), 2).tolist()) == {3, 8}
    assert finite(np.array([np.nan, np.nan])).tolist() == [0, 0]


def test_afl_refreshes_the_selected_with_the_loss_of_the_received_model() -> None:
    world = World(federation())
    sampler = AFL()
    sampler.setup(world.fed, stream(0, "setup"))
    world.play(sampler, 1)
    first, model = sampler.v.copy(), world.model.copy()
    (selection,) = world.play(sampler, 1, start=2)
    expected = first.copy()
    chosen = selection.clients
    expected[chosen] = np.sqrt(world.fed.sizes[chosen]) * world.losses(chosen, model)
    np.testing.assert_allclose(sampler.v, expected)


def test_afl_asks_everybody_once_and_then_the_selected() -> None:
    world = World(federation())
    asked: list[int] = []
    answer = world.answer
    world.answer = lambda question: (asked.append(len(question.clients)), answer(question))[1]
    sampler = AFL()
    sampler.setup(world.fed, stream(0, "setup"))
    world.play(sampler, 3)
    assert asked == [12, 4, 4]


@given(
    st.lists(st.floats(-1e3, 1e6), min_size=1, max_size=40),
    st.floats(0, 1),
    st.floats(0, 50),
    st.floats(0, 1),
    st.data(),
)
def test_lottery_is_a_distribution(
    v: list[float], alpha1: float, alpha2: float, alpha3: float, data: st.DataObject
) -> None:
    m = data.draw(st.integers(1, len(v)))
    draw = lottery(np.array(v), m, alpha1, alpha2, alpha3)
    assert len(draw.candidates) == len(v) - floor(alpha1 * len(v))
    assert 0 <= draw.sel_num <= min(m, len(draw.candidates))
    if len(draw.candidates):
        assert draw.probabilities.sum() == pytest.approx(1)
        dropped = np.setdiff1d(np.arange(len(v)), draw.candidates)
        assert all(v[k] <= np.array(v)[draw.candidates].min() for k in dropped)


def test_floor_of_decimal_products() -> None:
    assert floor((1 - 0.9) * 10) == 1
    assert floor(0.29 * 100) == 29
    assert floor(0.999) == 0
