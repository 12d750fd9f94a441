"""Effects of archived runs, computed again from the archive's rows by plain loops that share no code with the table."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.settings.schema import ROOT
from workspace.analysis import effects
from workspace.analysis.estimators import Effect
from workspace.papers.hics_fl import findings


@cache
def archived(name: str) -> pd.DataFrame:
    return pd.read_parquet(ROOT / "data" / "archive" / "paper" / f"{name}.parquet")


@cache
def table() -> pd.DataFrame:
    return effects.load("paper")


def cell(claim: str, reading: str, name: str) -> pd.Series:
    rows = table()
    return rows[(rows["claim"] == claim) & (rows["reading"] == reading) & (rows["cell"] == name)].iloc[0]


def run(name: str, setting: str, method: str, seed: int, column: str) -> list[tuple[int, float]]:
    """(round, value) of the measured rounds of one run."""
    rows = archived(name)
    rows = rows[(rows["setting"] == setting) & (rows["method"] == method) & (rows["seed"] == seed)]
    values = zip(rows["round"], rows[column], strict=True)
    return sorted((int(t), float(x)) for t, x in values if not math.isnan(x))


def seeds(name: str, setting: str, *methods: str) -> list[int]:
    """Their common seeds."""
    rows = archived(name)
    rows = rows[rows["setting"] == setting]
    return sorted(set.intersection(*(set(rows.loc[rows["method"] == m, "seed"]) for m in methods)))


def first(curve: list[tuple[int, float]], target: float) -> float:
    for t, accuracy in curve:
        if t >= 1 and accuracy >= target:
            return t
    return math.inf


def interval(values: list[float]) -> tuple[float, float, float]:
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))
    return mean, mean - half, mean + half


def agrees(found: pd.Series, values: list[float], log: bool) -> None:
    expected = [math.exp(x) if log else x for x in interval(values)]
    expected[2] = math.inf if found["open"] else expected[2]
    expected[1] = (0.0 if log else -math.inf) if found["under"] else expected[1]
    assert found[["estimate", "low", "high"]].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert found["n"] == len(values)


ROUNDS = [
    ("fedcor.T1.b", "as written", "FMNIST 2SPC, Pow-d", "fedcor_fmnist", "2SPC", "Pow-d", "FedCor", 0.69, 500),
    ("fedcor.T1.b", "as written", "FMNIST 1SPC, Pow-d", "fedcor_fmnist", "1SPC", "Pow-d", "FedCor", 0.62, 500),
    ("fedcor.T1.b", "as written", "FMNIST Dir, Pow-d", "fedcor_fmnist", "Dir", "Pow-d", "FedCor", 0.64, 500),
    ("hics.T1.b", "as written", "Fashion-MNIST, Random over HiCS-FL", "hics_fmnist", "(2)",
     "Random", "HiCS-FL", 0.75, 2000),
    ("hics.T1.b", "fdff729, the paper's training", "Fashion-MNIST, Random over HiCS-FL", "hics_fmnist_variants", "(2)",
     "Random", "HiCS-FL, C0", 0.75, 2000),
    ("hics.T1.b", "as written", "CIFAR-10, Random over HiCS-FL", "hics_cifar10", "(2)", "Random", "HiCS-FL", 0.6, 2000),
    ("hics.T1.a", "as written", "CIFAR-10, CS over HiCS-FL", "hics_cifar10", "(2)", "CS", "HiCS-FL", 0.6, 2000),
]  # fmt: skip


@pytest.mark.parametrize(
    ("claim", "reading", "name", "runs", "setting", "slow", "fast", "target", "T"), ROUNDS
)
def test_ratios_of_rounds(claim, reading, name, runs, setting, slow, fast, target, T):
    arrived, followed = {}, [float(T)]
    for method in (slow, fast):
        for seed in seeds(runs, setting, method):
            curve = run(runs, setting, method, seed, "test_accuracy")
            arrived[method, seed] = first(curve, target)
            if math.isinf(arrived[method, seed]):
                followed.append(curve[-1][0])
    tau = min(followed)
    values = [
        math.log(min(arrived[slow, s], tau) / min(arrived[fast, s], tau))
        for s in seeds(runs, setting, slow, fast)
    ]
    agrees(cell(claim, reading, name), values, log=True)


def tail(curve: list[tuple[int, float]], last: int) -> float:
    end = min(last, curve[-1][0])
    kept = [x for t, x in curve if t <= last and t > 0.95 * end]
    return sum(kept) / len(kept)


def middle(curve: list[tuple[int, float]], last: int) -> float:
    kept = [x for t, x in curve if 1 <= t <= last]
    return sum(kept) / len(kept)


LEVELS = [
    ("hics.F2.d", "Fashion-MNIST (3), Random", "hics_fmnist", "(3)", "HiCS-FL", "Random", tail, 200),
    ("hics.F2.a", "Fashion-MNIST (2), Random", "hics_fmnist", "(2)", "HiCS-FL", "Random", middle, 200),
    ("fedcor.F4.a", "FMNIST 1SPC, AFL", "fedcor_fmnist", "1SPC", "FedCor", "AFL", tail, 500),
    ("fedcor.F4.b", "FMNIST Dir, Random", "fedcor_fmnist", "Dir", "FedCor", "Random", middle, 500),
    ("hics.F4.a", "Fashion-MNIST (3)", "hics_fmnist", "(3)", "HiCS-FL", "CS", middle, 200),
]


@pytest.mark.parametrize(("claim", "name", "runs", "setting", "more", "less", "statistic", "last"), LEVELS)
def test_differences_of_levels_and_equivalences(claim, name, runs, setting, more, less, statistic, last):
    values = [
        100 * (statistic(run(runs, setting, more, s, "test_accuracy"), last)
               - statistic(run(runs, setting, less, s, "test_accuracy"), last))
        for s in seeds(runs, setting, more, less)
    ]  # fmt: skip
    agrees(cell(claim, "as written", name), values, log=False)


@pytest.mark.parametrize("setting", ["(1)", "(2)", "(3)"])
@pytest.mark.parametrize("method", ["Random", "Pow-d", "CS", "DivFL"])
def test_differences_of_the_spread_over_clients(setting, method):
    values = [
        middle(run("hics_fmnist", setting, method, s, "local_loss_std"), 200)
        - middle(run("hics_fmnist", setting, "HiCS-FL", s, "local_loss_std"), 200)
        for s in seeds("hics_fmnist", setting, method, "HiCS-FL")
    ]
    agrees(cell("hics.F14.a", "as written", f"Fashion-MNIST {setting}, {method}"), values, log=False)


def test_deviations_from_printed_accuracies():
    curves = [run("fedcor_centralised", "FMNIST", "Centralised", s, "test_accuracy") for s in range(1, 6)]
    values = [100 * max(x for t, x in curve if t >= 1) - 85.92 for curve in curves]
    agrees(cell("fedcor.S5.a", "as written", "FMNIST"), values, log=False)


@cache
def judged() -> pd.DataFrame:
    return effects.claims(table())


def of_claim(claim: str, reading: str) -> pd.Series:
    rows = judged()
    return rows[(rows["claim"] == claim) & (rows["reading"] == reading)].iloc[0]


C0, NEW = "fdff729, the paper's training", "as written, the new seeds alone"
SAME_MEAN = "0.1; 0.01; not counted; {}; repaired (R), H = 10; {}"


@pytest.mark.parametrize(
    ("accuracy", "gc", "expected"),
    [
        ("clients' own", "GC-A", (1.01, 0.97, 1.05)),
        ("clients' own", "GC-B", (1.10, 1.03, 1.17)),
        ("official test set", "GC-A", (1.08, 0.98, 1.20)),
        ("official test set", "GC-B", (1.19, 1.07, 1.33)),
    ],
)
def test_hcsfed_against_random_selection_with_the_same_mean(accuracy, gc, expected):
    row = of_claim("hcsfed.T1.b", SAME_MEAN.format(accuracy, gc))
    assert tuple(row[["estimate", "low", "high"]].round(2)) == expected
    assert (row["cells"], row["n"], row["artifact"]) == (6, 5, "hcsfed/table_1")
    printed = table().loc[table()["claim"] == "hcsfed.T1.b", "printed"]
    assert (printed.min(), printed.max()) == pytest.approx((2.1, 10.7), abs=0.05)


def test_attrition_alone_slows_random_selection():
    rows = table()
    rows = rows[
        (rows["claim"] == "hcsfed.T1.l") & (rows["reading"] == SAME_MEAN.format("clients' own", "GC-A"))
    ]
    assert (rows["estimate"].min().round(1), rows["estimate"].max().round(1)) == (1.8, 6.6)
    assert set(rows["outcome"]) == {""}, "the control reading is shown and not tested"
    assert set(rows["kind"]) == {"control"}
    assert set(rows["artifact"]) == {"hcsfed/table_1"}


@pytest.mark.parametrize(
    ("claim", "reading", "name", "expected", "seeds", "printed"),
    [
        ("hics.T1.b", "as written", "Fashion-MNIST, Random over HiCS-FL", (1.01, 0.85, 1.19), 20, 2.48),
        ("hics.T1.b", NEW, "Fashion-MNIST, Random over HiCS-FL", (0.97, 0.80, 1.19), 15, 2.48),
        ("hics.T1.b", C0, "Fashion-MNIST, Random over HiCS-FL", (1.99, 1.15, 3.44), 5, 2.48),
        ("hics.T1.b", "as written", "CIFAR-10, Random over HiCS-FL", (4.49, 2.80, 7.20), 5, 7.30),
        ("hics.T1.a", "as written", "CIFAR-10, CS over HiCS-FL", (3.31, 2.59, 4.22), 5, 6.08),
        ("fedcor.T1.b", "as written", "FMNIST 2SPC, Pow-d", (2.14, 1.27, math.inf), 5, 1.34),
        ("fedcor.T1.b", "as written", "FMNIST 1SPC, Pow-d", (2.41, 1.56, math.inf), 5, 1.99),
        ("fedcor.T1.b", "as written", "FMNIST Dir, Pow-d", (0.95, 0.31, 2.89), 5, 1.79),
        ("hics.F2.d", "as written", "Fashion-MNIST (1), Random", (-3.37, -4.51, -2.22), 5, math.nan),
        ("hics.F2.d", "as written", "Fashion-MNIST (2), Random", (-1.73, -2.63, -0.83), 20, math.nan),
        ("hics.F2.d", "as written", "Fashion-MNIST (3), Random", (-5.38, -8.52, -2.24), 5, math.nan),
        ("hics.F9.b", "as written", "FMNIST (b)", (-1.17, -1.30, -1.04), 5, math.nan),
        ("hics.F9.b", C0, "FMNIST (b)", (-0.75, -0.80, -0.69), 5, math.nan),
        ("hics.F9.b", "T_s = 0.001", "FMNIST (b)", (-0.30, -0.37, -0.23), 5, math.nan),
    ],
)  # fmt: skip
def test_what_the_runs_say_is_what_the_table_says(claim, reading, name, expected, seeds, printed):
    row = cell(claim, reading, name)
    assert tuple(row[["estimate", "low", "high"]].astype(float).round(2)) == pytest.approx(
        expected, nan_ok=True
    )
    assert row["n"] == seeds
    assert row["printed"] == pytest.approx(printed, abs=0.005, nan_ok=True)
    pages = {
        "hics.T1.a": "table_1",
        "hics.T1.b": "table_1",
        "fedcor.T1.b": "table_1",
        "hics.F2.d": "figure_2",
        "hics.F9.b": "figure_9",
    }
    assert row["artifact"].split("/")[1] == pages[claim]
    assert (row["outcome"] == "one seed") == (seeds == 1)


@pytest.mark.parametrize(
    ("reading", "method", "share"), [("as written", "Random", 8), ("along FedCor's own run", "FedCor", 87)]
)
def test_the_share_of_stationary_rounds(reading, method, share):
    row = cell("fedcor.F3.a", reading, "FMNIST")
    assert (round(100 + row["estimate"]), row["n"], row["artifact"]) == (share, 5, "fedcor/figure_3")
    rows = archived("fedcor_loss_changes")
    rows = rows[(rows["data"] == "FMNIST") & (rows["setting"] == "2SPC") & (rows["method"] == method)]
    cosines = [cosine for cosine in rows["cosine"] if not math.isnan(cosine)]
    assert 100 + row["estimate"] == pytest.approx(100 * sum(c > 0.97 for c in cosines) / len(cosines))


# What the primary readings say, and what was added beside them.
AUTHORS = "0.1; 0.01; keep the old model; clients' own; repaired (R), H = 10; GC-A"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MNIST, q = 10 %", (6.65, 3.79, 11.68)), ("MNIST, q = 30 %", (2.91, 2.17, 3.91)),
        ("MNIST, q = 50 %", (1.85, 1.49, 2.30)), ("FMNIST, q = 10 %", (1.76, 1.21, math.inf)),
        ("FMNIST, q = 30 %", (2.11, 1.53, math.inf)), ("FMNIST, q = 50 %", (1.89, 1.53, math.inf)),
    ],
)  # fmt: skip
def test_hcsfed_as_its_authors_earlier_program_runs(name, expected):
    row = cell("hcsfed.T1.b", AUTHORS, f"{name}, Random over HCSFed")
    assert (row["primary"], row["outcome"]) == (True, "shown")
    assert tuple(round(row[key], 2) for key in ("estimate", "low", "high")) == expected


def test_with_one_rule_for_both_the_speed_up_is_gone():
    one_rule = of_claim("hcsfed.T1.b", SAME_MEAN.format("clients' own", "GC-A"))
    assert (one_rule["low"], one_rule["high"]) == pytest.approx((0.97, 1.05), abs=0.005)
    assert one_rule["outcome"] == ""


def test_the_finding_of_hics_table_1_begins_with_the_tested_reading():
    said = findings.speed_up({name: archived(name) for name in ("hics_fmnist", "hics_cifar10")})
    for name, target, seeds in (("hics_fmnist", 0.75, 20), ("hics_cifar10", 0.6, 5)):
        logarithms = [
            math.log(
                first(run(name, "(2)", "Random", seed, "test_accuracy"), target)
                / first(run(name, "(2)", "HiCS-FL", seed, "test_accuracy"), target)
            )
            for seed in range(seeds)
        ]
        mean, low, high = map(math.exp, interval(logarithms))
        assert f"{mean:.2f} × [{low:.2f}, {high:.2f}] on " in said
        assert f"({seeds} seeds)" in said
    assert findings.speed_up({}) == ""


def test_the_order_of_the_warm_up_is_worth_what_the_finding_says():
    by_method = {
        method: [
            first(run("hics_fmnist_variants", "(2)", method, seed, "test_accuracy"), 0.75)
            for seed in range(5)
        ]
        for method in (
            "Random",
            *(f"HiCS-FL, C0{more}" for more in ("", ", warm-up at random", ", refreshed")),
        )
    }
    random, by_group, at_random, refreshed = by_method.values()
    said = findings.warm_up({name: archived(name) for name in ("hics_fmnist", "hics_fmnist_variants")})
    pairs = (random, by_group), (random, at_random), (random, refreshed), (at_random, by_group)
    for larger, smaller in pairs:
        logarithms = [math.log(a / b) for a, b in zip(larger, smaller, strict=True)]
        mean, low, high = map(math.exp, interval(logarithms))
        assert f"{mean:.2f} × [{low:.2f}, {high:.2f}]" in said
    assert "without the order, HiCS-FL is not distinguishable from random selection there" in said


@pytest.mark.parametrize(
    ("control", "order", "said"),
    [
        ((0.2, 0.3), (0.1, 0.2), "a part of the speed-up is the algorithm's, another the order's"),
        ((0.2, 0.3), (-0.1, 0.2), "a part of the speed-up is the algorithm's"),
        ((-0.3, 0.3), (0.1, 0.11), "HiCS-FL is not distinguishable from random selection there"),
        ((-0.3, 0.3), (-0.1, 0.2), "random selection there, nor is the order shown to matter"),
        ((-0.3, -0.31), (0.1, 0.11), "without the order, HiCS-FL is behind random selection there"),
    ],
)
def test_what_is_concluded_from_the_order_follows_the_intervals(control, order, said):
    concluded = findings.conclusion(*(Effect.of(np.linspace(*values, 5)) for values in (control, order)))
    assert concluded.endswith(said)


def test_fedcor_against_pow_d_with_twenty_candidates():
    row = of_claim("fedcor.T1.b", "Pow-d, d = 20")
    assert (row["estimate"], row["low"], row["cells"], row["aside"]) == (
        pytest.approx(2.26, abs=0.005), pytest.approx(1.45, abs=0.005), 3, 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("figure", "data", "temperature"),
    [
        ("F9", "FMNIST (a)", 0.0025),
        ("F9", "FMNIST (b)", 0.0025),
        *(
            (figure, f"CIFAR-10 ({k}), {optimizer}", 0.0015)
            for figure, k in (("F11", 1), ("F12", 2))
            for optimizer in ("SGD", "Adam")
        ),
    ],
)
def test_what_the_estimated_entropies_come_to(figure, data, temperature):
    """By pairs of clients: how often a balanced one's estimate is above a skewed one's; Kendall's tau without ties."""
    rows = archived("hics_entropy")
    rows = rows[(rows["data"] == data) & (rows["when"] == "warm-up")]
    separated, ordered = [], []
    for seed in range(5):
        group, true, bias = (rows.loc[rows["seed"] == seed, c] for c in ("group", "entropy", "bias"))
        exponents = np.stack([np.array(update, float) for update in bias]) / temperature
        found = stats.entropy(np.exp(exponents - exponents.max(1, keepdims=True)), axis=1).tolist()
        known = list(zip(group, found, strict=True))
        pairs = [(a > b) + (a == b) / 2 for g, a in known if g == 4 for h, b in known if h < 3]
        separated.append(sum(pairs) / len(pairs) - 0.5)
        clear = [(H, h) for H, h in zip(true.round(9), found, strict=True) if sum(true.round(9) == H) == 1]
        ordered.append(float(stats.kendalltau(*zip(*clear, strict=True)).statistic))
    agrees(cell(f"hics.{figure}.a", "as written", data), separated, log=False)
    agrees(cell(f"hics.{figure}.c", "as written", data), ordered, log=False)


