"""Things in turn: all are done, each after those that it needs, and whoever is interrupted leaves nothing running."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from workspace.commands.progress import in_turn

SECONDS = 60.0  # that anything may take on a busy machine


@pytest.mark.parametrize("at_once", [1, 3])
def test_all_is_done_in_order_and_a_failure_stops_nothing(at_once: int) -> None:
    needs = {0: [], 1: [], 2: [0, 1], 3: [], 4: [2]}
    done: list[int] = []

    def work(item: int) -> int:
        assert set(needs[item]) <= set(done)
        if item == 3:
            raise ValueError("no")
        done.append(item)
        return 10 * item

    results = {
        item: made.exception() or made.result()
        for item, made in in_turn([*needs], needs, work, quit, at_once)
    }
    assert {item: made for item, made in results.items() if item != 3} == {0: 0, 1: 10, 2: 20, 4: 40}
    assert isinstance(results[3], ValueError)


def test_no_more_at_once_than_may_be_and_some_alone() -> None:
    together, most, lock = set(), set(), threading.Lock()

    def work(item: int) -> None:
        with lock:
            together.add(item)
            most.add(frozenset(together))
        threading.Event().wait(0.01)
        with lock:
            together.discard(item)

    items = list(range(8))
    alone = lambda item, others: not [o for o in others if o == 3] and (item != 3 or not [*others])  # noqa: E731
    assert len(list(in_turn(items, dict.fromkeys(items, ()), work, quit, 2, alone))) == 8
    assert {len(beside) for beside in most} <= {1, 2}
    assert not [beside for beside in most if 3 in beside and len(beside) > 1]


def test_what_is_taken_out_is_left_out() -> None:
    items = [0, 1, 2]
    seen = []
    for item, _ in in_turn(items, dict.fromkeys(range(3), ()), lambda item: None, quit, 1):
        seen.append(item)
        items[:] = [item for item in items if item != 1]
    assert seen == [0, 2]


def test_whoever_stops_in_between_ends_what_runs() -> None:
    stopped = threading.Event()
    waits = lambda item: item or stopped.wait(SECONDS)  # noqa: E731

    def interrupted() -> None:
        with closing(in_turn([0, 1], {0: [], 1: []}, waits, stopped.set, 2)) as turns:
            for _ in turns:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stopped.is_set()
