"""Rounds to a target: one rule for the cap, and nothing invented for a run that does not arrive."""

from __future__ import annotations

import math

import pandas as pd

from workspace.analysis.arrivals import Arrivals, followed


def runs(arrive: dict[int, tuple[float, int]], diverge: tuple[int, ...] = ()) -> pd.DataFrame:
    """seed -> (round at the target, last round)."""
    rows = [
        {"seed": s, "round": t, "acc": 0.9 if t >= at else 0.1, "diverged": s in diverge and t == last}
        for s, (at, last) in arrive.items()
        for t in range(last + 1)
    ]
    return pd.DataFrame(rows)


def test_a_run_that_does_not_arrive_is_censored_where_it_ends():
    found = Arrivals.of(runs({0: (3, 10), 1: (math.inf, 8), 2: (9, 10)}), "acc", 0.8)
    assert found.rounds == {0: 3, 1: math.inf, 2: 9}
    assert found.followed == 8
    assert found.until(8) == {0: 3, 1: 8, 2: 8}
    assert found.censored(8) == 2
    assert found.reached


def test_runs_that_stop_at_the_target_do_not_shorten_what_is_compared():
    arrived = Arrivals.of(runs({0: (3, 3), 1: (5, 5)}), "acc", 0.8)
    waiting = Arrivals.of(runs({0: (math.inf, 20), 1: (15, 20)}), "acc", 0.8)
    assert followed([arrived, waiting]) == 20
    assert followed([arrived, waiting], T=10) == 10
    assert followed([arrived]) == math.inf


def test_the_round_zero_is_not_an_arrival_and_a_diverged_run_never_arrives():
    assert Arrivals.of(runs({0: (0, 4)}), "acc", 0.8).rounds == {0: 1}
    gone = Arrivals.of(runs({0: (2, 10), 1: (math.inf, 4)}, diverge=(1,)), "acc", 0.8)
    assert gone.rounds[1] == math.inf
    assert gone.followed == 10
    assert not Arrivals.of(runs({0: (math.inf, 4), 1: (math.inf, 4), 2: (1, 4)}), "acc", 0.8).reached
    assert Arrivals.of(runs({0: (math.inf, 4), 1: (1, 4)}), "acc", 0.8).reached, (
        "half of the seeds are enough"
    )
