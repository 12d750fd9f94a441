"""What a result says of its runs, against plain loops."""

from __future__ import annotations

import html
import math
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import blobs
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import fedlib
from fedlib.library.callbacks import Running
from fedlib.runs.progress import Progress

METHODS, SEEDS, T = ("a", "b", "c"), (0, 1, 2), 10


def made(seed: int = 0) -> pd.DataFrame:
    """Three methods, three seeds, ten rounds; one run diverges in round 4."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for method in METHODS:
        for s in SEEDS:
            quality = np.cumsum(rng.uniform(-0.02, 0.2, T + 1))
            broken = 4 if (method, s) == ("b", 1) else T + 1
            for t in range(min(broken, T) + 1):
                sent = dict(zip(("parameters_down", "parameters_up", "scalars_up", "client_steps"),
                                rng.integers(1, 10**6, 4).tolist(), strict=True))  # fmt: skip
                measured = {"test_accuracy": quality[t], "test_loss": 2 - quality[t], "diverged": t >= broken}
                measured["test_metric"] = quality[t] - 1
                labels = {"experiment": "", "setting": "", "method": method, "seed": s, "round": t}
                rows.append(labels | sent | measured)
    return pd.DataFrame(rows)


def ranks(values: dict[Any, tuple[float, float]]) -> dict[Any, float]:
    """Key -> its place, from 1; equal ones share the mean of their places."""
    ordered = sorted(values.values())
    return {
        k: float(np.mean([i + 1 for i, v in enumerate(ordered) if v == mine])) for k, mine in values.items()
    }


def by_hand(table: pd.DataFrame, column: str, target: float, low: bool) -> dict[str, list[float]]:
    """Method -> reached, median rounds, megabytes and work, mean final, mean rank."""
    found: dict[tuple[str, int], tuple[float, float, float, float]] = {}
    for method in METHODS:
        for s in SEEDS:
            run = table[(table["method"] == method) & (table["seed"] == s)].sort_values("round")
            sent, work, best = 0.0, 0, (math.inf, math.inf, math.inf)
            for row in run.to_dict("records"):
                sent += 4 * (row["parameters_down"] + row["parameters_up"] + row["scalars_up"]) / 1e6
                work += row["client_steps"]
                there = row[column] <= target if low else row[column] >= target
                if there and row["round"] >= 1 and not row["diverged"] and math.isinf(best[0]):
                    best = (row["round"], sent, work)
            late = [row[column] for row in run.to_dict("records") if row["round"] > 0.8 * run["round"].max()]
            final = float(np.mean(late))
            if run["diverged"].any():
                final = math.inf if low else 0.0 if column == "test_accuracy" else -math.inf
            found[method, s] = (*best, final)
    places: dict[str, list[float]] = {method: [] for method in METHODS}
    for s in SEEDS:
        order = {m: (found[m, s][0], found[m, s][3] if low else -found[m, s][3]) for m in METHODS}
        for method, place in ranks(order).items():
            places[method].append(place)
    return {
        m: [
            sum(math.isfinite(found[m, s][0]) for s in SEEDS),
            *(float(np.median([found[m, s][k] for s in SEEDS])) for k in range(3)),
            float(np.mean([found[m, s][3] for s in SEEDS])),
            float(np.mean(places[m])),
        ]
        for m in METHODS
    }


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("column", "target"),
    [("test_accuracy", 0.5), ("test_loss", 1.3), ("test_accuracy", 5.0), ("test_metric", -0.5)],
)
def test_a_summary_is_what_a_plain_loop_over_the_table_gives(column: str, target: float, seed: int) -> None:
    table = made(seed)
    summary = fedlib.Result(table.sample(frac=1, random_state=0).sort_index()).summary(
        target, column, better="high" if column == "test_metric" else None
    )
    expected = by_hand(table, column, target, low=column == "test_loss")
    assert summary["seeds"].tolist() == [3, 3, 3]
    for method, values in expected.items():
        mine = summary.loc[method, ["reached", "rounds", "megabytes", "work", "final", "rank"]].tolist()
        assert mine == pytest.approx(values), method
    assert summary["rank"].is_monotonic_increasing


def test_the_rank_is_by_rounds_and_only_then_by_the_end() -> None:
    table = made()
    table = table[table["seed"].eq(0) & table["method"].isin(["a", "c"])].copy()
    early = table["method"] == "a"
    table.loc[early, "test_accuracy"] = [0.1, 0.9, *[0.6] * 9]  # there at once, and worse at the end
    table.loc[~early, "test_accuracy"] = [0.1, 0.1, *[0.95] * 9]
    assert fedlib.Result(table).summary(0.6)["rank"].to_dict() == {"a": 1, "c": 2}


def test_the_worst_client_and_the_worst_tenth_are_of_the_worst() -> None:
    scores = {
        0: np.random.default_rng(0).permutation(30) / 30,
        1: np.random.default_rng(1).permutation(30) / 10,
    }
    ends = {("a", s): {"test_accuracy": values, "test_loss": values} for s, values in scores.items()}
    result = fedlib.Result(made(), ends=ends, sizes={s: np.full(30, 5) for s in scores})
    worst = {s: sorted(values) for s, values in scores.items()}
    high, low = result.worst("test_accuracy").loc["a"], result.worst("test_loss").loc["a"]
    assert high["worst tenth"] == pytest.approx(np.mean([np.mean(v[:3]) for v in worst.values()]))
    assert high["worst client"] == pytest.approx(np.mean([v[0] for v in worst.values()]))
    assert low["worst tenth"] == pytest.approx(np.mean([np.mean(v[-3:]) for v in worst.values()]))
    assert low["worst client"] == pytest.approx(np.mean([v[-1] for v in worst.values()]))
    assert high["mean"] == pytest.approx(np.mean([np.mean(v) for v in worst.values()]))


@pytest.mark.parametrize(("column", "sign"), [("test_accuracy", 1), ("test_loss", -1)])
def test_an_equal_value_is_no_better_one(column: str, sign: int) -> None:
    stop = fedlib.EarlyStop(3, column)
    run = Running("a", 0, 20, None)  # ty: ignore[invalid-argument-type]  # it reads no settings
    values = [1.0, 2.0, 2.0, math.nan, 1.5, 2.0, 3.0]
    told = [stop.on_round(run, {"round": t, column: sign * v}, nn.Identity) for t, v in enumerate(values)]
    assert [t for t, ends in enumerate(told) if ends] == [5], "the third measurement after the best"


def test_the_best_by_the_loss_is_kept_where_nothing_else_is_measured() -> None:
    y = blobs.X[:, :1] * 2
    result = blobs.simulate(
        y=y, test=(blobs.X, y), model=lambda: nn.Linear(6, 1), loss=lambda o, t: ((o - t) ** 2).mean(1),
        keep="best", T=6, local=fedlib.Local(lr=0.12, batch=2, epochs=1),
    )  # fmt: skip
    curve = result.table["test_loss"]
    assert curve.iloc[-1] > curve.min() < curve.iloc[0], "or this shows nothing"
    net = result.model("Random")
    kept = mse_loss(net(torch.from_numpy(blobs.X)), torch.from_numpy(y))
    assert float(kept.detach()) == pytest.approx(curve.min(), rel=1e-5)


def test_of_equally_good_models_the_first_is_kept() -> None:
    seen = []

    class Look(fedlib.Callback):
        def on_round(self, run: Any, row: Any, model: Any) -> None:
            seen.append(model().state_dict())

    result = blobs.simulate(
        T=2, keep="best", callbacks=[Look()], metric=fedlib.Metric(lambda outputs, labels: 1.0, better="high")
    )
    kept = result.model("Random").state_dict()
    assert all(torch.equal(kept[name], seen[0][name]) for name in kept)
    assert any(not torch.equal(kept[name], seen[2][name]) for name in kept), "or this shows nothing"


@pytest.mark.parametrize(
    "evaluate",
    [
        {"every": 2},
        {"every": 1, "train": True, "train_every": 2},
        {"every": 4, "train": True, "train_every": 4},
    ],
)
def test_a_run_that_goes_on_for_more_rounds_has_measured_what_a_longer_one_has(
    evaluate: dict[str, int], tmp_path: Path
) -> None:
    how = {"evaluate": fedlib.Evaluate(**evaluate), "client_test": blobs.OWNER}
    blobs.simulate(T=3, store=tmp_path, **how)
    again, at_once = blobs.simulate(T=6, store=tmp_path, **how), blobs.simulate(T=6, **how)
    times = ["seconds", "server_seconds"]
    pd.testing.assert_frame_equal(again.table.drop(columns=times), at_once.table.drop(columns=times))


@pytest.mark.parametrize("name", ["Top $k_$", "$x^2$", "100 % <b>_a"])
def test_a_name_in_a_figure_is_no_formula(name: str, tmp_path: Path) -> None:
    table = made()
    for methods in (["a"], list("abcdefghij")):  # beside its line, or in a legend
        several = pd.concat([table[table["method"] == "a"].assign(method=f"{name} {m}") for m in methods])
        figure = fedlib.Result(several).plot("test_loss")
        figure.savefig(tmp_path / "figure.svg")
        shown = html.unescape((tmp_path / "figure.svg").read_text())
        assert all(f">{name} {m}<" in shown for m in methods)


def test_a_table_says_its_units_and_what_to_cite(tmp_path: Path) -> None:
    result = blobs.simulate()
    result.save(tmp_path / "result.zip")
    for found in (result, fedlib.load(tmp_path / "result.zip")):
        assert found.table.attrs["units"]["test_loss"] == "nats"
        assert set(found.table.attrs["units"]) <= set(found.table)
        assert fedlib.__version__ in found.table.query("round > 1").attrs["citation"]
    numbers = result.table.select_dtypes("number").columns.difference(["seed", "test_metric"])
    assert set(numbers) <= set(result.table.attrs["units"])


def test_the_progress_line_says_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedlib.library.simulate.Progress", partial(Progress, interval=0.01))
    told: list[str] = []
    slow = [Waits()]
    result = blobs.simulate(
        T=6, methods={"a": "uniform", "b": "md"}, seeds=2, callbacks=slow, tell=told.append
    )
    line = next(line for line in reversed(told) if "left; test_accuracy: a 0." in line)
    shown = re.fullmatch(r".*; test_accuracy: a (\S+), b (\S+)", line)
    rows = result.table.groupby(["method", "round"])["test_accuracy"].mean().round(3).reset_index()
    assert {float(shown[1]), float(shown[2])} <= set(rows["test_accuracy"])


class Waits(fedlib.Callback):
    def on_round(self, run: Any, row: Any, model: Any) -> None:
        time.sleep(0.1)
