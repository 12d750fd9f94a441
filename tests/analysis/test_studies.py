"""Studies: measured once, kept, gathered like results; and what each of them measures, on the embedded digits."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib.data.datasets import Tensors
from fedlib.data.partition import Partition
from fedlib.errors import ConfigError, DataError
from fedlib.runs import measuring
from fedlib.runs import place as places
from fedlib.runs.experiment import simulate
from fedlib.runs.lookup import Finished
from fedlib.runs.measuring import Halfway
from fedlib.runs.place import Place
from fedlib.settings import params
from fedlib.settings.params import Experiments
from fedlib.training import executors
from fedlib.training.chain import initialise
from fedlib.training.layout import Layout
from fedlib.training.models import build
from workspace.analysis.experiments import plan, study_module
from workspace.papers.fedcor import study_loss_changes, study_toy
from workspace.papers.hics_fl import study_assumption

EXPERIMENT = {
    "title": "a small one",
    "dataset": "digits",
    "partition": {"scheme": "dirichlet_classes", "alphas": [0.01, 10.0]},
    "model": "mlp",
    "N": 10,
    "m": 2,
    "T": 4,
    "seeds": 2,
    "local": {"lr": 0.1, "batch": 20, "epochs": 1},
    "methods": {"Random": {"sampler": "uniform"}, "HiCS-FL": {"sampler": "hics_fl", "T_s": 0.01}},
    "grid": {"(1)": {}, "(2)": {"m": 3}},
}
STUDIES = {
    "x_toy": {"draws": 3, "n": 5, "pairs": 50, "cases": {"a": {"gap": 4.0, "lr": 1.0}}},
    "x_partitions": {"experiments": {"D": "e"}, "seeds": 2, "scales": {"cpu": {"seeds": 1}}},
    "x_loss_changes": {
        "experiments": {"D": "e"},
        "settings": ["(1)"],
        "methods": ["Random"],
        "subsets": 30,
        "first": {"D": 2},
        "every": {"D": 2},
    },
    "x_last_layer": {"experiments": {"D": "e"}, "methods": ["HiCS-FL"], "rounds": 2},
    "x_entropy": {
        "method": "HiCS-FL",
        "cases": {"C": {"experiment": "e", "setting": "(2)", "local": {"lr": 0.2}}},
    },
    "x_assumption": {
        "experiments": {"D": "e"},
        "settings": ["(1)"],
        "methods": ["Random"],
        "clients": 12,
        "n": 30,
        "alphas": [0.01, 50],
        "rounds": 3,
        "every": 2,
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return Place(runs=tmp_path_factory.mktemp("runs"), workers=1)


@pytest.fixture
def settings() -> Experiments:
    return Experiments({"experiments": {"e": EXPERIMENT}, "studies": json.loads(json.dumps(STUDIES))})


def measured(name: str, settings: Experiments, place: Place, results, scale: str = "demo") -> pd.DataFrame:
    path = simulate(plan(name, scale, settings), None, place, results, tell=lambda line: None)
    table = pd.read_parquet(path)
    assert {"setting", "method", "seed", "diverged"} <= set(table.columns)
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["planned"] == len(record["runs"])
    assert all(run["data"]["provenance"] for run in record["runs"])
    return table


def test_a_study_uses_as_many_cores_as_it_may(settings, monkeypatch):
    monkeypatch.setattr(executors, "make_executor", lambda model, tensors, device, threads, *_: threads)
    monkeypatch.setattr(places, "cores", lambda: 3)
    (run, *_) = (one.run for one in settings.runs("e", "demo"))
    assert [places.Prepared(Place(threads=threads)).executor(run) for threads in (0, 2)] == [3, 2]


def test_a_unit_is_measured_once_and_again_when_its_settings_change(settings, place, tmp_path, monkeypatch):
    first = measured("x_toy", settings, place, tmp_path)
    monkeypatch.setattr(study_toy, "measure", lambda *_: pytest.fail("measured again"))
    pd.testing.assert_frame_equal(measured("x_toy", settings, place, tmp_path), first)
    settings.raw["studies"]["x_toy"]["cases"]["a"]["lr"] = 2.0
    with pytest.raises(pytest.fail.Exception, match="measured again"):
        measured("x_toy", settings, place, tmp_path)


def test_a_study_says_how_far_it_is(settings, place, tmp_path):
    place = Place(runs=tmp_path / "runs", workers=1)
    whole = plan("x_partitions", "demo", settings)
    known = Finished(whole, place, tmp_path, tmp_path)
    simulate(replace(whole, work=whole.work[:1]), None, place, tmp_path, tell=lambda line: None)
    assert [known.contains(work) for work in whole.work] == [True] + [False] * 3
    said = []
    simulate(whole, None, place, tmp_path, tell=said.append)
    assert said[0] == "x_partitions [demo]: 1 of 3: D, (1), 1"
    assert said[2].startswith("x_partitions [demo]: 3 of 3: D, (2), 1, about ")
    assert all(map(known.contains, whole.work))


@pytest.mark.parametrize("name", ["x_assumption", "x_loss_changes", "x_last_layer"])
def test_a_killed_study_goes_on_where_it_was(name, settings, place, tmp_path, monkeypatch):
    whole = measured(name, settings, place, tmp_path / "whole")
    place = Place(runs=tmp_path / "runs", workers=1, checkpoint_seconds=0.0)
    reached, rounds = Halfway.reached, []

    def last(self, done, total, state):
        reached(self, done, total, state)
        rounds.append(done)
        if len(rounds) == total:
            raise KeyboardInterrupt

    monkeypatch.setattr(Halfway, "reached", last)
    with pytest.raises(KeyboardInterrupt):
        measured(name, settings, place, tmp_path)
    pd.testing.assert_frame_equal(measured(name, settings, place, tmp_path), whole)
    assert rounds == [*range(rounds[-1] + 1), rounds[-1]]
    assert not list(place.runs.rglob("checkpoint.pt"))


def test_a_long_unit_says_how_far_it_is(settings, tmp_path, monkeypatch):
    now = itertools.count(0.0, 10.0)
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: next(now)))
    said = []
    place = Place(runs=tmp_path, workers=1)
    simulate(plan("x_assumption", "demo", settings), None, place, tmp_path, tell=said.append)
    assert said[1:] == [
        "x_assumption [demo]: D, Random, 0: 1 of 3 rounds (33%), 10 s a round, about 20 s left",
        "x_assumption [demo]: D, Random, 0: 2 of 3 rounds (67%), 10 s a round, about 10 s left",
    ]


def test_scales_and_unknown_names(settings, place, tmp_path):
    assert set(measured("x_partitions", settings, place, tmp_path)["seed"]) == {0, 1}
    assert set(measured("x_partitions", settings, place, tmp_path, "cpu")["seed"]) == {0}
    with pytest.raises(ConfigError, match="no experiment 'x_none'; "):
        plan("x_none", "demo", settings)
    with pytest.raises(ConfigError, match=r"there is no workspace/papers/<paper>/study_nonsense\.py"):
        study_module("x_nonsense")


def test_a_dataset_that_is_not_there_is_left_out_and_named(settings, place, tmp_path):
    settings.raw["experiments"]["e"] = EXPERIMENT | {"grid": {"(1)": {}, "(2)": {"dataset": "cifar100"}}}
    alone = Place(runs=place.runs, datasets=tmp_path / "datasets", workers=1)
    whole = plan("x_partitions", "demo", settings)
    path = simulate(whole, None, alone, tmp_path, tell=lambda line: None)
    record = json.loads(path.with_suffix(".json").read_text())
    assert set(pd.read_parquet(path)["setting"]) == {"(1)"}
    assert record["planned"] == 4
    assert "cifar100" in record["missing"][0]["reason"]
    settings.raw["experiments"]["e"] = EXPERIMENT | {"dataset": "cifar100"}
    whole = plan("x_partitions", "demo", settings)
    with pytest.raises(DataError, match="cifar100"):
        simulate(whole, None, alone, tmp_path, tell=lambda line: None)


def test_partitions_own_every_sample_once(settings, place, tmp_path):
    table = measured("x_partitions", settings, place, tmp_path)
    one = table.query("setting == '(1)' and seed == 0")
    counts = np.stack(one["counts"].to_list())
    assert counts.sum() == one["size"].sum() == 1437
    shares = counts / counts.sum(axis=1, keepdims=True)
    entropy = -np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0).sum(axis=1)
    np.testing.assert_allclose(one["entropy"], entropy, atol=1e-12)
    assert one.groupby("group")["entropy"].mean().diff().iloc[1] > 0.5  # alpha 10 after alpha 0.01


def test_toy_picks_the_best_pair_and_the_two_highest_losses(settings, place, tmp_path):
    table = measured("x_toy", settings, place, tmp_path)
    for _, rows in table.groupby("draw"):
        rows = rows.set_index("method")
        x, y = np.c_[rows.loc["start", "x"].reshape(-1, 2), np.ones(10)], rows.loc["start", "y"]
        start = rows.loc["start", "w"]
        single = np.log1p(np.exp(-y * (x @ start)))
        assert set(rows.loc["Ind", "chosen"]) == set(np.argsort(single)[-2:])
        assert rows.loc["Opt", "loss"] <= rows.loc[["Ind", "Cor"], "loss"].min()
        pair = rows.loc["Cor", "chosen"].astype(int)
        gradient = np.mean([-y[k] / (1 + np.exp(y[k] * (x[k] @ start))) * x[k] for k in pair], axis=0)
        np.testing.assert_allclose(rows.loc["Cor", "w"], start - gradient, rtol=1e-12)


def test_loss_changes_are_probed_from_the_first_round_on(settings, place, tmp_path):
    table = measured("x_loss_changes", settings, place, tmp_path)
    one = table[table["seed"] == 0]
    assert one["round"].tolist() == [2, 4]
    assert np.isnan(one["cosine"].iloc[0])
    assert -1 <= one["cosine"].iloc[1] <= 1
    assert all(len(samples) == 30 for samples in one["component_1"])
    assert all(0 < e[1] <= e[0] <= 1 for e in one["explained"])
    spread = [np.std(one.iloc[0][f"component_{i}"]) for i in (1, 2, 3)]
    assert spread == sorted(spread, reverse=True)


def test_cosines_and_components_of_known_matrices():
    rng = np.random.default_rng(0)
    changes = rng.standard_normal((400, 4)) @ np.diag([3.0, 1.0, 0.1, 0.1])
    explained, projections = study_loss_changes.components(changes)
    np.testing.assert_allclose(explained[0], 9 / 10.02, atol=0.03)
    np.testing.assert_allclose(np.abs(np.corrcoef(projections[0], changes[:, 0])[0, 1]), 1, atol=1e-3)
    a = np.cov(changes, rowvar=False)
    assert study_loss_changes.cosine(a, 5 * a) == pytest.approx(1)
    assert np.trace(study_loss_changes.centred(a)) == pytest.approx(0)


def test_last_layer_is_consistent(settings, place, tmp_path):
    row = measured("x_last_layer", settings, place, tmp_path).iloc[0]
    W = row["W"].reshape(10, -1)
    np.testing.assert_allclose(W @ row["z"] + row["b"], row["q"], rtol=1e-4, atol=1e-4)
    others = np.delete(row["gradient"], row["label"])
    assert row["gradient"][row["label"]] < 0 < others.min()
    assert row["gradient"].sum() == pytest.approx(0, abs=1e-6)  # equation 4


def test_every_clients_update_is_kept_twice(settings, place, tmp_path):
    table = measured("x_entropy", settings, place, tmp_path)
    assert table.groupby("when")["client"].nunique().to_dict() == {"common start": 10, "warm-up": 10}
    bias = np.stack(table["bias"].to_list())
    assert (np.abs(bias).sum(axis=1) > 0).all()
    np.testing.assert_allclose(bias.sum(axis=1), 0, atol=1e-5)  # the softmax's gradients sum to zero
    assert set(table["T_s"]) == {0.01}


def test_gradients_of_balanced_clients_lie_nearer_to_the_global_one(settings, place, tmp_path):
    table = measured("x_assumption", settings, place, tmp_path).query("seed == 0")
    assert sorted(table["round"].unique()) == [1, 3]
    start = table[table["round"] == 1]
    ends = start.sort_values("entropy")["difference"]
    assert ends.iloc[:3].mean() > 2 * ends.iloc[-3:].mean()


def test_the_mean_gradient_is_that_of_the_pooled_data():
    """With dropout and batch statistics in the model; two clients of unlike size, by a plain autograd."""
    rng = torch.manual_seed(0)
    x, y = torch.randn(50, 1, 16, 16, generator=rng), torch.randint(0, 3, (50,), generator=rng)
    chain = build("hics_fmnist_cnn", (1, 16, 16), 3)
    model, net = initialise(chain, np.random.default_rng(0)), copy.deepcopy(chain).eval()
    net.load_state_dict(Layout.of(chain).views(model), strict=False)

    def gradient(rows: slice) -> torch.Tensor:
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows])[0], y[rows]).backward()
        return torch.cat([p.grad.flatten() for p in net.parameters()])

    train = [np.arange(10), np.arange(10, 50)]
    parts = Partition(train, None, None, np.stack([np.bincount(y[k], minlength=3) for k in train]))
    expected = [float(((gradient(s) - gradient(slice(None))) ** 2).sum()) for s in (slice(10), slice(10, 50))]
    np.testing.assert_allclose(
        study_assumption.distances(chain, Tensors(x, y, x, y), parts, model[None]), expected, rtol=1e-3
    )


def test_settings_of_every_study_name_experiments_and_settings_that_exist():
    settings = params.load()
    for name in settings.studies:
        module = study_module(name)
        for scale in ("demo", "cpu", "paper"):
            units = list(module.units(settings.study(name, scale), settings, scale))
            assert units, (name, scale)
            labels = [json.dumps(unit["labels"], sort_keys=True) for unit in units]
            assert len(set(labels)) == len(labels), (name, scale)
