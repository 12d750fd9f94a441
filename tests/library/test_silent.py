"""What once gave a wrong number without a word: now the right one, or one sentence."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections import OrderedDict, namedtuple
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import blobs
import numpy as np
import pytest
import torch
from blobs import OWNER, X, Y, losses
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fedlib
from fedlib.library import recheck
from fedlib.library.callbacks import Running
from fedlib.runs.store import Store
from fedlib.samplers import Round, Sampler, Selection

simulate = partial(blobs.simulate, T=6)


# -- which values of a metric are good -------------------------------------------------------------------------


def f1(output: Tensor, y: Tensor) -> Tensor:
    """Macro F1, of which high values are good."""
    chosen = output.argmax(1)
    both = [((chosen == k) & (y == k)).sum() for k in range(4)]
    each = [((chosen == k).sum() + (y == k).sum()).clamp(min=1) for k in range(4)]
    return torch.stack([2 * a / b for a, b in zip(both, each, strict=True)]).mean()


HIGH = fedlib.Metric(f1, better="high")
LOW = fedlib.Metric(lambda output, y: 1 - f1(output, y), better="low")


@pytest.mark.outside("metrics with a direction")
@pytest.mark.parametrize("metric", [HIGH, LOW], ids=["high", "low"])
def test_the_best_of_a_metric_is_kept(metric: fedlib.Metric) -> None:
    result = simulate(metric=metric, keep="best", local=fedlib.Local(lr=2.0, batch=8, epochs=1))
    curve = result.table["test_metric"]
    best = curve.max() if metric is HIGH else curve.min()
    assert best != curve.iloc[0]
    assert best != curve.iloc[-1], "or this shows nothing"
    kept = metric(result.model("Random")(torch.from_numpy(X)), torch.from_numpy(Y))
    assert float(kept) == pytest.approx(best, rel=1e-5)


@pytest.mark.outside("metrics with a direction")
@pytest.mark.parametrize(("better", "ends"), [("high", False), ("low", True)])
def test_a_run_ends_early_when_its_metric_gets_no_better(better: Any, ends: bool) -> None:
    for stop, stated in ((fedlib.EarlyStop(2), better), (fedlib.EarlyStop(2, better=better), None)):
        run = Running("Random", 0, 12, None, stated)  # ty: ignore[invalid-argument-type]  # it reads no settings
        rows = [{"round": t, "test_metric": 0.13 + 0.1 * t} for t in range(6)]
        assert any(stop.on_round(run, row, nn.Identity) for row in rows) == ends


@pytest.mark.outside("metrics with a direction")
def test_a_summary_ranks_and_a_worst_client_is_by_the_direction() -> None:
    methods = {"good": "uniform", "bad": fedlib.Method("uniform", aggregation="attrition")}
    result = simulate(metric=HIGH, methods=methods, client_test=OWNER, T=8)
    ends = result.table.groupby("method")["test_metric"].last()
    assert ends["good"] > ends["bad"]
    summary = result.summary(target=float(ends["good"]) * 0.9)
    assert list(summary.index) == ["good", "bad"]
    assert 1 < summary.loc["good", "rounds"] < 9
    mine = result.per_client.query("method == 'good'")["test_metric"]
    assert result.worst().loc["good", "worst client"] == pytest.approx(mine.min())
    low = result.worst(better="low")
    assert low.loc["good", "worst client"] == pytest.approx(mine.max())


@pytest.mark.outside("metrics with a direction")
@pytest.mark.bad_input
def test_without_a_direction_what_needs_one_asks(tmp_path: Path) -> None:
    for options in ({"keep": "best"}, {"callbacks": [fedlib.EarlyStop(2)]}):
        with pytest.raises(
            fedlib.ConfigError, match=r"which values of the metric are good: pass metric=fedlib\.Metric"
        ):
            simulate(metric=f1, **options)
    result = simulate(metric=f1, client_test=OWNER)
    for ask in (lambda r: r.summary(target=0.5), lambda r: r.worst()):
        with pytest.raises(
            fedlib.ConfigError, match="high or low values of test_metric are good: pass better="
        ):
            ask(result)
    simulate(metric=HIGH).save(tmp_path / "result.zip")
    assert fedlib.load(tmp_path / "result.zip").summary(target=0.1)["reached"].sum() == 1
    for wrong in (lambda: fedlib.Metric(f1, better="up"), lambda: fedlib.EarlyStop(2, better="up")):
        with pytest.raises(fedlib.ConfigError, match="is 'up'; it must be 'high' or 'low'"):
            wrong()


# -- what decides numbers besides the arguments ----------------------------------------------------------------


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Remembers(Plain):
    state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        z = self.layer(x)
        z = z if self.state is None else z + 0.1 * self.state.mean(0)
        self.state = z.detach()
        return z


class Counts(Plain):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x) * (1 + 0.01 * self.calls)


class Records(Plain):
    def forward(self, x: Tensor) -> Tensor:
        self.last = self.layer(x)
        return self.last


@pytest.mark.outside("hidden state")
@pytest.mark.parametrize("model", [Remembers, Counts, Records])
def test_a_hidden_state_goes_from_no_client_to_another(model: type) -> None:
    told: list[str] = []
    wanted = simulate(model=model, tell=told.append)
    assert any("keeps something between its calls" in line for line in told)
    for threads in (2, 3):
        assert losses(simulate(model=model, threads=threads)) == losses(wanted)
    if model is Records:
        assert losses(wanted) == losses(simulate(model=Plain))


class CountsInTheClass(Plain):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        type(self).calls += 1
        return self.layer(x) * (1 + 0.01 * self.calls)


class Steps(Plain):
    """Whole numbers in a buffer, which forward reads."""

    kind = torch.int64

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=self.kind))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
        return self.layer(x) * (1 + 0.01 * self.steps.real)


class ComplexSteps(Steps):
    kind = torch.complex64


class FloatSteps(Steps):
    kind = torch.float32


class Unread(Steps):
    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        return self.layer(x)


class ComplexWeight(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale.real


class SharesMemory(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(self.layer.bias.data)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class SharesWithABuffer(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shown", self.layer.weight.data[1:])


@pytest.mark.outside("hidden state")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (SharesMemory, "layer.bias and scale lie in the same memory|scale and layer.bias lie in the same"),
        (SharesWithABuffer, "layer.weight and shown lie in the same memory"),
        (CountsInTheClass, "it gives something else each time"),
        (Steps, "forward changes its buffer 'steps' and reads it, but torch.int64 is not averaged"),
        (ComplexSteps, "forward changes its buffer 'steps' .* make it two buffers"),
        (ComplexWeight, "it has a complex parameter, which is not averaged"),
    ],
)
def test_a_state_that_is_not_averaged_is_refused(model: type, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message):
        simulate(model=model)


@pytest.mark.outside("hidden state")
def test_a_state_that_is_averaged_or_that_nothing_reads_is_accepted() -> None:
    assert losses(simulate(model=Unread)) == losses(simulate(model=Plain))
    simulate(model=FloatSteps, T=2)


class Widens(fedlib.Callback):
    def on_round(self, run: Any, row: Any, model: Any) -> None:
        torch.set_default_dtype(torch.float64)


@pytest.mark.outside("hidden state")
def test_what_a_callback_sets_in_torch_changes_nothing() -> None:
    class Draws(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + (0.1 * torch.rand(4)).to(x.dtype)

    assert losses(simulate(model=Draws, callbacks=[Widens()])) == losses(simulate(model=Draws))
    assert torch.get_default_dtype() == torch.float32


# -- callbacks that are used twice, and stores -----------------------------------------------------------------


def test_an_early_stop_begins_anew_in_every_call() -> None:
    def last(stop: fedlib.EarlyStop, lr: float) -> int:
        local = fedlib.Local(lr=lr, batch=8, epochs=1)
        return int(simulate(T=12, local=local, callbacks=[stop]).table["round"].max())

    shared = fedlib.EarlyStop(patience=2, column="local_loss")
    last(shared, 0.1)
    assert last(shared, 0.01) == last(fedlib.EarlyStop(patience=2, column="local_loss"), 0.01)


def test_stored_runs_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no digest sees, such as a changed function of an installed package, is found by training again."""
    options = {"model": Plain, "store": tmp_path, "seeds": 4}
    simulate(**options)
    for runs, line in ((None, "rounds of 1 trained again"), (3, "18 rounds of 3 trained again")):
        told: list[str] = []
        simulate(**options, recheck=runs, tell=told.append)
        assert len(told) == 1
        assert line in told[0]
    linear = nn.functional.linear
    monkeypatch.setattr(nn.functional, "linear", lambda x, w, b=None: linear(x, w, b) * 1.01)
    for runs in (None, 1):
        with pytest.raises(fedlib.ConfigError, match="has other numbers now than in the store"):
            simulate(**options, recheck=runs)
    assert len(simulate(**options, recheck=0).table) == 28


