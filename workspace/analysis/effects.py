"""The effects table: what every claim comes to, in every cell, under every reading. All pages read it.

    table = effects.load("paper")               # one row per (claim, reading, cell); computed if it is not up to date
    table = effects.table(results, ["hcsfed"])  # the same, from tidy tables by experiment
    judged = effects.claims(table)              # one row per (claim, reading)
    told = effects.summary(judged)              # one row per claim

`load` and `table` have the columns

| column | meaning |
| --- | --- |
| paper, claim, artifact | the claim: its id and its page ("hcsfed/table_1") |
| kind, estimator | `claim.Kind` and `claim.Estimator` |
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
needed, runs, badge (which cells were judged, in words). A reading that judges nothing that another one does not judge
too has no row: what it takes does not matter to the claim.

`summary` has paper, claim, artifact, kind, text, and over the readings with different runs: how many are replicated,
refuted, undecided, one seed, infeasible; readings (their number without the infeasible ones); outcome, in words.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.errors import StoreError
from fedlib.files import write_whole
from fedlib.runs.archive import mend
from fedlib.runs.results import read_table
from fedlib.runs.sealed import from_kept, info_of, named, to_kept
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis.cells import DIVERGED, NOBODY, Row, rows
from workspace.analysis.claim import Arms, asks, claims_of
from workspace.analysis.estimators import LEVEL, OUTCOMES, Effect, Outcome, holm
from workspace.analysis.paper import papers
from workspace.analysis.plans import table_file
from workspace.analysis.readings import AS_WRITTEN, readings

ALPHA = 1 - LEVEL
COLUMNS = [
    *("paper", "claim", "artifact", "kind", "estimator", "reading", "commit"),
    *("cell", "data", "partition", "participation"),
    *("estimate", "low", "high", "unit", "null", "margin", "test", "n", "seeds", "values"),
    *("printed", "shown", "censored", "open", "outcome", "needed", "runs", "words"),
]


def table(results: Mapping[str, pd.DataFrame], names: Iterable[str] | None = None) -> pd.DataFrame:
    """The effects table of some papers (None: all), from tidy tables by experiment.

    A reading has rows for a claim only if it has runs for one of the claim's cells; a claim without any has one row per
    cell, *not run*, under the first reading.
    """
    arms = Arms(results)
    claims = (claim for paper in (papers() if names is None else names) for claim in claims_of(paper))
    return pd.DataFrame([row for claim in claims for row in rows(claim, arms)], columns=COLUMNS)


def load(scale: Scale, root: Path = ROOT) -> pd.DataFrame:
    """The effects table of all papers at a scale: `data/effects/<scale>.parquet`, made anew if it is not up to date.

    It is sealed as results are, under a digest of what made it: the runs, and the code of claims and readings.

    Raises:
        StoreError: results or an archive are damaged.
    """
    settings = params.load(root / params.PARAMS.name)
    names = [name for name in sorted(needed()) if name in {*settings.names, *settings.studies}]
    files = {name: file for name in names if (file := table_file(name, scale, settings, root))}
    runs = {name: _addresses(file) for name, file in files.items()}
    ingredients = json.dumps([runs, [hashlib.sha256(path.read_bytes()).hexdigest() for path in _code()]])
    address = hashlib.sha256(ingredients.encode()).hexdigest()
    path = root / "data" / "effects" / f"{scale}.parquet"
    with suppress(FileNotFoundError, StoreError):
        return from_kept(path, address, "it is made anew")
    effects = table({name: read_table(file)[0] for name, file in files.items()})
    write_whole(path, to_kept(effects, address))
    return effects


def _addresses(file: Path) -> list[str]:
    """The addresses of the runs in a table of results, without reading its rows; `StoreError` if it is damaged."""
    with named(file, mend(file)):
        info, _ = info_of(file.read_bytes())
        return [run["address"] for run in info["runs"]]


def needed() -> set[str]:
    """The experiments and studies that the claims of all papers ask for, under any reading."""
    return set().union(*(asks(claim, readings(paper)) for paper in papers() for claim in claims_of(paper)))


def _code() -> list[Path]:
    """The files that decide what the table says."""
    analysis = Path(__file__).parent
    return sorted([*analysis.glob("*.py"), *(analysis.parent / "papers").rglob("*.py")])


# -- claims: all cells of a claim together, under one reading


def claims(table: pd.DataFrame) -> pd.DataFrame:
    """One row per (claim, reading): the effect pooled over cells, and the outcome that follows from the cells."""
    return distinct(corrected(under_readings(table)))


def by_data(table: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """What some claims come to on each data set, under the readings that count there, with a column "data".

    Each is corrected together with its paper's other core claims, as in `claims`.
    """
    chosen = table[table["claim"].isin(names)]
    siblings = table[
        table["paper"].isin(chosen["paper"]) & ~table["claim"].isin(names) & (table["kind"] == "core")
    ]
    family = under_readings(siblings)
    parts = []
    for data, cells in chosen.groupby("data", sort=False):
        whole = corrected(pd.concat([under_readings(cells), family], ignore_index=True))
        parts.append(counted(distinct(whole[whole["claim"].isin(names)])).assign(data=data))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def under_readings(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `claims` under every reading of the table, before any correction."""
    groups: dict[tuple, list[Row]] = {}
    for row in table.to_dict("records"):
        groups.setdefault((row["paper"], row["claim"], row["reading"]), []).append(row)
    cache: dict[tuple, Row] = {}  # many readings compare the same runs
    lines = []
    for (_, claim, _), cells in groups.items():
        key = claim, *(row["runs"] for row in cells)
        if key not in cache:
            cache[key] = judged(cells)
        lines.append(cache[key] | {"reading": cells[0]["reading"], "commit": cells[0]["commit"]})
    return pd.DataFrame(lines, columns=[*CLAIM_COLUMNS, EVIDENCE])


