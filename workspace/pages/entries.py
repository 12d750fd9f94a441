"""The numbers and words that the study may ask for, each with the row that it rests on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from workspace.analysis import effects, power, words
from workspace.analysis.claim import claims_of, sentence
from workspace.analysis.estimators import LEVEL
from workspace.analysis.readings import how_many, primary, readings
from workspace.pages import chooser, first, forest, front, ranking
from workspace.pages.evidence import Evidence, pooled

NUMBERS = [
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
MINE = {  # the papers that the study is about -> their own sampler in the arena
    "clustered_sampling": "Clustered Sampling (Algorithm 2)",
    "hcsfed": "HCSFed-R (GC-A)",
    "fedcor": "FedCor",
    "hics_fl": "HiCS-FL",
}
OTHERS = ("Clustered Sampling (Algorithm 1)", "Pow-d", "DivFL", "AFL")


@dataclass(frozen=True)
class Entry:
    """One number or word of the text. call: how it is asked for; row: what it rests on."""

    section: str
    call: str
    row: str
    text: str


@dataclass
class Entries:
    """What the template may ask for. Every public method returns text, and is recorded with its row."""

    evidence: Evidence
    arena: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, str]
    used: list[Entry] = field(default_factory=list)
    section: str = ""

    def functions(self) -> dict[str, Callable[..., str]]:
        """Name -> function of the template."""
        names = [name for name in dir(self) if not name.startswith("_") and name not in NOT_CALLED]
        return {name: self._recorded(name) for name in names}

    def _recorded(self, name: str) -> Callable[..., str]:
        def call(*values: Any) -> str:
            row, text = getattr(self, name)(*values)
            arguments = ", ".join(str(value) for value in values)
            self.used.append(Entry(self.section, f"{name}({arguments})", row, text))
            return text

        return call

    # -- the effects table

    def _row(self, claim: str, reading: str = "") -> dict[str, Any]:
        rows = self.evidence.claims[self.evidence.claims["claim"] == claim]
        row = rows[rows["primary"]].iloc[0].to_dict()
        if reading:
            read_so = rows[rows["reading"] == reading].to_dict("records")
            row = (
                read_so[0]
                if read_so
                else row | dict.fromkeys(("estimate", "low", "high"), math.nan) | {"n": 0}
            )
        return {str(key): value for key, value in row.items()}

    def _label(self, claim: str, reading: str = "") -> str:
        return f"effects: {claim}, {reading or 'primary reading'}"

    def effect(self, claim: str, reading: str = "") -> tuple[str, str]:
        """A claim's mean effect with its interval."""
        return self._label(claim, reading), forest.mean_of(self._row(claim, reading))

    def measured(self, claim: str, reading: str) -> bool:
        """Whether a claim has been measured under a reading with two seeds or more."""
        rows = self.evidence.claims
        rows = rows[(rows["claim"] == claim) & (rows["reading"] == reading)]
        return bool(len(rows)) and int(rows["n"].iloc[0]) > 1

    def control(self, paper: str, k: int = 0) -> tuple[str, str]:
        """The name of the k-th reading that is shown beside a paper's primary one."""
        return f"readings: {paper}", list(primary(paper).beside)[k]

    def apart(self, claim: str, reading: str = "") -> tuple[str, str]:
        """On which side of no effect the interval lies."""
        row = self._row(claim, reading)
        return self._label(claim, reading), words.side(row["low"], row["high"], row["null"])

    def verdict(self, claim: str) -> tuple[str, str]:
        """What a claim comes to, order and size."""
        return self._label(claim), self.evidence.in_words(claim)

    def seeds(self, claim: str, reading: str = "") -> tuple[str, str]:
        return self._label(claim, reading), front.seeds(int(self._row(claim, reading)["n"]))

    def printed(self, claim: str) -> tuple[str, str]:
        """What the paper prints for the cells that were compared."""
        row = self._row(claim)
        value = row["printed"]
        if math.isnan(value):
            cells = self.evidence.table
            value = pooled(cells[(cells["claim"] == claim) & cells["primary"] & (cells["n"] > 0)])
        unit = "\u00a0×" if row["unit"] == "times" else f"\u00a0{row['unit']}"
        return f"print: {claim}, {row['artifact']}", f"{forest.number(value)}{unit}"

    def cell(self, claim: str, name: str) -> tuple[str, str]:
        """The effect in one cell under the primary reading, with its seeds."""
        rows = self.evidence.table
        row = rows[(rows["claim"] == claim) & (rows["cell"] == name) & rows["primary"]].iloc[0]
        effect = forest.effect({str(key): value for key, value in row.items()})
        return f"effects: {claim}, {name}", f"{effect} ({front.seeds(int(row['n']))})"

    def quote(self, claim: str) -> tuple[str, str]:
        """The paper's own sentence, with its place."""
        phrase, place = sentence(claim)
        return f"print: {claim}", f"“{phrase}” ({place})"

    def called(self, paper: str) -> tuple[str, str]:
        """What a paper's primary reading is called, and why it is taken."""
        reading = primary(paper)
        return f"readings: {paper}", f"“{reading.called}”. {' '.join(reading.why)}"

    def open_choices(self, paper: str) -> tuple[str, str]:
        """How many readings a paper has."""
        return f"readings: {paper}", str(len(readings(paper)))

    def combinations(self, paper: str) -> tuple[str, str]:
        return f"readings: {paper}", how_many(paper)

    def spread(self, claim: str) -> tuple[str, str]:
        """How an effect depends on what is left open."""
        levels = self.evidence.levels[self.evidence.levels["claim"] == claim]
        phrase = forest.spread(levels, self._row(claim)["unit"])
        return (
            f"levels: {claim}",
            f"{phrase[0].lower()}{phrase[1:]}" if phrase else "there is one reading alone",
        )

    def decider(self, claim: str) -> tuple[str, str]:
        """The choice that explains most of the variance of an effect over readings."""
        shares = self.shares()
        shares = shares[shares["claim"] == claim]
        if shares.empty:
            return f"sensitivity: {claim}", "nothing that was varied"
        row = shares.iloc[0]
        return f"sensitivity: {claim}", f"“{row['choice']}” ({100 * row['share']:.0f} %)"

    def explained(self, claim: str, control: str) -> tuple[str, str]:
        """Whose an effect is that a control with one rule for both sides has or lacks."""
        row, second = self._row(claim), self._row(claim, control)
        sides = [words.side(entry["low"], entry["high"], entry["null"]) for entry in (row, second)]
        return self._label(claim, control), words.explained(*sides)

    def shares(self) -> pd.DataFrame:
        """How much of the variance of each effect over readings each choice explains (`effects.sensitivity`)."""
        if not hasattr(self, "_sensitivity"):
            self._sensitivity = effects.sensitivity(self.evidence.claims)
        return self._sensitivity

    def decides(self) -> tuple[str, str]:
        """Of every claim of many readings, the choice that explains most of its variance."""
        shares = self.shares()
        core = set(self.evidence.summary.loc[self.evidence.summary["kind"] == "core", "claim"])
        shares = shares[shares["claim"].isin(core) & (shares["readings"] >= effects.SEPARATED)]
        largest = shares.groupby("claim", sort=False).first()
        by_choice: dict[str, list[str]] = {}
        for claim, row in largest.iterrows():
            by_choice.setdefault(str(row["choice"]), []).append(f"{claim} ({100 * row['share']:.0f} %)")
        parts = [f"“{choice}” in {front.listed(claims)}" for choice, claims in by_choice.items()]
        return "sensitivity of core claims", front.listed(parts) if parts else "no claim has enough readings"

    def tally(self, paper: str = "") -> tuple[str, str]:
        """How many core claims have each outcome."""
        counts = effects.core_outcomes(self.evidence.summary, paper)
        parts = [f"{in_words(n)} “{outcome}”" for outcome, n in counts.items()]
        return f"summary: core claims {paper}".strip(), front.listed(parts)

    def core(self, *outcomes: str) -> tuple[str, str]:
        """How many core claims there are, or have one of some outcomes."""
        counts = effects.core_outcomes(self.evidence.summary, "")
        n = sum(n for outcome, n in counts.items() if not outcomes or outcome in outcomes)
        return "summary: core claims", in_words(n)

    def tested(self) -> tuple[str, str]:
        """How many core claims were tested."""
        return self.core(*words.TESTED)

    def sized(self, *sizes: str) -> tuple[str, str]:
        """How many core claims have a printed size that was compared, or have one of some sizes."""
        core = self.evidence.summary[self.evidence.summary["kind"] == "core"]
        return "summary: core claims", in_words(int(core["size"].isin(sizes or tuple(words.SIZES)).sum()))

    def as_claimed(self) -> tuple[str, str]:
        """How many core claims hold and are as large as printed."""
        core = self.evidence.summary[self.evidence.summary["kind"] == "core"]
        return "summary: core claims", in_words(int(core["as_claimed"].astype(bool).sum()))

    def rate(self, column: str, seeds: int) -> tuple[str, str]:
        """The largest of an error rate over core claims, or the mean of a power."""
        table = power.stored()
        share = table.loc[(table["seeds"] == seeds) & table["claim"].isin(core_claims()), column].dropna()
        value = share.median() if column in ("full", "half") else share.max()
        return f"error_rates: {column}, {seeds} seeds", f"{100 * value:.1f} %"

    # -- the arena

    def answer(self) -> tuple[str, str]:
        """Which sampler is ahead of random selection, by what clients hold."""
        return "arena: ranking at all rounds", " ".join(first.answers(self.arena))

    def gain(self, method: str) -> tuple[str, str]:
        """A sampler's points above random selection, over the settings that all ranked ones have."""
        row = next(row for row in self.ranked().rows if row.method == method)
        result = row.gain
        phrase = f"{ranking.signed(result.value)} points ({ranking.interval(result)})"
        return f"arena: {method}", phrase if math.isfinite(
            result.low
        ) else f"{phrase.split(' (')[0]} in one seed"

    def champion(self) -> tuple[str, str]:
        """The first sampler where clients hold one label, with its gain."""
        result = first.by_labels(self.arena)[chooser.ONE].first
        phrase = "none"
        if result is not None:
            phrase = f"{result.method}, {ranking.signed(result.gain.value)} points ({ranking.interval(result.gain)})"
        return "arena: ranking where clients hold one label", phrase

    def settings(self) -> tuple[str, str]:
        return "arena: settings", in_words(len(self.arena["settings"]))

    def samplers(self) -> tuple[str, str]:
        return "arena: samplers", in_words(len(self.ranked().ranked))

    def spent(self, method: str) -> tuple[str, str]:
        """What a sampler costs, times random selection."""
        row = next(row for row in self.arena["methods"] if row["name"] == method)
        return f"arena: {method}", f"{row['bytes']} times the bytes and {row['steps']} times the local steps"

    def ranked(self) -> ranking.Ranking:
        if not hasattr(self, "_ranking"):
            kinds: dict[str, ranking.Kind] = {
                entry["name"]: entry["kind"]
                for entry in self.arena["methods"]
                if entry["name"] != ranking.BASE
            }
            places = [(entry["experiment"], entry["setting"]) for entry in self.arena["settings"]]
            ends = ranking.at_budget(first.runs_of(self.arena))
            self.ends, self._ranking = ends, ranking.ranking(ends, kinds, places)
        return self._ranking

    # -- worlds

    def exists(self, page: str) -> bool:
        """Whether a page of worlds has its table."""
        return page in self.tables

    def ahead(self, method: str, world: str, page: str = "world-claims") -> tuple[str, str]:
        """A method's points above random selection in a world."""
        rows = self.tables[page]
        rows = rows[(rows["method"] == method) & (rows["setting"] == world)]
        if rows.empty:
            return f"{page}: {method}, {world}", "not run"
        row = rows.iloc[0]
        ends = f" [{row['low']:+.1f}, {row['high']:+.1f}]" if math.isfinite(row["low"]) else ", one seed"
        return f"{page}: {method}, {world}", f"{row['difference']:+.1f} points{ends}"

    def leader(self, world: str, page: str = "world-claims") -> tuple[str, str]:
        """The method furthest above random selection in a world."""
        rows = self.tables[page]
        row = rows[rows["setting"] == world].sort_values("difference").iloc[-1]
        text = self.ahead(str(row["method"]), world, page)[1]
        return f"{page}: {world}", f"{row['method']} ({text}: {words.APART_WORDS[surely_apart(row)]})"

    def surely(self, world: str, page: str = "world-claims") -> tuple[str, str]:
        """How many methods of how many are surely above random selection in a world, and surely below."""
        rows = self.tables[page]
        rows = rows[rows["setting"] == world]
        higher, lower = (
            int(((rows["difference"] * sign > 0) & rows.apply(surely_apart, axis=1)).sum())
            for sign in (1, -1)
        )
        verb = "are" if higher > 1 else "is"
        return (
            f"{page}: {world}",
            f"{in_words(higher)} of {in_words(len(rows))} methods {verb} above random selection and "
            f"{in_words(lower)} below",
        )

    def kendall(self, world: str, second: str, page: str = "world-claims") -> tuple[str, str]:
        """Kendall's rank correlation of the methods' gains in two worlds."""
        wide = self.tables[page].pivot(index="method", columns="setting", values="difference")
        return f"{page}: {world}, {second}", f"{wide[world].corr(wide[second], method='kendall'):.2f}"

    def methods(self, page: str = "world-claims") -> tuple[str, str]:
        return page, in_words(self.tables[page]["method"].nunique())

    # -- facts

    def fact(self, name: str) -> tuple[str, str]:
        return f"archive: {name}", self.facts[name]

    def level(self) -> tuple[str, str]:
        return "judging: level of intervals", f"{100 * LEVEL:.0f} %"

    def rules(self, name: str) -> tuple[str, str]:
        """A constant of the judging rule."""
        values = {
            "draws": f"{power.DRAWS:,}",
            "more draws": f"{power.MORE:,}",
            "alpha": f"{100 * power.ALPHA:g} %",
            "seeds": front.listed([str(n) for n in power.SEEDS]),
            "half": "half",
        }
        return f"judging: {name}", values[name]

    def papers(self) -> tuple[str, str]:
        return "papers", in_words(len(MINE))


NOT_CALLED = (
    "measured",
    "ranked",
    "ends",
    "shares",
    "exists",
    "functions",
    "evidence",
    "arena",
    "tables",
    "facts",
    "used",
    "section",
)


def core_claims() -> set[str]:
    """The core claims of the study's papers."""
    return {claim.id for paper in MINE for claim in claims_of(paper) if claim.kind == "core"}


def surely_apart(row: Mapping[str, Any]) -> bool:
    """Whether a world's claim is decided, after correction."""
    return row["outcome"] in ("holds", "contradicted")


def in_words(n: int) -> str:
    return NUMBERS[n] if n < len(NUMBERS) else str(n)
