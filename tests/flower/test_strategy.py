"""Samplers in Flower: the same clients, costs and curves as in our engine; clients that fail; stopping and going on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "flwr", reason="Flower asks for older libraries than requirements.lock has: `make flower` tests it"
)

import federation
from federation import METHODS, M, N, T
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.clientapp import ClientApp
from grid import Clock, Fault, InProcess

from fedlib.errors import ConfigError, SamplerError, StoreError
from fedlib.flower import Answers, SamplerStrategy, wire
from fedlib.flower import strategy as module
from fedlib.flower.records import FlatModel
from fedlib.samplers import SAMPLERS, Losses, Sampler, Selection

COSTS = ("parameters_down", "parameters_up", "scalars_up", "client_steps", "samples_evaluated")


TIMED = ("server_seconds", "clock", "seconds")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the strategy: nobody waits."""
    clock = Clock()
    monkeypatch.setattr(wire, "time", clock)
    monkeypatch.setattr(module, "time", clock)
    return clock


def strategy(sampler: str | Sampler, **changes) -> SamplerStrategy:
    if isinstance(sampler, str):
        sampler = SAMPLERS[sampler](**METHODS[sampler])
    return SamplerStrategy(sampler, **({"N": N, "m": M, "seed": 1} | changes))


def start(a: SamplerStrategy, grid: InProcess, rounds: int = T):
    return a.start(grid, federation.initial(), rounds, timeout=5, evaluate_fn=federation.accuracy)


@pytest.mark.parametrize("sampler", METHODS)
def test_it_does_what_the_engine_does(sampler: str):
    a = strategy(sampler)
    result = start(a, InProcess(federation.client_app(), range(N)))
    expected = federation.engine_rows(sampler)
    assert [row.get("clients", []) for row in a.rows] == [row["clients"] for row in expected]
    for key in COSTS:
        assert [row[key] for row in a.rows[1:]] == [row[key] for row in expected[1:]], key
    for t, row in enumerate(expected):
        measured = result.evaluate_metrics_serverapp[t]
        assert measured["test_loss"] == pytest.approx(row["test_loss"], rel=1e-4)
        assert measured["test_accuracy"] == pytest.approx(row["test_accuracy"], abs=0.011)
    local = [row["local_loss"] for row in a.rows[1:]]
    assert local == pytest.approx([row["local_loss"] for row in expected[1:]], rel=1e-4)


def chosen(a: SamplerStrategy) -> list[list[int]]:
    return [row["clients"] for row in a.rows[1:]]


@dataclass
class Fixed(Sampler):
    """Asks for everybody's losses and selects the same clients always; keeps what it was told."""

    draws = "random"

    def select(self, round):
        self.told = [np.asarray((yield Losses(self.fed.everyone)))]
        return Selection(np.array([0, 1, 2]))

    def observe(self, round, report):
        self.told += [report.clients.tolist(), list(report.missing)]


