"""Readings: named, consistent sets of choices that a paper leaves open, and the runs that belong to each.

A rule, a table or a figure asks for an experiment, a setting, a method and a column by the paper's own names. A
reading maps these names to runs, so that one rule judges every reading::

    Reading(
        "as run",
        "what the authors' program does",
        {"numbering of clients": "by digit"},                       # what is left open -> what is taken
        {"numbering of clients": "the authors' program"},           # the source of each choice
        (
            Swap("cs_mnist", settings={"random ids": "ids sorted by digit"}),
            Swap("cs_mnist", methods={"Algorithm 1": "Algorithm 1, authors' tie order"}),
        ),
    )

Each `Swap` acts on the result of those before it: here Algorithm 1's runs in "random ids" are those of the authors' tie
order in "ids sorted by digit". A paper's readings are `READINGS` in `fedlib/papers/<paper>/readings.py`: "as written"
first, "as run" if the authors' program is public, then all others that are archived. `LEFT_OPEN`, in the
same file, lists the choices that no reading varies: what is left open, what the sources say, what is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import pandas as pd

from fedlib.analysis.paper import part

AS_WRITTEN, AS_RUN, CLOSEST = "as written", "as run", "closest to print"


class Where(NamedTuple):
    """One method's runs in one setting, and the column that is measured."""

    experiment: str
    setting: str
    method: str
    column: str = "test_accuracy"


@dataclass(frozen=True)
class Swap:
    """Runs that replace others: a request for one name is answered with the runs of another.

    settings, methods: asked -> found; names that are not listed are unaffected, and an empty mapping means all, each
    under its own name. source: the experiment that has the runs ("": the same). columns: asked -> measured, for the
    runs that the swap affects.
    """

    experiment: str
    settings: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    source: str = ""

    def find(self, asked: Where) -> Where:
        concerned = (
            asked.experiment == self.experiment
            and asked.setting in (self.settings or (asked.setting,))
            and asked.method in (self.methods or (asked.method,))
        )
        if not concerned:
            return asked
        return Where(
            self.source or asked.experiment,
            self.settings.get(asked.setting, asked.setting),
            self.methods.get(asked.method, asked.method),
            self.columns.get(asked.column, asked.column),
        )


@dataclass(frozen=True)
class Reading:
    """One consistent set of choices.

    words: the reading in one line. choices: what is left open -> the option taken. sources: what is left open -> the
    source of the option (text, code, the authors' correction). swaps: the runs that replace others, in order. commit:
    of the authors' repository, if the reading is what their program does there.
    """

    name: str
    words: str
    choices: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    commit: str = ""

    def find(self, asked: Where) -> Where:
        """The runs that answer a request under this reading."""
        for swap in reversed(self.swaps):
            asked = swap.find(asked)
        return asked

    def of(self, results: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
        """The results under this reading, by the names with which they are requested; missing runs are left out."""
        read = dict(results)
        for experiment in dict.fromkeys(swap.experiment for swap in self.swaps):
            mine = [swap for swap in self.swaps if swap.experiment == experiment]
            pools: dict[str, dict[Any, pd.DataFrame]] = {
                name: dict(list(results[name].groupby(["setting", "method"], sort=False)))
                for name in {experiment, *(swap.source for swap in mine)}
                if name in results
            }
            names = list(dict.fromkeys(key for pool in pools.values() for key in pool))
            settings = dict.fromkeys(s for s, _ in names) | dict.fromkeys(
                s for one in mine for s in one.settings
            )
            methods = dict.fromkeys(m for _, m in names) | dict.fromkeys(
                m for one in mine for m in one.methods
            )
            found = []
            for setting, method in product(settings, methods):
                there = self.find(Where(experiment, setting, method))
                rows = pools.get(there.experiment, {}).get((there.setting, there.method))
                if rows is not None:
                    asked = {column for swap in mine for column in swap.columns} & set(rows)
                    columns = {
                        c: rows[self.find(Where(experiment, setting, method, c)).column] for c in asked
                    }
                    name = {"experiment": experiment} if "experiment" in rows else {}
                    found.append(rows.assign(setting=setting, method=method, **columns, **name))
            read.pop(experiment, None)
            if found:
                read[experiment] = pd.concat(found, ignore_index=True)
        return read


def readings(paper: str) -> list[Reading]:
    """All readings of a paper (`fedlib/papers/<paper>/readings.py`), "as written" first."""
    return part(paper, "readings").READINGS


def named(paper: str) -> list[Reading]:
    """The readings that tables show: `SHOWN` in a paper's `readings.py`, or else "as written" and "as run"."""
    return getattr(part(paper, "readings"), "SHOWN", None) or [
        reading for reading in readings(paper) if reading.name in (AS_WRITTEN, AS_RUN)
    ]


def left_open(paper: str) -> pd.DataFrame:
    """What a paper leaves open, one row a thing: what its sources say, what is taken as written, what else was tried.

    Its readings say it of what was varied, `LEFT_OPEN` of the rest.
    """
    there = readings(paper)
    written = next((one for one in there if one.name == AS_WRITTEN), Reading(AS_WRITTEN, "there is none"))
    rows = []
    for what in dict.fromkeys(what for one in there for what in one.choices):
        others = dict.fromkeys(one.choices[what] for one in there if what in one.choices)
        others.pop(written.choices.get(what), None)
        sources = {f"{one.choices[what]}: {one.sources[what]}": None for one in there if what in one.sources}
        rows.append((what, written.choices.get(what, "nothing"), " · ".join(others), " · ".join(sources)))
    rows += [
        (what, as_written, "", sources) for what, sources, as_written in part(paper, "readings").LEFT_OPEN
    ]
    return pd.DataFrame(rows, columns=["left open", "as written", "also tried", "sources"])


def grid(options: Mapping[str, Mapping[str, tuple[Swap, ...]]]) -> list[Reading]:
    """Every combination of options, in order; options: what is left open -> (option -> its swaps)."""
    found = []
    for taken in product(*(option.items() for option in options.values())):
        choices = {what: value for what, (value, _) in zip(options, taken, strict=True)}
        swaps = tuple(swap for _, swaps in taken for swap in swaps)
        found.append(Reading("; ".join(choices.values()), "one of the readings tried", choices, {}, swaps))
    return found
