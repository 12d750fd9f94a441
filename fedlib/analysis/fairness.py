"""Is a rule fair: would the paper's own numbers pass it?

For a claim with printed numbers, a paper's `fair.py` states a `Law`: how results would be drawn if the printed numbers
were the truth and seeds spread as the paper prints it, or, where it prints no spread, as our archived runs do. The
rule is applied to many such draws at our number of seeds; a rule that says *held* less often than `LEAST` asks for
more than the paper shows, and is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Runs, claims
from fedlib.analysis.paper import papers, parts

LEAST = 0.8
DRAWS = 100

Results = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Law:
    """How results of a paper are drawn from its printed numbers, for the claims that are judged on them.

    words: the law, for the page. draw: a generator -> experiment -> tidy table with the columns that the rules read.
    draws: how many, where fewer than usual tell enough.
    """

    words: str
    claims: tuple[str, ...]
    draw: Callable[[np.random.Generator], Results]
    draws: int = DRAWS


def fairness(paper: str, seed: int = 0) -> pd.DataFrame:
    """How often a paper's claims under a law are held: a row a claim, with its law, draws and held (a share)."""
    by_id, rows = {claim.id: claim for claim in claims(paper)}, []
    for law in parts("fair")[paper].LAWS:
        held = dict.fromkeys(law.claims, 0)
        for child in np.random.SeedSequence(seed).spawn(law.draws):
            runs = Runs(law.draw(np.random.default_rng(child)))
            for id in law.claims:
                held[id] += by_id[id].rule(runs).status == "held"
        rows += [(id, law.words, law.draws, n / law.draws) for id, n in held.items()]
    return pd.DataFrame(rows, columns=["claim", "law", "draws", "held"])


def all_fair() -> pd.DataFrame:
    """`fairness` of every paper: a row a claim, with its paper; for the page."""
    tables = {papers()[name].title: fairness(name) for name in parts("fair")}
    return pd.concat(tables, names=["paper", ""]).reset_index("paper")


# -- building blocks of laws -------------------------------------------------------------------------------------------


def table(experiment: str, runs: list[tuple[str, str, int, dict[int, dict[str, float]]]]) -> pd.DataFrame:
    """A tidy table from (setting, method, seed, {round: {column: value}}); no run diverged."""
    rows = [
        {"setting": setting, "method": method, "seed": seed, "round": t, **values}
        for setting, method, seed, rounds in runs
        for t, values in rounds.items()
    ]
    return pd.DataFrame(rows).assign(experiment=experiment, diverged=False, notes=None)


def arriving(
    experiment: str, rounds: Mapping[tuple[str, str], np.ndarray], targets: Mapping[str, float], T: int
) -> pd.DataFrame:
    """Runs of T rounds that reach their setting's target accuracy in given rounds: (setting, method) -> (seeds,).

    A run whose round is above T never reaches it. Only rounds 0, the arrival and T are there.
    """

    def run(setting: str, arrival: float) -> dict[int, dict[str, float]]:
        there = {"test_accuracy": targets[setting]}
        away = {"test_accuracy": 0.0}
        return {0: away, **({int(arrival): there, T: there} if arrival <= T else {T: away})}

    return table(
        experiment,
        [
            (setting, method, seed, run(setting, arrival))
            for (setting, method), seeds in rounds.items()
            for seed, arrival in enumerate(seeds)
        ],
    )


def around(rng: np.random.Generator, printed: float, relative: float, seeds: int) -> np.ndarray:
    """(seeds,) whole numbers of rounds with the printed one as median: log-normal, of a relative spread."""
    return np.maximum(1, np.round(printed * np.exp(relative * rng.standard_normal(seeds))))


def normal(rng: np.random.Generator, mean: float, std: float, seeds: int) -> np.ndarray:
    """(seeds,) whole numbers of rounds, normal with the printed mean and standard deviation; 1 at least."""
    return np.maximum(1, np.round(mean + std * rng.standard_normal(seeds)))
