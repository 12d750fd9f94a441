"""What would depend on more than a run's seed is refused before anything is trained; so is what would fail later."""

from __future__ import annotations

import random
import tempfile
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

import fedlib
from fedlib.data.schemes import Scheme, Split
from fedlib.samplers import Round, Sampler, Selection
from tests.library.test_cases import OWNER, X, Y, simulate

FIXED = np.random.default_rng(0)
KEEP = 1.0
EVERY = 1


def losses(result: fedlib.Result) -> dict[str, float]:
    return result.table.groupby("method")["test_loss"].last().to_dict()


# -- samplers --------------------------------------------------------------------------------------------------


class FromAGlobal(Sampler):
    def select(self, round: Round) -> Selection:
        return Selection(FIXED.choice(self.fed.N, self.fed.m, replace=False))


class Shared(Sampler):
    seen = []  # shared by all runs: that is the mistake

    def select(self, round: Round) -> Selection:
        self.seen.append(round.t)
        return Selection(np.arange(self.fed.m) + len(self.seen) % 2)


def drawn(n: int, m: int) -> np.ndarray:
    return np.random.default_rng(0).choice(n, m, replace=False)


class ByAHelper(Sampler):
    def select(self, round: Round) -> Selection:
        return Selection(drawn(self.fed.N, self.fed.m))


class ByPython(Sampler):
    def select(self, round: Round) -> Selection:
        return Selection(np.array(random.Random(0).sample(range(self.fed.N), self.fed.m)))


@pytest.mark.outside("draws that are not the run's")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (FromAGlobal, "something else when round 1 is repeated"),
        (Shared, "something else when round 1 is repeated"),
        (ByAHelper, "uses numpy.random.default_rng, so that its draws would be the same for all seeds"),
        (ByPython, "makes a generator with random.Random"),
    ],
)
def test_a_sampler_draws_from_the_round_alone(sampler: type[Sampler], message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message):
        simulate(methods={"mine": sampler})


@dataclass
class Ranked(Sampler):
    """Chooses by an array, a function or a list."""

    score: np.ndarray | None = None
    of: Any = None
    seen: list[int] = field(default_factory=list)

    def select(self, round: Round) -> Selection:
        self.seen.append(round.t)
        assert len(self.seen) == round.t
        score = self.of(self.fed.N) if self.of else self.score
        return Selection(np.argsort(-score)[: self.fed.m])


@pytest.mark.outside("parameters of samplers")
def test_arrays_and_functions_are_parameters(tmp_path: Any) -> None:
    """They tell runs apart in a store, and no run sees what another did to them."""
    methods = {
        "last": Ranked(np.arange(8.0)),
        "first": Ranked(-np.arange(8.0)),
        "first again": Ranked(of=lambda n: -np.arange(n)),
    }
    result = simulate(methods=methods, seeds=2, store=tmp_path)
    chosen = {method: list(rows["clients"].iloc[-1]) for method, rows in result.table.groupby("method")}
    assert chosen == {"last": [7, 6, 5], "first": [0, 1, 2], "first again": [0, 1, 2]}
    assert len(list(tmp_path.glob("*/*/run.json"))) == 6
    again = simulate(methods=methods, seeds=2, store=tmp_path)
    assert losses(again) == losses(result)
    assert len(list(tmp_path.glob("*/*/run.json"))) == 6


@pytest.mark.outside("parameters of samplers")
@pytest.mark.bad_input
def test_a_generator_is_no_parameter() -> None:
    with pytest.raises(fedlib.SamplerError, match=r"keeps a generator of its own, self\.of"):
        simulate(methods={"mine": Ranked(of=np.random.default_rng(0))})


# -- models and losses -----------------------------------------------------------------------------------------


class Projected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 4)
        self.register_buffer(
            "scale", torch.tensor(np.random.default_rng().normal(size=6), dtype=torch.float32)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x * self.scale)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x) * (random.random() if self.training else 1)


def by_numpy(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    each = nn.functional.cross_entropy(out, y, reduction="none")
    return each * (1 + 1e-3 * np.random.default_rng().random())


@pytest.mark.outside("draws that are not the run's")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": Projected}, "two calls make different modules"),
        ({"model": Noisy}, "model: it gives something else each time"),
        ({"loss": by_numpy}, "loss: it gives something else each time"),
        ({"loss": lambda out, y: nn.functional.cross_entropy(out.detach(), y)}, "nothing would be learned"),
    ],
)
def test_a_model_and_a_loss_draw_from_torch_alone(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message):
        simulate(**options)


