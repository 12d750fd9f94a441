"""The rule that ranks samplers, from the archive: in Python and in the chooser's script, for every choice."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.drawing.style import NAMES
from fedlib.runs.experiment import tidy
from fedlib.runs.lookup import Finished
from fedlib.runs.place import Place
from fedlib.settings import params
from fedlib.settings.schema import ROOT
from workspace.analysis.experiments import plan
from workspace.pages import chooser, first, ranking, readme

SCRIPT = ROOT / "site" / "static" / "ranking.js"
FACETS = ("labels", "sizes", "share", "data")
BUDGETS = [("round", 1), ("round", 0.25), ("megabytes", 0.5), ("client_steps", 0.1), ("server_seconds", 1)]


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pd.DataFrame]:
    """The archived tables of the arena's experiments."""
    folder, settings = tmp_path_factory.mktemp("arena"), params.load()
    nowhere, tables = Place(runs=folder / "runs", datasets=folder / "datasets"), {}
    for name in settings.artifacts["arena"]:
        work = plan(name, "paper", settings)
        table, records, _, _ = tidy(work, Finished(work, nowhere, folder / "results", any_data=True))
        if records:
            tables[name] = table
    return tables


@pytest.fixture(scope="module")
def points(arena: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return chooser.points(arena)


@pytest.fixture(scope="module")
def data(points: pd.DataFrame) -> dict[str, Any]:
    return chooser.data(points, planned())


def planned() -> list[Any]:
    settings = params.load()
    return [(name, one) for name in settings.artifacts["arena"] for one in settings.runs(name, "paper")]


def test_a_submission_is_compared_with_random_alone(arena: dict[str, pd.DataFrame]) -> None:
    """FedCor's runs under another name have FedCor's gain, whatever else the table holds."""
    tasks = arena["arena_common"]
    described_by = SimpleNamespace(name="Mine", paper="", information=["losses"])
    entry = SimpleNamespace(description=described_by, code=ROOT / "arena" / "mine.py")
    mine = tasks[tasks["method"] == "FedCor"].assign(method="Mine")
    board: Any = SimpleNamespace(
        accepted=[(entry, mine)], table=pd.DataFrame({"bytes": 1.0, "steps": 1.0}, index=["Mine"])
    )
    rules: Any = SimpleNamespace(experiment="arena_common", baseline="Random")
    [row] = chooser.submissions(tasks, board, rules, settings=1).to_dict("records")

    runs = chooser.points({"arena_common": tasks[tasks["method"].isin(["Random", "FedCor"])]})
    places = list(dict.fromkeys(zip(runs["experiment"], runs["setting"], strict=True)))
    gain = ranking.gain(ranking.at_budget(runs), "FedCor", "Random", places)
    assert gain is not None
    assert row["sampler"] == "Mine"
    assert row[chooser.COLUMNS[2]].startswith(f"{gain.value:+.1f}"), row


def by_hand(table: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """(setting, method, seed, round, megabytes, client steps, server seconds, accuracy) of every checkpoint."""
    runs: dict[Any, list[Any]] = {}
    for row in table.itertuples():
        runs.setdefault((row.setting, row.method, row.seed), []).append(row)
    for setting in {key[0] for key in runs}:
        methods = {method for at, method, _ in runs if at == setting}
        seeds = {seed for at, _, seed in runs if at == setting}
        shared = [s for s in seeds if all((setting, m, s) in runs for m in methods)]
        mine = {
            (m, s): sorted(runs[setting, m, s], key=lambda row: row.round) for m in methods for s in shared
        }
        ends = [rows[-1].round for rows in mine.values() if not any(row.diverged for row in rows)]
        last = min(ends)
        checkpoints = sorted({math.ceil(k * last / 40) for k in range(1, 41)})
        for (method, seed), rows in mine.items():
            sent = steps = seconds = 0.0
            seen: list[float] = []
            for row in rows:
                if row.round > last:
                    break
                sent += 4 * (row.parameters_up + row.parameters_down + row.scalars_up) / 1e6
                steps += row.client_steps
                seconds += row.server_seconds
                if row.round > 0 and not math.isnan(row.test_accuracy):
                    seen.append(100 * row.test_accuracy)
                if row.round in checkpoints:
                    if seen:
                        yield setting, method, seed, row.round, sent, steps, seconds, sum(seen) / len(seen)
                    seen = []


def test_every_column_is_what_a_plain_loop_over_the_archive_gives(
    arena: dict[str, pd.DataFrame], points: pd.DataFrame
) -> None:
    columns = ["setting", "method", "seed", *chooser.COSTS, "accuracy"]
    keys = columns[:4]
    assert len(arena) == points["experiment"].nunique() >= 5
    for name, table in arena.items():
        made = points.loc[points["experiment"] == name, columns]
        expected = pd.DataFrame(by_hand(table), columns=columns)
        made, expected = (frame.sort_values(keys).reset_index(drop=True) for frame in (made, expected))
        pd.testing.assert_frame_equal(made, expected, check_dtype=False, rtol=1e-9)


def combinations(data: dict[str, Any]) -> Iterator[tuple[str, float, tuple[str, ...], int, list[int]]]:
    """(cost, amount, filters, what may be asked, the settings that pass), for every choice."""
    options = [["", *dict.fromkeys(one[key] for one in data["settings"])] for key in FACETS]
    for (cost, amount), filters in product(BUDGETS, product(*options)):
        passing = [
            k
            for k, one in enumerate(data["settings"])
            if all(value in ("", one[key]) for key, value in zip(FACETS, filters, strict=True))
        ]
        if passing:
            for asks in range(len(data["asks"])):
                yield cost, amount, filters, asks, passing


@pytest.fixture(scope="module")
def ranked(data: dict[str, Any]) -> dict[Any, tuple[ranking.Ranking, list[Any], Any]]:
    """Every choice -> its ranking, its settings, and what every run reaches."""
    runs = first.runs_of(data)
    places = [(one["experiment"], one["setting"]) for one in data["settings"]]
    at_budgets: dict[Any, Any] = {}
    found = {}
    for cost, amount, filters, asks, passing in combinations(data):
        if (cost, amount) not in at_budgets:
            at_budgets[cost, amount] = ranking.at_budget(runs, cost, amount)
        kinds = {
            one["name"]: one["kind"]
            for one in data["methods"]
            if one["name"] != ranking.BASE and (one["kind"] != "sampler" or one["asks"] <= asks)
        }
        settings, at = [places[k] for k in passing], at_budgets[cost, amount]
        found[cost, amount, filters, asks] = ranking.ranking(at, kinds, settings), settings, at
    return found


def test_the_script_ranks_as_the_pages_do_whatever_is_chosen(
    data: dict[str, Any], ranked: dict[Any, tuple[ranking.Ranking, Any, Any]], tmp_path: Path
) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    source, target = tmp_path / "data.json", tmp_path / "found.json"
    source.write_text(json.dumps({**data, "budgets": BUDGETS}))
    program = Path(__file__).with_name("ranking.js")
    subprocess.run([node, program, SCRIPT, source, target], check=True)
    found = json.loads(target.read_text())
    assert len(found) == len(ranked) >= 384
    places = [(one["experiment"], one["setting"]) for one in data["settings"]]
    for one in found:
        choice = (one["cost"], one["amount"], tuple(one["filter"]), one["asks"])
        made = ranked[choice][0]
        assert one["answer"] == ranking.answer(made), choice
        assert one["first"] == (made.first.method if made.first else None), choice
        assert one["exceptions"] == [row.method for row in made.exceptions], choice
        assert [places[k] for k in one["settings"]] == list(made.settings), choice
        assert [(name, rank, verdict) for name, rank, _, _, _, verdict, _ in one["rows"]] == [
            (row.method, row.rank, row.gain.verdict) for row in made.rows
        ], choice
        for (_, _, *numbers, _, behind), row in zip(one["rows"], made.rows, strict=True):
            known = [nan if value is None else value for value in (*numbers, behind)]
            expected = [row.gain.value, row.gain.low, row.gain.high, row.behind.value if row.behind else nan]
            np.testing.assert_allclose(known, expected, rtol=1e-4, atol=1e-3, err_msg=str(choice))


nan = float("nan")


def mean_gain(at: Any, method: str, base: str, settings: Any) -> float:
    """The gain of a method over another one, by pandas; NaN if they share nothing."""
    mine, other = (
        pd.Series({(s, seed): value for s in settings for seed, value in at.get((s, name), {}).items()})
        for name in (method, base)
    )
    if mine.empty or other.empty:
        return nan
    difference = (mine - other).dropna()
    return float(difference.groupby(level=0).mean().mean()) if len(difference) else nan


def test_the_first_is_never_beaten_by_a_sampler_that_the_answer_does_not_name(
    data: dict[str, Any], ranked: dict[Any, tuple[ranking.Ranking, Any, Any]]
) -> None:
    kinds = {one["name"]: one["kind"] for one in data["methods"]}
    asked = {one["name"]: one["asks"] for one in data["methods"]}
    for choice, (made, settings, at) in ranked.items():
        said = ranking.answer(made)
        for row in made.rows:
            if kinds[row.method] != "sampler":
                assert row.rank is None, (choice, row.method)
                continue
            assert asked[row.method] <= choice[3], (choice, row.method)
            if row.gain.verdict == ranking.ABOVE:
                assert "simplest" not in said, (choice, row.method)
                assert "none of them is surely" not in said or row.method in said, (choice, row.method)
            if row is made.first or row.gain.verdict != ranking.ABOVE:
                continue
            assert made.first is not None
            leader = made.first.method
            both = [s for s in settings if (s, row.method) in at and (s, leader) in at]
            if row.rank is not None:
                both = list(made.settings)
            over = mean_gain(at, row.method, leader, both)
            assert over <= 1e-9 or row.method in said, (choice, row.method, over)


def test_a_gain_is_the_mean_over_settings_of_paired_differences(
    ranked: dict[Any, tuple[ranking.Ranking, Any, Any]],
) -> None:
    made, _, at = ranked["round", 1, ("", "", "", ""), 2]
    assert len(made.settings) >= 8
    for row in made.rows:
        expected = mean_gain(at, row.method, ranking.BASE, row.gain.settings)
        assert row.gain.value == pytest.approx(expected), row.method


def test_the_interval_of_one_setting_is_students() -> None:
    part = np.array([1.0, 2.5, -0.5, 3.0])
    value, low, high = ranking.pooled([part])
    expected = stats.ttest_1samp(part, 0).confidence_interval(0.95)
    assert (value, low, high) == pytest.approx((part.mean(), expected.low, expected.high))


def test_a_setting_with_one_seed_takes_the_spread_of_the_others() -> None:
    several = np.array([1.0, 3.0, 5.0])
    _, low, high = ranking.pooled([several, np.array([4.0])])
    spread = several.var(ddof=1)
    freedom = (spread / 3 + spread) ** 2 / ((spread / 3) ** 2 / 2 + spread**2 / 2)
    half = stats.t.ppf(0.975, int(freedom)) * math.sqrt(spread / 3 + spread) / 2
    assert (high - low) / 2 == pytest.approx(half)
    assert math.isnan(ranking.pooled([np.array([4.0]), np.array([5.0])])[1])


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [
        (2.0, 1.0, 3.0, ranking.ABOVE),
        (-2.0, -3.0, -1.0, ranking.BELOW),
        (0.4, 0.1, 0.6, ranking.CLOSE),
        (0.9, 0.1, 1.7, ranking.CLOSE),
        (0.0, -0.9, 0.9, ranking.CLOSE),
        (3.0, -1.0, 7.0, ranking.UNCLEAR),
        (3.0, nan, nan, ranking.ONE_SEED),
    ],
)
def test_less_than_a_point_is_no_difference_that_matters(
    value: float, low: float, high: float, words: str
) -> None:
    assert ranking.Gain(value, low, high, ("s",), 5, 5).verdict == words


def test_samplers_are_compared_where_most_of_them_ran() -> None:
    ran = {"A": frozenset("abc"), "B": frozenset("abc"), "C": frozenset("abd"), "D": frozenset("e")}
    assert ranking.block(ran, "abcde") == ("a", "b", "c"), (
        "two samplers in three, or three in two: more settings"
    )
    assert ranking.block({**ran, "E": frozenset("ab")}, "abcde") == ("a", "b")
    assert ranking.block({}, "abc") == ()


def test_a_sampler_that_lacks_settings_is_compared_where_both_ran() -> None:
    """Z ran in one setting only, where it is above the first: the answer says so, and does not rank it."""

    def seeds(value: float) -> dict[int, float]:
        return {0: value, 1: value + 0.5, 2: value - 0.5}

    at = {
        ("s", "Random"): seeds(50), ("s", "X"): seeds(60.1), ("s", "Z"): seeds(62.2),
        ("t", "Random"): seeds(50), ("t", "X"): seeds(70.3), ("t", "Y"): seeds(80.1), ("s", "Y"): seeds(51),
    }  # fmt: skip
    made = ranking.ranking(at, {"X": "sampler", "Y": "sampler", "Z": "sampler"}, "st")
    assert [(row.method, row.rank) for row in made.rows] == [("Y", 1), ("X", 2), ("Z", None)]
    assert [row.method for row in made.exceptions] == ["Z"]
    assert "Z ran in only 1 setting, with +12.2 points" in ranking.answer(made)
    assert "against Y it has +11.2 there" in ranking.answer(made)


def test_methods_are_apart_by_what_they_are(data: dict[str, Any]) -> None:
    kinds = {one["name"]: one["kind"] for one in data["methods"]}
    assert {name for name, kind in kinds.items() if kind == "reference"} == {
        "Full participation",
        "Target",
        "Oracle",
    }
    servers = {name for name, kind in kinds.items() if kind == "server"}
    assert servers == {"SCAFFOLD", "FedDyn", "IFCA", "FedProx", "Random, attrition"}
    for one in data["methods"]:
        assert (ROOT / one["file"]).is_file(), one
        assert one["paper"] or one["name"] in ("Full participation", "Random, attrition"), one


def test_the_table_of_the_pages_is_the_choosers_first(
    points: pd.DataFrame, ranked: dict[Any, tuple[ranking.Ranking, Any, Any]]
) -> None:
    made, table = chooser.ranked_over_all(points, planned())
    chosen, _, _ = ranked["round", 1, ("", "", "", ""), 2]
    samplers = [row.method for row in chosen.rows if row.kind == "sampler"]
    assert [row.method for row in made.rows if row.kind == "sampler"] == samplers
    assert list(table["sampler"])[: len(samplers)] == samplers
    assert not set(NAMES) & set(table["sampler"]), "names of one paper's algorithms"


def test_readme_answers_as_the_archive_does(data: dict[str, Any]) -> None:
    begin, end = readme.ANSWER
    written = readme.README.read_text().split(begin)[1].split(end)[0].strip()
    assert written == first.listed(first.answers(data)), "run: fedlib readme"


def test_the_answer_is_the_first_of_each_kind_of_clients(data: dict[str, Any]) -> None:
    for said, ranked in zip(first.answers(data), first.by_labels(data).values(), strict=True):
        assert ranked.first is not None
        assert f"{ranked.first.method}" in said
        assert ranking.signed(ranked.first.gain.value) in said
