"""The effects table: what every claim comes to, in every cell, under every reading. All pages read it.

    table = effects.load("paper")               # one row per (claim, reading, cell); computed if it is not up to date
    table, judged = effects.load_judged("paper")  # the same, with the claims below
    table = effects.table(results, ["hcsfed"])  # the same, from tidy tables by experiment
    judged = effects.claims(table)              # one row per (claim, reading)
    told = effects.summary(judged)              # one row per claim
    spread = effects.levels(judged)             # how much a claim depends on what the paper leaves open

`load` and `table` have the columns

| column | meaning |
| --- | --- |
| paper, claim, artifact | the claim: its id and its page ("hcsfed/table_1") |
| kind, estimator, over | `claim.Kind`, `claim.Estimator`, `claim.Claim.over` |
| reading, commit | the reading; the commit of the authors' repository that it follows ("" if none) |
| primary | whether it is the primary reading, under which claims are tested |
| cell, data, partition, participation | the cell and its labels |
| estimate, low, high | the effect with its 95 % interval, in `unit`; an end that no run bounds is infinite |
| unit, null | unit; the value of no effect (1 for ratios, 0 for differences) |
| margin, test | what the effect is tested against: "more": claimed to lie above it; "same": to deviate by no more |
| n, seeds, values | paired seeds: their number, the seeds, the effect of each on the additive scale (logs of ratios) |
| printed, shown | the printed effect (NaN: none), and the printed values as text |
| arms | the printed arms with their weights and spreads, as JSON |
| censored | seeds that did not arrive, over all sides |
| open, under | whether the true effect may be larger, or smaller, for that reason |
| finest | the least spread that the measure shows |
| late, lost | runs beyond twice their arm's median; seeds without a finite value |
| p, p_reversed | one-sided p-values of the claimed and of the opposite direction |
| outcome | `words.CELLS`; only the primary reading has shown, reversed and unclear |
| needed | if unclear: the seeds that would show it with power 0.8 (above 1,000: 1,001) |
| runs | digest of the runs that the cell compares: readings with the same digest are one piece of evidence |
| words | what else there is to say, such as "the target is out of reach" |

`claims` has paper, claim, artifact, kind, estimator, over, reading, commit, primary, unit, null, margin, test, open,
under; estimate, low, high, n, seeds, values: the mean over cells, seed by seed; cells (compared) and of (all);
aside: cells whose estimate lies on the other side; printed, least, ratio, ratio_low, ratio_high: the printed mean over
the same cells, the margin of size, ours over print (a ratio or a difference); runs, and badge: which cells were
compared, in words. Under the primary reading also shown, reversed (in at least how many settings); p, p_reversed,
adjusted, adjusted_reversed (Holm, over the core claims of a paper); outcome (`words.ORDER`) and said, the same with its
numbers; size (`words.SIZES`); needed, size_needed, weakest. A reading that compares nothing that another one does not
compare too has no row, the primary one excepted.

`summary` has paper, claim, artifact, kind, text, outcome, said, size, as_claimed, and readings: the number of readings
with different runs. **Readings are not votes**: nothing counts them, and none but the primary one is tested.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fedlib.digests import address_of
from fedlib.errors import StoreError
from fedlib.files import HOME, alone, read_sealed, state_of, write_sealed, write_whole
from fedlib.runs.archive import mend
from fedlib.runs.place import Place
from fedlib.runs.results import read_table
from fedlib.runs.sealed import from_kept, info_of, named, to_kept
from fedlib.settings import params
from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import judge, words
from workspace.analysis.cells import Row, rows
from workspace.analysis.claim import Arms, asks, claims_of
from workspace.analysis.estimators import ALPHA, Effect, holm
from workspace.analysis.experiments import table_file
from workspace.analysis.paper import papers
from workspace.analysis.readings import AS_WRITTEN, readings
from workspace.analysis.sentences import said

COLUMNS = [
    *("paper", "claim", "artifact", "kind", "estimator", "over", "reading", "commit", "primary"),
    *("cell", "data", "partition", "participation"),
    *("estimate", "low", "high", "unit", "null", "margin", "test", "n", "seeds", "values"),
    *("printed", "shown", "arms", "censored", "open", "under", "finest", "late", "lost", "p", "p_reversed"),
    *("outcome", "needed", "runs", "words"),
]
CLAIM_COLUMNS = [
    *("paper", "claim", "artifact", "kind", "estimator", "over", "reading", "commit", "primary"),
    *("unit", "null", "margin", "test", "open", "under", "estimate", "low", "high", "n", "seeds", "values"),
    *("cells", "of", "shown", "reversed", "aside", "p", "adjusted", "p_reversed", "adjusted_reversed"),
    *("outcome", "said", "size", "printed", "least", "ratio", "ratio_low", "ratio_high"),
    *("needed", "size_needed", "weakest", "runs", "badge"),
]
EVIDENCE = "evidence"  # a column while readings are compared: (cell, runs) of what a reading compares


def table(results: Mapping[str, pd.DataFrame], names: Iterable[str] | None = None) -> pd.DataFrame:
    """The effects table of some papers (None: all), from tidy tables by experiment.

    A reading other than the primary one has rows for a claim only if it has runs for one of the claim's cells.
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
    return load_judged(scale, root)[0]


