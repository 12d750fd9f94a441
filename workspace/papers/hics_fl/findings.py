"""HiCS-FL's speed-up over random selection, and how much of its authors' program's is owed to a warm-up's order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from workspace.analysis import effects, words
from workspace.analysis.claim import Arms
from workspace.analysis.estimators import Effect
from workspace.analysis.readings import primary
from workspace.papers.hics_fl.claims import CLAIMS
from workspace.papers.hics_fl.readings import AT_RANDOM, PROGRAM, REFRESHED

CLAIM, OVER = "hics.T1.b", ", Random over HiCS-FL"


def speed_up(results: Mapping[str, pd.DataFrame]) -> str:
    """Random selection's rounds over HiCS-FL's under the tested reading, data set by data set; "" if not run.

    results: tidy tables by experiment.
    """
    cells = _cells(results)
    cells = cells[(cells["reading"] == primary("hics_fl").reading) & (cells["n"] > 1)]
    said = [
        f"{words.ratio(row)} on {row['cell'].removesuffix(OVER)} ({row['n']} seeds)"
        for _, row in cells.iterrows()
    ]
    called = primary("hics_fl").called
    return f"Random selection's rounds over HiCS-FL's, read {called}: {' and '.join(said)}." if said else ""


def warm_up(results: Mapping[str, pd.DataFrame]) -> str:
    """What random selection's rounds over HiCS-FL's are with either order of the warm-up, in words; "" if not run.

    results: tidy tables by experiment. Only seeds that all of these have are compared.
    """
    cells = _cells(results)
    by_reading = cells[cells["cell"] == f"Fashion-MNIST{OVER}"].set_index("reading")
    names = [PROGRAM, AT_RANDOM, REFRESHED]
    if not set(names) <= set(by_reading.index) or by_reading.loc[names, ["open", "under"]].any(axis=None):
        return ""
    by_group, at_random, refreshed = (
        dict(zip(row["seeds"], row["values"], strict=True)) for _, row in by_reading.loc[names].iterrows()
    )
    seeds = sorted(by_group.keys() & at_random.keys() & refreshed.keys())
    if len(seeds) < 2:
        return ""
    program, control = [by_group[s] for s in seeds], [at_random[s] for s in seeds]
    order = [a - b for a, b in zip(program, control, strict=True)]
    return (
        f"In the authors' program (fdff729) random selection needs {_ratio(program)} as many rounds as HiCS-FL "
        "on Fashion-MNIST. The program's warm-up meets the clients in the order of their groups, which a server does "
        f"not know; with the warm-up in random order it is {_ratio(control)}, and with updates that "
        f"are renewed whenever a client takes part {_ratio([refreshed[s] for s in seeds])}. The order alone is worth "
        f"{_ratio(order)} (setting (2), {len(seeds)} seeds): {conclusion(Effect.of(control), Effect.of(order))}."
    )


def conclusion(control: Effect, order: Effect) -> str:
    """What is left of the speed-up without the order. control: in random order; order: what the order is worth."""
    if control.high < 0:
        return "without the order, HiCS-FL is behind random selection there"
    if control.low > 0:
        left = "a part of the speed-up is the algorithm's"
        return f"{left}, another the order's" if order.low > 0 else left
    left = "without the order, HiCS-FL is not distinguishable from random selection there"
    return left if order.low > 0 else f"{left}, nor is the order shown to matter"


def _cells(results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    claim = next(claim for claim in CLAIMS if claim.id == CLAIM)
    return pd.DataFrame(effects.rows(claim, Arms(results)), columns=effects.COLUMNS)


def _ratio(logarithms: Sequence[float]) -> str:
    effect = Effect.of(logarithms)
    mean, low, high = (math.exp(value) for value in (effect.estimate, effect.low, effect.high))
    return f"{mean:.2f} × [{low:.2f}, {high:.2f}]"
