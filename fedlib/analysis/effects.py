"""The effects table: what every claim comes to, in every cell, under every reading. All pages read it.

    table = effects.load("paper")               # one row per (claim, reading, cell); computed if it is not up to date
    table = effects.table(results, ["hcsfed"])  # the same, from tidy tables by experiment
    judged = effects.claims(table)              # one row per (claim, reading)
    told = effects.summary(judged)              # one row per claim

`load` and `table` have the columns

| column | meaning |
| --- | --- |
| paper, claim, artifact | the claim: its id and its page ("hcsfed/table_1") |
| kind, estimator | core, supporting or construction; one of `claim.Estimator` |
| reading, commit | the reading by name; the commit of the authors' repository that it follows ("" if none) |
| cell, data, partition, participation | the cell and its labels |
| estimate, low, high | the effect with its 95 % interval, in `unit`: a ratio ("times") or a difference |
| unit, null | unit; the value of no effect (1 for ratios, 0 for differences) |
| margin | the least effect that agrees with the claim; for "same" the largest deviation that counts as none |
| test | "more": claimed to lie above `null`; "same": claimed to lie within `margin` |
| n, seeds, values | paired seeds: their number, the seeds, the effect of each on the additive scale (logs of ratios) |
| printed, shown | the printed effect (NaN: none) and the printed values as text |
| censored, open | seeds that did not arrive, over all sides; whether the true effect may be larger for that reason |
| outcome | replicated, refuted, undecided, one seed, not run, infeasible (`docs/judging.md`) |
| needed | if undecided: the seeds that would decide with power 0.8 (above 1,000: 1,001) |
| runs | digest of the runs that the cell compares: readings with the same digest are one piece of evidence |
| words | what else there is to say, such as "the target is out of reach" |

`claims` has paper, claim, artifact, kind, estimator, reading, commit, unit, null, margin, test, open, estimate, low,
high, n (the effect pooled over cells, seed by seed), cells (number with runs), of (number of all), replicated, refuted,
undecided, reversed (numbers of cells), p, adjusted (Holm, over the core claims of a paper under a reading), outcome,
needed, runs, badge (which cells were judged, in words).

`summary` has paper, claim, artifact, kind, text, and over the readings with different runs: how many are replicated,
refuted, undecided, one seed, infeasible; readings (their number without the infeasible ones); outcome, in words.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.analysis.arrivals import Arrivals, followed
from fedlib.analysis.claim import Arms, Cell, Claim, Level, Own, Rounds, asks, claims_of
from fedlib.analysis.estimators import LEVEL, OUTCOMES, Effect, Outcome, holm, outcome
from fedlib.analysis.measure import Missing
from fedlib.analysis.paper import papers
from fedlib.analysis.plans import opened
from fedlib.analysis.readings import Reading, Where, readings
from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.runs.sealed import from_kept, to_kept
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale

ALPHA = 1 - LEVEL
Row = dict[str, Any]
NO_VALUES: tuple[list[int], list[float]] = ([], [])


def table(
    results: Mapping[str, pd.DataFrame], of: Iterable[str] | None = None, every: bool = False
) -> pd.DataFrame:
    """The effects table of some papers (None: all), from tidy tables by experiment.

    A reading has rows for a claim only if it has runs for one of the claim's cells; a claim without any has one row per
    cell, *not run*, under the first reading. every: with rows for all readings.
    """
    every_claim = (claim for paper in (papers() if of is None else of) for claim in claims_of(paper))
    arms = Arms(results)
    return pd.DataFrame([row for claim in every_claim for row in rows(claim, arms, every)], columns=COLUMNS)


def rows(claim: Claim, arms: Arms, every: bool = False) -> list[Row]:
    """The rows of one claim."""
    taken = readings(claim.paper) if claim.measure else readings(claim.paper)[:1]
    known: dict[tuple, Row] = {}  # many readings compare the same runs
    found = [_under(claim, reading, arms, known) for reading in taken]
    ran = [cells for cells in found if any(row["outcome"] != "not run" for row in cells)]
    return [row for cells in (found if every else ran or found[:1]) for row in cells]


def _under(claim: Claim, reading: Reading, arms: Arms, known: dict[tuple, Row]) -> list[Row]:
    about = {
        "paper": claim.paper,
        "claim": claim.id,
        "artifact": claim.artifact,
        "kind": claim.kind,
        "estimator": claim.estimator,
        "reading": reading.name,
        "commit": reading.commit,
        "unit": claim.measure.unit if claim.measure else "",
        "null": claim.natural(0.0),
        "test": claim.test,
    }
    cells = []
    for cell in claim.cells:
        runs = tuple(reading.find(arm.where) for arm in cell.arms)
        if (cell.name, runs) not in known:
            known[cell.name, runs] = _cell(claim, cell, list(runs), arms)
        cells.append(about | known[cell.name, runs])
    return cells


def _cell(claim: Claim, cell: Cell, found: list[Where], arms: Arms) -> Row:
    about = {
        "cell": cell.name,
        "data": cell.data,
        "partition": cell.partition,
        "participation": cell.participation,
        "shown": cell.shown,
    }
    if cell.fact is not None:
        return about | _fact(cell, arms)
    seeds, values, censored, open, words = _values(claim, cell, found, arms)
    effect = Effect.of(values, claim.bound(cell), claim.test, open)
    said = "infeasible" if words == OUT_OF_REACH else outcome(effect)
    if effect.n and (words == NOBODY or words.startswith(DIVERGED)):
        said = "undecided"
    told = ";".join("/".join(where) for where in found) or cell.name
    return about | {
        "estimate": claim.natural(effect.estimate),
        "low": claim.natural(effect.low),
        "high": claim.natural(effect.high),
        "margin": claim.natural(effect.margin),
        "n": effect.n,
        "seeds": seeds,
        "values": values,
        "printed": claim.natural(claim.expected(cell)),
        "censored": censored,
        "open": open,
        "outcome": said,
        "needed": effect.needed if said == "undecided" else 0,
        "runs": hashlib.sha256(told.encode()).hexdigest()[:12],
        "words": words,
    }


OUT_OF_REACH = "full participation does not reach the target"
NOBODY = "no side reaches the target"
DIVERGED = "no finite value in seeds "


def _values(
    claim: Claim, cell: Cell, found: list[Where], arms: Arms
) -> tuple[list[int], list[float], int, bool, str]:
    """Seeds, effect of each on the additive scale, number of censored seeds, whether it is open, and words."""
    how = claim.measured_by(cell)
    assert how is not None
    if isinstance(how, Own):
        return *_own(how, arms), 0, False, ""
    if isinstance(how, Level):
        how = replace(how, until=min(how.until, arms.common(found)))
    measured = [arms.measured(where, how) for where in found]
    if any(one is None for one in measured):
        return *NO_VALUES, 0, False, ""
    censored, open, words = 0, False, ""
    if isinstance(how, Rounds):
        sides = [one for one in measured if isinstance(one, Arrivals)]
        tau = followed(sides, how.T)
        late = [side.censored(tau) for side in sides]
        censored = sum(late)
        open = any(n and arm.weight > 0 for n, arm in zip(late, cell.arms, strict=True))
        references = (arms.measured(w._replace(method=how.reference), how) for w in found)
        if any(isinstance(one, Arrivals) and not one.reached for one in references):
            words = OUT_OF_REACH
        elif len(sides) > 1 and all(n == len(side.rounds) for n, side in zip(late, sides, strict=True)):
            words = NOBODY
        if len(sides) == 1 and cell.arms[0].printed == math.inf and tau >= how.T:
            open = False  # "not reached in T rounds" is what is printed
        measured = [side.until(tau) for side in sides]
    by_seed = [one for one in measured if isinstance(one, dict)]
    scaled = {
        seed: [claim.scaled(side[seed]) for side in by_seed]
        for seed in sorted(set.intersection(*map(set, by_seed)))
    }
    seeds = [seed for seed, values in scaled.items() if all(map(math.isfinite, values))]
    if lost := [str(seed) for seed, values in scaled.items() if any(map(math.isinf, values))]:
        words = DIVERGED + ", ".join(lost)
    away = claim.expected(cell) if claim.estimator == "agreement with print" else 0.0
    weights = [arm.weight for arm in cell.arms]
    return seeds, [float(np.dot(weights, scaled[seed])) - away for seed in seeds], censored, open, words


def _own(how: Own, arms: Arms) -> tuple[list[int], list[float]]:
    """Seeds and effects of a claim that computes them by itself; none if it lacks runs."""
    try:
        effects = how.effect(arms.results)
    except (KeyError, Missing):
        return NO_VALUES
    seeds = sorted(seed for seed, value in effects.items() if math.isfinite(value))
    return seeds, [effects[seed] for seed in seeds]


def _fact(cell: Cell, arms: Arms) -> dict[str, Any]:
    assert cell.fact is not None
    ran = all(name in arms.results for name in cell.needs)
    true = ran and cell.fact(arms.results)
    return {
        **dict.fromkeys(("low", "high", "margin", "printed"), math.nan),
        "estimate": float(true) if ran else math.nan,
        "n": 0,
        "seeds": [],
        "values": [],
        "censored": 0,
        "open": False,
        "outcome": ("replicated" if true else "refuted") if ran else "not run",
        "needed": 0,
        "runs": cell.name if ran else "",
        "words": "",
    }


COLUMNS = [
    *("paper", "claim", "artifact", "kind", "estimator", "reading", "commit"),
    *("cell", "data", "partition", "participation"),
    *("estimate", "low", "high", "unit", "null", "margin", "test", "n", "seeds", "values"),
    *("printed", "shown", "censored", "open", "outcome", "needed", "runs", "words"),
]


def load(scale: Scale, root: Path = ROOT) -> pd.DataFrame:
    """The effects table of all papers at a scale: `data/effects/<scale>.parquet`, made anew if it is not up to date.

    It is sealed as results are, under a digest of what made it: the runs, and the code of claims and readings.

    Raises:
        StoreError: results or an archive are damaged.
    """
    settings = params.load(root / params.PARAMS.name)
    names = [name for name in sorted(needed()) if name in {*settings.names, *settings.studies}]
    found = {name: one for name in names if (one := opened(name, scale, settings, root))}
    runs = {name: [run["address"] for run in info["runs"]] for name, (_, info) in found.items()}
    told = json.dumps([runs, [hashlib.sha256(path.read_bytes()).hexdigest() for path in _code()]])
    address = hashlib.sha256(told.encode()).hexdigest()
    path = root / "data" / "effects" / f"{scale}.parquet"
    with suppress(FileNotFoundError, StoreError):
        return from_kept(path, address, "it is made anew")
    made = table({name: rows for name, (rows, _) in found.items()})
    write_whole(path, to_kept(made, address))
    return made


def needed() -> set[str]:
    """The experiments and studies that the claims of all papers ask for, under any reading."""
    return set().union(*(asks(claim, readings(paper)) for paper in papers() for claim in claims_of(paper)))


def _code() -> list[Path]:
    """The files that decide what the table says."""
    here = Path(__file__).parent
    return sorted([*here.glob("*.py"), *(here.parent / "papers").rglob("*.py")])


# -- claims: all cells of a claim together, under one reading


def claims(table: pd.DataFrame) -> pd.DataFrame:
    """One row per (claim, reading): the effect pooled over cells, and the outcome that follows from the cells."""
    cells: dict[tuple, list[Row]] = {}
    for row in table.to_dict("records"):
        cells.setdefault((row["paper"], row["claim"], row["reading"]), []).append(row)
    known: dict[tuple, Row] = {}  # a claim's outcome under other readings that compare the same runs
    lines = []
    for (_, claim, _), mine in cells.items():
        key = claim, *(row["runs"] for row in mine)
        if key not in known:
            known[key] = judged(mine)
        lines.append(known[key] | {"reading": mine[0]["reading"], "commit": mine[0]["commit"]})
    found = pd.DataFrame(lines, columns=CLAIM_COLUMNS)
    core = found[(found["kind"] == "core") & (found["p"] < 1)]
    for _, family in core.groupby(["paper", "reading"], sort=False):
        adjusted = holm(family["p"])
        found.loc[family.index, "adjusted"] = adjusted
        lost = family.index[(adjusted >= ALPHA) & family["outcome"].isin(["replicated", "refuted"])]
        found.loc[lost, "outcome"] = "undecided"
    return found


def judged(cells: list[Row]) -> Row:
    """The row of one claim under one reading, from those of its cells."""
    first, natural = cells[0], math.exp if cells[0]["null"] == 1 else float
    ran = [row for row in cells if row["n"] >= 2 or row["estimator"] == "exact fact" and row["runs"]]
    n_cells, ran = len(ran), [row for row in ran if row["words"] != NOBODY]  # the others compare nothing
    effects = [_effect(row) for row in ran if row["n"]]
    pooled = _pooled(ran, effects) if effects else Effect.of([])
    p, said = _decided(cells, ran, effects, pooled)
    outcomes = [row["outcome"] for row in ran]
    return {key: first[key] for key in CLAIM_COLUMNS[:11]} | {
        "open": pooled.open,
        "estimate": natural(pooled.estimate),
        "low": natural(pooled.low),
        "high": natural(pooled.high),
        "margin": natural(pooled.margin),
        "n": pooled.n,
        "cells": n_cells,
        "of": len(cells),
        **{name: outcomes.count(name) for name in ("replicated", "refuted", "undecided")},
        "reversed": sum(effect.reversed for effect in effects),
        "p": p,
        "adjusted": p,
        "outcome": said,
        "needed": pooled.needed if said == "undecided" and _lacks_seeds(effects, pooled) else 0,
        "runs": hashlib.sha256(";".join(row["runs"] for row in cells).encode()).hexdigest()[:12],
        "badge": _badge(cells, ran),
    }


def _effect(row: Row) -> Effect:
    """A cell's effect on the additive scale, from its row."""
    margin = math.log(row["margin"]) if row["null"] == 1 else row["margin"]
    return Effect.of(row["values"], margin, row["test"], row["open"])


