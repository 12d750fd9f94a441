"""Verdicts, in words and by dataset, and the building blocks of the rules that give them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedlib.analysis.measure import Missing, interval

Status = Literal["held", "held in part", "not held", "not run", "informative"]
STATUSES: tuple[Status, ...] = ("held", "held in part", "not held", "not run")
_DATA = re.compile(r"(?<![\w-])(Fashion-MNIST|FMNIST|MNIST|CIFAR-100|CIFAR-10|Mini-ImageNet)(?![\w-])")


@dataclass(frozen=True)
class Part:
    """One part of a claim and its status."""

    name: str
    status: Status

    @property
    def data(self) -> str:
        """The dataset that its name contains; "" if it contains none."""
        found = _DATA.search(self.name)
        return found.group().replace("FMNIST", "Fashion-MNIST") if found else ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a claim: its status, the replicated value and interval as text, and the details.

    parts: the parts that were combined. strength: "settled" or "indicated"; "" if no seeds are involved.
    """

    status: Status
    value: str = ""
    interval: str = ""
    detail: str = ""
    parts: tuple[Part, ...] = ()
    strength: Literal["settled", "indicated", ""] = ""

    @property
    def words(self) -> str:
        """The verdict in words, by dataset: "held on Fashion-MNIST (3 of 3), CIFAR-10 not run"."""
        names = list(dict.fromkeys(part.data for part in self.parts))
        if self.status in ("not run", "informative") or len(self.parts) < 2:
            return self.status
        if len(names) < 2:
            absent = sum(part.status == "not run" for part in self.parts)
            return f"{self.status} ({fraction(self.parts)}{f'; {absent} not run' if absent else ''})"
        texts = []
        for name in names:
            mine = [part for part in self.parts if part.data == name]
            where = name or "the rest"
            status = together(mine)
            texts.append(
                f"{where} not run" if status == "not run" else f"{status} on {where} ({fraction(mine)})"
            )
        return ", ".join(texts)


def fraction(parts: Sequence[Part]) -> str:
    """How many parts held out of those that were run: "3 of 4"."""
    done = [part for part in parts if part.status != "not run"]
    return f"{sum(part.status == 'held' for part in done)} of {len(done)}"


def together(parts: Sequence[Part]) -> Status:
    """The joint status of parts that must all hold, over those that were run."""
    done = {part.status for part in parts} - {"not run"}
    if len(done) == 1:
        return done.pop()
    return "held in part" if done else "not run"


def number(value: float, unit: str = "", digits: int = 3) -> str:
    """A value as text: three significant digits; "-" for nan; "never" for infinitely many rounds."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if unit == "rounds" else "infinite" if value > 0 else "-infinite"
    text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return f"{text} {unit}".strip()


def span(bounds: tuple[float, float]) -> str:
    """An interval as text; empty if there is none."""
    return "" if math.isnan(bounds[0]) else f"[{number(bounds[0])}, {number(bounds[1])}]"


def positive(differences: np.ndarray, unit: str = "", at_least: float = 0.0, detail: str = "") -> Verdict:
    """Held if the median of (n,) paired differences is above `at_least` (above 0: strictly).

    Raises:
        Missing: no seed has both methods.
    """
    if len(differences) == 0:
        raise Missing("no seed has finite results of both methods")
    middle = float(np.median(differences))
    wins = f"{int((differences > 0).sum())} of {len(differences)} seeds positive."
    return Verdict(
        "held" if middle > at_least else "not held",
        number(middle, unit),
        span(interval(differences)),
        f"{detail} {wins}".strip(),
    )


def decide(holds: bool, value: str = "", interval: str = "", detail: str = "") -> Verdict:
    return Verdict("held" if holds else "not held", value, interval, detail)


def combine(
    parts: Mapping[str, Callable[[], Verdict]], all_of: int | None = None, some_of: int = 1
) -> Verdict:
    """One verdict from named, separately judged parts, over those that were run.

    Held if `all_of` parts (default: every one) held, held in part if at least `some_of` did, otherwise not held. If
    only some parts have been run, both numbers shrink in proportion.

    Raises:
        Missing: no part has been run; or too few held, but the missing parts could still bring them to `all_of`.
    """
    judged: dict[str, Verdict] = {}
    for name, part in parts.items():
        try:
            judged[name] = part()
        except Missing as reason:
            judged[name] = Verdict("not run", detail=str(reason))
    done = {name: v for name, v in judged.items() if v.status != "not run"}
    if not done:
        raise Missing(next(iter(judged.values())).detail.rstrip("."))
    good, n, ran = sum(v.status == "held" for v in done.values()), len(judged), len(done)
    partly = any(v.status == "held in part" for v in done.values())
    needed = all_of or n
    if good * n >= needed * ran:
        status: Status = "held"
    elif good + n - ran >= needed:
        raise Missing(f"{good} of {ran} parts held and {needed} of {n} are asked for, which is still open")
    else:
        status = "held in part" if good * n >= max(some_of * ran, 1) or partly else "not held"
    value = "; ".join(f"{name}: {v.value}" for name, v in done.items() if v.value)
    bounds = "; ".join(f"{name}: {v.interval}" for name, v in done.items() if v.interval)
    failed = [name for name, v in done.items() if v.status != "held"]
    detail = [f"{good} of {ran} parts held."] if n > 1 else []
    detail += [f"Not held: {'; '.join(failed)}."] if failed and n > 1 else []
    absent = {name: v for name, v in judged.items() if name not in done}
    detail += [f"Not run, {names}: {reason}." for reason, names in by_detail(absent).items()]
    detail += [f"{names}: {how}." for how, names in by_detail(done).items()]
    statuses = tuple(Part(name, v.status) for name, v in judged.items())
    return Verdict(status, value, bounds, " ".join(detail), statuses)


def by_detail(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """Detail -> the names of the verdicts with that detail, joined into one text."""
    names: dict[str, list[str]] = {}
    for name, v in verdicts.items():
        if v.detail:
            names.setdefault(v.detail.rstrip("."), []).append(name)
    return {detail: "; ".join(those) for detail, those in names.items()}
