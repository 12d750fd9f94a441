"""A run that is trained again: the same, another choice where that is allowed, or a difference."""

from __future__ import annotations

import pandas as pd
import pytest

from fedlib.runs.retrain import ArchivedRun, compare

ROWS = pd.DataFrame(
    {"round": range(4), "test_loss": [2.0, 1.5, 1.2, 1.0], "clients": [[], [0, 1], [1, 2], [0, 2]]}
)


def compared(informed: bool = True, drop: tuple[str, ...] = (), **changes: list):
    archived = ArchivedRun("e", ROWS.drop(columns=list(drop)), {"data": {"name": "digits"}})
    return compare(archived, ROWS.assign(**changes), informed)


def test_last_digits_are_the_same() -> None:
    found = compared(test_loss=[2.0, 1.5 + 1e-7, 1.2, 1.0])
    assert (found.verdict, found.allowed, found.rounds) == ("the same", True, 3)
    assert 0 < found.largest < 1e-6


@pytest.mark.parametrize(("informed", "allowed"), [(True, True), (False, False)])
def test_another_choice_is_for_samplers_that_go_by_training(informed: bool, allowed: bool) -> None:
    found = compared(informed, clients=[[], [0, 1], [1, 3], [0, 2]], test_loss=[2.0, 1.5, 1.3, 1.1])
    assert (found.first_different, found.allowed) == (2, allowed)


def test_a_choice_before_anything_was_learned_is_no_other_choice() -> None:
    found = compared(clients=[[3], [0, 1], [1, 2], [0, 2]])
    assert (found.first_different, found.allowed) == (0, False)


def test_other_numbers_with_the_same_choices_are_a_failure() -> None:
    found = compared(test_loss=[2.0, 1.5, 1.3, 1.0])
    assert (found.first_different, found.allowed) == (2, False)
    assert not compared(drop=("clients",), test_loss=[2.0, 1.6, 1.2, 1.0]).allowed
    assert compared(drop=("clients",), test_loss=[2.0, 1.5, 1.3, 1.0]).allowed


def test_other_counts_are_a_failure() -> None:
    result = compared(scalars_up=[0, 4, 4, 4])
    assert result.first_different is None, "the archive has no such column"
    archived = ArchivedRun("e", ROWS.assign(scalars_up=[0, 4, 4, 4]), {"data": {"name": "digits"}})
    result = compare(archived, ROWS.assign(scalars_up=[0, 4, 5, 4]), informed=True)
    assert (result.first_different, result.allowed) == (2, False)