def _pooled(judged: list[Row], effects: list[Effect]) -> Effect:
    """The mean over cells, seed by seed, over the seeds that all judged cells have; cells share runs and seeds."""
    by_seed = [dict(zip(row["seeds"], row["values"], strict=True)) for row in judged]
    shared = sorted(set.intersection(*map(set, by_seed)))
    margin = float(np.mean([effect.margin for effect in effects]))
    means = [float(np.mean([one[seed] for one in by_seed])) for seed in shared]
    return Effect.of(means, margin, effects[0].test, any(effect.open for effect in effects))


def _decided(
    cells: list[Row], judged: list[Row], effects: list[Effect], pooled: Effect
) -> tuple[float, Outcome]:
    """The p-value and the outcome of a claim (`docs/judging.md`, From cells to a claim)."""
    if any(row["outcome"] == "infeasible" for row in cells):
        return 1.0, "infeasible"
    if not judged:
        alone, several = (any(row["n"] in n for row in cells) for n in ((1,), range(2, 10_000)))
        return 1.0, "undecided" if several else "one seed" if alone else "not run"
    if not effects:  # exact facts
        return 0.0, "replicated" if all(row["outcome"] == "replicated" for row in judged) else "refuted"
    tested = [effect.p_refuted for effect in effects]
    if pooled.test == "more":
        tested += [pooled.p_refuted] if len(effects) > 1 else []
        stands = 1.0 if any(effect.reversed for effect in effects) else pooled.p_replicated
    else:
        stands = max(effect.p_replicated for effect in effects)
    if any(
        row["words"].startswith(DIVERGED) for row in judged
    ):  # the seeds that are left are a choice of seeds
        return 1.0, "undecided"
    if (against := float(holm(tested).min())) < ALPHA:
        return against, "refuted"
    return stands, "replicated" if stands < ALPHA else "undecided"