def load_judged(scale: Scale, root: Path = ROOT) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The effects table (`load`), and its `claims`, which are kept beside it. Raises the same errors."""
    if (known := _known(scale, root)) is None:
        with alone(_folder(root) / scale, wait=True):  # several pages may ask at once: one makes it for all
            return _collected(scale, root) if (known := _known(scale, root)) is None else known
    return known


def is_current(scale: Scale, root: Path = ROOT) -> bool:
    """Whether the effects table of a scale is there, and no file on which it depends has changed since."""
    with suppress(OSError, ValueError, KeyError):
        return read_sealed(_folder(root) / f"{scale}.json")["signature"] == _signature(scale, root)
    return False


def _folder(root: Path) -> Path:
    return root / "data" / "effects"


def _paths(scale: Scale, root: Path) -> list[Path]:
    """The files of the effects table and of its claims."""
    return [_folder(root) / f"{scale}.parquet", _folder(root) / f"{scale}-claims.parquet"]


def _known(scale: Scale, root: Path) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """The two tables as they were kept; None: some file on which they depend has changed since, or they are damaged."""
    if is_current(scale, root):  # so that none of these files has to be opened
        with suppress(OSError, ValueError, KeyError, StoreError):
            about = read_sealed(_folder(root) / f"{scale}.json")
            effects, judged = (
                from_kept(path, about["address"], "it is made anew", digest)
                for path, digest in zip(_paths(scale, root), about["files"], strict=True)
            )
            return effects, judged
    return None


def _collected(scale: Scale, root: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The two tables, made anew if other runs or other code made those that are kept."""
    signature, files, paths = _signature(scale, root), _files(scale, root), _paths(scale, root)
    runs = {name: _addresses(file) for name, file in files.items()}
    address = address_of([runs, [hashlib.sha256(path.read_bytes()).hexdigest() for path in _code()]])
    try:
        effects, judged = (from_kept(path, address, "it is made anew") for path in paths)
    except (FileNotFoundError, StoreError):
        effects = table({name: read_table(file)[0] for name, file in files.items()})
        judged = claims(effects)
        for path, content in zip(paths, (effects, judged), strict=True):
            write_whole(path, to_kept(content, address))
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    write_sealed(
        _folder(root) / f"{scale}.json", {"signature": signature, "address": address, "files": digests}
    )
    return effects, judged


def _files(scale: Scale, root: Path) -> dict[str, Path]:
    """Experiment or study that a claim asks for -> its table, where anything of it is finished."""
    settings = params.load(root / params.PARAMS.name)
    names = [name for name in sorted(needed()) if name in {*settings.names, *settings.studies}]
    return {name: file for name in names if (file := table_file(name, scale, settings, root))}


