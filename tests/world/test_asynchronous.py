"""Servers without rounds: a case computed by hand, a plain event loop, and the same bytes however runs are executed."""

from __future__ import annotations

import hashlib
import heapq
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_rounds import lockstep, played

from fedlib.data import datasets
from fedlib.data import partition as partitions
from fedlib.errors import ConfigError, SamplerError
from fedlib.runs.store import pack, unpack
from fedlib.samplers import Federation, Losses, Report, Round, Sampler, Selection, Updates, find, register
from fedlib.settings.params import build
from fedlib.settings.world import World
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live
from fedlib.streams import stream
from fedlib.training.contract import Job
from fedlib.training.executors import make_executor

SIX: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_clients", "alpha": 1.0, "sizes": [[6, 30]]},
    "model": "logistic",
    "N": 6,
    "m": 3,
    "T": 5,
    "local": {"lr": 0.05, "batch": 10, "steps": 2},
    "evaluate": {"every": 5},
}
# a model takes 0.1 s each way, 20 samples take the rest of 2, 3, 5, 4, 7 and 1 s
SPEEDS = "client,seconds_per_sample,kbit_down,kbit_up\n" + "".join(
    f"{k},{(seconds - 0.2) / 20},208,208\n" for k, seconds in enumerate((2, 3, 5, 4, 7, 1))
)
SKEWED = {"seconds": 0.01, "sigma": 1.0, "kbit": 1000.0}  # speeds
ASYNC = {"ends": {"kind": "buffer", "size": 1, "staleness": {"kind": "polynomial", "a": 0.5}}}
BUFF = {"ends": {"kind": "buffer", "size": 3, "staleness": {"kind": "polynomial", "a": 0.5}}}


@register("test_listed")
class Listed(Sampler):
    """Selects the clients of a list in turn."""

    order = (0, 1, 2, 5, 3, 4, 0, 5, 1, 5, 2)
    fewer = True

    def setup(self, fed, rng) -> None:
        super().setup(fed, rng)
        self.place = 0
        self.heard: list[list[Any]] = []
        self.missed: list[list[int]] = []

    def select(self, round: Round) -> Selection:
        chosen = np.array(self.order[self.place : self.place + round.m])
        self.place += len(chosen)
        self.heard.append([round.time, round.m, *round.available.tolist()])
        return Selection(chosen)

    def observe(self, round: Round, report: Report) -> None:
        assert report.seconds is not None
        self.heard.append([report.clients.tolist(), list(report.late), report.seconds.round(6).tolist()])
        self.missed.append(list(report.missing))


