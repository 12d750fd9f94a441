"""Readings: whose runs stand for what."""

from __future__ import annotations

import math
import re
from functools import cache

import pandas as pd
import pytest

from fedlib.settings import params
from workspace.analysis import effects
from workspace.analysis.claim import Arms, claims_of
from workspace.analysis.paper import papers
from workspace.analysis.readings import (
    AS_WRITTEN,
    Planned,
    Reading,
    Swap,
    Where,
    alone,
    grid,
    how_many,
    left_open,
    primary,
    readings,
)

ALPHA = Swap("e", settings={"MNIST": "MNIST, alpha = 0.1", "FMNIST": "FMNIST, alpha = 0.1"})
ATTRITION = Swap("e", methods={"Random": "Random, attrition"})
CLIENTS = Swap("e", columns={"test_accuracy": "client_accuracy"})
OTHER = Swap("e", methods={"HCSFed": "HCSFed, as run"}, source="variants")


def table(*runs: tuple[str, str], first: float = 0.0) -> pd.DataFrame:
    """One row per run, each with an accuracy of its own and the clients' accuracy ten above it."""
    values = [first + k for k in range(len(runs))]
    columns = {"test_accuracy": values, "client_accuracy": [value + 10 for value in values]}
    frame = pd.DataFrame(runs, columns=["setting", "method"])
    return frame.assign(seed=0, round=1, diverged=False, **columns)


RESULTS = {
    "e": table(("MNIST", "Random"), ("MNIST, alpha = 0.1", "Random"), ("MNIST, alpha = 0.1", "Random, attrition"),
               ("FMNIST", "Random")),
    "variants": table(("MNIST, alpha = 0.1", "HCSFed, as run"), first=50),
}  # fmt: skip


def accuracy(reading: Reading, setting: str, method: str) -> float | None:
    """Of the run that answers a request; None if it has not been run."""
    where = reading.find(Where("e", setting, method))
    rows = Arms(RESULTS).rows(where)
    return None if rows is None else rows[where.column].item()


def test_swaps_act_one_after_the_other() -> None:
    reading = Reading("r", "", swaps=(ALPHA, ATTRITION, CLIENTS))
    assert reading.find(Where("e", "MNIST", "Random")) == Where(
        "e", "MNIST, alpha = 0.1", "Random, attrition", "client_accuracy"
    )
    assert reading.find(Where("e", "MNIST", "SCAFFOLD", "train_loss")) == Where(
        "e", "MNIST, alpha = 0.1", "SCAFFOLD", "train_loss"
    )
    assert reading.find(Where("f", "MNIST", "Random")) == Where("f", "MNIST", "Random")


def test_a_reading_finds_runs_and_none_where_there_is_none() -> None:
    reading = Reading("r", "", swaps=(ALPHA, ATTRITION, CLIENTS))
    assert accuracy(reading, "MNIST", "Random") == 12
    assert accuracy(reading, "FMNIST", "Random") is None, "0.01 does not stand for alpha = 0.1"
    assert accuracy(Reading("as written", ""), "MNIST", "Random") == 0


def test_runs_of_another_experiment_stand_for_a_method() -> None:
    reading = Reading("r", "", swaps=(ALPHA, OTHER))
    assert accuracy(reading, "MNIST", "Random") == 1
    assert accuracy(reading, "MNIST", "HCSFed") is None, (
        "the other experiment has no such setting under its own name"
    )
    both = Swap("e", {"MNIST": "MNIST, alpha = 0.1"}, {"HCSFed": "HCSFed, as run"}, source="variants")
    assert accuracy(Reading("r", "", swaps=(both,)), "MNIST", "HCSFed") == 50


def test_a_grid_combines_every_option() -> None:
    options = {"alpha": {"0.01": (), "0.1": (ALPHA,)}, "accuracy": {"official": (), "clients'": (CLIENTS,)}}
    found = grid(options)
    assert [one.name for one in found] == [
        "0.01; official", "0.01; clients'", "0.1; official", "0.1; clients'"
    ]  # fmt: skip
    assert found[3].swaps == (ALPHA, CLIENTS)
    assert found[3].choices == {"alpha": "0.1", "accuracy": "clients'"}


@pytest.mark.parametrize("paper", papers())
def test_every_paper_says_where_its_readings_are_from_and_plans_their_runs(paper: str) -> None:
    settings, mine = params.load(), readings(paper)
    planned = cache(lambda experiment: {(r.setting, r.method) for r in settings.runs(experiment, "paper")})
    names = [reading.name for reading in mine]

    def is_planned(swap: Swap, reading: Reading) -> bool:
        """Whether some runs that a swap takes are planned; what a reading lacks is mapped to runs that do not exist."""
        sources = {
            other.source for other in reading.swaps if other.experiment == swap.experiment and other.source
        }
        pools = [swap.source] if swap.source else [swap.experiment, *sources]
        return any(
            setting in (swap.settings.values() or [setting]) and method in (swap.methods.values() or [method])
            for pool in pools
            for setting, method in planned(pool)
        )

    assert AS_WRITTEN not in names[1:]
    assert len(set(names)) == len(names)
    for reading in [reading for reading in mine if not reading.part]:
        if reading.name == AS_WRITTEN or reading.commit:
            assert set(reading.sources) == set(reading.choices), reading.name
        found = [
            is_planned(swap, reading) for swap in reading.swaps if swap.experiment not in settings.studies
        ]
        assert any(found) or not found, f"{reading.name} takes runs that are nowhere planned"


