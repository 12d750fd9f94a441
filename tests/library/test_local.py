"""Local work and servers beyond the settings: functions in place of numbers, clipped gradients, server optimisers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedlib

N, n = 6, 21
RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=N * n)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(N * n, 6))).astype(np.float32)
OWNER = np.arange(N * n) // n


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def simulate(local: dict[str, Any] | None = None, **options: Any) -> fedlib.Result:
    work = {"lr": 0.1, "batch": 8} | ({"epochs": 1} if "steps" not in (local or {}) else {}) | (local or {})
    given = {"x": X, "y": Y, "clients": OWNER, "test": (X, Y), "model": net, "methods": {"Random": "uniform"}}
    given |= {"m": 3, "T": 4, "threads": 1, "tell": lambda text: None, "keep": "last"}
    return fedlib.simulate(**given | {"local": fedlib.Local(**work)} | options)


def losses(result: fedlib.Result) -> list[float]:
    return result.table["test_loss"].tolist()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


SAME = {  # two ways to say the same
    "sgd": ({}, {"optimizer": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr)}),
    "momentum": ({"momentum": 0.5}, {"optimizer": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.5)}),
    "adam": ({"optimizer": "adam", "lr": 0.01}, {"optimizer": lambda p, _: torch.optim.Adam(p, lr=0.01)}),
    "proximal": ({"mu": 0.5}, {"mu": 0.5, "optimizer": lambda p, lr: torch.optim.SGD(p, lr=lr)}),
    "rate": ({"lr_decay": {3: 0.5}}, {"lr": lambda t: 0.1 if t < 3 else 0.05}),
    "no clip": ({}, {"clip": 1e6}),
    "steps": ({"steps": 3}, {"steps": lambda samples: samples // 7}),
}


@pytest.mark.parametrize("name", SAME)
def test_a_function_says_the_same(name: str) -> None:
    one, other = SAME[name]
    assert losses(simulate(other)) == pytest.approx(losses(simulate(one)), rel=1e-5)


def test_steps_are_those_of_each_client() -> None:
    owner = np.repeat([0, 1, 2], [10, 40, 76])
    result = simulate({"steps": lambda samples: samples // 10}, clients=owner)
    assert result.table["client_steps"].tolist() == [0] + [1 + 4 + 7] * 4


def test_a_clipped_step_has_the_norm() -> None:
    """One step of plain SGD with rate 0.1 moves a client's model by at most 0.1 times the norm."""
    one = simulate({"steps": 1, "clip": 0.01}, m=1, T=1)
    before = simulate({"steps": 1, "lr": 1e-12}, m=1, T=1)
    step = flat(one.model("Random")) - flat(before.model("Random"))
    assert float(step.norm()) == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_the_last_batch_is_dropped() -> None:
    whole, dropped = simulate(), simulate({"drop_last": True})
    assert whole.table["client_steps"].iloc[1] == 3 * 3
    assert dropped.table["client_steps"].iloc[1] == 3 * 2
    assert simulate({"drop_last": True, "batch": 30}).table["client_steps"].iloc[1] == 3


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.outside("batches of one sample")
@pytest.mark.bad_input
@pytest.mark.parametrize("local", [{"batch": 10}, {"batch": 1}, {"batch": 20}, {"steps": 2, "batch": 1}])
def test_a_batch_of_one_is_found_before_training(local: dict) -> None:
    with pytest.raises(
        fedlib.ConfigError, match="a batch of one sample, which client 0 would have .21 samples"
    ) as raised:
        simulate(local, model=normed)
    assert "\n" not in str(raised.value)
    simulate(local, T=1)
    if local == {"batch": 10}:
        simulate({**local, "drop_last": True}, model=normed)


# -- servers ---------------------------------------------------------------------------------------------------

SERVERS = {
    "fedavgm": (
        {"lr": 0.8, "momentum": 0.5},
        lambda m, v, d: (0.5 * m + d, v, lambda m, v: 0.8 * m),
    ),
    "fedadam": (
        {"lr": 0.1, "beta_1": 0.8, "beta_2": 0.9, "tau": 0.01},
        lambda m, v, d: (0.8 * m + 0.2 * d, 0.9 * v + 0.1 * d**2, lambda m, v: 0.1 * m / (v.sqrt() + 0.01)),
    ),
    "fedyogi": (
        {"lr": 0.1, "beta_1": 0.8, "beta_2": 0.9, "tau": 0.01},
        lambda m, v, d: (
            0.8 * m + 0.2 * d,
            v - 0.1 * d**2 * torch.sign(v - d**2),
            lambda m, v: 0.1 * m / (v.sqrt() + 0.01),
        ),
    ),
    "fedadagrad": (
        {"lr": 0.1, "beta_1": 0.8, "tau": 0.01},
        lambda m, v, d: (0.8 * m + 0.2 * d, v + d**2, lambda m, v: 0.1 * m / (v.sqrt() + 0.01)),
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_servers_follow_their_papers(name: str) -> None:
    """Against the formulas, from the models after every round; full participation, so that nobody draws."""
    params, step = SERVERS[name]
    method = {"a": fedlib.Method(sampler="full", algorithm=name, algorithm_params=params)}
    models = [flat(simulate(T=T, methods=method, m=N).model("a")) for T in range(1, 4)]
    start = flat(simulate({"lr": 1e-12}, T=1, methods={"a": "full"}, m=N).model("a"))
    m = torch.zeros_like(start)
    v = m + params.get("tau", 0.0) ** 2  # Reddi et al., Algorithm 2: v_-1 >= tau^2
    for T, model in enumerate(models, 1):
        mean = Mean(start, T)
        delta = mean.update
        m, v, move = step(m, v, delta)
        start = start + move(m, v)
        assert torch.allclose(model, start, atol=2e-5)


class Mean:
    """The mean update of all clients in round T, from a model."""

    def __init__(self, start: torch.Tensor, T: int) -> None:
        from fedlib.data.datasets import Tensors
        from fedlib.streams import stream
        from fedlib.training.contract import Job
        from fedlib.training.executors import ProgramModel, make_executor

        data = Tensors(torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(X), torch.from_numpy(Y))
        executor = make_executor(ProgramModel(net), data, threads=1)
        jobs = [Job(0, np.flatnonzero(k == OWNER), stream(0, "local", T, k, 0)) for k in range(N)]
        local = fedlib.Local(lr=0.1, batch=8, epochs=1)
        self.update = executor.train(jobs, start[None], local, 0.1).updates.mean(0)


def test_frozen_parameters_are_not_charged() -> None:
    def frozen() -> nn.Module:
        made = nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Linear(100, 4))
        made[0].requires_grad_(False)
        return made

    row = simulate(model=frozen).table.iloc[1]
    assert row["parameters_up"] == row["parameters_down"] == 3 * (100 * 4 + 4)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("local", "options", "message"),
    [
        (
            {"optimizer": lambda p, lr: 3},
            {},
            "must make a torch optimiser of .parameters, rate., but makes a int",
        ),
        ({"steps": lambda samples: 0.5}, {}, "local.steps returns 0.5 for 21 samples"),
        ({}, {"model": lambda: net().requires_grad_(False)}, "no parameter requires a gradient"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(local: dict, options: dict, message: str) -> None:
    with pytest.raises((fedlib.ConfigError, fedlib.SamplerError), match=message):
        simulate(local, **options)