def six(tmp_path: Path, method: dict[str, Any], changes: dict[str, Any] | None = None, **world: Any) -> Live:
    file = tmp_path / "speeds.csv"
    file.write_text(SPEEDS)
    world["speeds"] = {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    run = build(SIX | {"world": world, "method": method} | (changes or {}), 0, "six")
    data = datasets.load("digits")
    part = partitions.make(run.partition, data, run.N, run.seed)
    runs = Lockstep([run], [part], make_executor(run.model, datasets.tensors(data), "cpu"))
    while runs.active:
        runs.advance()
    return runs.live[0]


def test_six_clients_by_hand(tmp_path: Path) -> None:
    """Three slots, a buffer of two.

    0 s: 0, 1, 2 begin. 2 s: 0 answers, 5 begins with the same model. 3 s: 1 and 5 answer; 1 fills the buffer.
    Round 2: 5 is in the buffer, 3 and 4 begin. 5 s: 2 answers.
    Round 3: 0 begins. 7 s: 0 and 3 answer.
    Round 4: 5 and 1 begin. 8 s: 5 answers and begins again; it has the model, so it takes 0.9 s. 8.9 s: 5 answers.
    Round 5: 2 begins. 10 s: 1 and 4 answer.
    """
    live = six(tmp_path, {"sampler": "test_listed"}, ends={"kind": "buffer", "size": 2})
    rows = live.rows[1:]
    assert [row["clock"] for row in rows] == [3, 5, 7, 8.9, 10]
    assert [row["clients"] for row in rows] == [[0, 1, 2, 5], [3, 4], [0], [5, 1, 5], [2]]
    assert [row["parameters_down"] / 650 for row in rows] == [4, 2, 1, 2, 1]
    assert [row["parameters_up"] / 650 for row in rows] == [2] * 5
    assert [row["client_steps"] for row in rows] == [8, 4, 2, 6, 2]
    assert [row["arrived"] for row in rows] == [2] * 5
    assert [row["wasted_steps"] for row in rows] == [0] * 5
    assert live.sampler.heard == [
        [0, 3, 0, 1, 2, 3, 4, 5],
        [2, 1, 0, 3, 4, 5],
        [[0, 1], [], [2, 3]],
        [3, 2, 0, 1, 3, 4, 5],
        [[2, 5], [2, 5], [5, 1]],
        [5, 1, 0, 1, 2, 5],
        [[3, 0], [3], [4, 2]],
        [7, 2, 0, 1, 2, 3, 5],
        [8, 1, 0, 2, 3, 5],
        [[5, 5], [], [1, 0.9]],
        [8.9, 1, 0, 2, 3, 5],
        [[4, 1], [4, 1], [7, 3]],
    ]


# -- a plain event loop --------------------------------------------------------------------------------------------


def by_events(
    live: Live, K: int, s: Any, alpha: float | None, by_weights: bool
) -> tuple[torch.Tensor, list[float]]:
    """The run again, as a server that trains a client when it is selected, on a heap of events in microseconds.

    s: of tau. alpha: FedAsync's; None: FedBuff's step with the plain mean. by_weights: the sum of s stands in for K.
    Its sampler asks nothing.
    """
    run, world = live.run, live.presence.world
    executor, d = live.executor, live.executor.layout.d
    fed = Federation(live.partition.sizes, live.partition.labels, run.m, run.T, d, None, None)
    sampler = find(run.method.sampler)()
    sampler.setup(fed, stream(run.seed, "setup"))
    x, version, now, buffer, clocks = live.executor.initial(stream(run.seed, "init", 0)), 0, 0, [], []
    events: list[tuple[int, int, int, Any]] = []
    asked, draws = 0, dict[int, int]()
    number = 0
    while version < run.T:
        while events and events[0][0] <= now and len(buffer) < K:
            buffer.append(heapq.heappop(events))
        if len(buffer) == K:
            step = torch.zeros(d, dtype=torch.float64)
            total = sum(s(version - began) for _, _, _, (began, _, _) in buffer) if by_weights else K
            for _, _, _, (began, start, update) in buffer:
                tau = version - began
                mixed = start + update - x if alpha is not None else update
                step += (1 if alpha is None else alpha) * s(tau) / total * mixed
            x, version, buffer, asked, draws = x + step, version + 1, [], 0, {}
            clocks.append(now / 10**6)
            continue
        busy = [event[1] for event in events]
        free = run.m - len(events)
        if free:
            ids = np.setdiff1d(np.arange(run.N), busy)
            where = (version + 1, asked) if asked else (version + 1,)
            chosen = sampler.select(
                Round(version + 1, stream(run.seed, "select", *where), ids, min(free, len(ids)))
            )
            asked += 1
            for k in map(int, chosen.clients):
                draw = draws.get(k, 0)
                key = (run.seed, "local", version + 1, k, draw)
                samples = live.partition.train[k]
                job = Job(0, samples, partial(stream, *key), (*key, id(samples)))
                trained = executor.train([job], x[None].float(), run.local, run.local.lr_at(version + 1))
                sent = 0.032 * d * ((draw == 0) / world.downlink[k] + 1 / world.uplink[k])
                took = round((run.local.work(len(samples))[1] * world.per_sample[k] + sent) * 10**6)
                update = trained.updates[0].double()
                heapq.heappush(events, (now + took, k, number, (version, x.clone(), update)))
                number, draws[k] = number + 1, draw + 1
        now = max(now, events[0][0])
    return x, clocks


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedasync"])
@pytest.mark.parametrize(
    ("staleness", "divide"),
    [
        (None, "size"),
        ({"kind": "polynomial", "a": 0.5}, "size"),
        ({"kind": "hinge", "a": 2.0, "b": 1}, "size"),
        ({"kind": "polynomial", "a": 0.5}, "weights"),
    ],
)
def test_against_a_plain_event_loop(size: int, algorithm: str, staleness: Any, divide: str) -> None:
    ends = {"kind": "buffer", "size": size, "divide": divide} | (
        {"staleness": staleness} if staleness else {}
    )
    (live,) = played(
        {"sampler": "uniform", "algorithm": algorithm}, world={"speeds": SKEWED, "ends": ends}, T=12
    )

    def s(tau: int) -> float:
        if staleness is None:
            return 1.0
        if staleness["kind"] == "polynomial":
            return (1 + tau) ** -0.5
        return 1.0 if tau <= 1 else 1 / (2.0 * (tau - 1) + 1)

    x, clocks = by_events(live, size, s, 0.6 if algorithm == "fedasync" else None, divide == "weights")
    assert [row["clock"] for row in live.rows[1:]] == clocks
    torch.testing.assert_close(live.models[0].double(), x, atol=2e-6, rtol=1e-5)
    assert any(row["clients"] for row in live.rows)


def test_every_update_comes_once_and_bytes_are_counted_when_they_are_sent() -> None:
    (live,) = played({"sampler": "uniform"}, world={"speeds": SKEWED} | BUFF, T=20)
    selected = sum(len(row["clients"]) for row in live.rows)
    arrived = sum(row["arrived"] for row in live.rows)
    d = live.executor.layout.d
    assert arrived == 3 * 20
    assert selected == arrived + len(live.presence.flying)
    assert sum(row["parameters_up"] for row in live.rows) == arrived * d
    assert sum(row["client_steps"] for row in live.rows) == 5 * selected
    for flying in live.presence.flying:  # no part of the tensor of all updates of a round
        assert flying.answer.update.untyped_storage().nbytes() == 4 * d


# -- the same bytes ------------------------------------------------------------------------------------------------

SAMPLERS = ("uniform", "power_of_choice", "oort", "hics_fl", "f3ast")


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedvarp", "ifca"])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_full_buffer_of_equal_clients_is_a_synchronous_round(sampler: str, algorithm: str) -> None:
    """Concurrency = K = m and equal speeds: FedAvg's bytes, for samplers that choose a client once."""
    method = {"sampler": sampler, "algorithm": algorithm}
    (rounds,) = played(method, world={"mean": 1.0})
    (buffered,) = played(method, world={"ends": {"kind": "buffer", "size": rounds.run.m}})
    assert torch.equal(rounds.models, buffered.models)
    for one, other in zip(rounds.rows, buffered.rows, strict=True):
        for key in set(one) - {"seconds", "server_seconds", "available"}:
            assert repr(one[key]) == repr(other[key]), key


def numbers(live: Live) -> str:
    return repr([{k: v for k, v in row.items() if "seconds" not in k} for row in live.rows])


@pytest.mark.parametrize("world", [ASYNC, BUFF])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "fedasync"])
def test_alone_among_others_and_killed_the_bytes_are_the_same(world: dict[str, Any], algorithm: str) -> None:
    methods = [{"sampler": sampler, "algorithm": algorithm} for sampler in SAMPLERS]
    world = {"mean": 0.6, "slot": 0.3, "process": {"kind": "markov"}, "speeds": SKEWED} | world
    together = played(*methods, world=world, T=9)
    for method, other in zip(methods, together, strict=True):
        (alone,) = played(method, world=world, T=9)
        killed, again = lockstep(method, world=world, T=9), lockstep(method, world=world, T=9)
        for _ in range(4):
            killed.advance()
        again.live[0].load_state_dict(unpack(pack(killed.live[0].state_dict())))
        while again.active:
            again.advance()
        for live in (other, again.live[0]):
            assert torch.equal(alone.models, live.models)
            assert numbers(alone) == numbers(live)


