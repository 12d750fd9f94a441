"""A local objective of one's own: what it says is minimised, from a program and from settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

import fedlib
from fedlib.data.datasets import Tensors
from fedlib.objectives import Step
from fedlib.objectives.distillation import Distillation
from fedlib.settings.schema import Local
from fedlib.training.contract import Job
from fedlib.training.executors import make_executor

RNG = np.random.default_rng(0)
Y = RNG.integers(4, size=160)
X = (RNG.normal(size=(4, 6))[Y] + RNG.normal(size=(160, 6))).astype(np.float32)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def simulate(**options: Any) -> fedlib.Result:
    given = {"x": X, "y": Y, "clients": np.arange(160) // 20, "test": (X, Y), "model": net, "m": 3, "T": 4}
    given |= {"methods": {"Random": "uniform"}, "threads": 1, "tell": lambda text: None}
    local = {"lr": 0.2, "batch": 8, "epochs": 2} | options.pop("local", {})
    return fedlib.simulate(**given | {"local": fedlib.Local(**local)} | options)


def numbers(result: fedlib.Result) -> np.ndarray:
    return result.table[["test_loss", "local_loss"]].to_numpy()


def proximal(step: Step) -> Tensor:
    moved = [((w - step.start[name]) ** 2).sum() for name, w in step.net.named_parameters()]
    return step.loss + 0.3 / 2 * torch.stack(moved).sum()


def test_a_proximal_term_of_ones_own_is_fedprox() -> None:
    own, shipped = simulate(local={"objective": proximal}), simulate(local={"mu": 0.3})
    np.testing.assert_allclose(numbers(own), numbers(shipped), rtol=1e-5)
    assert not np.allclose(numbers(own)[1:], numbers(simulate())[1:], rtol=1e-3), "or it would say nothing"


def test_the_loss_alone_changes_nothing() -> None:
    np.testing.assert_allclose(
        numbers(simulate(local={"objective": lambda step: step.loss})), numbers(simulate()), rtol=1e-5
    )


@pytest.mark.parametrize("named", [False, True])
def test_distillation_is_a_plain_loop(named: bool) -> None:
    data = Tensors(torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(X), torch.from_numpy(Y))
    by_name = {"objective": "distillation", "objective_params": {"gamma": 2.0, "tau": 3.0}}
    options = by_name if named else {"objective": Distillation(gamma=2.0, tau=3.0)}
    local = Local(lr=0.5, batch=160, steps=3, **options)
    executor = make_executor("mlp", data, threads=1, by_torch=local.by_torch)
    start = executor.initial(np.random.default_rng(1))
    job = Job(0, np.arange(160), np.random.default_rng(2))
    update = executor.train([job], start[None], local, local.lr).updates[0]

    teacher, student = executor._new_module(0), executor._new_module(0)
    for module in (teacher, student):
        nn.utils.vector_to_parameters(start.clone(), module.parameters())
    with torch.no_grad():
        taught = log_softmax(teacher(data.x_train) / 3.0, 1)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.5)
    for _ in range(3):
        out = student(data.x_train)
        apart = kl_div(log_softmax(out / 3.0, 1), taught, reduction="batchmean", log_target=True)
        optimizer.zero_grad()
        (cross_entropy(out, data.y_train) + 2.0 * 9.0 * apart).backward()
        optimizer.step()
    wanted = nn.utils.parameters_to_vector(student.parameters()).detach() - start
    torch.testing.assert_close(update, wanted, rtol=1e-4, atol=1e-6)


def test_each_objective_has_its_own_address(tmp_path: Path) -> None:
    def scaled(by: float) -> Any:
        return lambda step: by * step.loss

    for objective in (scaled(1.0), scaled(0.5), Distillation(), Distillation(gamma=0.5), "distillation"):
        for store in (tmp_path, None):
            result = simulate(local={"objective": objective}, store=store, T=2)
        kept = simulate(local={"objective": objective}, store=tmp_path, T=2)
        np.testing.assert_array_equal(numbers(kept), numbers(result))
    assert len(list(tmp_path.glob("*/*/run.json"))) == 5


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("local", "message"),
    [
        ({"objective": "destillation"}, "destillation.*did you mean distillation"),
        (
            {"objective": "distillation", "objective_params": {"gama": 1}},
            "no parameter 'gama'; did you mean gamma",
        ),
        ({"objective": proximal, "objective_params": {"mu": 1}}, "given by its name"),
        ({"objective": lambda step: step.loss.detach()}, "must return one number that depends on the model"),
        ({"objective": lambda step: step.output}, "must return one number that depends on the model"),
        ({"objective": lambda step: step.los}, "local.objective fails: AttributeError"),
        ({"objective": 3}, "objective"),
    ],
)
def test_what_cannot_be_minimised_is_one_sentence(local: dict, message: str) -> None:
    with pytest.raises((fedlib.ConfigError, fedlib.SamplerError), match=message) as raised:
        simulate(local=local)
    assert "\n" not in str(raised.value)
