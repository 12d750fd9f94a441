"""Which runs undecided claims ask for: by the arms of their cells, or by what their rules look up."""

from __future__ import annotations

from fedlib.analysis import needs
from fedlib.analysis.claims import Book, Runs
from fedlib.analysis.planning import Arm
from fedlib.analysis.readings import Reading, Swap
from fedlib.analysis.verdict import Verdict
from fedlib.runs.work import Plan
from fedlib.settings import params
from fedlib.settings.params import Experiments

SPEC = {
    "dataset": "digits",
    "partition": {"scheme": "iid"},
    "model": "logistic",
    "N": 10,
    "m": 3,
    "T": 4,
    "seeds": 2,
    "local": {"lr": 0.1, "batch": 10, "steps": 2},
    "methods": {
        "MD": {"sampler": "md"},
        "Random": {"sampler": "uniform"},
        "none": {"sampler": "uniform", "m": 2},
    },
    "grid": {"a": {}, "b": {}},
}
SETTINGS = Experiments({"experiments": {"e": SPEC, "f": SPEC}})
PLANS = {name: Plan.of_experiment(name, "demo", SETTINGS) for name in SETTINGS.names}
PLAIN, SWAPPED = Reading("plain", ""), Reading("swapped", "", swaps=(Swap("e", methods={"MD": "none"}),))


def asked(rule, reading: Reading) -> list[frozenset[Arm]]:
    book = Book("x")
    book.claim("x.1", "figure_1", needs=["e", "f"], sentence="A claim.")(rule)
    planned = Runs(reading.of({name: needs.stand_in(plan) for name, plan in PLANS.items()}))
    return needs.looked_up(book.claims[0], planned.only(["e", "f"]), reading)


def test_a_rule_asks_for_the_methods_and_settings_that_it_looks_up() -> None:
    def rule(runs: Runs) -> Verdict:
        runs.pick("e", "a", ["MD"])
        runs.curves("e", "b", "Random", "test_accuracy")
        return Verdict("held")

    assert asked(rule, PLAIN) == [frozenset({Arm("e", "a", "MD"), Arm("e", "b", "Random")})]
    assert asked(rule, SWAPPED) == [frozenset({Arm("e", "a", "none"), Arm("e", "b", "Random")})]


def test_experiments_are_parts_and_what_was_not_looked_up_counts_whole_where_a_rule_ends_early() -> None:
    def rule(runs: Runs) -> Verdict:
        runs.pick("e", "a", ["MD"])
        raise ZeroDivisionError

    first, rest = sorted(asked(rule, PLAIN), key=len)
    assert first == {Arm("e", "a", "MD")}
    assert rest == {Arm("f", setting, method) for setting in "ab" for method in SPEC["methods"]}


def test_claims_that_are_data_ask_for_their_arms_under_every_reading() -> None:
    """Of HCSFed, without any run."""
    of = needs.needed("hcsfed", {}, {})
    assert set(of) <= {claim.id for claim in needs.data.claims_of("hcsfed")}
    assert {core for core, _ in of.values()} == {True, False}
    arms = {arm for _, parts in of.values() for part in parts for arm in part}
    settings = params.load()
    assert {arm.experiment for arm in arms} <= {*settings.names, *settings.studies}
    assert {arm.experiment for arm in arms} <= needs.experiments_of("hcsfed")
    assert any(arm.method == "HCSFed-R (GC-A)" for arm in arms)
    table_1 = {arm.method for arm in arms if arm.experiment == "hcsfed_table_1"}
    planned = {work.labels["method"] for work in Plan.of_experiment("hcsfed_table_1", "paper", settings).work}
    assert {"Random"} < table_1 < planned
