"""FedVARP, MIFA and FedAWE against a plain loop over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_pins import SETTING

from fedlib import algorithms
from fedlib.data import datasets, partition
from fedlib.settings.params import build, merge, split_method
from fedlib.simulation.engine import Lockstep
from fedlib.training.executors import make_executor
from tests.simulation.lockstep import finish

N, D = 5, 4


def rounds(n: int = 12) -> list[tuple[np.ndarray, torch.Tensor]]:
    rng = np.random.default_rng(0)
    drawn = [np.sort(rng.choice(N, rng.integers(1, 4), replace=False)) for _ in range(n)]
    return [(clients, torch.from_numpy(rng.normal(size=(len(clients), D)))) for clients in drawn]


def after(algorithm: algorithms.FedAvg, lr: float = 0.5) -> np.ndarray:
    algorithm.setup(N, D, D, torch.device("cpu"))
    for name, value in algorithm.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            algorithm.load_state_dict({name: value.double()})
    models = torch.zeros(1, D, dtype=torch.float64)
    for t, (clients, updates) in enumerate(rounds(), 1):
        n = len(clients)
        models = algorithm.aggregate(
            models, clients, np.zeros(n, int), np.full(n, 1 / n), updates, np.ones(n, int), lr / t
        )
    return models[0].numpy()


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_fedvarp(beta: float) -> None:
    w, y = np.zeros(D), np.zeros((N, D))
    for clients, updates in rounds():
        mean = y.mean(axis=0)
        step = sum(u - beta * y[k] for k, u in zip(clients, updates.numpy(), strict=True)) / len(clients)
        w = w + step + beta * mean
        for k, u in zip(clients, updates.numpy(), strict=True):
            y[k] = u
    assert after(algorithms.find("fedvarp")(beta=beta)) == pytest.approx(w)


def test_mifa() -> None:
    w, G = np.zeros(D), {}
    for t, (clients, updates) in enumerate(rounds(), 1):
        for k, u in zip(clients, updates.numpy(), strict=True):
            G[k] = u / (0.5 / t)
        w = w + 0.5 / t * sum(G.values()) / len(G)
    assert after(algorithms.find("mifa")()) == pytest.approx(w)


def test_fedvarp_is_unbiased_for_clients_drawn_by_size() -> None:
    """Sizes 1 and 9, updates 1 and -1, both remembered: over all draws of one client, the mean step is -0.8."""
    p, steps = np.array([0.1, 0.9]), []
    for k in (0, 1):
        varp = algorithms.find("fedvarp")()
        varp.setup(2, 1, 1, torch.device("cpu"))
        varp.shares, varp.y = p, torch.tensor([[0.5], [-2.0]])
        update = torch.tensor([[1.0], [-1.0]])[[k]]
        new = varp.aggregate(
            torch.zeros(1, 1), np.array([k]), np.zeros(1, int), np.ones(1), update, np.ones(1), 1
        )
        steps.append(float(new))
    assert p @ steps == pytest.approx(-0.8)


@pytest.mark.parametrize(
    ("method", "by_size"),
    [
        ({"sampler": "md"}, True),
        ({"sampler": "clustered_size"}, True),
        ({"sampler": "uniform"}, False),
        ({"sampler": "uniform", "aggregation": "ipw"}, True),
        ({"sampler": "uniform", "aggregation": "data_size"}, True),
        ({"sampler": "fedau"}, False),
        ({"sampler": "f3ast"}, True),
        ({"sampler": "delta"}, True),
    ],
)
def test_an_algorithm_is_told_which_mean_the_weights_estimate(method: dict, by_size: bool) -> None:
    (live,) = engine(method | {"algorithm": "fedvarp"}).live
    assert (live.algorithm.shares is not None) == by_size
    if by_size:
        assert live.algorithm.shares == pytest.approx(live.fed.p)
    assert "shares" not in live.algorithm.state_dict()


def test_mifa_moves_by_its_memory_where_nothing_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there in the second round."""
    lockstep = engine({"sampler": "uniform", "algorithm": "mifa"}, world={"mean": 0.5})
    (live,) = lockstep.live
    lockstep.advance()
    before, G = live.models.clone(), live.algorithm.G[live.algorithm.known_clients].mean(0)
    monkeypatch.setattr(live.presence.world, "present", lambda t: np.zeros(0, dtype=int))
    lockstep.advance()
    assert live.rows[-1]["arrived"] == 0
    torch.testing.assert_close(live.models - before, live.run.local.lr_at(2) * G[None])


@pytest.mark.parametrize("clip", [None, 0.3])
def test_fedawe(clip: float | None) -> None:
    x, last = np.zeros((N, D)), np.zeros(N)
    for t, (clients, updates) in enumerate(rounds(), 1):
        echo = sum((t - last[k]) * u for k, u in zip(clients, updates.numpy(), strict=True)) / len(clients)
        if clip and (norm := np.sqrt((echo**2).sum())) > clip:
            echo = echo * clip / norm
        new = sum(x[k] for k in clients) / len(clients) + 0.7 * echo
        for k in clients:
            x[k], last[k] = new, t
    assert after(algorithms.find("fedawe")(eta_g=0.7, clip=clip)) == pytest.approx(x.mean(axis=0))


