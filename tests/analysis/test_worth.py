"""What is trained next: the most core claims an hour first, within the time, nothing that only wastes it."""

from __future__ import annotations

import pytest

from fedlib.runs.work import Plan, Work
from fedlib.settings import params
from workspace.analysis.worth import MARGIN, START, Condition, Need, fitting, shared, units

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
MISSING = [work for name in SETTINGS.names for work in Plan.of_experiment(name, "demo", SETTINGS).work]
ARMS = {
    name: frozenset(Condition.of(work) for work in MISSING if work.name == name) for name in SETTINGS.names
}
NEEDS = [
    Need("x", True, 1.0, ARMS["short"]),
    Need("y", True, 1.0, ARMS["short"] | ARMS["long"]),
    Need("z", False, 1.0, ARMS["long"]),
]


def cost(work: Work) -> float:
    return float(work.run.T)


def test_the_most_core_claims_an_hour_come_first() -> None:
    ordered = units(MISSING, NEEDS, cost)
    assert [unit.experiment for unit in ordered] == ["short"] * 4 + ["long"] * 4
    assert [unit.seed for unit in ordered[:4]] == [0, 0, 1, 1], "one seed of everything before the next"
    first, last = ordered[0], ordered[-1]
    assert (first.claims, last.claims) == (("x", "y"), ("y", "z"))
    assert (first.methods, first.seconds) == (("MD", "Random"), START + 20), "each unit costs a start"
    short, long = 4 * (START + 20), 4 * (START + 2000)
    hours = {"x": short / 3600, "y": (short + long) / 3600, "z": long / 3600}
    assert first.worth == pytest.approx((1 / hours["x"] + 1 / hours["y"], 0.0))
    assert last.worth == pytest.approx((1 / hours["y"], 1 / hours["z"]))


def test_a_core_claim_comes_before_many_cheaper_others() -> None:
    needs = [Need("core", True, 1.0, ARMS["long"])]
    needs += [Need(f"other {k}", False, 1.0, ARMS["short"]) for k in range(99)]
    assert units(MISSING, needs, cost)[0].experiment == "long"


def test_only_runs_that_some_claim_reads_are_trained() -> None:
    """Not the other methods of an experiment, nor its other settings; each claim is charged for its own runs."""
    cheap, dear = Condition("short", "a", "MD"), Condition("long", "b", "Random")
    ordered = units(MISSING, shared({"c": (True, {frozenset([cheap]): 1.0, frozenset([dear]): 1.0})}), cost)
    assert [(unit.experiment, unit.setting, unit.methods) for unit in ordered] == [
        *[("short", "a", ("MD",))] * 2,
        *[("long", "b", ("Random",))] * 2,
    ]
    assert ordered[0].worth[0] == pytest.approx(0.5 * 3600 / (2 * (START + 10))), (
        "half of the claim, for its cell"
    )


def test_runs_of_different_worth_are_different_units() -> None:
    one, both = (
        frozenset([Condition("short", "a", "MD")]),
        frozenset([Condition("short", "a", "MD"), Condition("short", "a", "Random")]),
    )
    ordered = units(MISSING, [Need("x", True, 1.0, one), Need("y", True, 1.0, both)], cost)
    assert [unit.methods for unit in ordered] == [("MD",), ("MD",), ("Random",), ("Random",)]


def test_what_is_there_makes_the_rest_of_a_claim_worth_more() -> None:
    rest = [work for work in MISSING if work.name == "long" and work.labels["seed"] == 1][:1]
    less = [work for work in MISSING if work.name != "long"] + rest
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


def test_what_more_seeds_will_hardly_show_comes_last() -> None:
    """Two parts of equal cost; and the chance that a unit decides is said."""
    likely, hardly = (frozenset([Condition("short", setting, "MD")]) for setting in "ab")
    ordered = units(MISSING, shared({"c": (True, {likely: 0.9, hardly: 0.1})}), cost)
    assert [(unit.setting, unit.chance) for unit in ordered] == [("a", 0.9)] * 2 + [("b", 0.1)] * 2
