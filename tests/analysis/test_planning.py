"""What is trained next: the most claims an hour first, within the time, nothing that only wastes it."""

from __future__ import annotations

import pytest

from fedlib.analysis.planning import MARGIN, START, fitting, units
from fedlib.settings import params

SPEC = {
    "experiments": {
        name: {
            "dataset": "digits",
            "partition": {"scheme": "iid"},
            "model": "logistic",
            "N": 10,
            "m": 3,
            "T": T,
            "seeds": 2,
            "local": {"lr": 0.1, "batch": 10, "steps": 2},
            "methods": {"MD": {"sampler": "md"}, "Random": {"sampler": "uniform"}},
            "grid": {"a": {}, "b": {}},
        }
        for name, T in (("short", 10), ("long", 1000), ("of_no_claim", 1))
    }
}
SETTINGS = params.Experiments(SPEC)
MISSING = {name: [(one.setting, one.run) for one in SETTINGS.runs(name)] for name in SETTINGS.names}
NEEDS = {"x": ["short"], "y": ["short", "long"], "z": ["long"]}


def cost(run) -> float:
    return float(run.T)


def test_the_most_claims_an_hour_come_first() -> None:
    ordered = units(MISSING, NEEDS, cost)
    assert [unit.experiment for unit in ordered] == ["short"] * 4 + ["long"] * 4
    assert [unit.seed for unit in ordered[:4]] == [0, 0, 1, 1], "one seed of everything before the next"
    first, last = ordered[0], ordered[-1]
    assert (first.claims, last.claims) == (("x", "y"), ("y", "z"))
    assert (len(first.runs), first.seconds) == (2, START + 20), "each unit costs a start"
    short, long = 4 * (START + 20), 4 * (START + 2000)
    hours = {"x": short / 3600, "y": (short + long) / 3600, "z": long / 3600}
    assert first.worth == pytest.approx(1 / hours["x"] + 1 / hours["y"])
    assert last.worth == pytest.approx(1 / hours["y"] + 1 / hours["z"])


def test_what_is_there_makes_the_rest_of_a_claim_worth_more() -> None:
    less = {**MISSING, "long": [run for run in MISSING["long"] if run[1].seed == 1][:1]}
    (unit,) = [unit for unit in units(less, NEEDS, cost) if unit.experiment == "long"]
    assert unit.seed == 1
    assert unit.worth > units(MISSING, NEEDS, cost)[-1].worth


def test_nothing_that_does_not_fit_is_started_but_one_that_a_checkpoint_keeps() -> None:
    ordered = units(MISSING, NEEDS, cost)
    short, long = START + 20, START + 2000
    assert fitting(ordered, 0) == []
    assert [unit.seconds for unit in fitting(ordered, 2.5 * short)] == [short, short]
    chosen = fitting(ordered, 4 * short + MARGIN + long / 1000 + 1)
    assert [unit.whole for unit in chosen] == [True] * 4 + [False]
    assert sum(unit.seconds for unit in fitting(ordered, 4 * short + long)) == 4 * short + long
    assert len(fitting(ordered, 4 * short + MARGIN)) == 4, "no round would be kept"
    assert fitting(ordered, 1e9) == ordered
