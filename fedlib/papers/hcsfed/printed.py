"""Statistics that HCSFed's rules share, and the printed Table 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from fedlib.analysis.claims import (
    Book,
    Missing,
    Rule,
    Runs,
    Tolerance,
    Verdict,
    combine,
    decide,
    number,
    span,
)
from fedlib.analysis.measure import arrivals, interval

book = Book("hcsfed")
RANDOMS = ("Random",)
GCS = ("GC-A", "GC-B")
FRACTIONS = ("10 %", "30 %", "50 %")
TABLE_1 = "hcsfed_table_1"
COLUMNS = [f"{data}, q = {q}" for data in ("MNIST", "FMNIST") for q in FRACTIONS]
PRINTED = {  # Table 1: rounds to 80 %, in the order of COLUMNS; 201 stands for "200+"
    "Random": (96, 42, 28, 201, 201, 158),
    "SCAFFOLD": (74, 36, 21, 180, 144, 115),
    "Importance": (35, 24, 22, 180, 116, 100),
    "Cluster": (31, 16, 8, 145, 104, 75),
    "HCSFed": (9, 8, 8, 81, 80, 75),
}
SPEED_UPS = {  # Table 1, as printed
    "Random": ("1.0", "1.0", "1.0", "1.0", "1.0", "1.0"),
    "SCAFFOLD": ("1.3", "1.2", "1.3", ">1.1", ">1.4", "1.4"),
    "Importance": ("2.7", "1.8", "1.3", ">1.1", ">1.7", "1.6"),
    "Cluster": ("3.1", "2.6", "3.5", ">1.4", ">1.9", "2.1"),
    "HCSFed": ("10.7", "5.2", "3.5", ">2.5", ">2.5", "2.1"),
}
FIGURE_3 = [("hcsfed_rounds", f"MNIST, alpha = {alpha}") for alpha in ("0.01", "0.001")]
FIGURE_3 += [
    ("hcsfed_rounds_cnn", f"{data}, alpha = {alpha}")
    for data in ("FMNIST", "CIFAR-10")
    for alpha in ("0.01", "0.001")
]
ABLATION = ("hcsfed_ablation", "alpha = 0.01")

Place = tuple[str, str]


def hcsfed(gc: str) -> str:
    return f"HCSFed-R ({gc})"


def in_print(table: dict[str, tuple], method: str, column: str) -> object:
    """The entry of PRINTED or SPEED_UPS for one of our methods; None if the paper has none."""
    name = "HCSFed" if method.startswith("HCSFed-") else method.split(", attrition")[0]
    return table[name][COLUMNS.index(column)] if name in table else None


def rounds(runs: Runs, place: Place, method: str, target: float, column: str = "test_accuracy") -> np.ndarray:
    """(seeds,) r(method) in one setting, T + 1 if the target is never reached."""
    key = "arrivals", *place, target, column
    if key not in runs.kept:
        if runs.pick(*place)[column].isna().all():
            raise Missing(f"{column} has not been measured in {place[0]}")
        found = arrivals(runs.pick(*place), target, column).droplevel("setting")
        least = np.minimum(found, runs.last(*place) + 1).groupby("method", sort=False)
        runs.kept[key] = {name: seeds.to_numpy() for name, seeds in least}
    if method not in runs.kept[key]:
        runs.pick(*place, [method])
    runs.notes.add((*place, (method,)))
    return runs.kept[key][method]


def r(runs: Runs, place: Place, method: str, target: float = 0.8) -> float:
    seeds, key = rounds(runs, place, method, target), ("median", *place, target, method)
    if key not in runs.kept:
        runs.kept[key] = float(np.median(seeds))
    return runs.kept[key]


def told(runs: Runs, place: Place, needed: float) -> str:
    """r in the paper's format."""
    cap = runs.last(*place)
    return f"{cap}+" if needed > cap else number(needed)


def compared(
    runs: Runs, cases: Iterable[tuple[Place, str]], target: float = 0.8
) -> tuple[list[float], list[str]]:
    """r of each (setting, method), as numbers and as text.

    Raises:
        Missing: no method arrives, which would look like a tie.
    """
    cases = list(cases)
    found = [r(runs, *case, target) for case in cases]
    if all(needed > runs.last(*place) for (place, _), needed in zip(cases, found, strict=True)):
        raise Missing(f"none reaches {100 * target:.0f} % in {runs.last(*cases[0][0])} rounds")
    return found, [told(runs, place, needed) for (place, _), needed in zip(cases, found, strict=True)]


def descending(needed: Sequence[float], tolerance: float) -> bool:
    """Whether each needs no more rounds than the one before it, up to a factor."""
    return all(after <= tolerance * before for before, after in pairwise(needed))


def ratio(runs: Runs, place: Place, base: str, method: str, target: float = 0.8) -> tuple[float, str]:
    """The speed-up of `method` over `base` if one of them arrives (`compared`), as number and text.

    A method that does not arrive counts as T + 1; the text says in which direction the speed-up is then bounded.
    """
    (slow, fast), _ = compared(runs, [(place, base), (place, method)], target)
    cap = runs.last(*place)
    bound = "≥ " if slow > cap else "≤ " if fast > cap else ""
    return slow / fast, f"{bound}{number(slow / fast)}"


def within(
    runs: Runs, place: Place, base: str, method: str, low: float, high: float = np.inf, target: float = 0.8
) -> Verdict:
    """Held if a speed-up is between two values; its interval resamples seeds."""
    found, text = ratio(runs, place, base, method, target)
    a, b = (rounds(runs, place, m, target) for m in (base, method))
    shared = np.arange(min(len(a), len(b)))

    def of_seeds(i: np.ndarray, axis: int) -> np.ndarray:
        return np.median(a[i.astype(int)], axis) / np.median(b[i.astype(int)], axis)

    return decide(low <= found <= high, text, span(interval(shared, of_seeds)))


def of(data: str, q: str) -> Place:
    return TABLE_1, f"{data}, q = {q}"


def each(parts: Iterable, rule: Callable[..., Verdict]) -> Verdict:
    """One verdict from `rule` of every part (a tuple)."""
    return combine({", ".join(map(str, part)): (lambda part=part: rule(*part)) for part in parts})


DATA = ("MNIST", "FMNIST")


def fewest(
    runs: Runs,
    place: Place,
    method: str,
    others: Iterable[str],
    target: float,
    tolerance: float | None = 1.0,
) -> Verdict:
    """Whether `method` needs the fewest rounds, if any arrives (`compared`).

    tolerance: within this factor; None: strictly the fewest.
    """
    others = list(others)
    needed, texts = compared(runs, [(place, m) for m in (*others, method)], target)
    *theirs, mine = needed
    best = int(np.argmin(theirs))
    ok = mine < theirs[best] if tolerance is None else mine <= tolerance * theirs[best]
    seeds = rounds(runs, place, method, target)
    return decide(ok, f"{texts[-1]} rounds, {others[best]} {texts[best]}", span(interval(seeds)))


BASELINES = ("Random", "SCAFFOLD", "Importance", "Cluster")


def table_1(
    id: str, printed: str, informative: bool = False, tolerance: Tolerance | None = None
) -> Callable[[Rule], Rule]:
    """Decorator for the rule of a claim on Table 1."""
    return book.claim(id, "table_1", [TABLE_1], printed, informative=informative, tolerance=tolerance)
