"""Settings that cannot be meant are refused in a sentence that names the key and what to do."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from fedlib.errors import ConfigError
from fedlib.settings import params
from fedlib.settings.sections import Study, valid

EXPERIMENT: dict[str, Any] = {
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 8,
    "m": 2,
    "T": 4,
    "local": {"lr": 0.1, "batch": 8, "steps": 2},
    "methods": {"MD": {"sampler": "md"}},
    "seeds": 2,
}


def runs(**changes: Any) -> list[params.Labelled]:
    raw = params.merge(copy.deepcopy(EXPERIMENT), changes)
    return params.Experiments({"experiments": {"e": raw}}).runs("e")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"local": {"batch": 1e9}}, "local.batch: .*1000000"),
        ({"local": {"steps": 10**9}}, "local.steps: .*1000000"),
        ({"local": {"lr_decay": {2: 1e308, 3: 10.0}}}, "learning rate of round 2 is 1e.307"),
        ({"local": {"lr_decay": {2: 1e-200, 3: 1e-200}}}, "learning rate of round 2 is 1e-201"),
        ({"local": {"lrr": 1}}, "local.lrr: there is no such key; correct its spelling"),
        ({"evaluate": {"test": False}}, "nothing is measured; set one of"),
        (
            {"methods": {"FedCor": {"sampler": "fedcor", "warmup": 5}}},
            "warmup = 5 .* rounds .T = 4.; lower it",
        ),
        ({"methods": {"HCSFed": {"sampler": "hcsfed", "H": 9}}}, "H = 9 .* clients .N = 8.; lower it"),
        ({"methods": {"_MD": {"sampler": "md"}}}, "'_MD' begins with _"),
        ({"seeds": [3, -1]}, "seed: "),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any], told: str) -> None:
    assert [one.run.seed for one in runs()] == [0, 1]
    with pytest.raises(ConfigError, match=told):
        runs(**changes)


@pytest.mark.bad_input
def test_a_file_without_experiments_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("scale: demo\nexperiments: {}\n")
    with pytest.raises(ConfigError, match="params.yaml: experiments is missing or empty; name"):
        params.load(path)


@pytest.mark.bad_input
@pytest.mark.parametrize("key", ["experiments", "settings", "methods"])
def test_a_study_of_nothing_is_refused(key: str) -> None:
    empty: dict[str, Any] = {"experiments": {}, "settings": [], "methods": []}
    with pytest.raises(ConfigError, match=f"studies.mine.{key}: .* at least 1 item"):
        valid(Study, {"title": "Mine", key: empty[key]}, "studies.mine")
    assert valid(Study, {"title": "Mine"}, "studies.mine").experiments == {}


def test_runs_of_many_seeds_differ_in_the_seed_alone() -> None:
    many = runs(seeds=9000)
    assert [one.run.seed for one in many] == list(range(9000))
    assert many[-1].run.model_dump() == {**many[0].run.model_dump(), "seed": 8999}
