"""A paper's claims judged under its readings: one row per claim, and the totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from fedlib.analysis.claims import Claim, Runs
from fedlib.analysis.paper import papers
from fedlib.analysis.readings import AS_RUN, AS_WRITTEN, Reading, named
from fedlib.analysis.verdict import Status, Verdict

HEADLINES = ("held as written", "held as run only", "held under neither", "not run")
INFORMATIVE = "informative"  # in no total, whether run or not
IN_PART = "of these in part"
OF_RUN = "held as written, of what was run"
_NOT_RUN = Verdict("not run")


def headline(written: Status, run: Status = "not run") -> str:
    """The headline of a claim, given its status as written and as run."""
    if written == "held":
        return "held as written"
    if run == "held":
        return "held as run only"
    return "not run" if written == run == "not run" else "held under neither"


def under(
    claims: Iterable[Claim], readings: Iterable[Reading], results: Mapping[str, pd.DataFrame]
) -> dict[str, dict[str, Verdict]]:
    """Reading -> claim id -> verdict, for the claims of one paper."""
    claims, found = list(claims), {}
    for reading in readings:
        runs = Runs(reading.of(results))
        found[reading.name] = {claim.id: claim.judge(runs) for claim in claims}
    return found


def _judging(paper: str) -> list[Reading]:
    """The named readings; of a paper without a reading as written one that changes nothing, as its rules take all."""
    there = named(paper)
    return there if there[0].name == AS_WRITTEN else [Reading(AS_WRITTEN, "all readings")]


def verdicts(claims: Iterable[Claim], results: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per claim, judged under the named readings of its paper.

    Columns: paper, id, artifact, claim, printed; for the reading as written replicated, interval, verdict (its status),
    words (the verdict in words), strength, detail; "as run", the verdict in words under that reading ("" if the paper
    has none); and the headline.
    """
    rows = []
    by_paper: dict[str, list[Claim]] = {}
    for claim in claims:
        by_paper.setdefault(claim.paper, []).append(claim)
    for paper, mine in by_paper.items():
        found = under(mine, _judging(paper), results)
        for claim in mine:
            v = found[AS_WRITTEN][claim.id]
            run = found[AS_RUN][claim.id] if AS_RUN in found else None
            rows.append(
                {
                    "paper": paper,
                    "id": claim.id,
                    "artifact": claim.artifact,
                    "claim": claim.sentence,
                    "printed": claim.printed,
                    "replicated": v.value,
                    "interval": v.interval,
                    "verdict": v.status,
                    "words": v.words,
                    "strength": v.strength,
                    "as run": _said(run) if run else "",
                    "headline": INFORMATIVE
                    if claim.informative
                    else headline(v.status, (run or _NOT_RUN).status),
                    "detail": v.detail,
                }
            )
    return pd.DataFrame(rows, columns=COLUMNS)


COLUMNS = [
    *(
        "paper",
        "id",
        "artifact",
        "claim",
        "printed",
        "replicated",
        "interval",
        "verdict",
        "words",
        "strength",
    ),
    *("as run", "headline", "detail"),
]


def _said(v: Verdict) -> str:
    return ", ".join(filter(None, [v.words, v.strength])) + (f": {v.value}" if v.value else "")


def totals(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Number of claims that held under each reading: one row per paper and one for all; without informative claims.

    Columns: one per headline; the number of claims held under neither that held in part as written; the claims that
    held as written out of those that were run ("10 of 19"); all claims.
    """
    counted = verdicts[verdicts["headline"] != INFORMATIVE]
    counts = pd.crosstab(counted["paper"], counted["headline"]).reindex(columns=HEADLINES, fill_value=0)
    partly = counted[(counted["verdict"] == "held in part") & (counted["headline"] == HEADLINES[2])]
    written = counted[counted["verdict"] != "not run"]
    counts[IN_PART] = partly["paper"].value_counts()
    counts["ran"] = written["paper"].value_counts()
    counts = counts.fillna(0).astype(int)
    counts = counts.reindex([paper for paper in papers() if paper in counts.index])
    counts.loc["all papers"] = counts.sum()
    counts[OF_RUN] = [
        f"{held} of {ran}" for held, ran in zip(counts[HEADLINES[0]], counts["ran"], strict=True)
    ]
    counts["claims"] = counts[list(HEADLINES)].sum(axis=1)
    return counts.drop(columns="ran").rename_axis(columns=None)