@pytest.mark.parametrize(
    ("slow", "said"), [([0], "rounds of 1 trained again"), (range(7), "a round takes 100 s")]
)
def test_one_slow_round_keeps_no_run_from_being_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: Any, said: str
) -> None:
    options = {"store": tmp_path, "T": 6, "seeds": 1}
    simulate(**options)
    read = Store.read

    def slowly(store: Store, address: str) -> tuple:
        table, *rest = read(store, address)
        table.loc[table["round"].isin(slow), "seconds"] = 100.0
        return table, *rest

    monkeypatch.setattr(Store, "read", slowly)
    told: list[str] = []
    simulate(**options, tell=told.append)
    assert said in told[0]


def test_as_many_rounds_are_checked_as_a_second_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"store": tmp_path, "T": 6, "seeds": 1}
    simulate(**options)
    clock = itertools.count()
    monkeypatch.setattr(recheck, "time", SimpleNamespace(monotonic=lambda: 0.4 * next(clock)))
    told: list[str] = []
    simulate(**options, tell=told.append)
    checked = int(re.search(r"(\d+) rounds of 1 trained again", told[0])[1])
    assert 1 < checked < 6


def test_a_result_is_loaded_into_the_module_that_was_trained(tmp_path: Path) -> None:
    simulate(keep="last").save(tmp_path / "result.zip")
    fedlib.load(tmp_path / "result.zip", model=lambda: nn.Linear(6, 4)).model("Random")
    for model in (lambda: nn.Linear(3, 7), lambda: nn.Sequential(nn.Linear(6, 4))):
        with pytest.raises(fedlib.ConfigError, match="it is not the module that was trained: weight was"):
            fedlib.load(tmp_path / "result.zip", model=model).model("Random")