def test_print_is_of_the_same_cells():
    fedcor, hics = (of_claim(claim, "as written") for claim in ("fedcor.T1.a", "hics.T1.a"))
    assert (fedcor["cells"], fedcor["printed"]) == (9, pytest.approx(2.63, abs=0.005))
    assert (hics["cells"], hics["printed"]) == (7, pytest.approx(3.17, abs=0.005))


@pytest.mark.parametrize(
    ("claim", "outcome", "said", "size"),
    [
        ("fedcor.T1.a", "shown in part", "shown in at least 5 of 9; 9 open", "as large as printed"),
        ("fedcor.F4.b", "holds where run", "holds in all 9 that were run; 9 open", ""),
        ("hcsfed.T1.a", "shown in part", "shown in at least 9 of 22", "size open"),
        ("hics.T1.b", "shown in part", "shown in at least 1 of 2; 2 open", "smaller than printed"),
        ("hics.T1.a", "shown in part", "shown in at least 4 of 7; 12 open", "size open"),
        ("hics.F3.a", "holds where run", "holds in both that were run; 10 open", ""),
        (
            "hics.F2.a",
            "contradicted",
            "contradicted: reversed in at least 3 of 12 "
            "(among them Fashion-MNIST (2), Random; Fashion-MNIST (3), CS)",
            "",
        ),
        (
            "hics.F2.d",
            "contradicted",
            "contradicted: reversed in at least 5 of 12 "
            "(among them Fashion-MNIST (1), Random; Fashion-MNIST (1), CS; Fashion-MNIST (2), Random and 1 more)",
            "",
        ),
        (
            "hics.F2.c",
            "contradicted",
            "contradicted: reversed in at least 5 of 12 "
            "(Fashion-MNIST (1), CS; Fashion-MNIST (1), DivFL; Fashion-MNIST (2), CS and 2 more)",
            "",
        ),
        ("hics.F4.a", "contradicted", "contradicted", ""),
        ("hics.F9.a", "contradicted", "contradicted: reversed in at least 1 of 2 (FMNIST (a))", ""),
        ("hics.F9.c", "contradicted", "contradicted: reversed in at least 1 of 2 (FMNIST (a))", ""),
        (
            "hics.F14.a",
            "contradicted",
            "contradicted: reversed in all 3 that were run; 3 open",
            "",
        ),
        ("cs.M.c", "by construction", "by construction", ""),
    ],
)
def test_what_core_claims_come_to(claim, outcome, said, size):
    rows = judged()
    row = rows[(rows["claim"] == claim) & rows["primary"]].iloc[0]
    assert (row["outcome"], row["said"], row["size"]) == (outcome, said, size)


def test_no_interval_below_its_bound_counts_as_shown():
    rows = table()
    rows = rows[(rows["test"] == "more") & (rows["n"] > 1) & rows["primary"]]
    assert not ((rows["outcome"] == "shown") & (rows["low"] < rows["margin"])).any()
    below = rows[(rows["high"] < rows["margin"]) & (rows["lost"] == 0)]
    assert set(below["outcome"]) <= {"reversed", "infeasible", "nobody arrives"}
    assert len(below) > 5
