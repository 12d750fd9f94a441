"""How often the rules of `judge` are wrong or silent, for every core claim, at three, five and ten seeds.

Seeds are drawn with the spreads of the archived runs under the primary reading, and with half of their correlations and
half of the mean of these: five seeds do not say more. A claim of which nothing was run has the spreads of its printed
arms, cells that share an arm share its draws. Effects are the printed ones, or two standard deviations a cell. What is
said of each number of seeds, as shares of `DRAWS` draws and before any correction for other claims:

| column | the claim holds, or ... |
| --- | --- |
| all null | though no cell has an effect |
| one null | though the weakest cell has none, and the others theirs ("almost all": one more than is allowed) |
| full, half | as every cell has its effect, or half of it |
| shown full, shown half | mean share of the cells that are shown |
| too many | more cells are shown than have an effect: half of them, the weaker ones, have none |
| large none, large half, large full | the size is as large as printed, at no effect, half of it, all of it |
| smaller none, smaller half, smaller full | the size is smaller than printed |
| late both, late slower, late faster | as "one null", each run of these arms three times later in 20 % of cases |

NaN: it is not asked. Where a rate that is bounded (`BOUNDED`) lies more than two standard errors above 2.5 %, the row
is drawn anew with `MORE` draws, which alone stand in the table: `data/error_rates.csv`, which `fedlib fairness` writes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import special

from fedlib.settings.schema import ROOT
from workspace.analysis import effects, judge, kept
from workspace.analysis.claim import ROUNDS, Claim, claims_of
from workspace.analysis.estimators import ALPHA, not_rejected, quantile
from workspace.analysis.frozen import digest
from workspace.analysis.paper import papers

SEEDS = (3, 5, 10)
DRAWS, MORE = 2000, 20_000
TYPICAL = 2.0  # standard deviations over seeds, where nothing is printed
LATE, TIMES = 0.2, 3.0
RATES = (
    *("all null", "one null", "full", "half", "shown full", "shown half", "too many"),
    *("large none", "large half", "large full", "smaller none", "smaller half", "smaller full"),
    *("late both", "late slower", "late faster"),
)
BOUNDED = (
    "all null",
    "one null",
    "too many",
    "large none",
    "large half",
    "late both",
    "late slower",
)  # by 2.5 %
COLUMNS = ["claim", "digest", "cells", "seeds", "draws", *RATES]
TABLE = ROOT / "data" / "error_rates.csv"  # in git
MEND = "`fedlib fairness` makes it again"


@dataclass(frozen=True)
class Simulated:
    """What seeds are drawn from: m cells, on the additive scale.

    effect: of the additive scale; of sameness, the margin. spread, correlation: over seeds. groups:
    the settings that the claim counts, as places of their cells. over: of the claim. same: whether a cell is
    tested within `bound`. margin, printed: of the size, NaN if it is not asked.
    """

    effect: np.ndarray
    spread: np.ndarray
    correlation: np.ndarray
    groups: tuple[tuple[int, ...], ...]
    over: str
    bound: np.ndarray
    same: bool = False
    margin: float = math.nan
    printed: float = math.nan
    late: bool = False

    @property
    def least(self) -> int:
        """In how many of the settings the effect must be shown."""
        return min(len(self.groups), int(self.over)) if self.over.isdigit() else len(self.groups)


def population(claim: Claim, cells: Sequence[judge.Row]) -> Simulated:
    """cells: rows of the effects table under the primary reading, in the claim's order."""
    ran = [
        k
        for k, row in enumerate(cells)
        if row["n"] >= 2 and row["outcome"] in ("shown", "reversed", "unclear")
    ]
    chosen = ran or list(range(len(cells)))
    mine = [claim.cells[k] for k in chosen]
    rows = [cells[k] for k in chosen]
    spread, correlation = _archived(rows) if ran else _of_arms(claim, chosen)
    bound = np.array([claim.bound(cell) for cell in mine])
    printed = np.array([claim.expected(cell) for cell in mine])
    sized = claim.sized() and bool(np.isfinite(printed).all()) and float(printed.mean()) > 0
    effect = printed if sized else TYPICAL * spread
    effect = bound if claim.test == "same" else effect
    names = list(judge.settings(rows, str(claim.over)).values())
    places = {row["cell"]: k for k, row in enumerate(rows)}
    groups = tuple(tuple(places[row["cell"]] for row in group) for group in names)
    margin = mean = math.nan
    if sized:
        mean = float(printed.mean())
        arms = [{"/".join(arm.where): (arm.weight, arm.spread) for arm in cell.arms} for cell in mine]
        margin = judge.least(mean, judge.spread_of_print(arms))
    late = claim.estimator == ROUNDS
    return Simulated(
        effect, spread, correlation, groups, str(claim.over), bound, claim.test == "same", margin, mean, late
    )


