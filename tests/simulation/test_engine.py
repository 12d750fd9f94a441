"""The round loop against a plain FedAvg loop, and its promises: independence of company, resumption, honest costs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from fedlib.data import datasets
from fedlib.data import partition as partitions
from fedlib.errors import SamplerError
from fedlib.samplers import SAMPLERS, Gradients, Losses, Sampler, Selection, TrialLosses, Updates, register
from fedlib.settings import params
from fedlib.simulation.engine import Lockstep
from fedlib.streams import stream
from fedlib.training.contract import Job
from fedlib.training.executors import ProgramModel, make_executor
from tests.simulation.lockstep import CLASSES, FEATURES, M, N, finish, go, numbers, resumed, run, same


def test_equals_a_plain_fedavg_loop(partition, executor, tensors):
    """Logistic regression by autograd, one client after the other, with the engine's choices and batches."""
    from fedlib.training.contract import draw_batches

    live = go([run()], partition, executor)[0]
    w = [torch.zeros(CLASSES, FEATURES), torch.zeros(CLASSES)]
    for t in range(1, 5):
        chosen = live.rows[t]["clients"]
        total = [torch.zeros_like(p) for p in w]
        for k in chosen:
            job = Job(run=0, samples=partition.train[k], source=stream(0, "local", t, k, 0))
            batches = draw_batches([job], 16, steps=5)
            p = [q.clone().requires_grad_() for q in w]
            for index, count in zip(batches.index[:, 0], batches.count[:, 0], strict=True):
                rows = torch.as_tensor(index[:count]).long()
                out = tensors.x_train[rows] @ p[0].T + p[1]
                loss = torch.nn.functional.cross_entropy(out, tensors.y_train[rows])
                gradients = torch.autograd.grad(loss, p)
                p = [(q - 0.1 * g).detach().requires_grad_() for q, g in zip(p, gradients, strict=True)]
            total = [a + q.detach() / M for a, q in zip(total, p, strict=True)]
        w = total
    expected = torch.cat([w[0].flatten(), w[1]])
    torch.testing.assert_close(live.models[0], expected, rtol=1e-5, atol=1e-6)
    loss = torch.nn.functional.cross_entropy(tensors.x_test @ w[0].T + w[1], tensors.y_test)
    assert live.rows[4]["test_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_measures_weigh_clients_by_their_data(partition, executor, tensors):
    live = go([run(T=1)], partition, executor)[0]
    w, b = live.models[0][: CLASSES * FEATURES].view(CLASSES, FEATURES), live.models[0][CLASSES * FEATURES :]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(
            tensors.x_train @ w.T + b, tensors.y_train, reduction="none"
        ).numpy()
        hit = ((tensors.x_test @ w.T + b).argmax(1) == tensors.y_test).numpy()
    sizes = np.array([len(k) for k in partition.train])
    p = sizes / sizes.sum()
    by_client = np.array([loss[k].mean() for k in partition.train])
    assert live.rows[1]["train_loss"] == pytest.approx(p @ by_client, rel=1e-5)
    spread = np.sqrt(p @ (by_client - p @ by_client) ** 2)
    assert live.rows[1]["train_loss_std"] == pytest.approx(spread, rel=1e-4)
    accuracy = np.array([hit[k].mean() for k in partition.test])
    assert live.rows[1]["client_accuracy"] == pytest.approx(p @ accuracy, rel=1e-6)


def test_clients_without_test_parts_are_not_measured(partition, executor):
    without = go([run(T=1)], dataclasses.replace(partition, test=None), executor)[0].rows[1]
    measured = go([run(T=1)], partition, executor)[0].rows[1]
    assert set(measured) - set(without) == {"client_accuracy", "client_accuracy_std"}


ALGORITHMS = [
    {},
    {"algorithm": "scaffold"},
    {"algorithm": "feddyn"},
    {"algorithm": "ifca", "algorithm_params": {"models": 2}},
]


@pytest.mark.parametrize("method", ALGORITHMS, ids=lambda m: m.get("algorithm", "fedavg"))
def test_alone_or_in_company(method, partition, executor):
    runs = [run(seed=s, method=method) for s in range(3)]
    together = go(runs, partition, executor)
    for one, other in zip(together, (go([r], partition, executor)[0] for r in runs), strict=True):
        same(one, other)


def test_runs_of_different_samplers_and_lengths_share_a_lockstep(partition, executor):
    runs = [run("uniform", T=2), run("md", T=5), run("asks_everything", T=3)]
    together = go(runs, partition, executor)
    assert [live.t for live in together] == [2, 5, 3]
    for one, r in zip(together, runs, strict=True):
        same(one, go([r], partition, executor)[0])


@pytest.mark.parametrize("method", ALGORITHMS, ids=lambda m: m.get("algorithm", "fedavg"))
def test_resumed_equals_straight(method, partition, executor):
    r = run("asks_everything", T=5, method=method)
    same(go([r], partition, executor)[0], resumed(r, 2, partition, executor))


ROUNDS = 12


@pytest.fixture(scope="module")
def whole(partition, executor):
    """A run that goes on to T, and a test accuracy that it first reaches in round 5 or later."""
    live = go([run(T=ROUNDS)], partition, executor)[0]
    reached = np.maximum.accumulate([row["test_accuracy"] for row in live.rows[1:]])
    target = float(reached[reached > reached[3]][0])
    return live, target, 1 + int(np.argmax(reached >= target))


def test_a_run_ends_where_it_has_reached_its_target(whole, partition, executor):
    """`whole`, cut: after the round that reaches the target, or `least` rounds, or never."""
    live, target, arrival = whole
    assert 5 <= arrival < ROUNDS
    for least, goal, end in (
        (1, target, arrival),
        (arrival, target, arrival),
        (arrival + 1, target, arrival + 1),
        (ROUNDS, target, ROUNDS),
        (1, 1.0, ROUNDS),
    ):
        until = {"test_accuracy": goal, "least": least}
        cut = go([run(T=ROUNDS, until=until)], partition, executor)[0]
        assert (cut.t, cut.ended) == (end, True)
        assert repr(numbers(cut)) == repr(numbers(live)[: end + 1])


def test_a_run_ends_in_a_round_that_is_measured(whole, partition, executor):
    _, target, arrival = whole
    settings = {"until": {"test_accuracy": target}, "evaluate": {"every": 3}}
    cut = go([run(T=ROUNDS, **settings)], partition, executor)[0]
    measured = [row["round"] for row in cut.rows if "test_accuracy" in row]
    assert measured == list(range(0, cut.t + 1, 3))
    assert cut.t >= arrival
    assert cut.rows[-1]["test_accuracy"] >= target


def test_a_run_that_ends_early_leaves_the_others_alone(whole, partition, executor):
    live, target, arrival = whole
    early = run(T=ROUNDS, until={"test_accuracy": target})
    cut, other = go([early, run(T=ROUNDS)], partition, executor)
    assert cut.t == arrival
    same(other, live)


@pytest.mark.parametrize("wait", [1, 3], ids=["before its target", "after its target, before `least`"])
def test_resumed_it_ends_in_the_same_round(wait, whole, partition, executor):
    _, target, arrival = whole
    r = run(T=ROUNDS, until={"test_accuracy": target, "least": arrival + 2 if wait == 3 else 1})
    same(go([r], partition, executor)[0], resumed(r, arrival - 2 + wait, partition, executor))


@pytest.mark.parametrize("method", [{}, {"algorithm": "ifca", "algorithm_params": {"models": 2}}])
def test_training_losses_are_measured_seldom_and_nothing_else_is(method, partition, executor):
    def rows(**evaluate) -> list[dict]:
        settings = {"test": True, "train": True, "clients": True} | evaluate
        return numbers(go([run(T=11, method=method, evaluate=settings)], partition, executor)[0])

    every, seldom = rows(every=2), rows(every=2, train_every=4)
    losses = {"train_loss", "train_loss_std"}
    assert [row["round"] for row in every if losses <= row.keys()] == [0, 2, 4, 6, 8, 10, 11]
    assert [row["round"] for row in seldom if losses & row.keys()] == [0, 4, 8, 11]
    for one, other in zip(every, seldom, strict=True):
        assert repr({k: v for k, v in one.items() if k in other}) == repr(other)
        assert one.keys() - other.keys() <= losses


def test_the_training_loss_is_measured_where_a_run_ends_early(whole, partition, executor):
    live, target, arrival = whole
    evaluate = {"train": True, "train_every": ROUNDS}
    cut = go([run(T=ROUNDS, until={"test_accuracy": target}, evaluate=evaluate)], partition, executor)[0]
    assert [row["round"] for row in cut.rows if "train_loss" in row] == [0, arrival]
    assert cut.rows[-1]["train_loss"] == live.rows[arrival]["train_loss"]


@register("asks_everything")
@dataclass
class AsksEverything(Sampler):
    """Yields every kind of question; keeps what it heard."""

    def select(self, round):
        self.updates = yield Updates(self.fed.everyone, parameters=2, scalars=1)
        self.sums = yield Updates(np.array([4, 1]), parameters=0, encode=lambda G: G.sum(axis=1))
        self.gradients = yield Gradients(np.array([1, 4]))
        self.losses = yield Losses(np.array([5, 0, 2]))
        return Selection(np.array([6, 2, 5]))

    def observe(self, round, report):
        self.after = yield Losses(np.array([0]))
        self.trial = yield TrialLosses(np.array([3, 1]), np.array([0, 7]))
        self.heard = report.updates


def test_answers(partition, executor, tensors):
    lockstep = Lockstep([run("asks_everything", T=1)], [partition], executor)
    lockstep.advance()
    live = lockstep.live[0]
    s = live.sampler
    assert s.updates.shape == (N, live.fed.d)
    np.testing.assert_array_equal(s.sums, s.updates[[4, 1]].sum(axis=1))
    np.testing.assert_allclose(s.losses, np.log(CLASSES), rtol=1e-6)  # at the zero model
    np.testing.assert_array_equal(s.heard, s.updates[[6, 2, 5]])  # asked and selected: trained once
    torch.testing.assert_close(live.models[0], torch.tensor(s.updates[[2, 5, 6]].mean(0)))
    assert s.after[0] < np.log(CLASSES)
    assert s.trial.shape == (2,)
    rows = partition.train[1]
    one_hot = torch.nn.functional.one_hot(tensors.y_train[rows], CLASSES).float()
    if len(rows) <= 16:  # the batch is all of client 1's data: its gradient at zero is known in closed form
        expected = (
            (torch.full_like(one_hot, 1 / CLASSES) - one_hot).T @ tensors.x_train[rows] / len(rows)
        ).flatten()
        torch.testing.assert_close(torch.tensor(s.gradients[0][: CLASSES * FEATURES]), expected)


def test_costs_are_counted(partition, executor):
    lockstep = Lockstep([run("asks_everything", T=1)], [partition], executor)
    lockstep.advance()
    row, d = lockstep.live[0].rows[1], lockstep.live[0].fed.d
    # down: the round's model once to each of N, then after aggregation the new one to 0, 3 and 1 and the trial to 2
    assert row["parameters_down"] == (N + 1 + 2 + 2) * d
    # up: N compressed updates of 2, 2 gradients, 3 selected updates, 2 trial updates
    assert row["parameters_up"] == 2 * N + (2 + 3 + 2) * d
    # scalars: N with the updates, then losses of 3, 1 and 2 clients
    assert row["scalars_up"] == N + 3 + 1 + 2
    # steps: N trainings of 5, 2 gradients, 2 trial trainings of 5
    assert row["client_steps"] == 5 * N + 2 + 5 * 2
    sizes = partition.sizes
    assert row["samples_evaluated"] == sizes[[5, 0, 2]].sum() + sizes[0] + sizes[[0, 7]].sum()


def test_samplers_do_not_see_batch_statistics_but_clients_send_them(partition, tensors):
    images = {
        f"x_{part}": getattr(tensors, f"y_{part}").float().view(-1, 1, 1, 1) for part in ("train", "test")
    }
    images = {
        name: x + torch.randn(1, 1, 16, 16, generator=torch.manual_seed(0)) for name, x in images.items()
    }
    executor = make_executor("hics_fmnist_cnn", dataclasses.replace(tensors, **images))
    trained, whole = executor.layout.n_trainable, executor.layout.d
    assert trained < whole
    lockstep = Lockstep([run("asks_everything", T=1, model="hics_fmnist_cnn")], [partition], executor)
    lockstep.advance()
    live, start = lockstep.live[0], executor.initial(stream(0, "init", 0))
    assert live.sampler.updates.shape == (N, trained)
    assert live.sampler.gradients.shape[1] == live.sampler.heard.shape[1] == trained
    assert not torch.equal(live.models[0, trained:], start[trained:]), "statistics are averaged like weights"
    assert live.rows[1]["parameters_up"] == 2 * N + (2 + 3 + 2) * whole


@pytest.mark.parametrize(("algorithm", "sent"), [("fedavg", N), ("scaffold", N + M), ("ifca", N + M)])
def test_a_client_that_was_asked_for_its_loss_still_needs_what_else_the_algorithm_sends(
    algorithm, sent, partition, executor
):
    """All clients are sent a model, and the chosen then a control variate or a second model."""
    options = {"models": 2} if algorithm == "ifca" else {}
    method = {"algorithm": algorithm, "algorithm_params": options, "params": {"d": None}}
    live = go([run("power_of_choice", T=1, method=method)], partition, executor)[0]
    assert live.rows[1]["parameters_down"] == sent * live.fed.d


def test_a_plain_round_costs_m_models_each_way(partition, executor):
    row, d = go([run(T=1)], partition, executor)[0].rows[1], CLASSES * (FEATURES + 1)
    assert (row["parameters_down"], row["parameters_up"]) == (M * d, M * d)
    row = go([run(T=1, method={"algorithm": "scaffold"})], partition, executor)[0].rows[1]
    assert (row["parameters_down"], row["parameters_up"]) == (2 * M * d, 2 * M * d)


@register("draws_one_twice")
@dataclass
class DrawsOneTwice(Sampler):
    draws = "repeated"

    def select(self, round):
        return Selection(np.array([4, 1, 4]))

    def observe(self, round, report):
        self.heard = report


def test_a_repeated_draw_trains_twice_independently(partition, executor):
    lockstep = Lockstep([run("draws_one_twice", T=1)], [partition], executor)
    lockstep.advance()
    heard = lockstep.live[0].sampler.heard
    assert Counter(heard.clients.tolist()) == {4: 2, 1: 1}
    assert not np.array_equal(heard.updates[0], heard.updates[2])
    np.testing.assert_allclose(
        lockstep.live[0].models[0].numpy(), heard.updates.mean(0), rtol=1e-5, atol=1e-7
    )
    assert lockstep.live[0].rows[1]["client_steps"] == 15


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (None, "must return a Selection"),
        (Selection(np.array([], dtype=int)), "clients of its Selection must not be empty"),
        (Selection(np.array([0, N])), f"there is no client {N}"),
        (Selection(np.array([-1, 2])), "there is no client -1"),
        (Selection(np.array([2, 2])), "chosen twice"),
        (Selection(np.array([0.5])), "whole numbers"),
        (Selection(np.array([1]), weights=np.array([np.nan])), "weights must be one finite number"),
        (Selection(np.array([1]), weights=np.array([1.0, 2.0])), "weights must be one finite number"),
    ],
)
def test_a_broken_sampler_is_named(selection, message, partition, executor):
    refused(lambda self, round: selection, f".*{message}", partition, executor)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("question", "message"),
    [
        (Losses(np.arange(N) > 5), "clients of its Losses must be a list of whole numbers"),
        (Losses([2.7]), "whole numbers"),
        (Losses([-1, 2]), f"must be 0 to {N - 1}; there is no client -1"),
        (Gradients([N]), f"there is no client {N}"),
        (Losses([]), "must not be empty"),
        (Updates([]), "must not be empty"),
        (TrialLosses([N], [0]), f"train of its TrialLosses must .* no client {N}"),
    ],
)
def test_a_broken_question_is_named(question, message, partition, executor):
    def select(self, round):
        yield question

    refused(select, f"the .*{message}", partition, executor)