# -- servers and schemes ---------------------------------------------------------------------------------------


@dataclass
class Part(fedlib.Server):
    """A share of the mean update."""

    share: float = 0.5

    def step(self, delta: torch.Tensor) -> torch.Tensor:
        return self.share * KEEP * delta


@dataclass
class Momentum(fedlib.Server):
    beta: float = 0.9

    def step(self, delta: torch.Tensor) -> torch.Tensor:
        self.m = self.beta * self.m + delta
        return self.m


@pytest.mark.outside("servers and their parameters")
def test_a_server_is_a_name_a_class_or_an_instance() -> None:
    servers = {"mean": "mean", "whole": Part(1.0), "half": Part, "written": "fedavgm", "mine": Momentum()}
    servers |= {"slow": fedlib.algorithms.FedAvgM(lr=0.5, momentum=0.0)}
    loss = losses(
        simulate(methods={name: fedlib.Method("uniform", server) for name, server in servers.items()})
    )
    assert loss["mean"] == loss["whole"] != loss["half"]
    assert loss["written"] == loss["mine"] != loss["mean"]
    assert loss["slow"] == pytest.approx(loss["half"])
    assert fedlib.Method(fedlib.samplers.PowerOfChoice(d=6), "fedadam").params == {"d": 6}


@dataclass
class Slower(fedlib.Server):
    """Takes smaller and smaller steps, and keeps all that it was given."""

    def setup(self, *more: Any) -> None:
        super().setup(*more)
        self.t, self.deltas = 0, []

    def step(self, delta: torch.Tensor) -> torch.Tensor:
        self.t += 1
        self.deltas.append(delta)
        return sum(self.deltas) / self.t**2


@pytest.mark.outside("servers and their parameters")
def test_whatever_a_server_keeps_is_there_after_a_stop(tmp_path: Any) -> None:
    methods = {"mine": fedlib.Method("uniform", Slower)}
    simulate(methods=methods, store=tmp_path, T=2)
    longer = simulate(methods=methods, store=tmp_path, T=4)
    assert losses(longer) == losses(simulate(methods=methods, T=4))


def from_client(first: int) -> type[Sampler]:
    class Next(Sampler):
        def select(self, round: Round) -> Selection:
            return Selection(np.arange(first, first + self.fed.m))

    return Next


@pytest.mark.outside("parameters of samplers")
@pytest.mark.bad_input
@pytest.mark.parametrize("whole", [False, True])
def test_two_classes_of_one_name_are_told_apart(whole: bool) -> None:
    make = fedlib.Method if whole else lambda cls: cls
    with pytest.raises(fedlib.ConfigError, match="'a' uses a class Next, but another class of that name"):
        simulate(methods={"a": make(from_client(0)), "b": make(from_client(4))})
    assert list(simulate(methods={"a": make(from_client(1))}).table["clients"].iloc[-1]) == [1, 2, 3]


@pytest.mark.outside("servers and their parameters")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"server": "fedadm"}, "unknown algorithm 'fedadm'; did you mean fedadam"),
        ({"server": 3}, "Method.algorithm: .*valid string"),
        ({"server": "fedadam", "algorithm": "scaffold"}, "server and algorithm say the same thing"),
        ({"server": fedlib.algorithms.FedAdam(lr=-1.0)}, "lr: Input should be greater than 0"),
        ({"sampler": fedlib.samplers.PowerOfChoice(d=6), "params": {"d": 3}}, "has its own; leave it out"),
    ],
)
def test_methods_that_mean_nothing(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message):
        fedlib.Method(**{"sampler": "uniform"} | options)


