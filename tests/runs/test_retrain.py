"""A run that is trained again: the same, another choice where that is allowed, or a difference."""

from __future__ import annotations

import numpy as np
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


@pytest.mark.parametrize(
    ("column", "within", "beyond"),
    [  # of 360 test samples, two may be classified otherwise
        ("test_accuracy", 0.5 + 2 / 360, 0.5 + 3 / 360),
        ("client_accuracy", 0.509, 0.511),
        ("test_loss", 0.5 * (1 + 0.9e-5), 0.5 * (1 + 1.1e-5)),
    ],
)
def test_how_far_numbers_may_be_apart(column: str, within: float, beyond: float) -> None:
    old = ROWS.assign(**{column: [0.1, 0.2, 0.5, 0.6]})
    archived = ArchivedRun("e", old, {"data": {"name": "digits"}})
    for value, first in ((within, None), (beyond, 2)):
        found = compare(archived, old.assign(**{column: [0.1, 0.2, value, 0.6]}), informed=True)
        assert found.first_different == first


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


@pytest.mark.parametrize(
    ("column", "forged", "first"),
    [
        ("test_accuracy", [0.1, 0.5, np.nan, 0.7], 2),
        ("round", [0, 1, 0, 3], 2),
        ("local_loss_std", [0.0, 0.1, 0.2, 0.5], 3),
        ("client_accuracy", [0.1, 0.5, 0.6, 0.9], 3),
        ("diverged", [False, True, False, False], 1),
        ("clock", [0.0, 1.0, 2.0, 2.5], 3),
    ],
)
def test_every_column_is_compared(column: str, forged: list, first: int) -> None:
    """Where an accuracy is not a number, no difference to it is above a bound; it is one nevertheless."""
    true = ROWS.assign(
        test_accuracy=[0.1, 0.5, 0.6, 0.7],
        local_loss_std=[0.0, 0.1, 0.2, 0.3],
        client_accuracy=[0.1, 0.5, 0.6, 0.7],
        diverged=False,
        clock=[0.0, 1.0, 2.0, 3.0],
    )
    record = {"data": {"name": "digits"}}
    assert compare(ArchivedRun("e", true, record), true, informed=True, whole=True).first_different is None
    found = compare(
        ArchivedRun("e", true.assign(**{column: forged}), record), true, informed=True, whole=True
    )
    assert (found.first_different, found.allowed) == (first, False)


def test_a_run_that_was_trained_to_its_end_has_as_many_rows() -> None:
    more = pd.concat([ROWS, ROWS.tail(1)], ignore_index=True)
    record = {"data": {"name": "digits"}}
    for archived, trained in ((more, ROWS), (ROWS, more)):
        found = compare(ArchivedRun("e", archived, record), trained, informed=True, whole=True)
        assert (found.first_different, found.allowed) == (4, False)
        assert compare(ArchivedRun("e", archived, record), trained, informed=True).first_different is None


def test_what_was_not_measured_in_both_is_the_same() -> None:
    sparse = ROWS.assign(test_loss=[2.0, np.nan, 1.2, 1.0])
    record = {"data": {"name": "digits"}}
    assert compare(ArchivedRun("e", sparse, record), sparse, informed=True).first_different is None
    assert compare(ArchivedRun("e", sparse, record), ROWS, informed=True).first_different == 1
