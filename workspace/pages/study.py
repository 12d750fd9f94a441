"""The study as an article, for a page and a PDF: its text is `site/study.md`, its numbers are looked up here.

The text is a Jinja template without a number of its own: each one is an entry of the effects table, the arena or the
worlds, looked up by a call such as `{{ effect("hcsfed.T1.b") }}`. Words that depend on an outcome come from calls too.
`Entries.used` records every call with the row that it rests on, and the article's last table prints those of the
abstract.

    study = StudyArticle.of(evidence, folder, facts)   # None if the arena or the scoreboard has not been made
    study.markdown(template)                    # for the site, with its figures beside it
    study.typst(template)                       # the same as blocks, for `site/study.typ`
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from workspace.analysis import effects, power, words
from workspace.analysis.claim import claims_of, sentence
from workspace.analysis.estimators import LEVEL
from workspace.analysis.readings import how_many, primary, readings
from workspace.figures import study as figures
from workspace.pages import chooser, first, forest, front, ranking
from workspace.pages.evidence import Evidence, pooled

PLACE = "study"  # of the page, and of its files
WORLDS = ("world-claims", "world-semantics", "world-deadlines", "world-aggregation", "world-methods")
ABSTRACT = "Abstract"
FEW = 4  # readings: a claim with fewer is not in the figure of readings
NUMBERS = (
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
)
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
        return f"readings: {paper}", primary(paper).beside[k]

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
        """The effect in one cell under the primary reading."""
        rows = self.evidence.table
        row = rows[(rows["claim"] == claim) & (rows["cell"] == name) & rows["primary"]].iloc[0]
        return f"effects: {claim}, {name}", forest.effect({str(key): value for key, value in row.items()})

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
        shares = self._shares()
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

    def _shares(self) -> pd.DataFrame:
        """How much of the variance of each effect over readings each choice explains (`effects.sensitivity`)."""
        if not hasattr(self, "_sensitivity"):
            self._sensitivity = effects.sensitivity(self.evidence.claims)
        return self._sensitivity

    def decides(self) -> tuple[str, str]:
        """Of every claim of many readings, the choice that explains most of its variance."""
        shares = self._shares()
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
        share = table.loc[(table["seeds"] == seeds) & table["claim"].isin(_core_claims()), column].dropna()
        value = share.median() if column in ("full", "half") else share.max()
        return f"error_rates: {column}, {seeds} seeds", f"{100 * value:.1f} %"

    # -- the arena

    def answer(self) -> tuple[str, str]:
        """Which sampler is ahead of random selection, by what clients hold."""
        return "arena: ranking at all rounds", first.answer(self.arena)

    def gain(self, method: str) -> tuple[str, str]:
        """A sampler's points above random selection, over the settings that all ranked ones have."""
        row = next(row for row in self._ranked().rows if row.method == method)
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
        return "arena: samplers", in_words(len(self._ranked().ranked))

    def spent(self, method: str) -> tuple[str, str]:
        """What a sampler costs, times random selection."""
        row = next(row for row in self.arena["methods"] if row["name"] == method)
        return f"arena: {method}", f"{row['bytes']} times the bytes and {row['steps']} times the local steps"

    def _ranked(self) -> ranking.Ranking:
        if not hasattr(self, "_ranking"):
            kinds: dict[str, ranking.Kind] = {
                entry["name"]: entry["kind"]
                for entry in self.arena["methods"]
                if entry["name"] != ranking.BASE
            }
            places = [(entry["experiment"], entry["setting"]) for entry in self.arena["settings"]]
            ends = ranking.at_budget(first.runs_of(self.arena))
            self._ends, self._ranking = ends, ranking.ranking(ends, kinds, places)
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
        return f"{page}: {world}", f"{row['method']} ({text}: {words.APART_WORDS[_sure(row)]})"

    def surely(self, world: str, page: str = "world-claims") -> tuple[str, str]:
        """How many methods of how many are surely above random selection in a world, and surely below."""
        rows = self.tables[page]
        rows = rows[rows["setting"] == world]
        higher, lower = (
            int(((rows["difference"] * sign > 0) & rows.apply(_sure, axis=1)).sum()) for sign in (1, -1)
        )
        return (
            f"{page}: {world}",
            f"{in_words(higher)} of {in_words(len(rows))} methods above random selection and {in_words(lower)} below",
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


NOT_CALLED = ("measured", "exists", "functions", "evidence", "arena", "tables", "facts", "used", "section")


def _core_claims() -> set[str]:
    """The core claims of the study's papers."""
    return {claim.id for paper in MINE for claim in claims_of(paper) if claim.kind == "core"}


def _sure(row: Mapping[str, Any]) -> bool:
    """Whether a world's claim is decided, after correction."""
    return row["outcome"] in ("holds", "contradicted")


def in_words(n: int) -> str:
    return NUMBERS[n] if n < len(NUMBERS) else str(n)


@dataclass
class StudyArticle:
    """entries: what the text asks for. numbered: its figures and tables in their order, by name."""

    entries: Entries

    @classmethod
    def of(cls, evidence: Evidence | None, folder: Path, facts: Mapping[str, str]) -> StudyArticle | None:
        """folder: `data/artifacts/<scale>`; None if the scoreboard or the arena lacks what it tells."""
        arena = folder / "arena" / "chooser.json"
        if evidence is None or not arena.exists() or not _core_claims() <= set(evidence.summary["claim"]):
            return None
        content = json.loads(arena.read_text(encoding="utf-8"))
        if not {*MINE.values(), *OTHERS} <= {entry["name"] for entry in content["methods"]}:
            return None
        tables = {
            page: pd.read_csv(path) for page in WORLDS if (path := folder / page / "outcomes.csv").exists()
        }
        return cls(Entries(evidence.of_papers(MINE), content, tables, facts))

    def text(self, template: str) -> str:
        """The text with its numbers, before figures and tables are put in."""
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        functions: dict[str, Any] = self.entries.functions()
        functions |= {"has": self.entries.measured, "made": self.entries.exists}
        self.entries.used.clear()
        parts = []
        for part in re.split(r"(?m)^(?=## )", template):
            self.entries.section = part.partition("\n")[0].removeprefix("## ").strip()
            parts.append(environment.from_string(part).render(**functions).strip() + "\n\n")
        return "".join(parts)

    def figures(self) -> dict[str, Figure]:
        """Name -> figure, those that can be drawn."""
        core = self._core()
        measured = core[core["estimate"].notna() & core["low"].notna()].reset_index(drop=True)
        pictures = {"forest": figures.forest(measured)}
        pictures["multiverse"] = figures.multiverse(self._readings())
        ranked = self.entries._ranked()
        samplers = [*MINE.values(), *OTHERS]
        gains = pd.DataFrame(self._gains(samplers))
        pictures["skew"] = figures.skew(gains, samplers)
        spent = {entry["name"]: entry for entry in self.entries.arena["methods"]}
        rows = [
            {
                "method": row.method,
                "gain": row.gain.value,
                "low": row.gain.low,
                "high": row.gain.high,
                **{key: float(spent[row.method][key]) for key in ("bytes", "steps")},
            }
            for row in ranked.ranked
        ]
        pictures["cost"] = figures.cost(rows)
        if "world-claims" in self.entries.tables:
            table = self.entries.tables["world-claims"]
            pictures["worlds"] = figures.worlds(table.assign(sure=table.apply(_sure, axis=1)))
        return pictures

    def _readings(self) -> pd.DataFrame:
        """Every feasible reading of the core claims that are ratios and have several, for `figures.multiverse`."""
        claims = self.entries.evidence.claims
        core = claims[(claims["kind"] == "core") & (claims["unit"] == "times") & (claims["n"] > 1)]
        shares = self.entries._shares()
        rows = []
        for claim, family in effects.counted(core).groupby("claim", sort=False):
            if len(family) < FEW:
                continue
            largest = shares[shares["claim"] == claim]
            choice = str(largest["choice"].iloc[0]) if len(largest) else ""
            options = effects.options_taken(str(family["paper"].iloc[0]), family["reading"])
            chosen = options.get(choice.split(" + ")[0], [""] * len(family))
            labels = family[["claim", "estimate", "printed", "primary"]]
            rows.append(labels.assign(choice=choice, option=chosen))
        columns = ["claim", "estimate", "printed", "primary", "choice", "option"]
        return pd.concat(rows, ignore_index=True) if rows else pd.DataFrame(columns=columns)

    def _gains(self, methods: list[str]) -> list[dict[str, Any]]:
        self.entries._ranked()
        rows = []
        order = {label: k for k, label in enumerate(chooser.HELD)}
        for entry in sorted(self.entries.arena["settings"], key=lambda entry: order[entry["labels"]]):
            for method in methods:
                result = ranking.gain(
                    self.entries._ends, method, ranking.BASE, [(entry["experiment"], entry["setting"])]
                )
                if result:
                    labels = {"labels": entry["labels"], "setting": _short(entry["name"]), "method": method}
                    rows.append(labels | {"gain": result.value, "low": result.low, "high": result.high})
        return rows

    def _core(self) -> pd.DataFrame:
        claims = self.entries.evidence.claims
        return claims[claims["primary"] & (claims["kind"] == "core")]

    def tables(self) -> dict[str, pd.DataFrame]:
        """Name -> table of the text."""
        evidence = self.entries.evidence
        rows = [
            {
                "claim": row["claim"],
                "statement": evidence.text(row["claim"]),
                "effect": forest.effect(row) if math.isfinite(row["estimate"]) else "–",
                "seeds": str(row["n"] or "–"),
                "printed": forest.number(row["printed"]),
                "outcome": evidence.in_words(row["claim"]),
            }
            for row in self._core().to_dict("records")
        ]
        used = [
            entry
            for entry in self.entries.used
            if entry.section == ABSTRACT and not entry.call.startswith("control")
        ]
        numbers = [{"in the abstract": entry.text, "rests on": entry.row} for entry in used]
        return {"core": pd.DataFrame(rows), "abstract": pd.DataFrame(numbers)}

    def markdown(self, template: str) -> str:
        """The article as a page in MyST; its figures are files of the folder `files/study/`."""
        text, tables = self.text(template), self.tables()
        pictures, numbers = set(self.figures_named(text)), {"figure": 0, "table": 0}

        def put(match: re.Match[str]) -> str:
            kind, name, caption = match["kind"], match["name"], match["caption"].strip()
            if kind == "figure" and name not in pictures:
                return ""
            numbers[kind] += 1
            caption = f"{kind.capitalize()} {numbers[kind]}. {caption}"
            if kind == "table":
                return f"*{caption}*\n\n{_piped(tables[name])}\n"
            return f":::{{figure}} /files/{PLACE}/{name}.svg\n:alt: {caption}\n\n{caption}\n:::\n"

        return PLACED.sub(put, text)

    def figures_named(self, text: str) -> list[str]:
        """The figures that a text places and that can be drawn."""
        available = {
            "forest",
            "multiverse",
            "skew",
            "cost",
            *(["worlds"] if "world-claims" in self.entries.tables else []),
        }
        return [match["name"] for match in PLACED.finditer(text) if match["name"] in available]

    def typst(self, template: str) -> dict[str, Any]:
        """The article as blocks for `site/study.typ`: kind, and text in Typst's markup."""
        text, tables = self.text(template), self.tables()
        pictures, blocks = set(self.figures_named(text)), []
        for part in re.split(r"\n\s*\n", text):
            part = part.strip()
            if not part:
                continue
            if placed := PLACED.fullmatch(part):
                if placed["kind"] == "figure" and placed["name"] not in pictures:
                    continue
                block = {"kind": placed["kind"], "name": placed["name"], "text": inline(placed["caption"])}
                if placed["kind"] == "table":
                    table = tables[placed["name"]]
                    block |= {"columns": list(table), "rows": table.astype(str).to_numpy().tolist()}
                blocks.append(block)
            elif heading := re.match(r"(#+) (.*)", part):
                blocks.append({"kind": f"h{len(heading[1])}", "text": inline(heading[2])})
            elif part.startswith("```"):
                blocks.append({"kind": "code", "text": part.strip("`").strip()})
            elif part.startswith("- "):
                items = [inline(" ".join(item.split())) for item in re.split(r"(?m)^- ", part)[1:]]
                blocks.append({"kind": "list", "items": items})
            else:
                blocks.append({"kind": "text", "text": inline(" ".join(part.split()))})
        return {"blocks": blocks}


# A figure or a table stands alone in a paragraph: "@figure forest | its caption".
PLACED = re.compile(r"^@(?P<kind>figure|table) (?P<name>\w+) \| (?P<caption>[^\n]*(?:\n(?!\n)[^\n]+)*)", re.M)
MARKED = re.compile(r"`[^`]+`|\*\*[^*]+\*\*|\*[^*]+\*|\[[^\]]+\]\([^)\s]+\)")


def inline(text: str) -> str:
    """A line of Markdown in Typst's markup: emphasis, code and links; all else is text."""
    parts, last = [], 0
    for match in MARKED.finditer(text):
        parts += [escaped(text[last : match.start()]), _marked(match.group())]
        last = match.end()
    return "".join([*parts, escaped(text[last:])])


def _marked(mark: str) -> str:
    if mark.startswith("`"):
        return f"#raw({json.dumps(mark.strip('`'))})"
    if mark.startswith("**"):
        return f"#strong[{escaped(mark.strip('*'))}]"
    if mark.startswith("*"):
        return f"#emph[{escaped(mark.strip('*'))}]"
    name, address = mark[1:-1].split("](")
    return f"#link({json.dumps(address)})[{escaped(name)}]" if "://" in address else escaped(name)


def escaped(text: str) -> str:
    """Text whose signs mean nothing to Typst."""
    return re.sub(r"([\\#$*_@<>`\[\]~/'\"])", r"\\\1", text)


def _short(name: str) -> str:
    """The name of a setting on an axis."""
    return (
        name.replace("Fashion-MNIST", "FMNIST")
        .replace("each client holds ", "")
        .replace("label shares from ", "")
    )


def _piped(table: pd.DataFrame) -> str:
    """A table in Markdown."""
    cells = [list(table), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells)