def _signature(scale: Scale, root: Path) -> str:
    """A digest of sizes and times of change of all files on which the table depends."""
    folders = [
        *((HOME / code, "*.py") for code in ("fedlib", "workspace")),
        *((root / "data" / kind / scale, "*.parquet") for kind in ("results", "archive")),
        (Place.from_environment().runs, "run.json"),
    ]
    files = [path for folder, pattern in folders for path in folder.rglob(pattern)]
    return address_of(state_of([root / params.PARAMS.name, *files]))


def _addresses(file: Path) -> list[str]:
    """The addresses of the runs in a table of results, without reading its rows; `StoreError` if it is damaged."""
    with named(file, mend(file)):
        info, _ = info_of(file.read_bytes())
        return [run["address"] for run in info["runs"]]


@cache
def needed() -> frozenset[str]:
    """The experiments and studies that the claims of all papers ask for, under any reading."""
    return frozenset().union(
        *(asks(claim, readings(paper)) for paper in papers() for claim in claims_of(paper))
    )


def _code() -> list[Path]:
    """The files that decide what the table says."""
    analysis = Path(__file__).parent
    return sorted([*analysis.glob("*.py"), *(analysis.parent / "papers").rglob("*.py")])


# -- claims: all cells of a claim together, under one reading


def claims(table: pd.DataFrame) -> pd.DataFrame:
    """One row per (claim, reading): the mean over cells, and under the primary reading the outcome."""
    return distinct(corrected(under_readings(table), table)).drop(columns=EVIDENCE)


