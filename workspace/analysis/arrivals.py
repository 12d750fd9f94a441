"""When runs reach a target: the one rule for rounds to a target, and for runs that do not reach it.

A run that has not reached the target in the rounds for which it was followed is *censored*: all that is known is that
it takes longer. It is never given an invented round. Runs are compared over the rounds for which every run of every
side was followed (tau): each contributes min(round, tau), whose mean is the restricted mean of survival analysis
(Royston and Parmar 2013). A ratio of restricted rounds is nearer to 1 than the ratio of the rounds themselves wherever
the slower side is censored; then it bounds the effect on one side only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd


class Censored(float):
    """A measured value that is only a lower bound, such as what a run sent that did not arrive."""


@dataclass(frozen=True)
class Arrivals:
    """The first round at a target by seed, and how long the runs were followed.

    rounds: seed -> first round t >= 1 at the target; inf if not reached. followed: the last round up to which it is
    known of every run whether it has arrived; inf if all arrived.
    """

    rounds: Mapping[int, float]
    followed: float

    @classmethod
    def of(cls, runs: pd.DataFrame, column: str, target: float, falls: bool = False) -> Arrivals:
        """The arrivals of one method in one setting (rows of a tidy table): `column` at least `target`.

        falls: at most, as a loss arrives. A run that diverged never arrives: it counts as followed for as long as the
        longest of the others.
        """
        t, diverged = runs["round"].to_numpy(float), runs["diverged"].to_numpy(bool)
        level = runs[column].to_numpy(float)
        arrived = ((level <= target) if falls else (level >= target)) & (t >= 1) & ~diverged
        rounds, ends = {}, []
        for seed, rows in runs.groupby("seed").indices.items():
            first = rounds[int(str(seed))] = float(t[rows][arrived[rows]].min(initial=math.inf))
            if math.isinf(first):
                ends.append(t.max() if diverged[rows].any() else t[rows].max())
        return cls(rounds, float(min(ends, default=math.inf)))

    def until(self, tau: float) -> dict[int, float]:
        """Rounds by seed, restricted to the first `tau`."""
        return {seed: min(t, tau) for seed, t in self.rounds.items()}

    def censored(self, tau: float) -> int:
        """The number of seeds that have not arrived in the first `tau` rounds."""
        return sum(t > tau for t in self.rounds.values())

    @property
    def reached(self) -> bool:
        """Whether at least half of the seeds reach the target in the rounds for which they were followed."""
        return 2 * sum(math.isfinite(t) for t in self.rounds.values()) >= len(self.rounds)


def followed(sides: Iterable[Arrivals], T: float = math.inf) -> float:
    """The last round (tau) for which all sides were followed, at most T."""
    return min([side.followed for side in sides] + [T])
