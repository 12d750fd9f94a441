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
from fedlib.papers.clustered_sampling import book
from fedlib.papers.clustered_sampling import claims as cs

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


@pytest.mark.parametrize("paper", ["clustered_sampling"])
def test_every_claim_of_the_book_is_complete_and_survives_having_no_runs(paper):
    book = claims.claims(paper)
    assert len({claim.id for claim in book}) == len(book)
    for claim in book:
        assert claim.sentence.endswith("."), claim.id
        assert claim.printed, claim.id
        assert claim.judge({}).status == ("not run" if claim.needs else "held"), claim.id


def test_totals_count_every_claim_once():
    board = judging.verdicts(cs.book.claims, {})
    totals = judging.totals(board)
    assert totals.loc["all papers", "claims"] == (board["headline"] != "informative").sum()
    assert totals.loc["clustered_sampling", "not run"] == len(cs.book.claims) - 2


# -- rules of Clustered Sampling ----------------------------------------------------------------------------------


def figure_1(**rates: float) -> dict[str, pd.DataFrame]:
    names = {"md": "MD", "target": "Target", "alg1": "Algorithm 1", "alg2": "Algorithm 2"}
    curves = {"random ids": {names[key]: falling(rate) for key, rate in rates.items()}}
    table = runs_of("cs_mnist", curves, "train_loss", T=200)
    return {
        "cs_mnist": table.assign(
            client_accuracy=1 - table["train_loss"] / 4, train_loss_std=table["train_loss"]
        )
    }


def test_cs_figure_1_orderings():
    results = figure_1(md=0.01, target=0.04, alg1=0.02, alg2=0.039)
    for id in ("cs.F1.a", "cs.F1.b", "cs.F1.c", "cs.F1.d"):
        assert verdict(cs.book, id, results).status == "held", id
    results = figure_1(md=0.02, target=0.04, alg1=0.01, alg2=0.021)
    assert verdict(cs.book, "cs.F1.a", results).status == "not held"
    assert verdict(cs.book, "cs.F1.d", results).status == "not held"


