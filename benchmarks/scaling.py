"""Growth of the engine's cost: seconds per round and peak memory against N, m and R, each point in its own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.candidates import CANDIDATES


@dataclass(frozen=True)
class Series:
    """One quantity that grows. points: the `--N`, `--m`, `--R` of each measurement; axis: which of them is fitted."""

    title: str
    axis: str
    points: tuple[dict[str, int], ...]


SERIES = (
    Series("N, with m = 10", "N", tuple({"N": N, "m": 10} for N in (100, 300, 1000, 3000, 10_000))),
    Series("N, with m = N / 10", "N", tuple({"N": N, "m": N // 10} for N in (100, 1000, 10_000))),
    Series("m, with N = 1000", "m", tuple({"N": 1000, "m": m} for m in (1, 10, 100, 1000))),
    Series("R, with N = 100, m = 10", "R", tuple({"R": R} for R in (1, 10, 30, 100))),
)
OPTIONS = ("--check", "1", "--seconds", "0.5", "--stretches", "2")


def measure(tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """For each series the seconds per round (of all R runs) and MiB of its points, and the exponents of their growth.

    The exponents are those of a power law fitted to all points, and to the last two only, where constant parts matter
    least.
    """
    out = []
    for series in SERIES:
        tell(f"growth with {series.title}")
        rows = []
        for point in series.points:
            changes = [str(part) for name, value in point.items() for part in (f"--{name}", value)]
            result = CANDIDATES["engine"].measure("W2", [*changes, *OPTIONS])
            seconds = point.get("R", 1) / float(np.median(result["rates"]))
            rows.append({**point, "seconds": seconds, "memory": result["memory"]})
        x = [row[series.axis] for row in rows]
        fitted = {
            key: (exponent(x, y := [row[key] for row in rows]), exponent(x[-2:], y[-2:]))
            for key in ("seconds", "memory")
        }
        out.append({"title": series.title, "axis": series.axis, "rows": rows, "exponents": fitted})
    return out


def exponent(x: list[float], y: list[float]) -> float:
    """Slope of log y over log x."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
