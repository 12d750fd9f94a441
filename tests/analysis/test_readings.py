"""Readings: whose runs stand for what."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest

from fedlib.settings import params
from workspace.analysis.claim import Arms
from workspace.analysis.paper import papers
from workspace.analysis.readings import AS_WRITTEN, Reading, Swap, Where, grid, left_open, readings

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
    for reading in mine:
        if reading.name == AS_WRITTEN or reading.commit:
            assert set(reading.sources) == set(reading.choices), reading.name
        found = [
            is_planned(swap, reading) for swap in reading.swaps if swap.experiment not in settings.studies
        ]
        assert any(found) or not found, f"{reading.name} takes runs that are nowhere planned"


@pytest.mark.parametrize("paper", papers())
def test_what_was_also_tried_is_not_what_is_taken(paper: str) -> None:
    table = left_open(paper).set_index("left open")
    text = next((one for one in readings(paper) if one.name == AS_WRITTEN), None)
    for choice in {choice for one in readings(paper) for choice in one.choices}:
        taken = text.choices.get(choice) if text else None
        options = {one.choices[choice] for one in readings(paper) if choice in one.choices}
        tried = set(filter(None, table.loc[choice, "also tried"].split(" · ")))
        assert tried == options - {taken}
        assert table.loc[choice, "as written"] == (taken or "nothing")
