"""Both error rates of every claim: what it comes to if the paper is right, and if there is no difference at all.

Both are simulated with `SEEDS` seeds through the same functions that judge our runs. *If the paper is right*, each arm
scatters around its printed number by its spread, independently of the others: rounds by a factor (log-normal), levels
by a difference (normal). *If there is no difference*, all arms of a cell scatter around one number. A claim of
sameness is simulated the other way around: with all arms as printed, and with a deviation of exactly its margin. Cells
that share an arm share its draws. A reading does not matter here: arms are what the paper compares.

What is never reached in print ("200+") counts as T, as in `claim.Claim.expected`. A claim of which nothing is printed
has no power, but it has a rate of false passes. `data/error_rates.csv` has the table; `fedlib fairness` writes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.settings.schema import ROOT
from workspace.analysis import effects
from workspace.analysis.claim import Cell, Claim, claims_of
from workspace.analysis.estimators import POWER
from workspace.analysis.paper import papers

SEEDS = 5
DRAWS = 400
COLUMNS = ["claim", "digest", "kind", "seeds", "power", "false passes", "refuted though right", "words"]
TABLE = ROOT / "data" / "error_rates.csv"  # in git


def rates(claim: Claim, seeds: int = SEEDS, draws: int = DRAWS) -> tuple[float, float, float]:
    """Power, false passes and refutations of a right claim, as shares of draws; NaN for power if nothing is printed."""
    rng = np.random.default_rng(int(hashlib.sha256(claim.id.encode()).hexdigest()[:8], 16))
    right = (
        [_outcome(claim, _values(claim, rng, seeds, True)) for _ in range(draws)] if _printed(claim) else []
    )
    null = [_outcome(claim, _values(claim, rng, seeds, False)) for _ in range(draws)]
    share = lambda outcomes, name: outcomes.count(name) / len(outcomes) if outcomes else math.nan  # noqa: E731
    return share(right, "replicated"), share(null, "replicated"), share(right, "refuted")


def _printed(claim: Claim) -> bool:
    return all(math.isfinite(claim.expected(cell)) for cell in claim.cells)


def _values(claim: Claim, rng: np.random.Generator, seeds: int, right: bool) -> list[np.ndarray]:
    """(seeds,) effects of each cell."""
    noise: dict[object, np.ndarray] = {}
    for cell in claim.cells:
        for arm in cell.arms:
            noise.setdefault(arm.where, arm.spread * rng.standard_normal(seeds))
    scatter = [
        sum((arm.weight * noise[arm.where] for arm in cell.arms), np.zeros(seeds)) for cell in claim.cells
    ]
    return [
        _middle(claim, cell, right) + noise_of_cell
        for cell, noise_of_cell in zip(claim.cells, scatter, strict=True)
    ]


def _middle(claim: Claim, cell: Cell, right: bool) -> float:
    """The effect around which a cell's seeds scatter."""
    if claim.test == "same":
        printed = claim.expected(cell) if claim.estimator == "equivalence" else 0.0
        return printed if right else claim.bound(cell)
    return claim.expected(cell) if right else min(claim.bound(cell), 0.0)


def _outcome(claim: Claim, values: Iterable[np.ndarray]) -> str:
    rows = [
        {
            **dict.fromkeys(effects.COLUMNS, ""),
            "kind": claim.kind,
            "estimator": claim.estimator,
            "null": 0.0,
            "test": claim.test,
            "open": False,
            "cell": cell.name,
            "n": len(y),
            "seeds": list(range(len(y))),
            "values": y,
            "margin": claim.bound(cell),
        }
        for cell, y in zip(claim.cells, values, strict=True)
    ]
    return effects.judged(rows)["outcome"]


def table(computed: Mapping[tuple[str, str], tuple[float, float, float]] | None = None) -> pd.DataFrame:
    """The error rates of all claims with a measure: one row each, with the words for its page.

    computed: rates by id and digest of a claim, which are not computed again.
    """
    lines, computed = [], computed or {}
    for claim in (claim for paper in papers() for claim in claims_of(paper) if claim.measure is not None):
        key = claim.id, claim.digest()
        values = computed[key] if key in computed else rates(claim)
        lines.append((*key, claim.kind, SEEDS, *values, words(values[0])))
    return pd.DataFrame(lines, columns=COLUMNS)


def stored(path: Path = TABLE) -> pd.DataFrame:
    """The table of all claims as it was written.

    Raises:
        StoreError: it is missing, lacks a column, or has a share that is none.
    """
    remedy = "`fedlib fairness` makes it again."
    try:
        table = pd.read_csv(path, float_precision="round_trip")
        shares = table[COLUMNS][["power", "false passes", "refuted though right"]].astype(float)
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise StoreError(f"{path} cannot be read ({error}); {remedy}") from None
    for name, column in shares.items():
        claims = table["claim"][column.notna()] if name != "false passes" else table["claim"]
        for claim, share in zip(claims, column[claims.index], strict=True):
            if not 0 <= share <= 1:
                raise StoreError(
                    f"{path}: {name} of {claim} is {share:g}, and must be between 0 and 1; {remedy}"
                )
    return table


def write(path: Path = TABLE) -> bool:
    """Bring the table up to date: rates of claims that it has not are computed; True if it changed.

    After a change of how claims are judged, delete it first.
    """
    old = path.read_bytes() if path.exists() else b""
    table_before = pd.read_csv(path, float_precision="round_trip") if old else pd.DataFrame(columns=COLUMNS)
    computed = {
        (row[0], row[1]): row[4:7] for row in table_before[COLUMNS].itertuples(index=False, name=None)
    }
    new = table(computed).to_csv(index=False, lineterminator="\n").encode()
    if new != old:
        write_whole(path, new)
    return new != old


def words(power: float) -> str:
    """What a page says of a claim's power; "" if it suffices."""
    if math.isnan(power):
        return "nothing is printed from which a power would follow"
    return "" if power >= POWER else f"five seeds cannot decide this (power {power:.0%})"
