"""Rounds in a world: all samplers in all kinds of absence, clocks, deadlines and late updates, against plain counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_pins import CHANGES, SETTING, names

from fedlib.data import datasets, partition
from fedlib.errors import SamplerError
from fedlib.samplers import Round, Sampler, Selection, register
from fedlib.settings.params import build, merge, split_method
from fedlib.simulation.engine import Lockstep
from fedlib.simulation.live import Live
from fedlib.training.executors import make_executor

HALF = {"mean": 0.5, "rate": {"kind": "label", "weights": "halves"}}
COLUMNS = {"clock", "available", "arrived", "wasted_steps", "jain", "coverage", "worst_class", "worst_tenth"}


def lockstep(*methods: dict[str, Any], world: dict[str, Any] | None = None, **changes: Any) -> Lockstep:
    """Runs of the pins' setting in a world, one per method."""
    runs = []
    for method in methods:
        raw = merge(SETTING | changes, split_method(method | CHANGES.get(method["sampler"], {})))
        runs.append(build(raw | ({"world": world} if world else {}), 0, method["sampler"]))
    dataset = datasets.load("digits")
    parts = [partition.make(run.partition, dataset, run.N, run.seed) for run in runs]
    return Lockstep(runs, parts, make_executor(runs[0].model, datasets.tensors(dataset), "cpu"))


def played(*methods: dict[str, Any], **settings: Any) -> list[Live]:
    runs = lockstep(*methods, **settings)
    while runs.active:
        runs.advance()
    return runs.live


@pytest.mark.parametrize("absences", ["visible", "hidden", "all"])
@pytest.mark.parametrize("sampler", names())
def test_every_sampler_in_every_kind_of_absence(sampler: str, absences: str) -> None:
    (live,) = played({"sampler": sampler}, world=HALF | {"absences": absences})
    assert live.t == live.run.T
    for t, row in enumerate(live.rows[1:], 1):
        here = live.presence.world.present(t)
        assert np.isin(row["clients"], here).all()
        assert row["available"] == len(here)
        assert row["arrived"] == len(row["clients"])
        if (
            absences == "all"
            and live.sampler.draws == "distinct"
            and sampler != "target"
            and not live.sampler.fewer
        ):
            assert sorted(row["clients"]) == here.tolist()
    assert set(live.rows[-1]) >= COLUMNS


def test_every_sampler_meets_the_same_world_and_no_world_adds_no_column() -> None:
    one, other = played({"sampler": "uniform"}, {"sampler": "power_of_choice"}, world=HALF)
    assert [r["available"] for r in one.rows] == [r["available"] for r in other.rows]
    assert len({r["available"] for r in one.rows}) > 1
    (alone,) = played({"sampler": "power_of_choice"}, world=HALF)
    assert [r["clients"] for r in alone.rows] == [r["clients"] for r in other.rows]
    (ideal,) = played({"sampler": "uniform"})
    assert not COLUMNS & set(ideal.rows[-1])


def test_a_world_in_which_all_are_there_changes_no_choice_and_no_model() -> None:
    """mean 1: the same clients, and models equal to the last bit."""
    for sampler in ("uniform", "md", "clustered_similarity", "hics_fl"):
        (ideal,), (world,) = played({"sampler": sampler}), played({"sampler": sampler}, world={"mean": 1.0})
        assert [r["clients"] for r in ideal.rows] == [r["clients"] for r in world.rows]
        assert bool((ideal.models == world.models).all())


def test_participation_against_a_plain_count() -> None:
    (live,) = played({"sampler": "md"}, world=HALF)
    counts = np.zeros(25)
    for row in live.rows[1:]:
        for k in row["clients"]:
            counts[k] += 1
        assert row["jain"] == pytest.approx(counts.sum() ** 2 / (25 * (counts**2).sum()))
        assert row["coverage"] == (counts > 0).mean()


def test_clocks_of_rounds_that_wait_against_a_plain_sum() -> None:
    """Local work is 5 steps of 10 samples; the model travels both ways."""
    (live,) = played({"sampler": "uniform"}, world={"speeds": {"seconds": 0.01, "kbit": 1000.0}})
    world, d, clock = live.presence.world, live.executor.layout.d, 0.0
    for row in live.rows[1:]:
        each = [
            50 * world.per_sample[k] + 0.032 * d * (1 / world.downlink[k] + 1 / world.uplink[k])
            for k in row["clients"]
        ]
        clock += max(each)
        assert row["clock"] == pytest.approx(clock)