def _archived(rows: Sequence[judge.Row]) -> tuple[np.ndarray, np.ndarray]:
    """Spreads, and half the correlations with half their mean, over the seeds that all cells have."""
    floor = [max(float(row["finest"]), 1e-9) for row in rows]
    spread = np.array([max(np.std(row["values"], ddof=1), low) for row, low in zip(rows, floor, strict=True)])
    by_seed = [dict(zip(row["seeds"], row["values"], strict=True)) for row in rows]
    shared = sorted(set.intersection(*map(set, by_seed)))
    m = len(rows)
    if m == 1 or len(shared) < 3:
        return spread, np.eye(m) + 0.3 * (1 - np.eye(m))
    y = np.array([[values[seed] for seed in shared] for values in by_seed])
    y = y - y.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(y, axis=1)
    observed = (y @ y.T) / np.maximum(np.outer(norms, norms), 1e-30)
    np.fill_diagonal(observed, 1.0)
    mean = (observed.sum() - m) / (m * (m - 1))
    return spread, (observed + np.eye(m) + mean * (1 - np.eye(m))) / 2


def _of_arms(claim: Claim, chosen: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same from the spreads of a claim's arms, which cells may share."""
    cells = [claim.cells[k] for k in chosen]
    names = list(dict.fromkeys(arm.where for cell in cells for arm in cell.arms))
    if not names:
        return np.ones(len(cells)), np.eye(len(cells))
    weights = np.zeros((len(cells), len(names)))
    for k, cell in enumerate(cells):
        for arm in cell.arms:
            weights[k, names.index(arm.where)] += arm.weight * max(arm.spread, 1e-9)
    spread = np.linalg.norm(weights, axis=1)
    unit = weights / spread[:, None]
    return spread, unit @ unit.T


def rates(people: Simulated, n: int, rng: np.random.Generator, draws: int = DRAWS) -> dict[str, float]:
    """All of `RATES` with n seeds."""
    m = len(people.spread)
    root = np.linalg.cholesky(people.correlation + 1e-9 * np.eye(m))
    noise = (rng.standard_normal((draws, n, m)) @ root.T) * people.spread
    order = np.argsort(people.effect / people.spread, kind="stable")
    none, one, some = np.zeros(m), np.ones(m), np.ones(m)
    some[order[: (m + 1) // 2]] = 0
    weakest = sorted(min(list(order).index(k) for k in group) for group in people.groups)
    one[order[weakest[: len(people.groups) - people.least + 1]]] = 0
    found = dict.fromkeys(RATES, math.nan)
    shares = {"all null": none, "one null": one, "full": np.ones(m), "half": np.full(m, 0.5)}
    for name, share in shares.items():
        y = noise + _truth(people, share)
        holds, shown = _held(people, y)
        if not (name == "one null" and m == 1):
            found[name] = float(holds.mean())
        if name in ("full", "half"):
            found[f"shown {name}"] = float(shown.mean()) / len(people.groups)
        size = {"all null": "none", "half": "half", "full": "full"}.get(name, "")
        if size and math.isfinite(people.margin):
            large, smaller = _sized(people, y)
            found[f"large {size}"], found[f"smaller {size}"] = float(large.mean()), float(smaller.mean())
    true = sum(all(some[k] for k in group) for group in people.groups)
    found["too many"] = (
        float((_held(people, noise + _truth(people, some))[1] > true).mean()) if m > 1 else math.nan
    )
    if people.late:
        truth = _truth(people, one if m > 1 else none)
        for side in ("both", "slower", "faster"):
            y = noise + truth + _late(side, (draws, n, m), rng)
            found[f"late {side}"] = float(_held(people, y)[0].mean())
    return found


def ceiling(draws: int) -> float:
    """2.5 % and two standard errors of a rate from so many draws."""
    return ALPHA + 2 * math.sqrt(ALPHA * (1 - ALPHA) / draws)


def _truth(people: Simulated, share: np.ndarray) -> np.ndarray:
    """The true effect of each cell: a share of its effect; of sameness, a deviation by what is left of the margin."""
    if people.same:
        return people.bound * (1 - share)
    return people.bound + share * (people.effect - people.bound)


def _late(side: str, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """What late runs add: slower arms by cell, the faster arm shared by the cells of a seed.

    Of one side alone the mean is shifted back, so that the true mean stays.
    """
    jump, (draws, n, m) = math.log(TIMES), shape
    slower = jump * (rng.random((draws, n, m)) < LATE)
    faster = jump * (rng.random((draws, n, 1)) < LATE)
    if side == "both":
        return slower - faster
    return slower - jump * LATE if side == "slower" else jump * LATE - faster


def _p(y: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """(draws, m) one-sided p-values above a bound, of (draws, n, m) values."""
    n = y.shape[1]
    t = (y.mean(axis=1) - bound) * math.sqrt(n) / np.maximum(y.std(axis=1, ddof=1), 1e-12)
    return special.stdtr(n - 1, -t)


def _held(people: Simulated, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(draws,) whether the claim holds by itself, and in how many settings it is shown."""
    p = _p(y, people.bound)
    if people.same:
        p = np.maximum(_p(y, -people.bound), _p(-y, -people.bound))
    p = np.stack([p[:, list(group)].max(axis=1) for group in people.groups], axis=1)
    shown = p.shape[1] - not_rejected(p)
    if people.over == "average":
        return _p(y.mean(axis=2, keepdims=True), people.bound.mean(keepdims=True))[:, 0] <= ALPHA, shown
    return shown >= people.least, shown


def _sized(people: Simulated, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(draws,) whether the size is as large as printed, and smaller."""
    mean = y.mean(axis=2)
    n = mean.shape[1]
    half = quantile(1 - ALPHA, n) * mean.std(axis=1, ddof=1) / math.sqrt(n)
    centre = mean.mean(axis=1)
    return centre - half >= people.margin, centre + half < people.margin


def table(archive: pd.DataFrame) -> pd.DataFrame:
    """The rates of all core claims with a measure: one row for each and each number of seeds.

    archive: `effects.table` of the archived runs.
    """
    rows = dict(list(archive[archive["primary"]].groupby("claim", sort=False)))
    lines = []
    for claim in (claim for paper in papers() for claim in claims_of(paper)):
        if claim.kind != "core" or claim.measure is None or claim.id not in rows:
            continue
        people = population(claim, rows[claim.id].to_dict("records"))
        for n in SEEDS:
            rng = np.random.default_rng(int(hashlib.sha256(f"{claim.id} {n}".encode()).hexdigest()[:8], 16))
            draws, found = DRAWS, rates(people, n, rng)
            if any(found[name] > ceiling(DRAWS) for name in BOUNDED):
                draws, found = MORE, rates(people, n, rng, MORE)
            about = (claim.id, digest(claim), len(people.spread), n, draws)
            lines.append((*about, *(found[name] for name in RATES)))
    return pd.DataFrame(lines, columns=COLUMNS)


def stored(path: Path = TABLE) -> pd.DataFrame:
    """The table of all core claims as it was written.

    Raises:
        StoreError: it is missing, or not as `write` wrote it.
    """
    return kept.table(path, MEND, float_precision="round_trip")


def write(path: Path = TABLE, archive: pd.DataFrame | None = None) -> bool:
    """Bring the table up to date with the archived runs; True if it changed. archive: `effects.load("paper")`."""
    old = path.read_bytes() if path.exists() else b""
    made = table(effects.load("paper") if archive is None else archive)
    new = made.to_csv(index=False, lineterminator="\n", float_format="%.4g").encode()
    kept.write(path, new)
    return new != old