def test_without_an_encoder_the_same_clients_are_chosen_and_whole_updates_are_charged():
    a, b = strategy("hcsfed"), strategy("hcsfed")
    start(a, InProcess(federation.client_app(), range(N)))
    start(b, InProcess(federation.client_app(encodes=False), range(N)))
    assert chosen(a) == chosen(b)
    assert [row["client_steps"] for row in a.rows[1:]] == [row["client_steps"] for row in b.rows[1:]]
    d = a.model.d
    assert {row["parameters_up"] for row in a.rows[1:]} == {N * (d // 2) + M * d}
    assert {row["parameters_up"] for row in b.rows[1:]} == {N * d}, "whoever is selected has sent it already"


def test_a_kept_training_is_not_repeated():
    trained = Counter()

    def count(message, context):
        trained[message.content["config"]["server-round"], context.node_config["partition-id"]] += 1
        return federation.train(message, context)

    app = federation.client_app()
    app._registered_funcs.clear()
    app.train()(count)
    start(strategy("hcsfed"), InProcess(app, range(N)))
    assert set(trained.values()) == {1}
    assert len(trained) == T * N


# -- clients that fail or vanish -------------------------------------------------------------------------------


def first_time(kind: str) -> Fault:
    """Every message of a round fails once, and succeeds when it is sent again."""
    seen = set()

    def fault(client: int, message: Message) -> str:
        config = message.content["config"]
        key = (
            client,
            message.metadata.message_type,
            *(config.get(k) for k in ("server-round", "draw", "purpose")),
        )
        again = key in seen or "server-round" not in config
        seen.add(key)
        return "" if again else kind

    return fault


@pytest.mark.parametrize("kind", ["error", "silence"])
def test_a_client_that_fails_once_is_asked_again(kind: str):
    a = strategy("power_of_choice")
    start(a, InProcess(federation.client_app(), range(N), first_time(kind)))
    assert chosen(a) == [row["clients"] for row in federation.engine_rows("power_of_choice")[1:]]
    assert not any(row["missing"] for row in a.rows[1:])


def test_a_client_that_stays_silent_is_left_out_and_the_sampler_is_told():
    def fault(client: int, message: Message) -> str:
        return "silence" if client == 2 and "server-round" in message.content["config"] else ""

    a = strategy(Fixed())
    grid = InProcess(federation.client_app(), range(N), fault)
    start(a, grid, rounds=1)
    losses, came, missing = a.sampler.told
    assert (came, missing) == ([0, 1], [2])
    assert (a.rows[1]["clients"], a.rows[1]["missing"]) == ([0, 1], [2])
    assert losses[2] == pytest.approx(np.delete(losses, 2).mean())
    messages = [message for client, message in grid.sent if client == 2]
    assert len(messages) == 3, "who it is, and its loss, twice; it is not asked to train as well"


def test_whoever_is_left_is_averaged():
    def fault(client: int, message: Message) -> str:
        return "error" if client == 2 and message.content["config"].get("fedlib-ask") == "train" else ""

    a = strategy(Fixed())
    result = start(a, InProcess(federation.client_app(), range(N), fault), rounds=1)
    model, app = a.model, federation.client_app()
    grid = InProcess(app, range(N))
    alone = []
    for k in (0, 1):
        b = strategy(One(k))
        alone.append(model.flat(start(b, grid, rounds=1).arrays))
    np.testing.assert_allclose(model.flat(result.arrays), np.mean(alone, axis=0), atol=1e-6)


@dataclass
class One(Sampler):
    draws = "random"
    k: int = 0

    def select(self, round):
        return Selection(np.array([self.k]))


def test_a_round_in_which_everybody_fails_leaves_the_model_as_it_is():
    def fault(client: int, message: Message) -> str:
        return "error" if message.content["config"].get("server-round") == 2 else ""

    a = strategy("uniform")
    result = start(a, InProcess(federation.client_app(), range(N), fault), rounds=3)
    assert [len(row["clients"]) for row in a.rows[1:]] == [M, 0, M]
    losses = [result.evaluate_metrics_serverapp[t]["test_loss"] for t in range(4)]
    assert losses[1] == losses[2] != losses[3]


def test_a_node_that_comes_back_under_another_name_is_the_same_client():
    a, grid = strategy(Fixed()), InProcess(federation.client_app(), range(N))
    names = []

    def between(server_round, arrays):
        if server_round == 1:
            grid.leave(1001)
        if server_round == 2:
            grid.join(1, 77)
        names.append(sorted(a.wire.nodes))

    a.start(grid, federation.initial(), 3, timeout=5, evaluate_fn=between)
    assert [row["missing"] for row in a.rows[1:]] == [[], [1], []]
    assert a.wire.nodes[1] == 77
    assert names[2] == [0, 2, 3, 4]


# -- who is there, and when ------------------------------------------------------------------------------------


@dataclass
class Watching(Sampler):
    """Selects the available clients with the lowest numbers, and keeps what it was told of place and time."""

    def setup(self, fed, rng):
        super().setup(fed, rng)
        self.told = []

    def select(self, round):
        self.told.append(["select", round.time, round.available.tolist(), round.m])
        return Selection(round.available[: round.m])

    def observe(self, round, report):
        self.told.append(["observe", round.time, report.clients.tolist(), report.seconds.tolist()])


def test_a_sampler_is_told_who_is_there_and_how_long_each_took(clock: Clock):
    """Client k answers a train message k + 1 seconds late; node 0 leaves after round 1, and all but 4 after round 2."""

    def delay(client: int, message: Message) -> float:
        return client + 1.0 if "server-round" in message.content["config"] else 0.0

    a, grid = strategy(Watching()), InProcess(federation.client_app(), range(N), clock=clock, delay=delay)

    def between(server_round, arrays):
        gone = {1: [0], 2: [1, 2, 3]}.get(server_round, [])
        for k in gone:
            grid.leave(1000 + k)

    a.start(grid, federation.initial(), 3, timeout=50, evaluate_fn=between)
    pulled = pytest.approx(0, abs=wire.PULL_SECONDS)
    (_, t1, there1, m1), (_, u1, came1, took1), (_, t2, there2, m2), (_, u2, came2, took2), *last = (
        a.sampler.told
    )
    assert (there1, m1, came1) == ([0, 1, 2, 3, 4], M, [0, 1])
    assert (there2, m2, came2) == ([1, 2, 3, 4], M, [1, 2])
    assert [last[0][2:], last[1][2]] == [[[4], 1], [4]], "fewer than m are there"
    assert [took1[0] - 1, took1[1] - 2, took2[0] - 2, took2[1] - 3] == [pulled] * 4
    assert [t1, u1 - 2, t2 - 2, u2 - 5] == [
        pulled,
        pulled,
        pulled,
        pytest.approx(0, abs=2 * wire.PULL_SECONDS),
    ]
    assert [row["available"] for row in a.rows[1:]] == [5, 4, 1]
    assert a.rows[2]["seconds"] == took2
    assert a.rows[3]["clock"] == pytest.approx(10, abs=3 * wire.PULL_SECONDS)


def test_the_clock_does_not_run_between_a_stop_and_the_next_start(clock: Clock, tmp_path: Path):
    def delay(client: int, message: Message) -> float:
        return 1.0 if "server-round" in message.content["config"] else 0.0

    for rounds in (1, 2):
        a = strategy("uniform", store=tmp_path)
        grid = InProcess(federation.client_app(), range(N), clock=clock, delay=delay)
        a.start(grid, federation.initial(), rounds, timeout=50)
        clock.sleep(1000)
    assert [row["clock"] for row in a.rows[1:]] == pytest.approx([1, 2], abs=2 * wire.PULL_SECONDS)


def test_a_round_in_which_nobody_is_there_is_skipped(clock: Clock):
    a, grid = strategy(Watching()), InProcess(federation.client_app(), range(N), clock=clock)

    def between(server_round, arrays):
        for k in range(N):
            if server_round == 1:
                grid.leave(1000 + k)
            if server_round == 2:
                grid.join(k, 1000 + k)

    a.start(grid, federation.initial(), 3, timeout=5, evaluate_fn=between)
    assert [row["clients"] for row in a.rows[1:]] == [[0, 1], [], [0, 1]]
    assert [row["available"] for row in a.rows[1:]] == [5, 0, 5]
    assert len(a.sampler.told) == 4, "neither asked nor told in round 2"


# -- stopping and going on -------------------------------------------------------------------------------------


class Stop(Exception):
    pass


@pytest.mark.parametrize("sampler", ["hics_fl", "fedcor", "md"])
def test_a_server_that_was_stopped_goes_on(sampler: str, tmp_path: Path):
    straight = strategy(sampler)
    expected = start(straight, InProcess(federation.client_app(), range(N)))

    def stop_in_round_4(client: int, message: Message) -> str:
        if message.content["config"].get("server-round") == 4:
            raise Stop
        return ""

    with pytest.raises(Stop):
        start(
            strategy(sampler, store=tmp_path), InProcess(federation.client_app(), range(N), stop_in_round_4)
        )
    again = strategy(sampler, store=tmp_path)
    result = start(again, InProcess(federation.client_app(), range(N)))
    assert chosen(again) == chosen(straight)
    assert [row["round"] for row in again.rows] == list(range(T + 1))
    assert str(result.evaluate_metrics_serverapp) == str(expected.evaluate_metrics_serverapp)
    assert [{k: v for k, v in row.items() if k not in TIMED} for row in again.rows] == [
        {k: v for k, v in row.items() if k not in TIMED} for row in straight.rows
    ]


@pytest.mark.bad_input
def test_a_state_of_other_settings_is_refused(tmp_path: Path):
    start(strategy("uniform", store=tmp_path), InProcess(federation.client_app(), range(N)), rounds=1)
    with pytest.raises(
        StoreError, match="belongs to other settings or another model; delete it, or name another"
    ):
        start(strategy("uniform", store=tmp_path, m=3), InProcess(federation.client_app(), range(N)))


# -- what cannot be done, in words -----------------------------------------------------------------------------


@pytest.mark.bad_input
@pytest.mark.parametrize("sampler", ["oracle", "target"])
def test_references_that_look_at_labels_are_refused(sampler: str):
    with pytest.raises(
        SamplerError, match="needs the labels of the model or clients; it is a reference only"
    ):
        start(strategy(SAMPLERS[sampler]()), InProcess(federation.client_app(), range(N)))


@pytest.mark.bad_input
def test_an_output_layer_that_is_not_known_is_asked_for():
    arrays = ArrayRecord({"a": Array(np.zeros(3, np.float32)), "b": Array(np.zeros(2, np.float32))})
    with pytest.raises(SamplerError, match="HiCSFL needs the output layer .* name it by output="):
        strategy("hics_fl").start(InProcess(federation.client_app(), range(N)), arrays, 1, timeout=5)
    with pytest.raises(ValueError, match="output: the model has no trained array 'c'; it has a, b"):
        FlatModel.of(arrays, ("c", "b"))


@pytest.mark.bad_input
def test_missing_clients_and_numbers_that_occur_twice_are_named():
    with pytest.raises(SamplerError, match="1 of 5 clients have not said who they are"):
        strategy("uniform").start(
            InProcess(federation.client_app(), range(N - 1)), federation.initial(), 1, timeout=1
        )
    grid = InProcess(federation.client_app(), range(N))
    grid.join(3, 77)
    with pytest.raises(SamplerError, match="two nodes say that they are client 3"):
        start(strategy("uniform"), grid)


@pytest.mark.bad_input
def test_a_question_that_nobody_answers_is_named_with_the_reason():
    def fault(client: int, message: Message) -> str:
        return "error" if message.metadata.message_type == "evaluate" else ""

    with pytest.raises(
        SamplerError, match=r"no client answered the sampler's Losses \(the battery is empty\)"
    ):
        start(strategy("power_of_choice"), InProcess(federation.client_app(), range(N), fault))


# -- clients that send what cannot be used ---------------------------------------------------------------------


def spoiled(change, who: int = 2, kind: str = "train"):
    """The federation's app, in which one client's replies are changed before they are sent."""

    def wrap(function):
        def reply(message: Message, context) -> Message:
            out = function(message, context)
            if context.node_config["partition-id"] == who:
                change(out.content)
            return out

        return reply

    app = federation.client_app()
    app._registered_funcs.clear()
    app.train()(wrap(federation.train) if kind == "train" else federation.train)
    app.evaluate()(wrap(federation.evaluate) if kind == "evaluate" else federation.evaluate)
    return app


def arrays_with(value: float, kind: type = np.float32):
    def change(content) -> None:
        name, array = next(iter(content["arrays"].items()))
        numbers = array.numpy().astype(kind)
        numbers.flat[0] = value
        content["arrays"][name] = Array(numbers)

    return change


def metric_with(name: str, value: float):
    def change(content) -> None:
        content["metrics"][name] = value

    return change


def renamed(content) -> None:
    record = content["arrays"]
    name = next(iter(record))
    record["another"] = record.pop(name)


def reshaped(content) -> None:
    record = content["arrays"]
    name, array = next(iter(record.items()))
    record[name] = Array(array.numpy()[:1])


SPOILED = {
    "NaN model": (arrays_with(np.nan), "its model holds values that are not finite"),
    "infinite model": (arrays_with(-np.inf), "its model holds values that are not finite"),
    "model too large for single precision": (
        arrays_with(1e300, np.float64),
        "its model holds values that are not finite",
    ),
    "negative steps": (metric_with("steps", -4), "its steps is -4, and must be a whole number from 0"),
    "NaN loss": (metric_with("train_loss", np.nan), "its metrics are not finite"),
    "infinite steps": (metric_with("steps", np.inf), "its metrics are not finite"),
    "another name": (renamed, "its model has no array"),
    "another shape": (reshaped, "has shape"),
}


@pytest.mark.outside("replies in Flower that cannot be used")
@pytest.mark.bad_input
@pytest.mark.parametrize("name", SPOILED)
def test_a_client_whose_reply_cannot_be_used_counts_as_missing(name: str, caplog):
    change, words = SPOILED[name]
    a = strategy(Fixed())
    result = start(a, InProcess(spoiled(change), range(N)), rounds=2)
    assert [row["missing"] for row in a.rows[1:]] == [[2], [2]]
    assert [row["clients"] for row in a.rows[1:]] == [[0, 1], [0, 1]]
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())
    assert f"client 2 sent what cannot be used: {words}" in caplog.text or words in a.wire.why


@pytest.mark.bad_input
def test_a_loss_that_is_not_finite_is_replaced_by_the_mean_of_the_others():
    a = strategy(Fixed())
    start(a, InProcess(spoiled(metric_with("eval_loss", np.nan), kind="evaluate"), range(N)), rounds=1)
    losses, came, missing = a.sampler.told
    assert losses[2] == pytest.approx(np.delete(losses, 2).mean())
    assert (came, missing) == ([0, 1], [2])


@pytest.mark.outside("replies in Flower that cannot be used")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("client", "size", "words"),
    [
        (lambda k: k + 1, lambda k: 10, "a node says that it is client 5; number the 5 clients from 0 to 4"),
        (lambda k: k - 1, lambda k: 10, "a node says that it is client -1; number the 5 clients from 0 to 4"),
        (lambda k: k, lambda k: 0, "every client says that it has 0 training samples"),
        (lambda k: k, lambda k: -3, r"client \d says that it has -3 training samples"),
        (lambda k: k, lambda k: float("nan"), r"client \d says that it has nan training samples"),
    ],
)
def test_numbers_and_sizes_that_cannot_be_are_named(client, size, words: str):
    app = ClientApp(
        mods=[
            Answers(
                size=lambda context: size(context.node_config["partition-id"]),
                client=lambda context: client(context.node_config["partition-id"]),
            )
        ]
    )
    app.train()(federation.train)
    app.evaluate()(federation.evaluate)
    with pytest.raises(SamplerError, match=words):
        start(strategy("uniform"), InProcess(app, range(N)))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("sampler", "changes", "words"),
    [
        ("unifrom", {}, "unknown sampler 'unifrom'; did you mean uniform"),
        ("uniform", {"m": N + 1}, "m = 6 clients per round must be between 1 and N = 5"),
        ("uniform", {"m": 0}, "m is 0; it must be a whole number from 1"),
        ("uniform", {"m": "2"}, "m is '2'; it must be a whole number from 1"),
        ("uniform", {"seed": -1}, "seed is -1; it must be a whole number from 0"),
        ("uniform", {"seed": "a"}, "seed is 'a'; it must be"),
        ("uniform", {"retries": -1}, "retries is -1; it must be"),
        ("uniform", {"evaluate_every": -1}, "evaluate_every is -1; it must be"),
        ("uniform", {"store": ""}, "store is ''; it must be the path of a folder"),
        (3, {}, "sampler is of type int; give a sampler"),
        ("uniform", {"aggregation": "data-size"}, "unknown aggregation 'data-size'; did you mean data_size"),
    ],
)
def test_arguments_that_cannot_be_are_named(sampler: str, changes: dict, words: str):
    with pytest.raises(ConfigError, match=words):
        SamplerStrategy(sampler, **({"N": N, "m": M} | changes))