@given(st.lists(st.sets(st.integers(0, N - 1)), max_size=20), st.integers(0, 100))
def test_fedawes_gossip_keeps_the_mean_of_all_models(came: list[set[int]], seed: int) -> None:
    """Without updates, clients that come only exchange models; rounds in which nobody comes lengthen absences."""
    algorithm = algorithms.find("fedawe")()
    algorithm.setup(N, D, D, torch.device("cpu"))
    models = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, D)))
    algorithm.starts([0], models)
    algorithm.load_state_dict({"x": torch.from_numpy(np.random.default_rng(seed).normal(size=(N, D)))})
    mean, last = algorithm.x.mean(0), np.zeros(N, dtype=int)
    for t, clients in enumerate(map(sorted, came), 1):
        if clients:
            n = len(clients)
            updates = torch.zeros(n, D, dtype=torch.float64)
            models = algorithm.aggregate(
                models, np.array(clients), np.zeros(n, int), np.full(n, 1 / n), updates, np.ones(n, int), 0.1
            )
            last[clients] = t
            assert models[0].numpy() == pytest.approx(mean.numpy())
        else:
            models = algorithm.skip(models, 0.1)
    assert algorithm.tau.tolist() == last.tolist()
    assert int(algorithm.t) == len(came)


def engine(*methods: dict, world: dict | None = None, **changes) -> Lockstep:
    """Runs of the pins' setting, one per method."""
    setting = merge(SETTING | changes, {"world": world} if world else {})
    runs = [build(merge(setting, split_method(method)), 0, method["sampler"]) for method in methods]
    parts = [partition.make(run.partition, datasets.load("digits"), run.N, run.seed) for run in runs]
    data = datasets.tensors(datasets.load("digits"))
    return Lockstep(runs, parts, make_executor(runs[0].model, data, "cpu"))


def test_fedawe_is_fedavg_where_all_clients_train_in_every_round() -> None:
    method = {"sampler": "uniform", "algorithm": "fedawe", "algorithm_params": {"clip": None}}
    (awe,) = finish(engine(method, m=25))
    (avg,) = finish(engine({"sampler": "uniform"}, m=25))
    torch.testing.assert_close(awe.models, avg.models)


def test_fedawes_clients_train_from_their_own_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the executor is given as start, against the models that the last rounds of the clients ended with."""
    lockstep = engine({"sampler": "uniform", "algorithm": "fedawe"}, world={"mean": 0.5})
    (live,) = lockstep.live
    executor, begun = lockstep.executor, {}
    train = executor.train

    def watched(jobs, start, *others, **more):
        begun.update({job.draws[3]: start[job.run].clone() for job in jobs})
        return train(jobs, start, *others, **more)

    monkeypatch.setattr(executor, "train", watched)
    models = {k: live.models[0].clone() for k in range(25)}
    while lockstep.active:
        begun.clear()
        lockstep.advance()
        clients = live.rows[-1]["clients"]
        assert sorted(begun) == sorted(clients)
        assert all(torch.equal(begun[k], models[k]) for k in clients)
        models |= {k: live.algorithm.x[k].clone() for k in clients}
        torch.testing.assert_close(live.models[0], torch.stack([models[k] for k in range(25)]).mean(0))
    assert len({tuple(model.tolist()) for model in models.values()}) > 2


def test_a_stopped_run_of_fedawe_goes_on_as_if_it_had_not_been_stopped() -> None:
    settings = {"world": {"mean": 0.1, "process": {"kind": "markov"}}}
    method = {"sampler": "uniform", "algorithm": "fedawe"}
    (straight,) = finish(engine(method, **settings))
    first, second = engine(method, **settings), engine(method, **settings)
    for _ in range(4):
        first.advance()
    second.live[0].load_state_dict(first.live[0].state_dict())
    assert torch.equal(finish(second)[0].models, straight.models)


def test_refl_is_told_how_late_updates_are() -> None:
    """Ages are the rounds since the late updates that the report names were trained, and 0 for the others."""
    world = {"speeds": {"seconds": 0.1}, "ends": {"kind": "deadline", "seconds": 4.0}, "late": "keep"}
    lockstep = engine({"sampler": "uniform", "algorithm": "refl"}, world=world, T=12)
    (live,) = lockstep.live
    ages = []
    while lockstep.active:
        trained = {late.client: late.answer.t for late in live.presence.flying}
        lockstep.advance()
        late = live.presence.additions["late"]
        if live.presence.arrived:
            assert sorted(live.algorithm.ages[live.algorithm.ages > 0]) == sorted(
                live.t - trained[k] for k in late
            )
            ages += live.algorithm.ages.tolist()
    assert max(ages) > 0
    assert min(ages) == 0