@pytest.mark.parametrize("paper", papers())
def test_what_was_also_tried_is_not_what_is_taken(paper: str) -> None:
    table = left_open(paper).set_index("left open")
    tested = next(one for one in readings(paper) if one.name == primary(paper).reading)
    for choice in {choice for one in readings(paper) for choice in one.choices}:
        taken = tested.choices.get(choice)
        options = {one.choices[choice] for one in readings(paper) if choice in one.choices}
        tried = set(filter(None, table.loc[choice, "also tried"].split(" · ")))
        assert tried == options - {taken}
        assert table.loc[choice, "tested"] == (taken or "as in the other readings")


PLAN = Planned("e", "(2)", ("New", "Random"), known=2, total=4)


def of_seeds(new: int, random: int) -> pd.DataFrame:
    rows = [("(2)", "New", seed) for seed in range(new)] + [("(2)", "Random", seed) for seed in range(random)]
    return pd.DataFrame([*rows, ("(2)", "CS", 5), ("(1)", "New", 5)], columns=["setting", "method", "seed"])


@pytest.mark.parametrize(("new", "random"), [(3, 3), (4, 3), (3, 9)])
def test_until_all_planned_seeds_are_there_the_known_ones_alone_are_judged(new: int, random: int) -> None:
    seen = PLAN.seen(of_seeds(new, random))
    seeds = seen.groupby(["setting", "method"])["seed"].agg(list).to_dict()
    assert seeds == {
        ("(1)", "New"): [5], ("(2)", "CS"): [5], ("(2)", "New"): [0, 1], ("(2)", "Random"): [0, 1]
    }  # fmt: skip


def test_once_all_are_there_the_new_ones_stand_alone_beside_them() -> None:
    seen = PLAN.seen(of_seeds(4, 4))
    seeds = seen[seen["setting"] == "(2)"].groupby("method")["seed"].agg(list).to_dict()
    assert seeds.pop("CS") == [5]
    assert seeds == {
        "New": [0, 1, 2, 3], "Random": [0, 1, 2, 3], alone("New"): [2, 3], alone("Random"): [2, 3]
    }  # fmt: skip


def test_the_fifteen_new_seeds_of_hics_fl_wait_for_each_other() -> None:
    """Of claims as of arms: the outcome is taken once, at twenty, and none of its rows has an interim number."""
    t1b = next(claim for claim in claims_of("hics_fl") if claim.id == "hics.T1.b")
    t = range(1, 41)

    def runs(method: str, seeds: int, slope: float) -> pd.DataFrame:
        frames = [
            pd.DataFrame(
                {"round": t, "test_accuracy": [min(0.9, slope * (1 + k / 100) * r) for r in t]}
            ).assign(seed=k, setting="(2)", method=method, diverged=False)
            for k in range(seeds)
        ]
        return pd.concat(frames)

    def judged(seeds: int) -> dict[str, int]:
        table = pd.concat([runs("HiCS-FL", seeds, 0.2), runs("Random", seeds, 0.1)])
        rows = pd.DataFrame(effects.rows(t1b, Arms({"hics_fmnist": table})), columns=effects.COLUMNS)
        rows = rows[(rows["n"] > 0) & rows["reading"].isin([AS_WRITTEN, "as written, the new seeds alone"])]
        return dict(zip(rows["reading"], rows["n"], strict=True))

    assert judged(5) == judged(12) == {AS_WRITTEN: 5}
    assert judged(20) == {AS_WRITTEN: 20, "as written, the new seeds alone": 15}


def test_so_many_readings_have_a_reason() -> None:
    said = how_many("hcsfed")
    assert said.startswith("192 readings are all combinations")
    factors = [int(n) for n in re.findall(r"(\d+) \(", said)]
    assert math.prod(factors) == 192 == len(readings("hcsfed")) - 1
    assert how_many("fedcor") == "", "they are listed one by one"


def test_hcsfeds_reading_with_own_test_samples_borrows_no_runs() -> None:
    """All that it asks for has not been run, until runs of its own settings are there."""
    reading = next(reading for reading in readings("hcsfed") if "600 test samples" in reading.name)
    planned_settings = {plan.setting for plan in params.load().runs("hcsfed_table_1", "paper")}
    for claim in claims_of("hcsfed"):
        for cell in claim.cells:
            places = [reading.find(arm.where) for arm in cell.arms]
            own = all(
                where.setting.endswith("600 own test samples") and where.setting in planned_settings
                for where in places
            )
            absent = any("not run" in where.setting + where.method for where in places)
            assert own or absent, (claim.id, places)
