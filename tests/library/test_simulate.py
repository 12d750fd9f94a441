"""`fedlib.simulate` and what stands in `fedlib` itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import fedlib
from fedlib.data import datasets
from fedlib.errors import ConfigError, SamplerError
from fedlib.library import simulate as module
from fedlib.library.methods import methods_of
from fedlib.runs.place import Place, address
from fedlib.runs.store import Store
from fedlib.runs.train import train
from fedlib.samplers import HiCSFL, Round, Sampler, Selection
from fedlib.settings.schema import Run
from fedlib.simulation.engine import Lockstep

N, n = 8, 20
RNG = np.random.default_rng(0)
Y = np.tile(np.arange(4), N * n // 4)
X = (np.eye(4)[Y] @ RNG.normal(size=(4, 6)) + 0.3 * RNG.normal(size=(N * n, 6))).astype(np.float32)
OWNER = np.repeat([f"hospital {k}" for k in range(N)], n)
LOCAL = fedlib.Local(lr=0.2, batch=8, epochs=1)


@dataclass
class First(Sampler):
    """Whoever comes first."""

    skip: int = 0

    def select(self, round: Round) -> Selection:
        return Selection(np.arange(self.skip, self.skip + self.fed.m))


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 4))


def simulate(**options) -> fedlib.Result:
    given = {"x": X, "y": Y, "clients": OWNER, "test": (X[:40], Y[:40]), "model": net}
    given |= {"methods": {"Random": "uniform"}, "m": 3, "T": 4, "local": LOCAL, "threads": 1, "tell": print}
    return fedlib.simulate(**given | options)


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """What must be the same every time, without labels."""
    clients = table["clients"].map(lambda drawn: [int(k) for k in drawn])
    return (
        table.assign(clients=clients)
        .drop(columns=["experiment", "setting", "method", "seconds", "server_seconds"], errors="ignore")
        .dropna(axis="columns", how="all")
        .reset_index(drop=True)
    )


@pytest.mark.parametrize("model", ["mlp", "fedcor_mlp"])
def test_the_numbers_are_those_of_the_same_run_in_params_yaml(model: str, tmp_path: Path):
    digits = datasets.load("digits", tmp_path)
    scheme = {"scheme": "dirichlet_prior", "alpha": 1.0}
    run = Run(
        dataset="digits",
        scaling="unit",
        partition=scheme,
        model=model,
        N=20,
        m=4,
        T=3,
        local={"lr": 0.1, "batch": 10, "steps": 5},
        evaluate={"train": True},
        method={"sampler": "hics_fl", "params": {"M": 2}},
        seed=1,
    )
    place = Place(runs=tmp_path / "runs", datasets=tmp_path, workers=1, threads=1)
    train([run], place)
    theirs, _ = Store(place.runs).read(address(run, place))
    mine = fedlib.simulate(
        digits.x_train,
        digits.y_train,
        fedlib.DirichletPrior(alpha=1.0),
        N=20,
        test=(digits.x_test, digits.y_test),
        model=model,
        methods={"HiCS-FL": fedlib.samplers.HiCSFL(M=2)},
        m=4,
        T=3,
        local=fedlib.Local(lr=0.1, batch=10, steps=5),
        evaluate=fedlib.Evaluate(train=True),
        seeds=[1],
        threads=1,
    )
    pd.testing.assert_frame_equal(
        numbers(mine.table).drop(columns="seed"), numbers(theirs), check_like=True, check_exact=True
    )


def test_own_model_samplers_and_clients():
    methods = {"Random": "uniform", "first": First, "second": First(skip=3), "HiCS-FL": HiCSFL(M=2)}
    result = simulate(methods=methods, seeds=2, T=6)
    assert result.clients == [f"hospital {k}" for k in range(N)]
    table = result.table
    assert table.groupby(["method", "seed"]).size().tolist() == [7] * 8
    chosen = table[table["round"] > 0].groupby("method")["clients"].first()
    assert chosen["first"].tolist() == [0, 1, 2]
    assert chosen["second"].tolist() == [3, 4, 5]
    assert (table.loc[table["round"] == 6, "test_accuracy"] > 0.5).all(), "four classes: guessing gives 0.25"
    starts = table[table["round"] == 0].groupby("seed")["test_loss"].nunique()
    assert starts.tolist() == [1, 1], "all methods of a seed start from one model"
    assert table[table["round"] == 0]["test_loss"].nunique() == 2, "and each seed from its own"


def test_summary_and_plot():
    result = simulate(methods={"Random": "uniform", "none": First(skip=1)}, seeds=2, T=6)
    summary = result.summary(target=0.6)
    assert list(summary.columns) == ["seeds", "reached", "rounds", "megabytes", "work", "final", "rank"]
    table = result.table[result.table["method"] == "Random"]
    first = [
        int(run.loc[run["test_accuracy"].ge(0.6) & run["round"].gt(0), "round"].min())
        for _, run in table.groupby("seed")
    ]
    assert summary.loc["Random", "rounds"] == np.median(first)
    each = 4 * 2 * 3 * (6 * 8 + 8 + 8 + 8 + 8 * 4 + 4) / 1e6  # both ways, three clients, float32
    assert summary.loc["Random", "megabytes"] == pytest.approx(np.median(first) * each)
    assert summary["rank"].sum() == 3
    assert np.isinf(result.summary(target=1.01)["rounds"]).all()
    lines = {line.get_label() for line in result.plot().axes[0].lines}
    assert {"Random", "none"} <= lines
    assert result.summary(target=0.1, column="test_loss")["reached"].sum() == 0
    with pytest.raises(fedlib.ConfigError, match="'train_loss' was not measured"):
        result.summary(target=1, column="train_loss")
    with pytest.raises(
        fedlib.ConfigError, match="'accuracy' was not measured; the table has .*test_accuracy"
    ):
        result.plot("accuracy")


def test_regression_with_a_loss_and_a_metric():
    y = (X @ RNG.normal(size=6)).astype(np.float32)
    options = {"y": y, "model": lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), "loss": nn.MSELoss()}
    plain = simulate(**options, test=(X[:40], y[:40]), T=8)
    assert plain.column == "test_loss"
    assert plain.table["test_accuracy"].isna().all()
    ends = plain.table["test_loss"].to_numpy()
    assert ends[-1] < 0.2 * ends[0]
    assert plain.summary(target=ends[-1] * 1.0001).loc["Random", "reached"] == 1
    error = simulate(**options, test=(X[:40], y[:40]), metric=nn.L1Loss())
    assert error.column == "test_metric"
    assert error.table["test_metric"].iloc[-1] < error.table["test_metric"].iloc[0]


def test_without_a_test_set_the_training_loss_is_measured():
    result = simulate(test=None)
    assert result.column == "train_loss"
    assert result.table["train_loss"].iloc[-1] < result.table["train_loss"].iloc[0]


def test_datasets_of_pairs_and_tensors_are_the_same_data():
    pairs = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    test = [(x, int(label)) for x, label in zip(X[:40], Y[:40], strict=True)]
    both = [
        simulate(x=pairs, y=None, test=test),
        simulate(x=torch.from_numpy(X), y=torch.from_numpy(Y), clients=list(OWNER)),
    ]
    for other in both:
        pd.testing.assert_frame_equal(numbers(other.table), numbers(simulate().table))


def test_images_of_pillow_become_maps():
    from PIL import Image

    images = RNG.integers(256, size=(N * n, 6, 5, 3), dtype=np.uint8)
    pairs = [(Image.fromarray(image), int(label)) for image, label in zip(images, Y, strict=True)]
    small = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 4))
    mine, other = (
        simulate(x=x, y=y, test=None, model=lambda: type(small)(*small), T=2)
        for x, y in ((pairs, None), (images.transpose(0, 3, 1, 2), Y))
    )
    pd.testing.assert_frame_equal(numbers(mine.table), numbers(other.table))


def test_a_store_keeps_what_was_trained(tmp_path: Path, monkeypatch):
    first = simulate(store=tmp_path)
    trained = []
    monkeypatch.setattr(module, "train_group", lambda runs, *_: trained.append(len(runs)))
    pd.testing.assert_frame_equal(simulate(store=tmp_path).table, first.table)
    assert trained == []
    monkeypatch.undo()
    more = simulate(store=tmp_path, methods={"Random": "uniform", "first": First()})
    assert more.table["method"].unique().tolist() == ["Random", "first"]
    other = simulate(
        store=tmp_path, model=lambda: nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 4))
    )
    assert not numbers(other.table).equals(numbers(first.table))


def test_half_a_run_goes_on(tmp_path: Path, monkeypatch):
    advance, begun = Lockstep.advance, []

    def stop(self):
        begun.append(self.live[0].t + 1)
        if begun == [1, 2, 3]:
            raise KeyboardInterrupt
        advance(self)

    monkeypatch.setattr(module, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(Lockstep, "advance", stop)
    with pytest.raises(KeyboardInterrupt):
        simulate(store=tmp_path, methods={"first": First})
    assert list(tmp_path.glob("*/*/checkpoint.pt"))
    again = simulate(store=tmp_path, methods={"first": First})
    assert begun == [1, 2, 3, 3, 4]
    pd.testing.assert_frame_equal(numbers(again.table), numbers(simulate(methods={"first": First}).table))


def test_a_sampler_that_fails_is_named_with_its_round(monkeypatch):
    class Stopped(Exception):
        pass

    def stop(self, round, report):
        if round.t == 3:
            raise Stopped

    monkeypatch.setattr(First, "observe", stop, raising=False)
    with pytest.raises(SamplerError, match="first .seed 0., round 3, observe: Stopped"):
        simulate(methods={"first": First})


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clients": None}, "clients is missing"),
        ({"clients": OWNER[:-1]}, "clients names the owners of 159 samples, but there are 160"),
        ({"clients": [None, *OWNER[1:]]}, "sample 0 has no owner"),
        ({"clients": fedlib.IID()}, "N is missing"),
        ({"clients": OWNER, "N": 7}, "N is 7, but clients has 8"),
        ({"y": Y[:-1]}, "there are 160 samples and 159 targets"),
        ({"y": Y - 1}, "a label is -1; number the classes from 0"),
        ({"y": None}, "y is missing"),
        ({"x": X * np.nan}, "values that are not finite"),
        ({"x": X.astype(str)}, "samples are <U.*; give numbers"),
        ({"test": (X[:, :5], Y)}, "make them the same"),
        ({"test": None, "evaluate": fedlib.Evaluate()}, "there is no test data"),
        ({"model": net()}, "give a function that makes it"),
        ({"model": "mpl"}, "unknown model 'mpl'"),
        ({"model": 3}, "it must be the name of a model, or a function"),
        ({"model": lambda: nn.Linear(5, 4)}, "its forward pass fails on inputs float32"),
        ({"model": lambda: nn.Linear(6, 3)}, "3 scores, but y has labels up to 3"),
        ({"y": X[:, 0], "test": None}, "pass loss="),
        ({"methods": {}}, "methods: it must map labels to samplers"),
        ({"methods": {"a": 3}}, "'a' is a int; give a sampler's name"),
        ({"methods": {"a": "unifrom"}}, "unknown sampler 'unifrom'"),
        ({"m": 9}, "m = 9 clients per round are more than there are"),
        ({"seeds": 0}, "seeds: Input should be greater than or equal to 1"),
        ({"device": "tpu"}, "^device: it must be cpu or cuda"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(options: dict, message: str):
    with pytest.raises(fedlib.ConfigError, match=message) as raised:
        simulate(**options)
    assert "\n" not in str(raised.value)


@pytest.mark.bad_input
def test_a_sampler_that_needs_the_output_layer_says_so():
    with pytest.raises(
        fedlib.SamplerError, match="reads the update of the output layer, but the model names none"
    ):
        simulate(
            model=lambda: nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(1)), methods={"HiCS-FL": "hics_fl"}
        )


def test_what_is_in_fedlib_is_loaded_when_asked_for():
    check = "import sys, fedlib; print(sorted({'torch', 'numpy', 'pandas', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    for name in fedlib.__all__:
        assert getattr(fedlib, name).__doc__, name
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        _ = fedlib.simulat


class Written(Sampler):
    """A sampler with an `__init__` of its own."""

    def __init__(self, k: int = 1) -> None:
        self.k = k

    def select(self, round):
        return Selection(round.available[: round.m])


@pytest.mark.bad_input
def test_an_instance_that_no_run_can_make_again_is_refused():
    """Else `Written(4)` would run as `Written(1)`."""
    with pytest.raises(
        ConfigError, match=r"Written holds 'k' that no run can make again: write @dataclass above"
    ):
        methods_of({"Mine": Written(4)})