class EveryNth(Scheme):
    scheme: Literal["every_nth_sample"] = "every_nth_sample"

    def split(self, data: Any, N: int, rng: np.random.Generator) -> Split:
        return Split([np.arange(k, len(data.y_train) // EVERY, N) for k in range(N)])


@pytest.mark.outside("stores and other programs")
@pytest.mark.parametrize(
    ("name", "values", "options"),
    [
        ("KEEP", (1.0, 0.1), {"methods": {"mine": fedlib.Method("uniform", Part)}}),
        ("EVERY", (1, 2), {"clients": EveryNth(), "N": 8}),
    ],
)
def test_what_a_server_or_scheme_reads_is_another_program(
    name: str, values: tuple, options: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as store:
        for value in values:
            monkeypatch.setitem(globals(), name, value)
            assert losses(simulate(**options, store=store)) == losses(simulate(**options))


class Fewer(Scheme):
    scheme: Literal["fewer"] = "fewer"

    def split(self, data: Any, N: int, rng: np.random.Generator) -> Split:
        return Split([np.arange(3)] * (N - 1))


class NoSplit(Scheme):
    scheme: Literal["no_split"] = "no_split"

    def split(self, data: Any, N: int, rng: np.random.Generator) -> Any:
        return [np.arange(3)] * N


class Unsteady(Scheme):
    scheme: Literal["unsteady"] = "unsteady"

    def split(self, data: Any, N: int, rng: np.random.Generator) -> Split:
        return Split(np.array_split(np.random.default_rng().permutation(160), N))


# -- what is refused -------------------------------------------------------------------------------------------


class Says(fedlib.Callback):
    def on_round(self, run: Any, row: Any, model: Any) -> Any:
        return 1


def local(**options: Any) -> dict[str, fedlib.Local]:
    return {
        "local": fedlib.Local(
            **{"lr": 0.1, "batch": 8} | ({} if "steps" in options else {"epochs": 1}) | options
        )
    }


@pytest.mark.outside("arguments that mean nothing")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": Fewer(), "N": 8}, r"Fewer.split gives 7 clients; return a Split of N = 8"),
        ({"clients": NoSplit(), "N": 8}, r"NoSplit.split gives a list"),
        ({"clients": Unsteady(), "N": 8}, "splits the data in another way each time"),
        ({"x": X[:0], "y": Y[:0], "clients": OWNER[:0]}, "x has no samples"),
        ({"test": (X[:0], Y[:0])}, "test has no samples"),
        ({"x": X.astype(float) * 1e300}, "not finite in single precision"),
        ({"callbacks": [print]}, "classes that inherit from fedlib.Callback"),
        ({"callbacks": fedlib.EarlyStop(patience=1)}, "callbacks: it must be a list"),
        ({"callbacks": [Says()]}, r"Says.on_round returned 1; return True to end the run"),
        (
            {"callbacks": [fedlib.EarlyStop(patience=1, column="tst_loss")]},
            "'tst_loss', which is not measured",
        ),
        ({"methods": {"_mine": "uniform"}}, "the label '_mine' begins with _, which figures leave out"),
        ({"methods": {1: "uniform", "1": "md"}}, "or names two methods"),
        ({"keep": "lst"}, "keep: Input should be 'last' or 'best'"),
        (local(lr=lambda t: -0.1), "local.lr returns -0.1 in round 1"),
        (local(lr=lambda t: [0.1][t - 1]), "local.lr fails in round 2: IndexError"),
        (local(steps=lambda n: 1 / 0), "local.steps fails for 20 samples: ZeroDivisionError"),
        (local(optimizer=lambda parameters, lr: 1 / 0), "local.optimizer fails for the model's parameters"),
        (local(optimizer=lambda parameters, lr: torch.optim.LBFGS(parameters)), "fails in a step of LBFGS"),
    ],
)
def test_it_is_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message) as raised:
        simulate(**options)
    assert "\n" not in str(raised.value)


class Zero(fedlib.Callback):
    """Spoils what it is given, and ends every run with a flag of numpy."""

    def on_round(self, run: Any, row: Any, model: Any) -> Any:
        with torch.no_grad():
            for parameter in model().parameters():
                parameter.zero_()
        row["test_loss"] = -1.0
        return np.bool_(row["round"] == 1)


@pytest.mark.outside("callbacks and kept models")
def test_a_callback_sees_every_round_and_changes_nothing() -> None:
    whole, ended = simulate().table, simulate(callbacks=[Zero()], keep="best").table
    assert ended["test_loss"].tolist() == whole["test_loss"][:2].tolist()


@pytest.mark.outside("callbacks and kept models")
def test_the_best_model_may_be_the_first() -> None:
    """The test labels are what the initial model says, so that training only does harm."""
    first = nn.Linear(6, 4)

    def make() -> nn.Module:
        net = nn.Linear(6, 4)
        net.load_state_dict(first.state_dict())
        return net

    said = first(torch.from_numpy(X)).argmax(1).numpy()
    result = simulate(model=make, test=(X, said), keep="best", T=4)
    assert result.table["test_accuracy"].tolist()[0] == 1.0 > result.table["test_accuracy"].tolist()[-1]
    assert torch.equal(result.model("Random").weight, first.weight)