def test_a_question_takes_time() -> None:
    speeds = {"speeds": {"seconds": 0.01}}
    asks, plain = (
        live.rows[-1]["clock"]
        for live in played({"sampler": "power_of_choice", "d": 25}, {"sampler": "uniform"}, world=speeds)
    )
    assert asks > plain


def test_losses_take_a_third_of_the_time_of_training_against_a_plain_sum() -> None:
    """All 25 clients are asked for their loss; then the chosen ones, which have the model, train 5 steps of 10."""
    speeds = {"speeds": {"seconds": 0.01, "sigma": 0.5, "kbit": 1000.0}}
    (live,) = played({"sampler": "power_of_choice", "d": 25}, world=speeds)
    world, d, clock = live.presence.world, live.executor.layout.d, 0.0
    asked = [
        len(live.partition.train[k]) * world.per_sample[k] / 3
        + 0.032 * (d / world.downlink[k] + 1 / world.uplink[k])
        for k in range(25)
    ]
    for row in live.rows[1:]:
        trained = [50 * world.per_sample[k] + 0.032 * d / world.uplink[k] for k in row["clients"]]
        clock += max(asked) + max(trained)
        assert row["clock"] == pytest.approx(clock)


@pytest.mark.parametrize("late", ["drop", "keep"])
def test_late_updates_are_wasted_or_arrive_later(late: str) -> None:
    world = {"speeds": {"seconds": 0.01, "sigma": 1.0}, "ends": {"kind": "first", "c": 2.0}, "late": late}
    (live,) = played({"sampler": "uniform"}, world=world)
    drawn, wasted, arrived = (
        sum(count(row) for row in live.rows[1:])
        for count in (lambda r: len(r["clients"]), lambda r: r["wasted_steps"], lambda r: r["arrived"])
    )
    assert all(len(row["clients"]) <= 10 and (late == "keep" or row["arrived"] == 5) for row in live.rows[1:])
    flying = len(live.presence.flying)
    if late == "drop":
        assert wasted == 5 * (drawn - arrived) > 0
    else:
        assert wasted == 0
        assert drawn == arrived + flying
        assert any(row["arrived"] > 5 for row in live.rows), "late updates join a later round"


def test_a_deadline_ends_rounds_and_an_empty_round_changes_nothing() -> None:
    world = {"mean": 0.02, "ends": {"kind": "deadline", "seconds": 0.25}, "speeds": {"seconds": 0.01}}
    runs = lockstep({"sampler": "uniform"}, world=world)
    (live,) = runs.live
    empty = 0
    while runs.active:
        before, clock = live.models.clone(), live.presence.world.time
        runs.advance()
        row = live.rows[-1]
        assert row["clock"] - clock <= 0.25 + 1e-9
        if not row["arrived"]:
            empty += 1
            assert bool((before == live.models).all())
        if not row["available"]:
            assert row["clock"] - clock == pytest.approx(0.25)
    assert empty


def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped() -> None:
    world = HALF | {"process": {"kind": "markov"}, "speeds": {}, "ends": {"kind": "first"}, "late": "keep"}
    (straight,) = played({"sampler": "power_of_choice"}, world=world)
    first = lockstep({"sampler": "power_of_choice"}, world=world)
    for _ in range(4):
        first.advance()
    second = lockstep({"sampler": "power_of_choice"}, world=world)
    second.live[0].load_state_dict(first.live[0].state_dict())
    while second.active:
        second.advance()
    keys = ["clients", "clock", "arrived", "test_loss"]
    assert [[row.get(key) for key in keys] for row in second.live[0].rows] == [
        [row.get(key) for key in keys] for row in straight.rows
    ]


@pytest.mark.bad_input
def test_naming_an_absent_client_is_refused_in_words() -> None:
    @register("test_blind")
    class Blind(Sampler):
        def select(self, round: Round) -> Selection:
            return Selection(np.arange(5))

    with pytest.raises(
        SamplerError, match=r"it chose client \d, who is absent; choose among round.available"
    ):
        played({"sampler": "test_blind"}, world=HALF)


def test_moon_trains_to_the_same_bytes_alone_and_with_others() -> None:
    settings = {
        "m": 10,
        "T": 3,
        "local": {"lr": 0.05, "batch": 10, "steps": 5, "mu": 1.0},
        "partition": {"scheme": "dirichlet_clients", "alpha": 0.5, "sizes": [[25, 40]]},
    }
    moon, other = {"sampler": "uniform", "algorithm": "moon"}, {"sampler": "md", "algorithm": "moon"}
    ((alone,), (together, _)) = (played(moon, **settings), played(moon, other, **settings))
    assert bool((alone.models == together.models).all())