def corrected(claims: pd.DataFrame) -> pd.DataFrame:
    """Core claims, those of a paper under a reading together, corrected by Holm's method: some become undecided.

    All that were tested count, also those that cannot be replicated because a cell is reversed (p = 1).
    """
    claims = claims.copy()
    tested = (
        (claims["kind"] == "core") & claims["outcome"].isin(TESTED) & (claims["estimator"] != "exact fact")
    )
    for _, family in claims[tested].groupby(["paper", "reading"], sort=False):
        adjusted = holm(family["p"])
        claims.loc[family.index, "adjusted"] = adjusted
        lost = family.index[(adjusted >= ALPHA) & (family["outcome"] != "undecided")]
        claims.loc[lost, "outcome"] = "undecided"
    return claims


def distinct(claims: pd.DataFrame) -> pd.DataFrame:
    """Without the readings that judge nothing which another one, or an earlier one of the same, does not judge too."""
    echoes = []
    for _, family in claims.groupby("claim", sort=False):
        evidence = list(family[EVIDENCE])
        for place, (index, judged) in enumerate(zip(family.index, evidence, strict=True)):
            if judged in evidence[:place] or any(judged < wider for wider in evidence):
                echoes.append(index)
    return claims.drop(index=echoes, columns=EVIDENCE).reset_index(drop=True)


EVIDENCE = "evidence"  # the cells that decide, each with its runs
TESTED = ("replicated", "refuted", "undecided")


