"""Effects of archived runs, computed again from the archive's rows by plain loops that share no code with the table."""

from __future__ import annotations

import math
from functools import cache

import pandas as pd
import pytest
from scipy import stats

from fedlib.analysis import effects
from fedlib.settings.schema import ROOT


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


def test_deviations_from_printed_accuracies():
    curves = [run("fedcor_centralised", "FMNIST", "Centralised", s, "test_accuracy") for s in range(1, 6)]
    values = [100 * max(x for t, x in curve if t >= 1) - 85.92 for curve in curves]
    agrees(cell("fedcor.S5.a", "as written", "FMNIST"), values, log=False)
