"""What every sampler must do, as tests to inherit, and a small federation to do it in.

A sampler's tests subclass `SamplerContract` and say how the sampler is made::

    from .contract import SamplerContract, World, federation

    class TestMD(SamplerContract):
        def make(self) -> Sampler:
            return MD()
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fedlib.runs.store import pack, unpack
from fedlib.samplers import (
    Federation,
    Gradients,
    Losses,
    Report,
    Round,
    Sampler,
    Selection,
    ServerLosses,
    TrialLosses,
    Updates,
    answered,
    sees,
)
from fedlib.samplers.base import Question
from fedlib.streams import stream

K, L, HIDDEN = 3, 5, 7  # classes, width of the output layer's input, parameters before the output layer
D = HIDDEN + K * L + K


def federation(N: int = 12, m: int = 4, sizes: np.ndarray | None = None, T: int = 20) -> Federation:
    """A federation of N clients, client k holding mostly label k mod K; its arrays are read-only."""
    sizes = np.arange(10, 10 + 5 * N, 5) if sizes is None else np.asarray(sizes)
    counts = np.tile((sizes // 10)[:, None], (1, K))
    counts[np.arange(len(sizes)), np.arange(len(sizes)) % K] += sizes - counts.sum(axis=1)
    weight = slice(HIDDEN, HIDDEN + K * L)
    return Federation(_frozen(sizes), _frozen(counts), m, T, D, weight, slice(weight.stop, D))


@dataclass
class World:
    """Stands in for the engine: client k has the loss 0.5 |w - optimum_k|^2; local work goes half way there.

    change: what is done to the (n, d) updates of `clients` before a sampler sees them.
    available: the clients that are there in round t; None for everyone. A question to another client fails.
    """

    fed: Federation
    change: Callable[[np.ndarray, np.ndarray], np.ndarray] = lambda updates, clients: updates
    available: Callable[[int], np.ndarray] | None = None

    def __post_init__(self) -> None:
        centres = np.random.default_rng(1).normal(size=(K, D))
        own = np.random.default_rng(2).normal(size=(self.fed.N, D))
        self.optimum = centres[np.arange(self.fed.N) % K] + 0.3 * own
        self.model = np.zeros(D)
        self.here = self.fed.everyone
        self.received: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def updates(self, clients: np.ndarray) -> np.ndarray:
        return self.change((0.5 * (self.optimum[clients] - self.model)).astype(np.float32), clients)

    def losses(self, clients: np.ndarray, model: np.ndarray) -> np.ndarray:
        return 0.5 * ((model - self.optimum[clients]) ** 2).sum(axis=1)

    def server_losses(self, question: ServerLosses) -> np.ndarray:
        """The server's samples have the mean of all clients' optima."""
        assert self.received is not None, "it asked before anything arrived"
        before, clients, updates = self.received
        losses = []
        for team in question.teams:
            assert len(set(team)) == len(team)
            model = before
            if len(team):
                places = np.asarray(team)
                model = before + self.fed.shares(clients[places]) @ updates[places]
            losses.append(0.5 * ((model - self.optimum.mean(axis=0)) ** 2).sum())
        return _frozen(np.array(losses))

    def answer(self, question: Question) -> np.ndarray:
        if isinstance(question, ServerLosses):
            return self.server_losses(question)
        clients = self.check_here(question.clients)
        match question:
            case Updates():
                return _frozen(question.encode(self.updates(clients)))
            case Gradients():
                return _frozen(-2 * self.updates(clients))
            case Losses():
                return _frozen(self.losses(clients, self.model))
            case TrialLosses():
                trial = self.model + self.updates(self.check_here(question.train)).mean(axis=0)
                return _frozen(self.losses(clients, trial))
        raise AssertionError(f"not a question: {question!r}")

    def check_here(self, clients: np.ndarray) -> np.ndarray:
        assert np.isin(clients, self.here).all(), "it named a client that is absent"
        return check_clients(clients, self.fed.N)

    def ask(self, step: Any) -> Any:
        """Run what `select` or `observe` returned to its end, answering what it asks."""
        return answered(step, self.answer)

    def play(self, sampler: Sampler, rounds: int, seed: int = 0, start: int = 1) -> list[Selection]:
        """Rounds `start` .. `start` + `rounds` - 1 of a sampler that is set up; the model moves along."""
        out = []
        for t in range(start, start + rounds):
            self.here = self.available(t) if self.available else self.fed.everyone
            selection = self.ask(sampler.select(self.fed.round(t, stream(seed, "select", t), self.here)))
            clients = np.asarray(selection.clients)
            updates, losses = self.updates(clients), self.losses(clients, self.model)
            self.received = (self.model, clients, updates)
            if len(clients) and np.isfinite(updates).all():
                self.model = self.model + updates.mean(axis=0)
            report = Report(clients, _frozen(updates), _frozen(losses))
            self.ask(sampler.observe(self.fed.round(t, stream(seed, "observe", t), self.here), report))
            out.append(selection)
        return out


class Blindfolded:
    """A sampler that is told zeros in place of whatever it does not see."""

    def __init__(self, sampler: Sampler, seen: Collection[str]) -> None:
        self.sampler, self.select = sampler, sampler.select
        self.hidden = [name for name in ("losses", "updates") if name not in seen]

    def observe(self, round: Round, report: Report) -> Any:
        zeros = {name: np.zeros_like(getattr(report, name)) for name in self.hidden}
        return self.sampler.observe(round, replace(report, **zeros))


def check_clients(clients: np.ndarray, N: int) -> np.ndarray:
    clients = np.asarray(clients)
    assert clients.ndim == 1
    assert clients.dtype.kind in "iu"
    assert ((clients >= 0) & (clients < N)).all()
    return clients


def same(one: list[Selection], other: list[Selection]) -> bool:
    """Whether two lists of selections agree to the last bit."""

    def key(selection: Selection) -> str:
        arrays = [selection.clients, selection.weights, selection.expected]
        return repr([None if a is None else np.asarray(a).tolist() for a in arrays])

    return [key(s) for s in one] == [key(s) for s in other]


class SamplerContract:
    """Inherit, and supply `make`. any_m: every 1 <= m <= N is possible; rounds: of most tests' runs."""

    any_m = True
    rounds = 6

    def make(self) -> Sampler:
        """A new sampler with the hyper-parameters under test."""
        raise NotImplementedError

    def count(self, fed: Federation) -> int | None:
        """Draws a round; None where the scheme leaves it to chance."""
        return None if self.make().draws == "random" else fed.m

    def started(self, fed: Federation, seed: int = 0) -> Sampler:
        sampler = self.make()
        sampler.setup(fed, stream(seed, "setup"))
        return sampler

    def check(self, selection: Selection, fed: Federation) -> None:
        clients = check_clients(selection.clients, fed.N)
        if self.count(fed) is not None:
            assert len(clients) == self.count(fed)
        if self.make().draws != "repeated":
            assert len(set(clients.tolist())) == len(clients)
        for numbers in (selection.weights, selection.expected):
            if numbers is not None:
                assert np.shape(numbers) == clients.shape
                assert np.isfinite(numbers).all()
        if selection.expected is not None:
            assert (np.asarray(selection.expected) > 0).all()
        json.dumps(selection.notes, allow_nan=False)

    def check_run(self, world: World, rounds: int | None = None) -> None:
        for selection in world.play(self.started(world.fed), rounds or self.rounds):
            self.check(selection, world.fed)

    def test_chooses_valid_clients(self) -> None:
        self.check_run(World(federation()))

    def test_same_generators_same_choices(self) -> None:
        fed = federation()
        one, other = (World(fed).play(self.started(fed), self.rounds) for _ in range(2))
        assert same(one, other)

    def test_restored_in_mid_run_continues_identically(self) -> None:
        fed, half = federation(), self.rounds // 2
        straight = World(fed).play(self.started(fed), self.rounds)
        world, first = World(fed), self.started(fed)
        before = world.play(first, half)
        second = self.started(fed, seed=1)
        second.load_state_dict(unpack(pack(first.state_dict())))
        after = world.play(second, self.rounds - half, start=half + 1)
        assert same(straight, before + after)

    def test_depends_on_nothing_that_it_does_not_declare(self) -> None:
        """The choices stay the same while labels, losses, updates and times that it does not name are hidden."""
        fed = federation(m=4 if self.any_m else K)
        seen = sees(self.make())
        openly = World(fed).play(self.started(fed), self.rounds)
        sampler = self.make()
        known = fed if "labels" in seen else replace(fed, label_counts=np.ones_like(fed.label_counts))
        sampler.setup(known, stream(0, "setup"))
        blindly = World(fed).play(Blindfolded(sampler, seen), self.rounds)
        assert same(openly, blindly), (
            f"{type(sampler).__name__}: add to `reads`, `needs` or `asks` what it sees"
        )

    def test_state_is_plain(self) -> None:
        world = World(federation())
        sampler = self.started(world.fed)
        world.play(sampler, 2)
        _check_plain(sampler.state_dict(), "state")

    def test_one_client_a_round(self) -> None:
        self.check_m(1)

    def test_everyone_every_round(self) -> None:
        self.check_m(12)

    def check_m(self, m: int) -> None:
        fed = federation(m=m)
        if self.any_m:
            self.check_run(World(fed))
        else:
            with pytest.raises(ValueError, match=r"\bm\b"):
                self.started(fed)

    def test_one_client_with_most_data(self) -> None:
        sizes = np.full(12, 10)
        sizes[3] = 5000
        self.check_run(World(federation(sizes=sizes)))

    def test_names_only_available_clients(self) -> None:
        """Clients come and go, sometimes fewer than m: absent ones are neither selected nor asked."""

        def available(t: int) -> np.ndarray:
            rng = np.random.default_rng(t)
            return np.sort(rng.choice(12, rng.integers(1, 9), replace=False))

        fed = federation(m=4 if self.any_m else K)
        world = World(fed, available=available)
        sampler = self.started(fed)
        for t in range(1, 16):
            (selection,) = world.play(sampler, 1, start=t)
            clients = check_clients(selection.clients, fed.N)
            assert np.isin(clients, available(t)).all()
            assert sampler.draws == "random" or 0 < len(clients) <= min(fed.m, len(available(t)))

    def test_zero_updates(self) -> None:
        self.check_run(World(federation(), change=lambda updates, clients: np.zeros_like(updates)))

    def test_equal_updates(self) -> None:
        self.check_run(World(federation(), change=lambda updates, clients: np.ones_like(updates)))

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_non_finite_updates(self, bad: float) -> None:
        """Three clients diverge: the sampler says so in a sentence, or falls back to a valid choice."""

        def diverge(updates: np.ndarray, clients: np.ndarray) -> np.ndarray:
            return np.where((clients < 3)[:, None], np.float32(bad), updates)

        try:
            self.check_run(World(federation(), change=diverge))
        except ValueError as error:
            assert "finite" in str(error)  # noqa: PT017 - either outcome is right


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.flags.writeable = False
    return array


def _check_plain(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            assert isinstance(key, str | int), f"{where}: key {key!r}"
            _check_plain(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            _check_plain(inner, f"{where}[{i}]")
    else:
        assert isinstance(value, str | int | float | np.ndarray | np.generic), f"{where}: {type(value)}"
        assert np.asarray(value).dtype.kind in "biufUS", f"{where}: {value!r}"
