"""Fairness of a rule: would the paper's own numbers pass it, and how much tolerance does that take?

For a claim with printed numbers, a paper's `fair.py` states a `Law`: the distribution of results if the printed numbers
were true. Seeds spread as the paper prints. If it prints no spread, rounds to a target are log-normal with `SPREAD`,
which is taken from FedCor, the one of the four papers that prints spreads. The rule is applied to many such draws with
our number of seeds. A rule that says *held* less often than `LEAST` demands more than the paper shows and must not be
used.

The same law gives the tolerance of a rule whose paper names no bound (`claims.Tolerance`), without any result of ours:
the least tenth of a factor, or the fewest parts that may fail, with which the rule is fair (`least`). If no tolerance
makes a rule fair, its claim is informative.

`data/fairness.csv` has the shares of all claims, because computing them takes a minute. After a change of a law or a
rule, `fedlib fairness` writes it anew; `tests/analysis/test_fairness.py` demands that it is up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.analysis.claims import Claim, Runs, claims
from fedlib.analysis.paper import papers, parts
from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.settings.schema import ROOT

LEAST = 0.8
DRAWS = 200
TABLE = ROOT / "data" / "fairness.csv"  # in git
COLUMNS = ["claim", "law", "bound from", "draws", "held"]
# Standard deviation over seeds of the rounds to a target, relative to their mean: the median of the twenty that
# FedCor's Table 1 prints. HCSFed and HiCS-FL print none.
SPREAD = 0.22

# Where the bound of a rule comes from.
PAPER, LAW, BEFORE = "the paper's number or order", "this law", "set beforehand"

Results = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Law:
    """The distribution of a paper's results given its printed numbers, and the claims that are judged on them.

    words: the law in words, for the page. claims: id -> source of the bound of its rule. draw: a generator ->
    experiment -> tidy table with the columns that the rules read. draws: number of draws, if fewer are enough.
    """

    words: str
    claims: Mapping[str, str]
    draw: Callable[[np.random.Generator], Results]
    draws: int = DRAWS

    def drawn(self, seed: int = 0) -> list[Runs]:
        """The results of each draw."""
        children = np.random.SeedSequence(seed).spawn(self.draws)
        return [Runs(self.draw(np.random.default_rng(child))) for child in children]


def share(claim: Claim, drawn: list[Runs]) -> float:
    """The share of the draws in which a claim is held."""
    return sum(claim.rule(runs).status == "held" for runs in drawn) / len(drawn)


def least(claim: Claim, drawn: list[Runs]) -> float | None:
    """The first step of a claim's tolerance that makes its rule fair; None if none does."""
    steps = claim.tolerance.steps if claim.tolerance else ()
    return next((step for step in steps if share(claim.within(step), drawn) >= LEAST), None)


def fairness(paper: str, known: Mapping[tuple, float] | None = None) -> pd.DataFrame:
    """How often claims hold under their laws: one row per claim, with law, source of the bound, draws and share.

    known: shares by all that precedes them in a row; the others are computed.
    """
    by_id, known, rows = {claim.id: claim for claim in claims(paper)}, known or {}, []
    for law in parts("fair")[paper].LAWS:
        named = [(id, law.words, bound, law.draws) for id, bound in law.claims.items()]
        drawn = [] if known.keys() >= set(named) else law.drawn()
        rows += [(*name, known[name] if name in known else share(by_id[name[0]], drawn)) for name in named]
    return pd.DataFrame(rows, columns=COLUMNS)


def all_fair(path: Path = TABLE) -> pd.DataFrame:
    """`fairness` of all papers for the page: one row per claim, with its paper. What the table lacks is computed."""
    kept = stored(path) if path.exists() else pd.DataFrame(columns=COLUMNS)
    known = dict(zip(kept[COLUMNS[:-1]].itertuples(index=False, name=None), kept["held"], strict=True))
    tables = {papers()[name].title: fairness(name, known) for name in parts("fair")}
    return pd.concat(tables, names=["paper", ""]).reset_index("paper").reset_index(drop=True)


def stored(path: Path = TABLE) -> pd.DataFrame:
    """The table of all claims as it was written.

    Raises:
        StoreError: it is missing, lacks a column, or has a share that is none.
    """
    remedy = "`fedlib fairness` makes it again."
    try:
        table = pd.read_csv(path, float_precision="round_trip")
        shares = table[COLUMNS]["held"].astype(float)
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise StoreError(f"{path} cannot be read ({error}); {remedy}") from None
    for id, share in zip(table["claim"], shares, strict=True):
        if not 0 <= share <= 1:
            raise StoreError(f"{path}: the share of {id} is {share:g}, and must be between 0 and 1; {remedy}")
    return table


def write(path: Path = TABLE) -> bool:
    """Compute the table of all papers; True if it changed."""
    table = pd.concat(fairness(paper) for paper in parts("fair"))
    new = table.to_csv(index=False, lineterminator="\n").encode()
    if path.exists() and path.read_bytes() == new:
        return False
    write_whole(path, new)
    return True


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

    A run whose round is above T never reaches it. The table has only round 0, the arrival and T.
    """
    names = [(*key, seed) for key, seeds in rounds.items() for seed in range(len(seeds))]
    at = np.concatenate(list(rounds.values()))
    level = np.array([targets[setting] for setting, _, _ in names])
    t = np.stack([np.zeros(len(at)), np.minimum(at, T), np.full(len(at), T)], axis=1)
    accuracy = np.stack([0 * level, level, np.where(at <= T, level, 0.0)], axis=1)
    there = np.stack([at == at, at < T, at == at], axis=1)
    settings, methods, seeds = (
        np.repeat(np.array(one), there.sum(axis=1)) for one in zip(*names, strict=True)
    )
    return pd.DataFrame(
        {
            "setting": settings,
            "method": methods,
            "seed": seeds,
            "round": t[there].astype(int),
            "test_accuracy": accuracy[there],
            "experiment": experiment,
            "diverged": False,
        }
    )


def around(rng: np.random.Generator, printed: float, seeds: int) -> np.ndarray:
    """(seeds,) integer rounds, log-normal with the printed median and `SPREAD`."""
    return np.maximum(1, np.round(printed * np.exp(SPREAD * rng.standard_normal(seeds))))


def normal(rng: np.random.Generator, mean: float, std: float, seeds: int) -> np.ndarray:
    """(seeds,) integer rounds, normal with the printed mean and standard deviation, at least 1."""
    return np.maximum(1, np.round(mean + std * rng.standard_normal(seeds)))