def under_readings(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of `claims` under every reading of the table, before any correction."""
    groups: dict[tuple, list[Row]] = {}
    for row in table.to_dict("records"):
        groups.setdefault((row["paper"], row["claim"], row["reading"]), []).append(row)
    cache: dict[tuple, Row] = {}  # many readings compare the same runs
    lines = []
    for (_, claim, _), cells in groups.items():
        key = claim, cells[0]["primary"], *(row["runs"] for row in cells)
        if key not in cache:
            cache[key] = judged(cells)
        lines.append(cache[key] | {name: cells[0][name] for name in ("reading", "commit", "primary")})
    return pd.DataFrame(lines, columns=[*CLAIM_COLUMNS, EVIDENCE])


def judged(cells: list[Row]) -> Row:
    """The row of one claim under one reading, from those of its cells; its outcome before any correction."""
    first, natural = cells[0], math.exp if cells[0]["null"] == 1 else float
    ran = judge.compared(cells)
    measured = [row for row in ran if row["values"] is not None and len(row["values"])]
    mean, by_seed = judge.pooled(measured)
    found, size = (
        judge.order(cells, first["over"], mean),
        judge.size(measured if len(measured) == len(ran) else []),
    )
    evidence = frozenset((row["cell"], row["runs"]) for row in ran or cells if ran or row["n"])
    line: Row = {key: first[key] for key in CLAIM_COLUMNS[:9]} | {
        "unit": first["unit"],
        "null": first["null"],
        "margin": natural(mean.bound),
        "test": mean.test,
        "open": mean.open,
        "under": mean.under,
        "estimate": natural(mean.estimate),
        "low": natural(mean.low),
        "high": natural(mean.high),
        "n": mean.n,
        "seeds": list(by_seed),
        "values": list(by_seed.values()),
        "cells": len(ran),
        "of": len(cells),
        "shown": found.shown,
        "reversed": found.reversed,
        "aside": sum(_aside(judge.effect_of(row)) for row in measured),
        "p": found.p,
        "adjusted": found.p,
        "p_reversed": found.p_reversed,
        "adjusted_reversed": found.p_reversed,
        "outcome": _state(cells, found),
        "said": "",
        "size": size.outcome,
        "printed": natural(size.printed),
        "least": natural(size.margin),
        "ratio": natural(size.ratio),
        "ratio_low": natural(size.low),
        "ratio_high": natural(size.high),
        "needed": 0,
        "size_needed": size.needed,
        "weakest": "",
        "runs": hashlib.sha256(json.dumps(sorted(evidence)).encode()).hexdigest()[:12],
        "badge": _badge(cells, ran),
        EVIDENCE: evidence,
    }
    if not first["primary"]:
        return line | {"size": "", "size_needed": 0, "outcome": _apart(line["outcome"])}
    if first["kind"] == "construction":
        return line | {"outcome": "by construction", "said": "by construction", "size": "", "size_needed": 0}
    return line | {"said": said(found, line["outcome"], first["over"])}


def _apart(outcome: str) -> str:
    """Why there is nothing to judge; "" if there is."""
    return outcome if outcome in words.APART else ""


def _aside(effect: Effect) -> bool:
    """Whether an estimate lies on the side that the claim denies."""
    return effect.estimate < effect.bound if effect.test == "more" else abs(effect.estimate) > effect.bound


def _state(cells: list[Row], found: judge.Order) -> str:
    """The outcome of a claim's order before any correction, or why it has none."""
    states = [row["outcome"] for row in cells]
    if "infeasible" in states:
        return "infeasible"
    if states.count("true") + states.count("false"):
        facts = states.count("true") == len(states)
        return "contradicted" if "false" in states else "holds" if facts else "holds where run"
    if not found.m:
        several = any(state == "nobody arrives" for state in states)
        return "not shown" if several else "one seed" if "one seed" in states else "not run"
    return judge.decided(found, found.p, found.p_reversed, cells[0]["over"])


def _badge(cells: list[Row], ran: list[Row]) -> str:
    """Which cells were compared, in words; "" if all were."""
    if len(ran) in (0, len(cells)):
        return ""
    names = [row["cell"] for row in ran]
    told = names if len(names) <= 3 else list(dict.fromkeys(row["data"] for row in ran))
    return f"{len(ran)} of {len(cells)} cells: {'; '.join(told)}"


def corrected(claims: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The outcomes after Holm's correction over a paper's core claims, once for holding and once for reversal.

    All whose order was tested under the primary reading count. table: their cells, for the seeds that would decide.
    """
    claims = claims.copy()
    tested = claims["primary"] & claims["outcome"].isin(words.TESTED)
    core = tested & (claims["kind"] == "core") & (claims["cells"] > 0) & (claims["estimator"] != "exact fact")
    levels = dict.fromkeys(claims.index, ALPHA)
    for _, family in claims[core].groupby("paper", sort=False):
        for p in ("p", "p_reversed"):
            claims.loc[family.index, "adjusted" + p[1:]] = holm(family[p])
        rank = family["p"].rank(method="first")
        levels |= dict(zip(family.index, ALPHA / (len(family) - rank + 1), strict=True))
    by_claim = dict(list(table[table["primary"]].groupby("claim", sort=False)))
    for index, row in claims[tested & (claims["estimator"] != "exact fact")].iterrows():
        cells = by_claim[row["claim"]].to_dict("records")
        mean, _ = judge.pooled([cell for cell in judge.compared(cells) if len(cell["values"])])
        found = judge.order(cells, row["over"], mean)
        if not found.m:
            claims.loc[index, "said"] = "no side reaches the target"
            continue
        outcome = judge.decided(found, row["adjusted"], row["adjusted_reversed"], row["over"])
        needed, weakest = judge.seeds_to_hold(cells, levels[index], row["over"], mean)
        claims.loc[index, ["outcome", "said"]] = outcome, said(found, outcome, row["over"])
        if outcome not in words.DECIDED:
            claims.loc[index, ["needed", "weakest"]] = needed, weakest
    return claims


def distinct(claims: pd.DataFrame) -> pd.DataFrame:
    """Without the readings that compare nothing which another one, or an earlier one of the same, does not compare too.

    The primary reading stays, and is the first of those with the same runs.
    """
    echoes = []
    for _, family in claims.groupby("claim", sort=False):
        ordered = family.sort_values("primary", ascending=False, kind="stable")
        evidence = list(ordered[EVIDENCE])
        for place, (index, mine) in enumerate(zip(ordered.index, evidence, strict=True)):
            wider = mine in evidence[:place] or any(mine < other for other in evidence)
            if wider and not ordered.loc[index, "primary"]:
                echoes.append(index)
    return claims.drop(index=echoes).reset_index(drop=True)


def by_data(table: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    """The mean effects of some claims on each data set under the primary reading, with a column "data".

    One set of cells is one test, so that these rows have effects and sizes of the printed, and no outcome of their own
    but one seed, not run and infeasible.
    """
    chosen = table[table["claim"].isin(names) & table["primary"]]
    lines = []
    for (_, data), cells in chosen.groupby(["claim", "data"], sort=False):
        line = judged(cells.to_dict("records"))
        lines.append(line | {"data": data, "outcome": _apart(line["outcome"]), "size": ""})
    return pd.DataFrame(lines, columns=[*CLAIM_COLUMNS, "data"])


def summary(claims: pd.DataFrame) -> pd.DataFrame:
    """One row per claim (from `claims`): what it comes to under the primary reading."""
    texts = {claim.id: claim.text for paper in papers() for claim in claims_of(paper)}
    counts = claims.groupby("claim").size()
    lines = []
    for row in claims[claims["primary"]].to_dict("records"):
        line = {key: row[key] for key in ("paper", "claim", "artifact", "kind", "outcome", "said", "size")}
        as_claimed = row["outcome"] == "holds" and row["size"] == "as large as printed"
        line |= {"text": texts.get(str(row["claim"]), ""), "as_claimed": as_claimed}
        lines.append(line | {"readings": int(counts[row["claim"]])})
    return pd.DataFrame(
        lines,
        columns=[
            "paper",
            "claim",
            "artifact",
            "kind",
            "text",
            "outcome",
            "said",
            "size",
            "as_claimed",
            "readings",
        ],
    )


def core_outcomes(summary: pd.DataFrame, paper: str) -> dict[str, int]:
    """How many of a paper's core claims have each outcome, in the order of `words.ORDER`; "" for all papers."""
    core = summary[(summary["kind"] == "core") & ((summary["paper"] == paper) | (not paper))]
    counts = core["outcome"].value_counts()
    return {name: int(counts[name]) for name in words.ORDER if name in counts}


# -- the multiverse: what depends on what a paper leaves open


def counted(claims: pd.DataFrame) -> pd.DataFrame:
    """The readings that show how much a claim depends on what is left open.

    An infeasible reading cannot be the paper's, and one with runs for fewer cells than others is of something else. A
    part of another reading's runs is no reading of its own.
    """
    whole = claims["cells"] == claims.groupby("claim")["cells"].transform("max")
    parts = {(paper, reading.name) for paper in papers() for reading in readings(paper) if reading.part}
    own = np.array([key not in parts for key in zip(claims["paper"], claims["reading"], strict=True)], bool)
    return claims[whole & (claims["outcome"] != "infeasible") & own]


DECIDES = 0.1  # the share of the variance with which a choice is said to decide
SEPARATED = 8  # readings; fewer differ in several choices at once, which cannot be told apart
FLIPS = range(6, 15)  # seeds: fewer cannot find 2.5 % by flipping signs, and of more not all signs are tried


def sensitivity(claims: pd.DataFrame) -> pd.DataFrame:
    """How much of the variance of a claim's effect over its feasible readings each choice explains, largest first.

    claims: rows of `claims`. -> claim, readings (number), choice, options (number), share: the variance of the options'
    mean effects (on the additive scale, weighted by their number of readings) over the variance of all. A reading takes
    as written what it says nothing of. Choices that always change together are one, joined by " + ". Shares need not
    sum to 1: choices interact, and not every combination has been run.
    """
    whole = counted(claims)
    whole = whole[whole["estimate"].notna() & (whole["n"] >= 2)]
    lines = []
    for id, family in whole.groupby("claim", sort=False):
        y = family["estimate"].to_numpy()
        y = np.log(y) if family["null"].iloc[0] == 1 else y
        if len(y) < 2 or not y.var() > 0:
            continue
        groups: dict[tuple[int, ...], list[str]] = {}  # the option of each reading, by number -> the choices
        for choice, options in options_taken(str(family["paper"].iloc[0]), family["reading"]).items():
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


def options_taken(paper: str, names: Iterable[str]) -> dict[str, list[str]]:
    """Choice -> the option that each of some readings takes."""
    by_name = {reading.name: reading.choices for reading in readings(paper)}
    complete = [{**by_name.get(AS_WRITTEN, {}), **by_name[name]} for name in names]
    choices = dict.fromkeys(choice for options in complete for choice in options)
    return {choice: [options.get(choice, "") for options in complete] for choice in choices}


def levels(claims: pd.DataFrame) -> pd.DataFrame:
    """How large a claim's effect is over its readings, for each option of the choice that moves it most.

    claims: rows of `claims`. -> claim, choice, option, readings (number), lowest, highest (range of their effects),
    estimate, low, high (the mean over readings, seed by seed, with its t-interval), n, p: of flipping the sign of a
    seed in all readings at once, where `FLIPS` allows it (else NaN). Where no choice explains `DECIDES` of the
    variance, or there are fewer than `SEPARATED` readings, choice and option are "". Readings share runs and seeds: a
    mean by seeds needs no assumption of how they depend on each other, and counting them would be no evidence.
    """
    shares = sensitivity(claims)
    first = (
        shares[(shares["share"] >= DECIDES) & (shares["readings"] >= SEPARATED)]
        .groupby("claim", sort=False)
        .first()
    )
    whole = counted(claims)
    whole = whole[whole["estimate"].notna() & (whole["n"] >= 2) & (whole["kind"] == "core")]
    lines = []
    for id, family in whole.groupby("claim", sort=False):
        choice = str(first["choice"].get(id, "")) if len(first) else ""
        taken = [""] * len(family)
        if choice:
            taken = options_taken(str(family["paper"].iloc[0]), family["reading"])[choice.split(" + ")[0]]
        natural = math.exp if family["null"].iloc[0] == 1 else float
        for option, rows_of in family.groupby(np.array(taken), sort=False):
            measured = zip(rows_of["seeds"], rows_of["values"], strict=True)
            by_seed = pd.DataFrame(
                [dict(zip(seeds, values, strict=True)) for seeds, values in measured]
            ).dropna(axis=1)
            means = by_seed.mean().to_numpy()
            effect = Effect.of(means)
            lines.append(
                {
                    "claim": id,
                    "choice": choice,
                    "option": option,
                    "readings": len(rows_of),
                    "lowest": rows_of["estimate"].min(),
                    "highest": rows_of["estimate"].max(),
                    "estimate": natural(effect.estimate),
                    "low": natural(effect.low),
                    "high": natural(effect.high),
                    "n": effect.n,
                    "p": flips(means) if effect.n in FLIPS else math.nan,
                }
            )
    columns = [
        "claim",
        "choice",
        "option",
        "readings",
        "lowest",
        "highest",
        "estimate",
        "low",
        "high",
        "n",
        "p",
    ]
    return pd.DataFrame(lines, columns=columns)


def flips(means: np.ndarray) -> float:
    """P-value of flipping signs: in how many of the 2^n sign vectors the sum is at least as large as observed.

    means: (n,) means over readings and cells, one per seed: a sign flips a seed in all of them at once, as if the two
    methods were swapped.
    """
    signs = np.array(list(product((1, -1), repeat=len(means))))
    sums = signs @ means
    return float((sums >= sums[0] - 1e-12).mean())