# -- data, labels, weights and outputs -------------------------------------------------------------------------

HIDDEN = np.zeros(X.shape, bool)
HIDDEN[::3, 2] = True
IDS = np.array([7, 10, 200, 3_000_000])[Y]
FAR = X.astype(float) * 1e-3 + 1e5


def ignored() -> np.ndarray:
    y = Y.copy()
    y[OWNER == 3] = -100
    return y


@pytest.mark.outside("data that would be misread")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": np.ma.MaskedArray(X, HIDDEN)}, "54 values are masked"),
        ({"y": np.ma.MaskedArray(Y, Y == 2)}, "values are masked"),
        ({"clients": np.ma.MaskedArray(OWNER, Y == 2)}, "values are masked"),
        ({"x": FAR, "test": (FAR, Y)}, "need double precision"),
        ({"y": IDS, "test": (X, IDS)}, "4 different labels up to 3,000,000"),
        ({"y": IDS, "test": (X, IDS), "model": "logistic"}, "number the classes from 0"),
        ({"loss": nn.CrossEntropyLoss(weight=torch.zeros(4))}, r"it is not a number \(0 / 0\)"),
        ({"y": ignored(), "loss": nn.CrossEntropyLoss()}, "every label of client 3 has weight 0"),
        ({"store": ""}, "store: it must be the path of a folder"),
    ],
)
def test_what_would_be_misread_is_one_sentence(options: dict, message: str) -> None:
    with pytest.raises(fedlib.ConfigError, match=message) as raised:
        simulate(**options)
    assert "\n" not in str(raised.value)


def test_whole_numbers_that_are_no_labels_are_targets_of_a_loss() -> None:
    counts = np.random.default_rng(1).poisson(50_000, size=160)
    loss = nn.PoissonNLLLoss()
    result = simulate(
        y=counts,
        test=(X, counts),
        loss=loss,
        model=lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)),
        local=fedlib.Local(lr=1e-6, batch=8, epochs=1),
    )
    assert losses(result)[-1] < losses(result)[0]


def test_a_home_folder_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    simulate(store="~/runs").save("~/result.zip")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "result.zip"}
    assert len(fedlib.load("~/result.zip").table) == 7


def test_adam_takes_no_momentum() -> None:
    with pytest.raises(fedlib.ConfigError, match="momentum is of sgd"):
        fedlib.Local(optimizer="adam", lr=0.1, momentum=0.5, batch=8, epochs=1)


class Against(Sampler):
    def select(self, round: Round) -> Selection:
        return Selection(np.arange(self.fed.m), weights=np.linspace(-0.5, 1, self.fed.m))


def test_weights_below_zero_are_refused() -> None:
    with pytest.raises(
        fedlib.SamplerError, match=r"the weight of client 0 is -0\.5; weights of updates must be 0 or more"
    ):
        simulate(methods={"mine": Against})


Pair = namedtuple("Pair", "logits extra")


@dataclasses.dataclass
class Held:
    logits: Tensor
    extra: Tensor | None = None


@dataclasses.dataclass
class Both(OrderedDict):
    """A mapping whose entries are attributes too, as the outputs of transformers are."""

    logits: Tensor | None = None
    extra: Tensor | None = None

    def __post_init__(self) -> None:
        self.update(
            {name: getattr(self, name) for name in ("logits", "extra") if getattr(self, name) is not None}
        )


class Read(dict):
    __getattr__ = dict.__getitem__


@pytest.mark.outside("outputs of every form")
@pytest.mark.parametrize("kind", [Pair, Held, Both, Read])
@pytest.mark.parametrize("stored", [False, True])
def test_outputs_may_be_of_any_form(kind: Any, stored: bool, tmp_path: Path) -> None:
    class Net(Plain):
        def forward(self, x: Tensor) -> Any:
            z = self.layer(x)
            return kind(z, 2 * z) if kind is Pair else kind(logits=z)

    options = {
        "loss": lambda output, y: cross_entropy(output.logits, y),
        "store": tmp_path if stored else None,
    }
    metric = fedlib.Metric(lambda output, y: f1(output.logits, y), better="high")
    result = simulate(model=Net, metric=metric, **options)
    wanted = simulate(model=Plain, metric=HIGH, loss=nn.CrossEntropyLoss())
    np.testing.assert_allclose(losses(result), losses(wanted), rtol=1e-5)
    assert result.table["test_metric"].tolist() == wanted.table["test_metric"].tolist()