# -- models ----------------------------------------------------------------------------------------------------


def test_samplers_see_trained_arrays_alone_and_integers_stay():
    rng = np.random.default_rng(0)
    arrays = {
        "out.weight": rng.normal(size=(3, 2)),
        "out.bias": rng.normal(size=3),
        "norm.running_mean": rng.normal(size=4),
        "norm.num_batches_tracked": np.array(7),
        "norm.weight": rng.normal(size=4),
    }
    floats = {k: v if v.dtype == int else v.astype(np.float32) for k, v in arrays.items()}
    record = ArrayRecord({k: Array(np.asarray(v)) for k, v in floats.items()})
    model = FlatModel.of(record, ("out.weight", "out.bias"))
    assert model.names == ("norm.weight", "out.weight", "out.bias", "norm.running_mean")
    assert (model.d, model.n_trained, model.output_shape) == (17, 13, (3, 2))
    flat = model.flat(record)
    np.testing.assert_array_equal(flat[model.output_weight].reshape(3, 2), floats["out.weight"])
    np.testing.assert_array_equal(flat[model.output_bias], floats["out.bias"])
    back = model.record(flat + 1, record)
    assert list(back) == list(arrays)
    for name, value in floats.items():
        np.testing.assert_array_equal(back[name].numpy(), value if value.dtype == int else value + 1)


