"""Verdicts: from made-up tables whose answers are known, and what is said of runs that are missing or diverged."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fedlib.analysis import claims, judging
from fedlib.analysis.claims import Book, Missing, Runs, Verdict, combine, decide, positive
from fedlib.analysis.measure import area, paired

Curve = Callable[[np.ndarray], np.ndarray]


def runs_of(
    experiment: str, curves: dict[str, dict[str, Curve]], column: str, seeds: int = 3, T: int = 100
) -> pd.DataFrame:
    """A tidy table: setting -> method -> value by round, the same for every seed but for a little noise."""
    t = np.arange(T + 1)
    parts = []
    for setting, methods in curves.items():
        for method, f in methods.items():
            for seed in range(seeds):
                values = f(t) + 1e-6 * seed
                part = pd.DataFrame({"round": t, column: values, "seed": seed, "method": method})
                parts.append(part.assign(experiment=experiment, setting=setting, diverged=False))
    return pd.concat(parts, ignore_index=True)


def falling(rate: float, floor: float = 0.0) -> Curve:
    return lambda t: floor + 2 * np.exp(-rate * t)


def rising(rate: float, top: float = 0.9) -> Curve:
    return lambda t: 0.1 + (top - 0.1) * (1 - np.exp(-rate * t))


def verdict(book: Book, id: str, results: dict[str, pd.DataFrame]) -> Verdict:
    return next(claim for claim in book.claims if claim.id == id).judge(results)


def test_a_missing_experiment_setting_or_method_is_not_run_and_says_what_is_missing():
    book = Book("p")

    @book.claim("p.1", "figure_1", ["e"])
    def _(runs: Runs) -> Verdict:
        """A is better."""
        return positive(paired(runs.statistic("e", "s", ["A", "B"], "train_loss", area), "B", "A"))

    claim = book.claims[0]
    table = runs_of("e", {"s": {"A": falling(0.2), "B": falling(0.1)}}, "train_loss")
    assert claim.sentence == "A is better."
    assert claim.artifact == "p/figure_1"
    assert claim.judge({"e": table}).status == "held"
    assert (
        claim.judge({"e": table.assign(method=table["method"].map({"A": "B", "B": "A"}))}).status
        == "not held"
    )
    for results, reason in [
        ({}, "experiment e"),
        ({"other": table}, "experiment e"),
        ({"e": table.assign(setting="x")}, "setting 's'"),
        ({"e": table[table["method"] == "B"]}, "A has not been run in e s"),
        ({"e": table.assign(train_loss=math.nan)}, "train_loss"),
    ]:
        missing = claim.judge(results)
        assert missing.status == "not run"
        assert reason in missing.detail


def test_a_verdict_says_that_a_method_has_one_seed():
    curves = {"s": {"A": falling(0.2), "B": falling(0.1)}}
    one, three = (runs_of("e", curves, "train_loss", seeds) for seeds in (1, 3))
    uneven = three[(three["method"] == "A") | (three["seed"] == 0)]

    def sentence(e: pd.DataFrame, methods: tuple[str, ...] = (), **others: pd.DataFrame) -> str:
        runs = Runs({"e": e, **others})
        runs.pick("e", "s", methods)
        for name in others:
            runs.curves(name, "s", "A", "train_loss")
        return claims.one_seed(runs.given())

    assert sentence(one) == "Rests on one seed."
    assert sentence(three) == ""
    assert sentence(three, f=one) == sentence(one, f=three) == "Rests in part on one seed."
    assert sentence(uneven) == "Rests in part on one seed."
    assert sentence(uneven, ("A",)) == "", "B, which has one seed, was not asked for"
    assert claims.one_seed(Runs({"e": one}).given()) == ""


def test_a_diverged_run_counts_against_its_method_and_is_named():
    book = Book("p")

    @book.claim("p.1", "figure_1", ["e"])
    def _(runs: Runs) -> Verdict:
        """A has the lower loss."""
        return positive(paired(runs.statistic("e", "", ["A", "B"], "train_loss", area), "B", "A"))

    table = runs_of("e", {"": {"A": falling(0.2), "B": falling(0.1)}}, "train_loss")
    gone = (table["method"] == "A") & (table["seed"] > 0)
    table = table[~gone | (table["round"] <= 20)]
    table.loc[gone & (table["round"] == 20), "diverged"] = True
    found = book.claims[0].judge({"e": table})
    assert found.status == "not held"
    assert "A 1" in found.detail
    assert "A 2" in found.detail


def test_combine():
    def missing() -> Verdict:
        raise Missing("no such run")

    yes, no = (lambda: decide(True, "1")), (lambda: decide(False, "0"))
    assert combine({"a": yes, "b": yes}).status == "held"
    assert combine({"a": yes, "b": no}).status == "held in part"
    assert combine({"a": no, "b": no}).status == "not held"
    assert combine({"a": yes, "b": missing}).status == "held", "what was not run does not count against it"
    assert "Not run, b: no such run." in combine({"a": yes, "b": missing}).detail
    assert combine({"a": yes, "b": yes, "c": no}, all_of=2).status == "held"
    assert combine({"a": yes, "b": no, "c": no}, some_of=2).status == "not held"
    told = combine(
        {"a": lambda: decide(True, detail="3 of 5 seeds."), "b": lambda: decide(True, detail="3 of 5 seeds.")}
    )
    assert told.detail == "2 of 2 parts held. a; b: 3 of 5 seeds."
    # five of six are asked for: one failed, and those that have not been run could still make it five
    four_open = {"a": no} | dict.fromkeys("cdef", missing)
    for b in (missing, yes):
        with pytest.raises(Missing, match="still open"):
            combine(four_open | {"b": b}, all_of=5, some_of=5)
    assert combine(four_open | {"b": no}, all_of=5, some_of=5).status == "not held"
    assert combine({"a": no} | dict.fromkeys("bcdef", yes), all_of=5).status == "held"
    assert combine({"a": no, "b": yes, "c": yes} | dict.fromkeys("def", missing), all_of=4).status == "held"
    with pytest.raises(Missing, match="no such run"):
        combine({"a": missing, "b": missing})


def test_a_verdict_is_said_data_set_by_data_set():
    def missing() -> Verdict:
        raise Missing("no such run")

    yes, no = (lambda: decide(True, "1")), (lambda: decide(False, "0"))
    panels = {f"FMNIST {name}": yes for name in ("2SPC", "1SPC", "Dir")} | {"CIFAR-10 Dir": missing}
    assert combine(panels).words == "held on Fashion-MNIST (3 of 3), CIFAR-10 not run"
    mixed = combine({"MNIST, q = 10 %": yes, "FMNIST, q = 10 %": no, "FMNIST, q = 30 %": no})
    assert mixed.words == "held on MNIST (1 of 1), not held on Fashion-MNIST (0 of 2)"
    assert combine({"a": yes, "b": no, "c": missing}).words == "held in part (1 of 2; 1 not run)"
    assert decide(True).words == "held"


def test_a_verdict_is_settled_where_each_of_three_seeds_gives_it():
    book = Book("p")

    @book.claim("p.1", "figure_1", ["e"])
    def _(runs: Runs) -> Verdict:
        """A is better."""
        return positive(paired(runs.statistic("e", "s", ["A", "B"], "train_loss", area), "B", "A"))

    (claim,) = book.claims
    table = runs_of("e", {"s": {"A": falling(0.2), "B": falling(0.1)}}, "train_loss", seeds=5)
    assert claim.judge({"e": table}).strength == "settled"
    assert claim.judge({"e": table[table["seed"] < 2]}).strength == "indicated"
    worse = table["train_loss"].where((table["method"] != "A") | (table["seed"] != 4), 3.0)
    other = claim.judge({"e": table.assign(train_loss=worse)})
    assert (other.status, other.strength) == ("held", "indicated"), "one seed of five says the reverse"
    only_a = table[(table["method"] == "A") | (table["seed"] < 2)]
    assert claim.judge({"e": only_a}).strength == "indicated", "two seeds are shared"


def test_an_informative_claim_is_a_fraction_outside_the_totals():
    book = Book("hcsfed")
    yes, no = (lambda: decide(True, "1")), (lambda: decide(False, "0"))
    book.claim("p.1", "figure_1", [], "", "Each cell.", informative=True)(
        lambda runs: combine({"a": yes, "b": no, "c": yes})
    )
    board = judging.verdicts(book.claims, {})
    assert board.loc[0, ["verdict", "headline", "replicated"]].tolist() == ["informative"] * 2 + [
        "2 of 3 parts: a: 1; b: 0; c: 1"
    ]
    assert judging.totals(board).loc["all papers", "claims"] == 0
    book.claim("p.2", "figure_1", ["e"], "", "Each cell.", informative=True)(lambda runs: runs["e"])
    board = judging.verdicts(book.claims, {})
    assert board.loc[1, ["verdict", "headline"]].tolist() == ["not run", "informative"]
    assert judging.totals(board).loc["all papers", ["not run", "claims"]].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("written", "run", "said"),
    [
        ("held", "not held", "held as written"),
        ("held in part", "held", "held as run only"),
        ("not run", "held", "held as run only"),
        ("held in part", "not run", "held under neither"),
        ("not run", "not held", "held under neither"),
        ("not run", "not run", "not run"),
    ],
)
def test_the_headline_of_a_claim(written: str, run: str, said: str):
    assert judging.headline(written, run) == said
