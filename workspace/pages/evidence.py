"""The effects table of a scale, as the scoreboard keeps it: the one source of what pages say about claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from workspace.analysis import effects
from workspace.analysis.claim import claims_of
from workspace.analysis.paper import Paper, papers
from workspace.pages import forest


@dataclass(frozen=True)
class Evidence:
    """What the claims come to.

    table, claims, summary: of `effects`. outcomes: `effects.by_data` of the papers' main claims.
    """

    table: pd.DataFrame
    claims: pd.DataFrame
    summary: pd.DataFrame
    outcomes: pd.DataFrame

    @classmethod
    def of(cls, table: pd.DataFrame) -> Evidence:
        main = [main_claim(papers()[str(name)], cells) for name, cells in table.groupby("paper", sort=False)]
        judged = effects.claims(table)
        return cls(table, judged, effects.summary(judged), effects.by_data(table, main))

    @classmethod
    def read(cls, folder: Path) -> Evidence | None:
        """What `write` kept in a folder; None if it is not there."""
        paths = [folder / f"{name}.csv" for name in PARTS]
        if not all(path.exists() for path in paths):
            return None
        return cls(*(typed(pd.read_csv(path, dtype={"commit": str, "runs": str})) for path in paths))

    def parts(self) -> dict[str, pd.DataFrame]:
        """Name -> table, to keep; without the effects of single seeds."""
        table = self.table.drop(columns=["seeds", "values"], errors="ignore")
        return dict(zip(PARTS, (table, self.claims, self.summary, self.outcomes), strict=True))

    @staticmethod
    def text(claim: str) -> str:
        """The words of a claim."""
        return claim_texts().get(claim, claim)

    def on_page(self, artifact: str) -> list[str]:
        """The claims of a page ("hcsfed/table_1"), in order."""
        return list(self.claims.loc[self.claims["artifact"] == artifact, "claim"].unique())

    def outcome(self, claim: str) -> str:
        """The outcome of a claim over its readings; `DEPENDS` if they differ."""
        counts = self.summary[self.summary["claim"] == claim].iloc[0]
        ran = [name for name in RAN if counts[name]]
        if len(ran) == 1:
            return ran[0]
        return DEPENDS if ran else str(counts["outcome"])

    def is_core(self, claim: str) -> bool:
        """Whether a claim is one of the paper's core claims."""
        return bool((self.claims.loc[self.claims["claim"] == claim, "kind"] == "core").any())

    def row(self, claim: str, link: str = "") -> str:
        """A claim as a row of a forest plot."""
        cells, judged = (table[table["claim"] == claim] for table in (self.table, self.claims))
        words = str(self.summary.loc[self.summary["claim"] == claim, "outcome"].iloc[0])
        return forest.row(cells, judged, self.outcome(claim), words, self.text(claim), link)

    def tally(self, paper: str) -> dict[str, int]:
        """The number of a paper's core claims with each outcome, in the order of `OUTCOMES`."""
        core = self.summary[(self.summary["paper"] == paper) & (self.summary["kind"] == "core")]
        outcomes = [self.outcome(claim) for claim in core["claim"]]
        return {name: outcomes.count(name) for name in OUTCOMES if name in outcomes}


RAN = ("replicated", "refuted", "undecided", "one seed")
DEPENDS = "decided by the reading"
OUTCOMES = ("replicated", DEPENDS, "undecided", "one seed", "refuted", "infeasible", "not run")
PARTS = ("effects", "claims", "summary", "outcomes")


def over_readings(judged: pd.DataFrame) -> str:
    """The outcome of a claim on one data set (rows of `by_data`); `DEPENDS` if its readings differ."""
    ran = [name for name in RAN if (judged["outcome"] == name).any()]
    return ran[0] if len(ran) == 1 else DEPENDS if ran else str(judged["outcome"].iloc[0])


@cache
def claim_texts() -> dict[str, str]:
    """The words of every claim, by id."""
    return {claim.id: claim.text for paper in papers() for claim in claims_of(paper)}


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """A table read from CSV, whose empty texts are texts again."""
    numbers = {"estimate", "low", "high", "null", "margin", "printed", "p", "adjusted"}
    texts = [name for name in table if name not in numbers and table[name].isna().any()]
    return table.assign(**{name: table[name].astype(object).fillna("") for name in texts})


def main_claim(paper: Paper, judged: pd.DataFrame) -> str:
    """The id of a paper's main claim, or of its first core claim if that has no effects; "" if it has none."""
    names = list(judged["claim"])
    core = list(judged.loc[judged["kind"] == "core", "claim"])
    return paper.headline if paper.headline in names else next(iter([*core, *names]), "")


def pooled(cells: pd.DataFrame, column: str = "printed") -> float:
    """A column of cells pooled as effects are: the geometric mean of ratios, the mean of differences; NaN if none.

    What is printed of a cell that should agree with it is a level, and no effect.
    """
    if column == "printed":
        cells = cells[cells["estimator"] != forest.AGREEMENT]
    values = cells.drop_duplicates("cell")[column].dropna()
    if values.empty:
        return math.nan
    return float(np.exp(np.log(values).mean()) if cells["unit"].iloc[0] == "times" else values.mean())
