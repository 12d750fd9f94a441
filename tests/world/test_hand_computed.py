"""Small worlds whose clocks, arrivals and weights were computed by hand, in whole runs.

Four clients with 30 samples train 2 steps of 10 samples. The model has 650 parameters, 20.8 kbit, and every connection
has 20.8 kbit/s: a model takes 1 s each way. A client computes 20 samples in 1, 2, 4 or 10 s, so its round takes 3, 4, 6
or 12 s; its loss on 30 samples takes 0.5, 1, 2 or 5 s.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fedlib.data import datasets, partition
from fedlib.errors import SamplerError
from fedlib.samplers import Losses, Report, Round, Sampler, Selection, Updates, register
from fedlib.settings.params import build
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live
from fedlib.training.executors import make_executor

SETTING: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_clients", "alpha": 1.0, "sizes": [[4, 30]]},
    "model": "logistic",
    "N": 4,
    "m": 3,
    "T": 4,
    "local": {"lr": 0.05, "batch": 10, "steps": 2},
    "evaluate": {"every": 4},
}
SPEEDS = "client,seconds_per_sample,kbit_down,kbit_up\n" + "".join(
    f"{k},{seconds},20.8,20.8\n" for k, seconds in enumerate((0.05, 0.1, 0.2, 0.5))
)
SCALAR = 1 / 650  # seconds


class Scripted(Sampler):
    """Selects the clients of `script` in turn, those that it may; `question` is asked before."""

    fewer = True
    script: ClassVar[Callable[[Round], list[int]]]
    question: ClassVar[Callable[[Round], Any] | None] = None
    weights: ClassVar[dict[int, float] | None] = None
    expected: ClassVar[dict[int, float] | None] = None

    def setup(self, fed, rng) -> None:
        super().setup(fed, rng)
        self.heard: list[list[int]] = []
        self.waited: list[list[float]] = []

    def select(self, round: Round):
        if self.question:
            yield type(self).question(round)
        clients = np.array([k for k in type(self).script(round) if k in round.available], dtype=int)
        stated = [
            None if by is None else np.array([by[k] for k in clients]) for by in (self.weights, self.expected)
        ]
        return Selection(clients, *stated)

    def observe(self, round: Round, report: Report) -> None:
        self.heard.append([round.t, *report.clients.tolist()])
        self.waited.append(report.seconds.tolist())


def file(folder: Path, name: str, text: str) -> dict[str, str]:
    path = folder / name
    path.write_text(text)
    return {"file": str(path), "sha256": hashlib.sha256(text.encode()).hexdigest()}


@pytest.fixture
def play(tmp_path: Path):
    """Plays a run in a world: who is selected, the trace's rows, other keys of the world, and of the run."""
    names = iter("abcdefgh")

    def play(
        script: Callable[[Round], list[int]],
        trace: str = "",
        speeds: str = SPEEDS,
        algorithm: str = "fedavg",
        watch: Callable[[Live], None] = lambda live: None,
        keys: dict[str, Any] | None = None,
        sampler: dict[str, Any] | None = None,
        **world: Any,
    ) -> Live:
        cls = type("Scripted", (Scripted,), {"script": staticmethod(script), **(sampler or {})})
        name = f"test_scripted_{next(names)}"
        register(name)(cls)
        if speeds:
            world["speeds"] = file(tmp_path, "speeds.csv", speeds)
        if trace:
            world["trace"] = file(tmp_path, "trace.csv", "client,from,to\n" + trace)
        method = {"sampler": name, "algorithm": algorithm}
        run = build(SETTING | {"world": world, "method": method} | (keys or {}), 0, name)
        data = datasets.load("digits")
        part = partition.make(run.partition, data, run.N, run.seed)
        runs = Lockstep([run], [part], make_executor(run.model, datasets.tensors(data), "cpu"))
        while runs.active:
            watch(runs.live[0])
            runs.advance()
        return runs.live[0]

    return play


def clocks(live: Live) -> list[float]:
    return [row["clock"] for row in live.rows[1:]]


def test_a_round_that_waits(play) -> None:
    assert clocks(play(lambda round: [0, 1, 2])) == pytest.approx([6, 12, 18, 24])


def test_what_was_sent_for_a_question_is_not_sent_again(play) -> None:
    """Losses of 0, 1, 2: 1 + 2 s and a scalar. Then 0 and 1 train and send: 2 + 1 s; they have the model."""
    live = play(lambda round: [0, 1], sampler={"question": staticmethod(lambda round: Losses(np.arange(3)))})
    assert clocks(live) == pytest.approx([(3 + SCALAR + 3) * t for t in range(1, 5)])
    assert live.rows[1]["parameters_down"] == 3 * 650


def test_who_trained_for_a_question_and_sent_all_needs_no_time(play) -> None:
    """0, 1, 2 train and send their updates: 6 s. Then 1 and 2 are selected."""
    live = play(lambda round: [1, 2], sampler={"question": staticmethod(lambda round: Updates(np.arange(3)))})
    assert clocks(live) == pytest.approx([6, 12, 18, 24])