def drawn_table(
    draw: dict[str, Callable[[np.random.Generator], np.ndarray]], T: int = 200
) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    rows = [
        {
            "experiment": "cs_mnist",
            "setting": "random ids",
            "method": m,
            "seed": s,
            "round": t,
            "diverged": False,
        }
        | {"clients": f(rng) if t else np.array([], dtype=int)}
        for m, f in draw.items()
        for s in range(2)
        for t in range(T + 1)
    ]
    counts = (np.arange(100)[:, None] // 10 == np.arange(10)).astype(int) * 500
    clients = [
        {
            "data": "cs_mnist",
            "setting": "random ids",
            "seed": s,
            "method": "",
            "client": k,
            "counts": counts[k],
        }
        for s in range(2)
        for k in range(100)
    ]
    return {"cs_mnist": pd.DataFrame(rows), "cs_partitions": pd.DataFrame(clients)}


def test_cs_figure_1_counts_classes_and_clients():
    one_each = lambda rng: 10 * np.arange(10) + rng.integers(10, size=10)  # noqa: E731
    strata = lambda rng: rng.permutation(100).reshape(10, 10)[:, 0]  # noqa: E731
    results = drawn_table(
        {
            "MD": lambda rng: rng.integers(100, size=10),
            "Target": one_each,
            "Algorithm 1": strata,
            "Algorithm 2": one_each,
        }
    )
    for id in ("cs.F1.e", "cs.F1.f", "cs.F1.g", "cs.F1.h"):
        assert verdict(cs.book, id, results).status == "held", id
    assert verdict(cs.book, "cs.F1.i", results).status == "not held"  # it never missed a class
    same = drawn_table({"MD": strata, "Algorithm 1": strata, "Algorithm 2": strata, "Target": strata})
    assert verdict(cs.book, "cs.F1.g", same).status == "not held"
    assert verdict(cs.book, "cs.F1.e", same).status != "held"


def test_cs_gains_by_alpha():
    gain = {"alpha = 10": 0.0, "alpha = 0.1": 0.02, "alpha = 0.01": 0.3, "alpha = 0.001": 0.4}

    def table(gain: dict[str, float]) -> dict[str, pd.DataFrame]:
        curves = {
            a: {m: (lambda t, f=f: 0.5 * f + np.exp(-0.1 * t)) for m, f in
                {"MD": 1.0, "Algorithm 1": 1 - g / 2, "Algorithm 2": 1 - g}.items()}
            for a, g in gain.items()
        }  # fmt: skip
        return {"cs_cifar": runs_of("cs_cifar", curves, "train_loss")}

    for id in ("cs.F2.a", "cs.F2.b", "cs.F2.c", "cs.F2.d", "cs.F2.e"):
        assert verdict(cs.book, id, table(gain)).status == "held", id
    reverse = dict(zip(gain, list(gain.values())[::-1], strict=True))
    assert verdict(cs.book, "cs.F2.a", table(reverse)).status == "not held"
    assert verdict(cs.book, "cs.F2.b", table(reverse)).status == "not held"
    part = verdict(cs.book, "cs.F2.d", table({a: g for a, g in gain.items() if a != "alpha = 0.001"}))
    assert part.words == "held (2 of 2; 2 not run)"
    assert "alpha = 0.001" in part.detail


def test_cs_local_work_and_number_of_clients():
    rates = {
        "less work": 0.03,
        "standard": 0.06,
        "more work": 0.4,
        "fewer clients": 0.02,
        "more clients": 0.2,
    }
    lead = dict.fromkeys(rates, 0.1) | {"fewer clients": 0.12, "more clients": 0.08}
    curves = {
        s: {
            m: falling(rate, 1 - lead[s] * (m == "Algorithm 2")) for m in ("MD", "Algorithm 1", "Algorithm 2")
        }
        for s, rate in rates.items()
    }
    results = {"cs_work": runs_of("cs_work", curves, "train_loss", T=200)}
    for id in ("cs.F8.a", "cs.F8.b", "cs.F8.c", "cs.F8.d"):
        assert verdict(cs.book, id, results).status == "held", (id, verdict(cs.book, id, results))


def test_cs_gains_by_number_of_clients_are_those_of_the_same_rounds():
    """Alike in each round, and growing with the rounds: a longer run does not make a larger gain."""
    algorithm = lambda t: falling(0.01)(t) * (1 - t / 400)  # noqa: E731
    curves = {"MD": falling(0.01), "Algorithm 2": algorithm}
    tables = [
        runs_of("cs_work", {setting: curves}, "train_loss", T=T)
        for setting, T in {"fewer clients": 200, "standard": 150, "more clients": 100}.items()
    ]
    assert verdict(cs.book, "cs.F8.b", {"cs_work": pd.concat(tables)}).status == "not held"


def test_cs_gain_over_a_diverged_md_is_whole_and_of_a_diverged_method_infinitely_bad():
    table = runs_of(
        "cs_cifar", {"alpha = 10": {"MD": falling(0.1, 1), "Algorithm 2": falling(0.1, 1)}}, "train_loss"
    )

    def gone(**where: object) -> dict[str, pd.DataFrame]:
        chosen = np.logical_and.reduce([table[key] == value for key, value in where.items()])
        cut = table[~chosen | (table["round"] <= 30)].copy()
        cut.loc[chosen[cut.index] & (cut["round"] == 30), "diverged"] = True
        return {"cs_cifar": cut}

    place = ("cs_cifar", "alpha = 10")
    gain = lambda results: book.gains(Runs(results), place, "Algorithm 2").tolist()  # noqa: E731
    assert gain({"cs_cifar": table}) == pytest.approx([0, 0, 0])
    assert gain(gone(method="MD", seed=1)) == pytest.approx([0, 1, 0])
    assert gain(gone(method="Algorithm 2", seed=1)) == pytest.approx([0, -math.inf, 0])
    assert gain(gone(seed=1)) == pytest.approx([0, 0])


def test_gains_of_opposite_sign_do_not_cancel():
    gain = {0: 0.2, 1: -0.2, 2: 0.0}
    curves = {m: falling(0.1, floor=1.0) for m in ("MD", "Algorithm 1", "Algorithm 2")}
    table = runs_of("cs_cifar", dict.fromkeys(("alpha = 10", "alpha = 0.1"), curves), "train_loss")
    table.loc[table["method"] != "MD", "train_loss"] *= 1 - table["seed"].map(gain)
    assert verdict(cs.book, "cs.F2.b", {"cs_cifar": table}).status == "not held"