def test_every_sampler_meets_the_same_world() -> None:
    """Who is there at a second does not depend on the method, however the server's rounds fall."""
    world = {"mean": 0.5, "slot": 0.5, "speeds": SKEWED}
    asynchronous, rounds = (
        lockstep({"sampler": "uniform"}, world=world | ends).live[0].presence.world for ends in (BUFF, {})
    )
    for time in (0.0, 0.4, 0.5, 3.2, 7.9):
        asynchronous.time = rounds.time = time
        assert asynchronous.present(1).tolist() == rounds.present(77).tolist()
    asynchronous.time = 0.5
    assert asynchronous.next_change() == 1.0, "somebody may come when the next slot begins"


# -- who leaves, what is too old, what cannot be -------------------------------------------------------------------


def trace(tmp_path: Path, rows: str) -> dict[str, str]:
    file = tmp_path / "trace.csv"
    file.write_text("client,from,to\n" + rows)
    return {"file": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def test_clients_that_leave_free_their_slot_and_waste_their_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client 1 is there from 0 to 2.5 s, needs 3 s and is lost; 0 and 5 answer at 2 and 1 s."""
    monkeypatch.setattr(Listed, "order", (0, 1, 5, 2, 0, 5, 5))
    live = six(
        tmp_path,
        {"sampler": "test_listed"},
        {"T": 2},
        trace=trace(tmp_path, "0,0,100\n1,0,2.5\n5,0,100\n2,0,100\n"),
        leave={},
        ends={"kind": "buffer", "size": 2},
    )
    # 1 s: 5 answers, 2 begins. 2 s: 0 answers. Round 2: 0 begins. 2.5 s: 1 is gone, 5 begins. 3.5 s: 5 answers and
    # begins again. 4 s: 0 answers.
    assert [row["clock"] for row in live.rows[1:]] == [2, 4]
    assert [row["clients"] for row in live.rows[1:]] == [[0, 1, 5, 2], [0, 5, 5]]
    assert [row["wasted_steps"] for row in live.rows[1:]] == [0, 2]
    assert [row["arrived"] for row in live.rows[1:]] == [2, 2]
    assert sum(row["parameters_up"] for row in live.rows) == 4 * 650
    assert live.sampler.missed == [[], [1]]


def test_who_comes_takes_a_free_slot_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three slots one is free until client 5 comes at 0.5 s; it answers before 0 and 1, at 1.5 s."""
    monkeypatch.setattr(Listed, "order", (0, 1, 5))
    live = six(
        tmp_path,
        {"sampler": "test_listed"},
        {"T": 1},
        trace=trace(tmp_path, "0,0,100\n1,0,100\n5,0.5,100\n"),
        ends={"kind": "buffer", "size": 1},
    )
    assert live.sampler.heard == [[0, 2, 0, 1], [0.5, 1, 5], [[5], [], [1]]]


def test_of_two_answers_in_one_moment_the_lower_id_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 s: 5 answers, 1 begins. 4 s: 1 answers, and 3, which began before it and waits for the next step."""
    monkeypatch.setattr(Listed, "order", (3, 4, 5, 1))
    live = six(tmp_path, {"sampler": "test_listed"}, {"T": 3}, ends={"kind": "buffer", "size": 1})
    assert live.sampler.heard[1::2][0] == [[5], [], [1]]
    assert live.sampler.heard[-2:] == [[[1], [], [3]], [[3], [3], [4]]]
    assert [row["clock"] for row in live.rows[1:]] == [1, 4, 4]


def test_updates_that_are_too_old_are_dropped(tmp_path: Path) -> None:
    """The hand case without updates that are two rounds old and more: that of client 4 is not taken at 10 s."""
    live = six(tmp_path, {"sampler": "test_listed"}, ends={"kind": "buffer", "size": 2, "oldest": 2})
    # 10 s: 1 answers, 4 is dropped; the list is at its end, so 2 answers next, at 13.9 s
    assert [row["clock"] for row in live.rows[1:]] == [3, 5, 7, 8.9, 13.9]
    assert [row["wasted_steps"] for row in live.rows[1:]] == [0, 0, 0, 0, 2]
    assert live.sampler.heard[-1] == [[1, 2], [1], [3, 5]]
    assert live.rows[-1]["parameters_up"] == 3 * 650
    assert live.sampler.missed == [[], [], [], [], [4]]
    live = six(tmp_path, {"sampler": "test_listed"}, ends={"kind": "buffer", "size": 2, "oldest": 3})
    assert live.rows[-1]["clock"] == 10, "it is three rounds old and no more"


def test_stated_weights_and_expected_draws_count_for_their_part_of_a_step() -> None:
    """Draws of one at a time make up a K-th of a step each, whatever a sampler states for them."""

    @register("test_stated")
    class Stated(Sampler):
        aggregation = "ipw"

        def select(self, round: Round) -> Selection:
            chosen = round.available[: round.m]
            return Selection(chosen, expected=np.full(len(chosen), round.m / self.fed.N))

    class Seen(Exception):
        pass

    runs = lockstep(
        {"sampler": "test_stated"}, world={"speeds": SKEWED, "ends": {"kind": "buffer", "size": 4}}
    )
    (live,) = runs.live
    totals = []
    plain = live.algorithm.aggregate

    def watched(models, clients, assigned, weights, *rest):
        totals.append(weights * live.fed.sizes.sum() / live.fed.sizes[clients])
        return plain(models, clients, assigned, weights, *rest)

    live.algorithm.aggregate = watched
    while runs.active:
        runs.advance()
    for total in totals:
        assert total == pytest.approx(live.fed.N / 4)


def test_questions_hold_up_the_slot_alone(tmp_path: Path) -> None:
    """Client 0 takes 2 s; the sampler asks for its loss before it selects it: 0.1 s, 30 samples' loss, a scalar."""

    @register("test_asking")
    class AskingFirst(Listed):
        def select(self, round: Round):
            yield Losses(np.array([round.available[0]]))
            return Selection(round.available[: round.m])

    live = six(tmp_path, {"sampler": "test_asking"}, {"m": 1, "T": 1}, ends={"kind": "buffer", "size": 1})
    assert live.rows[1]["clock"] == pytest.approx(0.1 + 30 * 0.09 / 3 + 1 / (32.5 * 200) + 1.9, abs=2e-6)


def test_what_was_trained_and_sent_for_a_question_takes_no_time_again(tmp_path: Path) -> None:
    @register("test_asking_updates")
    class AskingUpdates(Listed):
        def select(self, round: Round):
            yield Updates(np.array([round.available[0]]))
            return Selection(round.available[: round.m])

    method = {"sampler": "test_asking_updates"}
    live = six(tmp_path, method, {"m": 1, "T": 1}, ends={"kind": "buffer", "size": 1})
    assert live.rows[1]["clock"] == pytest.approx(2, abs=2e-6)


@pytest.mark.bad_input
def test_a_sampler_that_chooses_nobody_ends_in_words() -> None:
    @register("test_nobody")
    class Nobody(Sampler):
        fewer = True

        def select(self, round: Round) -> Selection:
            return Selection(np.zeros(0, int))

    with pytest.raises(
        SamplerError, match=r"asked 10,000 times in one round, and 0 of 3 updates have arrived"
    ):
        played({"sampler": "test_nobody"}, world=BUFF)


@pytest.mark.bad_input
@pytest.mark.parametrize(("algorithm", "vectors"), [("fedavg", 1), ("fedasync", 2)])
def test_a_buffer_that_exceeds_the_memory_is_refused_before_the_first_round(
    algorithm: str, vectors: int
) -> None:
    """An update is d numbers of 4 bytes; where the algorithm reads local models, one is kept besides."""
    words = r"keeps up to m \+ size = 1,000,000,005 updates of ([\d,]+) parameters, ([\d,]+) GiB, .*; lower m"
    with pytest.raises(SamplerError, match=words) as caught:
        played(
            {"sampler": "uniform", "algorithm": algorithm},
            world={"ends": {"kind": "buffer", "size": 10**9}},
        )
    said = re.search(words, str(caught.value))
    assert said
    d, size = (int(number.replace(",", "")) for number in said.groups())
    assert size == round(4 * d * (10**9 + 5) * vectors / 2**30)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("world", "words"),
    [
        ({"absences": "hidden"}, "so it must see who is there"),
        ({"absences": "all"}, "so it must see who is there"),
        ({"late": "keep"}, "each joins when it arrives; leave late out"),
        ({"mean": 0.5}, "set slot, the seconds after which it is drawn anew"),
        ({"ends": {"kind": "buffer", "size": 2, "divide": "weights"}}, "set staleness, or leave divide out"),
        ({"ends": {"kind": "buffer"}}, "size"),
    ],
)
def test_what_means_nothing_with_a_buffer_is_refused(world: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        World(**({"ends": {"kind": "buffer", "size": 2}} | world))