def test_who_trained_for_a_question_and_sent_a_norm_sends_the_update(play) -> None:
    """0, 1, 2 train and send a scalar: 5 s and a scalar. Then 1 sends its update: 1 s."""
    norm = staticmethod(lambda round: Updates(np.arange(3), parameters=0, scalars=1))
    assert clocks(play(lambda round: [1], sampler={"question": norm}))[0] == pytest.approx(5 + SCALAR + 1)


def test_scaffold_sends_twice_as_much(play) -> None:
    """2 + 4 + 2 s; after the loss of client 2 it has one of two vectors: 1 + 2 s and a scalar, then 1 + 4 + 2 s."""
    assert clocks(play(lambda round: [2], algorithm="scaffold"))[0] == pytest.approx(8)
    asked = {"question": staticmethod(lambda round: Losses(np.array([2])))}
    assert clocks(play(lambda round: [2], algorithm="scaffold", sampler=asked))[0] == pytest.approx(
        10 + SCALAR
    )


def test_a_client_that_is_drawn_twice_trains_twice(play) -> None:
    """1 + 2 + 1 s, and then 2 + 1 s."""
    live = play(lambda round: [1, 1], sampler={"draws": "repeated"})
    assert clocks(live)[0] == pytest.approx(7)


@pytest.mark.parametrize(
    ("local", "seconds"),
    [
        ({"epochs": 1, "drop_last": True, "batch": 20}, 1 + 2 + 1),  # 20 of 30 samples
        ({"epochs": 1, "batch": 20}, 1 + 3 + 1),
        ({"steps": lambda n: n // 10, "batch": 10}, 1 + 3 + 1),  # 3 steps
        ({"steps": 2, "batch": 50}, 1 + 6 + 1),  # no batch is larger than a client
    ],
)
def test_the_clock_counts_the_samples_that_are_trained_on(play, local, seconds) -> None:
    assert clocks(play(lambda round: [1], keys={"local": {"lr": 0.05, **local}}))[0] == pytest.approx(seconds)


def test_a_server_that_does_not_see_who_is_absent_waits_until_the_deadline(play) -> None:
    """Clients 0 and 3 are there. Alone, 0 needs 3 s; with an absent one, the round lasts 7 s, as with the late 3."""
    chosen = {1: [0], 2: [0, 1], 3: [0, 3], 4: [1, 2]}
    world = {"ends": {"kind": "deadline", "seconds": 7.0}, "trace": "0,0,1000\n3,0,1000\n"}
    live = play(lambda round: chosen[round.t], absences="hidden", **world)
    assert clocks(live) == pytest.approx([3, 10, 17, 24])
    assert live.sampler.heard == [[1, 0], [2, 0], [3, 0], [4]]
    seen = play(lambda round: chosen[round.t], **world)
    assert clocks(seen) == pytest.approx([3, 6, 13, 20])


def test_the_first_of_more(play) -> None:
    """m = 2 of c m = 4: clients 0 and 1 come after 3 and 4 s; late ones have worked in vain."""
    live = play(lambda round: [0, 1, 2, 3], keys={"m": 2}, ends={"kind": "first", "c": 2.0})
    assert clocks(live) == pytest.approx([4, 8, 12, 16])
    assert [row["wasted_steps"] for row in live.rows[1:]] == [4, 4, 4, 4]


def test_a_run_goes_on_when_a_late_update_lands(play) -> None:
    """0 comes at 3 s and 2 at 6 s, when nobody is there; then somebody comes at 1000 s, who needs 12 s."""
    live = play(
        lambda round: [0, 2, 3],
        "0,0,1\n2,0,1\n3,1000,1001\n",
        keys={"m": 1},
        ends={"kind": "first", "c": 2.0},
        late="keep",
    )
    assert clocks(live) == pytest.approx([3, 6, 1000, 1012])
    assert live.sampler.heard == [[1, 0], [2, 2], [4, 3]]


def test_a_trace_of_tenths_never_stands_still(play) -> None:
    """Client 0 is there from 0.6 to 0.7 s of every 0.7 s, and answers after 1 s. Rounds without anybody end then."""
    live = play(lambda round: [0], "0,0.6,0.7\n", speeds="", keys={"T": 12})
    assert clocks(live) == pytest.approx([0.6, 1.6, 2.0, 3.0, 3.4, 4.4, 4.8, 5.8, 6.2, 7.2, 7.6, 8.6])


KEPT = {"ends": {"kind": "deadline", "seconds": 3.5}, "late": "keep"}
RARE = "0,0,1\n2,0,1\n"  # in the second round, from 3.5 to 7 s, nobody is there, and client 2 lands after 6 s


@pytest.mark.parametrize(
    ("stated", "rule", "weight"),
    [
        ({"weights": {0: 0.9, 2: 0.05}}, "mean", 0.05),  # as it was given
        ({"expected": {0: 0.5, 2: 0.5}}, "ipw", 0.25 / 0.5),  # p_k over the expected draws
        ({}, "mean", 1.0),  # the mean of those that arrive
        ({}, "attrition", 0.25),  # p_k
    ],
)
def test_a_late_update_has_the_weight_of_its_own_round(play, stated, rule, weight) -> None:
    seen: list[tuple[torch.Tensor, list[Any]]] = []
    live = play(
        lambda round: [0, 2],
        RARE + "3,900,901\n",
        keys={"T": 2},
        sampler={"aggregation": rule, **stated},
        watch=lambda live: seen.append((live.models.clone(), list(live.presence.flying))),
        **KEPT,
    )
    before, ((late),) = seen[1][0], seen[1][1]
    assert live.rows[2]["available"] == 0
    assert torch.allclose(live.models - before, weight * late.answer.update, atol=1e-7)
    assert live.sampler.heard == [[1, 0], [2, 2]]


def test_a_late_update_is_waited_for_from_the_begin_of_the_round_in_which_it_lands(play) -> None:
    """Client 0 answers after 3 s; client 2 lands at 6 s, in the round that began at 3.5 s."""
    live = play(lambda round: [0, 2], RARE + "3,900,901\n", keys={"T": 2}, **KEPT)
    assert [pytest.approx(seconds) for seconds in live.sampler.waited] == [[3], [2.5]]


@pytest.mark.parametrize("algorithm", ["mifa", "scaffold"])
def test_memories_of_a_late_update_are_of_its_own_learning_rate(play, algorithm) -> None:
    """The rate falls from 0.05 to 0.025 in round 2, in which the update of round 1 lands."""
    late: list[Any] = []
    live = play(
        lambda round: [0, 2],
        RARE + "3,900,901\n",
        keys={"T": 2, "local": SETTING["local"] | {"lr_decay": {2: 0.5}}},
        algorithm=algorithm,
        watch=lambda live: late.extend(live.presence.flying),
        speeds=SPEEDS.replace("20.8", "41.6")
        if algorithm == "scaffold"
        else SPEEDS,  # its messages are twice as long
        **KEPT,
    )
    per_rate = late[0].answer.update / 0.05
    if algorithm == "mifa":
        assert torch.allclose(live.algorithm.G[2], per_rate)
    else:  # option II: c_k+ = c_k - c - update / (2 steps lr), with c_k = 0
        first = live.algorithm.c_k[0]  # c after round 1 is c_0 / 4
        assert torch.allclose(live.algorithm.c_k[2], -first / 4 - per_rate / 2, atol=1e-6)


def test_moon_remembers_the_model_that_a_late_client_trained(play) -> None:
    seen: list[Any] = []
    live = play(
        lambda round: [0, 2],
        RARE + "3,900,901\n",
        keys={"T": 2, "local": SETTING["local"] | {"mu": 1.0}},
        algorithm="moon",
        watch=lambda live: seen.append((live.models[0].clone(), list(live.presence.flying))),
        **KEPT,
    )
    start, late = seen[0][0], seen[1][1][0]
    assert torch.equal(live.algorithm.w_k[2], start + late.answer.update)


@pytest.mark.parametrize(
    ("world", "clock"),
    [
        ({}, 3.5),  # 0 answers after 3 s; the server learns after 3.5 s that 1 has left
        ({"ends": {"kind": "deadline", "seconds": 7.0}}, 3.5),
        ({"ends": {"kind": "deadline", "seconds": 7.0}, "absences": "hidden"}, 7),
        ({"ends": {"kind": "deadline", "seconds": 3.2}, "late": "keep"}, 3.2),
        ({"ends": {"kind": "first", "c": 1.0}}, 3.5),
    ],
)
def test_a_client_that_leaves_has_worked_in_vain(play, world, clock) -> None:
    """Client 1 needs 4 s, and leaves after 3.5 s."""
    live = play(lambda round: [0, 1], "0,0,100\n1,0,3.5\n", keys={"T": 1, "m": 2}, leave={}, **world)
    (row,) = live.rows[1:]
    assert row["clock"] == pytest.approx(clock)
    assert live.sampler.heard == [[1, 0]]
    assert row["wasted_steps"] == 2
    assert not live.presence.flying


@pytest.mark.bad_input
def test_a_clock_that_stands_still_ends_the_run_with_a_sentence(play) -> None:
    """Rounds of 10^-17 s after one of 6 s."""
    with pytest.raises(SamplerError, match=r"round 2.*the clock of its world stands still at 6 s"):
        play(
            lambda round: [2] if round.t == 1 else [0],
            speeds=SPEEDS.replace("0,0.05,20.8,20.8", "0,1e-30,1e30,1e30"),
        )
