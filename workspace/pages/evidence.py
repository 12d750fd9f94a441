"""The effects table of a scale, as the scoreboard keeps it: the one source of what pages say about claims."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedlib.settings.schema import ROOT, Scale
from workspace.analysis import effects, words
from workspace.analysis.claim import claims_of
from workspace.analysis.paper import Paper, papers
from workspace.analysis.readings import Reading, primary, readings
from workspace.pages import forest, tables


@dataclass(frozen=True)
class Evidence:
    """What the claims come to.

    table, claims, summary, levels: of `effects`. outcomes: `effects.by_data` of the papers' main claims.
    """

    table: pd.DataFrame
    claims: pd.DataFrame
    summary: pd.DataFrame
    outcomes: pd.DataFrame
    levels: pd.DataFrame

    @classmethod
    def load(cls, scale: Scale, root: Path = ROOT, names: Collection[str] | None = None) -> Evidence:
        """What the claims of some papers (None: all) come to at a scale; raises what `effects.load` raises."""
        table, judged = effects.load_judged(scale, root)
        if names is not None:
            table, judged = (part[part["paper"].isin(list(names))] for part in (table, judged))
        return cls.of(table, judged)

    @classmethod
    def of(cls, table: pd.DataFrame, judged: pd.DataFrame | None = None) -> Evidence:
        """judged: `effects.claims` of the table, if they are known."""
        main = [main_claim(papers()[str(name)], cells) for name, cells in table.groupby("paper", sort=False)]
        judged = effects.claims(table) if judged is None else judged
        return cls(
            table, judged, effects.summary(judged), effects.by_data(table, main), effects.levels(judged)
        )

    @classmethod
    def read(cls, folder: Path) -> Evidence | None:
        """What `write` kept in a folder; None if it is not there."""
        paths = [folder / f"{name}.csv" for name in PARTS]
        if not all(path.exists() for path in paths):
            return None
        return cls(*(typed(tables.read_csv(path, dtype={"commit": str, "runs": str})) for path in paths))

    def of_papers(self, names: Iterable[str]) -> Evidence:
        """The same of some papers alone."""
        claims = self.claims.loc[self.claims["paper"].isin(list(names)), "claim"].unique()
        every = (self.table, self.claims, self.summary, self.outcomes, self.levels)
        return Evidence(*(table[table["claim"].isin(claims)] for table in every))

    def parts(self) -> dict[str, pd.DataFrame]:
        """Name -> table, to keep; without the effects of single seeds."""
        tables = (self.table, self.claims, self.summary, self.outcomes, self.levels)
        without_seeds = (table.drop(columns=["seeds", "values"], errors="ignore") for table in tables)
        return dict(zip(PARTS, without_seeds, strict=True))

    @staticmethod
    def text(claim: str) -> str:
        """The words of a claim."""
        return claim_texts().get(claim, claim)

    def on_page(self, artifact: str) -> list[str]:
        """The claims of a page ("hcsfed/table_1"), in order."""
        return list(self.claims.loc[self.claims["artifact"] == artifact, "claim"].unique())

    def outcome(self, claim: str) -> str:
        """The outcome of a claim's order under its paper's primary reading (`words.ORDER`)."""
        return str(self.summary.loc[self.summary["claim"] == claim, "outcome"].iloc[0])

    def in_words(self, claim: str) -> str:
        """Order and size of a claim in words: "holds in all 6; smaller than printed"."""
        row = self.summary[self.summary["claim"] == claim].iloc[0]
        return "; ".join(filter(None, (str(row["said"]), SIZE_WORDS.get(str(row["size"]), str(row["size"])))))

    def primary(self, claim: str) -> dict[str, Any]:
        """The row of `claims` under the primary reading."""
        row = self.claims[(self.claims["claim"] == claim) & self.claims["primary"]].iloc[0]
        return {str(key): value for key, value in row.items()}

    def beside(self, claim: str) -> list[tuple[Reading, dict[str, Any]]]:
        """What a claim comes to under the readings that are shown beside its primary one, of two seeds or more.

        Rows of `claims`. A reading that is a part of the primary one's runs differs from it in some cells alone: of it,
        each of these, in the same form.
        """
        mine, cells = (table[table["claim"] == claim] for table in (self.claims, self.table))
        if mine.empty:
            return []
        paper = str(mine["paper"].iloc[0])
        by_name = {reading.name: reading for reading in readings(paper)}
        whole = cells[cells["primary"]].set_index("cell")["runs"]
        rows = []
        for reading in map(by_name.__getitem__, primary(paper).beside):
            judged = mine[mine["reading"] == reading.name]
            if reading.part:
                parts = cells[cells["reading"] == reading.name]
                parts = parts[parts["runs"] != parts["cell"].map(whole)]
                judged = parts.assign(cells=1, of=len(whole), outcome="")
            rows += [(reading, row) for row in judged[judged["n"] > 1].to_dict("records")]
        return rows

    def is_core(self, claim: str) -> bool:
        """Whether a claim is one of the paper's core claims."""
        return bool((self.claims.loc[self.claims["claim"] == claim, "kind"] == "core").any())

    def row(self, claim: str, link: str = "") -> str:
        """A claim as a row of a forest plot."""
        cells = self.table[(self.table["claim"] == claim) & self.table["primary"]]
        levels = self.levels[self.levels["claim"] == claim]
        return forest.row(cells, self.primary(claim), levels, self.text(claim), link)

    def board(self, paper: str) -> str:
        """A paper's claims for the scoreboard (`forest.board`), each with a link to its page."""
        judged = self.claims[self.claims["paper"] == paper]
        rows = {
            row["claim"]: (
                row["kind"],
                self.outcome(row["claim"]),
                self.row(row["claim"], f"{row['artifact']}.html#{row['claim']}"),
            )
            for row in judged.drop_duplicates("claim").to_dict("records")
        }
        return forest.board(rows, main_claim(papers()[paper], judged))

    def tally(self, paper: str) -> dict[str, int]:
        """The number of a paper's core claims with each outcome, in the order of `words.ORDER`."""
        return effects.core_outcomes(self.summary, paper)


OUTCOMES = tuple(words.ORDER)
SIZE_WORDS = {"size open": "whether it is as large as printed is open"}
PARTS = ("effects", "claims", "summary", "outcomes", "levels")


@cache
def claim_texts() -> dict[str, str]:
    """The words of every claim, by id."""
    return {claim.id: claim.text for paper in papers() for claim in claims_of(paper)}


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """A table read from CSV, whose empty texts are texts again."""
    numbers = {
        *(
            "estimate",
            "low",
            "high",
            "null",
            "margin",
            "printed",
            "p",
            "adjusted",
            "p_reversed",
            "adjusted_reversed",
        ),
        *("least", "ratio", "ratio_low", "ratio_high", "finest", "lowest", "highest"),
    }
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
