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
order in "ids sorted by digit". A paper's readings are `READINGS` in `papers/<paper>/readings.py`: "as written"
first, "as run" if the authors' program is public, then all others that are archived. `LEFT_OPEN`, in the
same file, lists the choices that no reading varies: what is left open, what the sources say, what is taken.

One reading is a paper's *primary* one (`PRIMARY`): its claims are tested under it alone. All others show how much the
effects depend on what is left open. It is chosen by the first of `REASONS` that says something, never by how close it
comes to print, and frozen before runs are added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

import pandas as pd

from workspace.analysis.paper import part, parts

AS_WRITTEN, AS_RUN = "as written", "as run"
TESTED = " (tested)"  # after the name of the reading under which claims are tested
REASONS = (  # in this order; closeness to print is none
    "the text",
    "the paper's proof, where its text contradicts itself",
    "feasibility, as full participation shows it",
    "the authors' program, as they corrected it",
    "the authors' own earlier program",
    "the source that the text cites",
    "the field's custom",
)


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

    def find(self, where: Where) -> Where:
        concerned = (
            where.experiment == self.experiment
            and where.setting in (self.settings or (where.setting,))
            and where.method in (self.methods or (where.method,))
        )
        if not concerned:
            return where
        return Where(
            self.source or where.experiment,
            self.settings.get(where.setting, where.setting),
            self.methods.get(where.method, where.method),
            self.columns.get(where.column, where.column),
        )


@dataclass(frozen=True)
class Reading:
    """One consistent set of choices.

    words: the reading in one line. choices: what is left open -> the option taken. sources: what is left open -> the
    source of the option (text, code, the authors' correction). swaps: the runs that replace others, in order. commit:
    of the authors' repository, if the reading is what their program does there. part: a part of another reading's runs,
    and no reading of its own.
    """

    name: str
    words: str
    choices: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    swaps: tuple[Swap, ...] = ()
    commit: str = ""
    part: bool = False

    def find(self, where: Where) -> Where:
        """The runs that answer a request under this reading."""
        for swap in reversed(self.swaps):
            if swap.experiment == where.experiment:  # asked a million times
                where = swap.find(where)
        return where


@dataclass(frozen=True)
class Primary:
    """The reading under which a paper's claims are tested.

    reading: its name among the paper's readings. called: what pages call it. why: three sentences. reasons: what is
    left open -> the first of `REASONS` that decides it. beside: readings that pages show next to it -> what they call
    them. control: claim id and one of these that are said in the same breath; () if none.
    """

    reading: str
    called: str
    why: tuple[str, str, str]
    reasons: Mapping[str, str]
    beside: Mapping[str, str] = field(default_factory=dict)
    control: tuple[str, str] | tuple[()] = ()


def planned() -> list[Planned]:
    """What the papers' `readings.py` list as `PLANNED`."""
    return [plan for module in parts("readings").values() for plan in getattr(module, "PLANNED", ())]


@dataclass(frozen=True)
class Planned:
    """Runs whose number was fixed while some were known: these alone are judged until all are there.

    A paper lists them as `PLANNED` in its `readings.py`. known, total: seeds 0 to known - 1, and 0 to total - 1.
    """

    experiment: str
    setting: str
    methods: tuple[str, ...]
    known: int
    total: int

    def seen(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of the experiment that may be judged; the new seeds, once all are there, also under `alone`."""
        mine = (table["setting"] == self.setting) & table["method"].isin(self.methods)
        fewest = table[mine].groupby("method")["seed"].nunique().reindex(list(self.methods)).min()
        if not fewest >= self.total:
            return table[~mine | (table["seed"] < self.known)]
        new = table[mine & (table["seed"] >= self.known)]
        return pd.concat([table, new.assign(method=[alone(method) for method in new["method"]])])


def alone(method: str) -> str:
    """The name under which the new seeds of a method stand by themselves."""
    return f"{method}, new seeds alone"


def primary(paper: str) -> Primary:
    """The primary reading of a paper: `PRIMARY` in its `readings.py`, or its first one where nothing is left open."""
    first = readings(paper)[0].name
    return getattr(part(paper, "readings"), "PRIMARY", Primary(first, first, ("", "", ""), {}))


def readings(paper: str) -> list[Reading]:
    """All readings of a paper (`papers/<paper>/readings.py`), "as written" first."""
    return part(paper, "readings").READINGS


def called(paper: str) -> dict[str, str]:
    """The reading that is tested and those beside it -> what tables and figures call them."""
    first = primary(paper)
    return {first.reading: first.called + TESTED, **first.beside}


def shown(paper: str) -> list[Reading]:
    """The readings that a headline table shows, under what it calls them."""
    by_name = {reading.name: reading for reading in readings(paper)}
    return [
        replace(by_name[name], name=label) for name, label in called(paper).items() if not by_name[name].part
    ]


def left_open(paper: str) -> pd.DataFrame:
    """What a paper leaves open, one row a thing: what is tested, what else was tried, and what its sources say.

    Its readings say it of what was varied, `LEFT_OPEN` of the rest.
    """
    options = readings(paper)
    tested = next(reading for reading in options if reading.name == primary(paper).reading)
    rows = []
    for choice in dict.fromkeys(choice for reading in options for choice in reading.choices):
        default = tested.choices.get(choice)
        varying = [reading for reading in options if choice in reading.choices]
        tried = dict.fromkeys(reading.choices[choice] for reading in varying)
        tried.pop(default, None)
        sourced = [reading for reading in varying if choice in reading.sources]
        sources = dict.fromkeys(
            f"{reading.choices[choice]}: {reading.sources[choice]}" for reading in sourced
        )
        rows.append((choice, default or "as in the other readings", " · ".join(tried), " · ".join(sources)))
    for choice, sources, default in part(paper, "readings").LEFT_OPEN:
        rows.append((choice, default, "", sources))
    return pd.DataFrame(rows, columns=["left open", "tested", "also tried", "sources"])


def how_many(paper: str) -> str:
    """Why a paper has so many readings, in words; "" where they are listed one by one."""
    all_readings = readings(paper)
    combined = [reading for reading in all_readings if reading.name == "; ".join(reading.choices.values())]
    options: dict[str, dict[str, None]] = {}
    for reading in combined:
        for choice, option in reading.choices.items():
            options.setdefault(choice, {})[option] = None
    sizes = {choice: len(values) for choice, values in options.items() if len(values) > 1}
    if len(combined) < len(all_readings) or not sizes:
        return ""
    factors = " × ".join(f"{n} ({choice})" for choice, n in sizes.items())
    more = len(all_readings) - math.prod(sizes.values())
    return (
        f"{math.prod(sizes.values())} readings are all combinations of what is left open: {factors}"
        + (f"; {more} more has further choices of the program that it follows" if more == 1 else "")
        + ". Not all have runs, few have runs for every figure, and of those that use the same runs one is shown: so "
        "claims and pages differ in how many they have."
    )


def grid(options: Mapping[str, Mapping[str, tuple[Swap, ...]]]) -> list[Reading]:
    """Every combination of options, in order; options: what is left open -> (option -> its swaps)."""
    combinations = []
    for combination in product(*(option.items() for option in options.values())):
        choices = {choice: value for choice, (value, _) in zip(options, combination, strict=True)}
        swaps = tuple(swap for _, swaps in combination for swap in swaps)
        combinations.append(
            Reading("; ".join(choices.values()), "one of the readings tried", choices, {}, swaps)
        )
    return combinations