def _lacks_seeds(effects: list[Effect], pooled: Effect) -> bool:
    """Whether more seeds would decide; not where a cell on the other side keeps a claim undecided."""
    aside = pooled.test == "more" and any(effect.reversed for effect in effects)
    return not aside and pooled.needed > pooled.n


def _badge(cells: list[Row], judged: list[Row]) -> str:
    """Which cells were judged, in words; "" if all were."""
    if len(judged) in (0, len(cells)):
        return ""
    names = [row["cell"] for row in judged]
    named = names if len(names) <= 3 else list(dict.fromkeys(row["data"] for row in judged))
    return f"{len(judged)} of {len(cells)} cells: {', '.join(named)}"


CLAIM_COLUMNS = [
    *(
        "paper",
        "claim",
        "artifact",
        "kind",
        "estimator",
        "reading",
        "commit",
        "unit",
        "null",
        "margin",
        "test",
    ),
    *(
        "open",
        "estimate",
        "low",
        "high",
        "n",
        "cells",
        "of",
        "replicated",
        "refuted",
        "undecided",
        "reversed",
    ),
    *("p", "adjusted", "outcome", "needed", "runs", "badge"),
]


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """One row per claim, over its readings (rows of `claims`): how many give which outcome, and the outcome in words.

    Readings that compare the same runs count once. An infeasible reading cannot be the paper's, and one with runs for
    fewer cells than others cannot answer the whole claim: neither counts.
    """
    texts = {claim.id: claim.text for paper in papers() for claim in claims_of(paper)}
    deciding = sensitivity(found)
    lines = []
    for id, mine in counted(found).groupby("claim", sort=False):
        counts = {name: int((mine["outcome"] == name).sum()) for name in OUTCOMES}
        about = {key: mine.iloc[0][key] for key in ("paper", "claim", "artifact", "kind")}
        choices = deciding[(deciding["claim"] == id) & (deciding["share"] >= DECIDES)]["choice"]
        words = told(counts, list(choices[:3]) if len(mine) >= SEPARATED else [])
        ran = sum(counts[name] for name in OUTCOMES[:4])
        lines.append(about | {"text": texts.get(str(id), "")} | counts | {"readings": ran, "outcome": words})
    return pd.DataFrame(
        lines, columns=["paper", "claim", "artifact", "kind", "text", *OUTCOMES, "readings", "outcome"]
    )