def refused(select, message, partition, executor) -> None:
    """A sampler that selects like this is refused in the first round, with this message."""
    register("broken")(type("Broken", (Sampler,), {"select": select}))
    try:
        with pytest.raises(SamplerError, match=rf"broken \(seed 0\), round 1, select: {message}"):
            Lockstep([run("broken")], [partition], executor).advance()
    finally:
        del SAMPLERS["broken"]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("algorithm", "params", "message"),
    [
        ("ifca", {"model": 4}, "'ifca' has no parameter 'model'; did you mean models"),
        ("fedavg", {"models": 4}, "'fedavg' has no parameter 'models'; there are none"),
        ("ifca", {"models": "4"}, "models: Input should be a valid integer .given: '4'"),
        ("ifca", {"models": 0}, "models: .* greater than or equal to 1 .given: 0"),
        ("ifca", {"models": True}, "models: Input should be a valid integer .given: True"),
    ],
)
def test_wrong_parameters_of_an_algorithm_are_named(algorithm, params, message):
    method = {"algorithm": algorithm, "algorithm_params": params}
    with pytest.raises(ValueError, match=message):
        run(method=method)


@pytest.mark.bad_input
def test_ipw_needs_expected_draws(partition, executor):
    method = {"aggregation": "ipw", "params": {"d": None}}
    with pytest.raises(SamplerError, match=r"power_of_choice \(seed 0\), round 1, select: .* expected draws"):
        go([run("power_of_choice", method=method)], partition, executor)