def judged(cells: list[Row]) -> Row:
    """The row of one claim under one reading, from those of its cells."""
    first, natural = cells[0], math.exp if cells[0]["null"] == 1 else float
    several = [row for row in cells if row["n"] >= 2 or row["estimator"] == "exact fact" and row["runs"]]
    ran = [row for row in several if row["words"] != NOBODY]  # the others compare nothing
    effects = [_effect(row) for row in ran if row["n"]]
    pooled = _pooled(ran, effects) if effects else Effect.of([])
    p, decision = _decided(cells, ran, effects, pooled)
    outcomes = [row["outcome"] for row in ran]
    evidence = frozenset((row["cell"], row["runs"]) for row in ran or cells if ran or row["n"])
    return {key: first[key] for key in CLAIM_COLUMNS[:11]} | {
        "open": pooled.open,
        "estimate": natural(pooled.estimate),
        "low": natural(pooled.low),
        "high": natural(pooled.high),
        "margin": natural(pooled.margin),
        "n": pooled.n,
        "cells": len(several),
        "of": len(cells),
        **{name: outcomes.count(name) for name in TESTED},
        "reversed": sum(effect.reversed for effect in effects),
        "p": p,
        "adjusted": p,
        "outcome": decision,
        "needed": pooled.needed if decision == "undecided" and _lacks_seeds(effects, pooled) else 0,
        "runs": hashlib.sha256(json.dumps(sorted(evidence)).encode()).hexdigest()[:12],
        "badge": _badge(cells, ran),
        EVIDENCE: evidence,
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
    means = [float(np.mean([values[seed] for values in by_seed])) for seed in shared]
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
    if any(row["words"].startswith(DIVERGED) for row in judged):  # the seeds that are left would be a choice
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
    return f"{len(judged)} of {len(cells)} cells: {'; '.join(named)}"


CLAIM_COLUMNS = [
    *("paper", "claim", "artifact", "kind", "estimator", "reading", "commit"),
    *("unit", "null", "margin", "test", "open", "estimate", "low", "high", "n"),
    *("cells", "of", "replicated", "refuted", "undecided", "reversed"),
    *("p", "adjusted", "outcome", "needed", "runs", "badge"),
]


def summary(claims: pd.DataFrame) -> pd.DataFrame:
    """One row per claim, over its readings (rows of `claims`): how many give which outcome, and the outcome in words.

    An infeasible reading cannot be the paper's, and one with runs for fewer cells than others cannot answer the whole
    claim: neither counts.
    """
    texts = {claim.id: claim.text for paper in papers() for claim in claims_of(paper)}
    deciding = sensitivity(claims)
    deciding = deciding[deciding["share"] >= DECIDES]
    lines = []
    for id, family in counted(claims).groupby("claim", sort=False):
        counts = {name: int((family["outcome"] == name).sum()) for name in OUTCOMES}
        labels = {key: family.iloc[0][key] for key in ("paper", "claim", "artifact", "kind")}
        choices = (
            list(deciding.loc[deciding["claim"] == id, "choice"])[:3] if len(family) >= SEPARATED else []
        )
        several = sum(counts[name] for name in OUTCOMES[:4])
        words = in_words(counts, choices)
        lines.append(
            labels | {"text": texts.get(str(id), "")} | counts | {"readings": several, "outcome": words}
        )
    return pd.DataFrame(
        lines, columns=["paper", "claim", "artifact", "kind", "text", *OUTCOMES, "readings", "outcome"]
    )


def counted(claims: pd.DataFrame) -> pd.DataFrame:
    """The readings that count for each claim (`summary`), the infeasible ones among them."""
    return claims[claims["cells"] == claims.groupby("claim")["cells"].transform("max")]


DECIDES = 0.1  # the share of the variance with which a choice is said to decide
SEPARATED = 8  # readings; fewer differ in several choices at once, which cannot be told apart


def sensitivity(claims: pd.DataFrame) -> pd.DataFrame:
    """How much of the variance of a claim's effect over its feasible readings each choice explains, largest first.

    claims: rows of `claims`. -> claim, readings (number), choice, options (number), share: the variance of the options'
    mean effects (on the additive scale, weighted by their number of readings) over the variance of all. A reading takes
    as written what it says nothing of. Choices that always change together are one, joined by " + ". Shares need not
    sum to 1: choices interact, and not every combination has been run.
    """
    whole = counted(claims)
    whole = whole[(whole["outcome"] != "infeasible") & whole["estimate"].notna() & (whole["n"] >= 2)]
    lines = []
    for id, family in whole.groupby("claim", sort=False):
        y = family["estimate"].to_numpy()
        y = np.log(y) if family["null"].iloc[0] == 1 else y
        if len(y) < 2 or not y.var() > 0:
            continue
        groups: dict[tuple[int, ...], list[str]] = {}  # the option of each reading, by number -> the choices
        for choice, options in _options(str(family["paper"].iloc[0]), family["reading"]).items():
            groups.setdefault(tuple(pd.factorize(np.array(options))[0]), []).append(choice)
        for codes, choices in groups.items():
            means = pd.Series(y).groupby(np.array(codes)).transform("mean")
            if max(codes) > 0:
                share = min(1.0, float(means.var(ddof=0) / y.var()))
                lines.append((id, len(y), " + ".join(choices), 1 + max(codes), share))
    shares = pd.DataFrame(lines, columns=["claim", "readings", "choice", "options", "share"])
    order = {id: k for k, id in enumerate(dict.fromkeys(shares["claim"]))}
    return shares.sort_values(
        ["claim", "share"], key=lambda c: c.map(order) if c.name == "claim" else -c, ignore_index=True
    )


def _options(paper: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Choice -> the option that each of some readings takes."""
    by_name = {reading.name: reading.choices for reading in readings(paper)}
    complete = [{**by_name.get(AS_WRITTEN, {}), **by_name[name]} for name in names]
    choices = dict.fromkeys(choice for options in complete for choice in options)
    return {choice: [options.get(choice, "") for options in complete] for choice in choices}


def in_words(counts: Mapping[Outcome, int], deciding: Sequence[str] = ()) -> str:
    """The outcome of a claim over its readings: "replicated under 8, refuted under 3 of 11 readings; decided by R"."""
    ran = {name: counts[name] for name in OUTCOMES[:4] if counts[name]}
    n = sum(ran.values())
    if not n:
        return "infeasible" if counts["infeasible"] else "not run"
    if len(ran) == 1:
        name = next(iter(ran))
        return name if n == 1 else f"{name} under all {n} readings"
    reason = f"; decided by {' and '.join(deciding)}" if deciding else ""
    return f"{', '.join(f'{name} under {k}' for name, k in ran.items())} of {n} readings{reason}"