def counted(found: pd.DataFrame) -> pd.DataFrame:
    """The readings that count for each claim (`summary`), the infeasible ones among them."""
    whole = found[found["cells"] == found.groupby("claim")["cells"].transform("max")]
    return whole.drop_duplicates(["claim", "runs"])


DECIDES = 0.1  # the share of the variance with which a choice is said to decide
SEPARATED = 8  # readings; fewer differ in several choices at once, which cannot be told apart


def sensitivity(found: pd.DataFrame) -> pd.DataFrame:
    """How much of the variance of a claim's effect over its feasible readings each choice explains, largest first.

    found: rows of `claims`. -> claim, choice, options (number), share: the variance of the options' mean effects (on
    the additive scale, weighted by their number of readings) over the variance of all. Shares need not sum to 1:
    choices interact, and not every combination has been run.
    """
    choices = {(paper, one.name): one.choices for paper in papers() for one in readings(paper)}
    there = counted(found)
    there = there[(there["outcome"] != "infeasible") & there["estimate"].notna() & (there["n"] >= 2)]
    lines = []
    for id, mine in there.groupby("claim", sort=False):
        y = pd.Series(
            [math.log(e) if null == 1 else e for e, null in zip(mine["estimate"], mine["null"], strict=True)]
        )
        taken = pd.DataFrame([dict(choices[key]) for key in zip(mine["paper"], mine["reading"], strict=True)])
        for choice in taken if y.var(ddof=0) > 0 else ():
            means = y.groupby(taken[choice]).transform("mean")
            share = float(means.var(ddof=0) / y.var(ddof=0))
            if taken[choice].nunique() > 1:
                lines.append((id, choice, taken[choice].nunique(), share))
    shares = pd.DataFrame(lines, columns=["claim", "choice", "options", "share"])
    order = {id: k for k, id in enumerate(dict.fromkeys(shares["claim"]))}
    return shares.sort_values(
        ["claim", "share"], key=lambda c: c.map(order) if c.name == "claim" else -c, ignore_index=True
    )


def told(counts: Mapping[Outcome, int], deciding: Sequence[str] = ()) -> str:
    """The outcome of a claim over its readings: "replicated under 8, refuted under 3 of 11 readings; decided by R"."""
    ran = {name: counts[name] for name in OUTCOMES[:4] if counts[name]}
    n = sum(ran.values())
    if not n:
        return "infeasible" if counts["infeasible"] else "not run"
    if len(ran) == 1:
        name = next(iter(ran))
        return name if n == 1 else f"{name} under all {n} readings"
    by = f"; decided by {' and '.join(deciding)}" if deciding else ""
    return f"{', '.join(f'{name} under {k}' for name, k in ran.items())} of {n} readings{by}"