@pytest.mark.bad_input
def test_what_goes_wrong_in_setup_is_named_and_keeps_its_cause(partition, executor):
    with pytest.raises(SamplerError, match=r"power_of_choice \(seed 0\), setup: .*d = 1 must") as raised:
        Lockstep([run("power_of_choice", method={"params": {"d": 1}})], [partition], executor)
    assert raised.value.__cause__.__traceback__ is not None


def test_a_diverging_run_stops_and_says_so_and_stops_nothing_else(partition, executor):
    @register("wild")
    @dataclass
    class Wild(Sampler):
        def select(self, round):
            return Selection(np.arange(M), weights=np.full(M, 1e39))  # beyond float32

    fine, wild = run(T=3), run("wild", T=3)
    lives = go([fine, wild], partition, executor)
    assert [row["diverged"] for row in lives[1].rows] == [False, True]
    assert not any(row["diverged"] for row in lives[0].rows)
    same(lives[0], go([fine], partition, executor)[0])
    del SAMPLERS["wild"]


class Masked(torch.nn.Module):
    """A linear model that adds an attention-like mask of 0 and -inf, a buffer, before a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(64, 10)
        self.register_buffer("mask", torch.tensor([0.0] * 10 + [-torch.inf] * 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = torch.nn.functional.pad(self.out(x.flatten(1)), (0, 2))
        return torch.log_softmax(scores + self.mask, 1)[:, :10]


def test_a_buffer_with_infinities_is_no_divergence():
    """An attention mask holds -inf; it stays as it is, and the run learns."""
    data = datasets.load("digits")
    run = params.build(
        {
            "dataset": "digits",
            "partition": {"scheme": "iid"},
            "model": "own:masked",
            "N": 10,
            "m": 3,
            "T": 5,
            "local": {"lr": 0.1, "batch": 10, "epochs": 1},
            "method": {"sampler": "uniform"},
        },
        0,
        "test",
    )
    executor = make_executor(ProgramModel(Masked), datasets.tensors(data), threads=1)
    lockstep = Lockstep([run], [partitions.make(run.partition, data, 10, 0)], executor)
    (live,) = finish(lockstep)
    assert not live.diverged
    assert live.t == 5
    assert torch.isneginf(live.models).sum() == 2
    assert live.rows[-1]["test_accuracy"] > live.rows[0]["test_accuracy"] + 0.3


def test_the_servers_work_uses_one_torch_thread(partition, executor):
    """A team of threads would wait actively beside the workers: W2's rounds then took twice the processor time."""
    seen = []

    class Looks(Sampler):
        def select(self, round):
            seen.append(torch.get_num_threads())
            return Selection(np.arange(M))

    usual = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        lockstep = Lockstep([run(T=2)], [partition], executor)
        lockstep.live[0].sampler = Looks()
        lockstep.advance()
        assert seen == [1]
        assert torch.get_num_threads() == 3  # the caller's own number stays
    finally:
        torch.set_num_threads(usual)
