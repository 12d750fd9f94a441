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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from workspace.analysis import effects
from workspace.figures import study as figures
from workspace.pages import chooser, forest, ranking, tables
from workspace.pages.entries import MINE, OTHERS, Entries, core_claims, surely_apart
from workspace.pages.evidence import Evidence

PLACE = "study"  # of the page, and of its files
WORLDS = (
    "world-claims",
    "world-semantics",
    "world-deadlines",
    "world-aggregation",
    "world-methods",
    "world-asynchronous",
)
ABSTRACT = "Abstract"
FEW = 4  # readings: a claim with fewer is not in the figure of readings


@dataclass
class StudyArticle:
    """entries: what the text asks for. numbered: its figures and tables in their order, by name."""

    entries: Entries

    @classmethod
    def of(cls, evidence: Evidence | None, folder: Path, facts: Mapping[str, str]) -> StudyArticle | None:
        """folder: `data/artifacts/<scale>`; None if the scoreboard or the arena lacks what it tells."""
        arena = folder / "arena" / "chooser.json"
        if evidence is None or not arena.exists() or not core_claims() <= set(evidence.summary["claim"]):
            return None
        content = json.loads(arena.read_text(encoding="utf-8"))
        if not {*MINE.values(), *OTHERS} <= {entry["name"] for entry in content["methods"]}:
            return None
        of_worlds = {
            page: tables.read_csv(path)
            for page in WORLDS
            if (path := folder / page / "outcomes.csv").exists()
        }
        return cls(Entries(evidence.of_papers(MINE), content, of_worlds, facts))

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
        ranked = self.entries.ranked()
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
            pictures["worlds"] = figures.worlds(table.assign(sure=table.apply(surely_apart, axis=1)))
        return pictures

    def _readings(self) -> pd.DataFrame:
        """Every feasible reading of the core claims that are ratios and have several, for `figures.multiverse`."""
        claims = self.entries.evidence.claims
        core = claims[(claims["kind"] == "core") & (claims["unit"] == "times") & (claims["n"] > 1)]
        shares = self.entries.shares()
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
        self.entries.ranked()
        rows = []
        order = {label: k for k, label in enumerate(chooser.HELD)}
        for entry in sorted(self.entries.arena["settings"], key=lambda entry: order[entry["labels"]]):
            for method in methods:
                result = ranking.gain(
                    self.entries.ends, method, ranking.BASE, [(entry["experiment"], entry["setting"])]
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