def test_clients_evaluate_every_so_often():
    a = strategy("uniform", evaluate_every=2)
    result = start(a, InProcess(federation.client_app(), range(N)), rounds=4)
    assert list(result.evaluate_metrics_clientapp) == [2, 4]
    losses = [
        federation.executor().evaluate(federation.to_flat(result.arrays)[None], "train", [k])[0][0]
        for k in federation.partition().train
    ]
    expected = np.average([loss.mean() for loss in losses], weights=federation.partition().sizes)
    assert result.evaluate_metrics_clientapp[4]["eval_loss"] == pytest.approx(expected, rel=1e-5)


def test_a_class_of_samplers_and_a_home_folder_are_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    a = SamplerStrategy(Fixed, N=N, m=M, store="~/state")
    assert isinstance(a.sampler, Fixed)
    assert a.store == tmp_path / "state"


@pytest.mark.outside("replies in Flower that cannot be used")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (metric_with("num-examples", -60), "client 2 sent what cannot be used"),
        (metric_with("num-examples", np.nan), "client 2 sent what cannot be used"),
        (metric_with("accuracy", 0.5), "not every client sends accuracy; there is no mean of it"),
    ],
)
def test_an_evaluation_that_cannot_be_used_is_left_out_with_a_word(change, words: str, caplog):
    a = strategy("uniform", evaluate_every=1)
    result = start(a, InProcess(spoiled(change, kind="evaluate"), range(N)), rounds=1)
    assert 0 < result.evaluate_metrics_clientapp[1]["eval_loss"] < 10
    assert words in caplog.text


def without(name: str, otherwise: str = ""):
    def change(content) -> None:
        value = content["metrics"].pop(name)
        if otherwise:
            content["metrics"][otherwise] = value

    return change


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("num-examples"), "client 2 evaluates by eval_loss, without 'num-examples'"),
        (without("eval_loss", "loss"), r"clients evaluate by different names \(eval_loss, loss\)"),
    ],
)
def test_an_evaluation_without_its_numbers_is_refused(change, words: str):
    with pytest.raises(SamplerError, match=words):
        start(
            strategy("uniform", evaluate_every=1),
            InProcess(spoiled(change, kind="evaluate"), range(N)),
            rounds=1,
        )


@pytest.mark.bad_input
def test_a_restart_with_another_train_config_is_refused(tmp_path: Path):
    app = federation.client_app()
    options = {"initial_arrays": federation.initial(), "num_rounds": 1, "timeout": 5}
    strategy("uniform", store=tmp_path).start(
        InProcess(app, range(N)), train_config=ConfigRecord({"lr": 0.1}), **options
    )
    with pytest.raises(StoreError, match="belongs to other settings"):
        strategy("uniform", store=tmp_path).start(
            InProcess(app, range(N)), train_config=ConfigRecord({"lr": 0.2}), **options
        )
