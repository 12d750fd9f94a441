"""The text of the site's first page and of the printed report: the findings, and which sampler to use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedlib.analysis.paper import Paper, papers
from fedlib.pages import layout
from fedlib.samplers import SAMPLERS, Sampler
from fedlib.settings.params import Labelled

BARS = ("settled", "indicated", "held as run only", "not held", "not run")
SUMMARY = "Every figure, table and claim of four papers on client selection, checked with one simulator."
MEANINGS = (
    "Settled: held as written, and each of at least three seeds gives that verdict by itself. Indicated: held as "
    "written with less. Held as run only: held in runs that follow the authors' program instead of the text."
)
BASE = "Random"  # the sampler that the arena's ratios compare with
DATA = {
    "mnist": "MNIST",
    "fmnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "mini_imagenet": "Mini-ImageNet",
    "digits": "scikit-learn's digits",
}
NOTHING, LOSSES, UPDATES = ASKED = (
    "nothing beyond their training",
    "other clients' losses, too",
    "other clients' updates, too",
)
ONE, MORE = HELD = "one label each, or nearly", "several labels each, or mixed"


def bar_of(row: Mapping[str, Any]) -> str | None:
    """The part of the bar in which a claim is counted; None for an informative claim."""
    match row["headline"]:
        case "held as written":
            return "settled" if row["strength"] == "settled" else "indicated"
        case "held under neither":
            return "not held"
        case "held as run only" | "not run" as part:
            return part
    return None


def counted(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of a paper's claims in each part of its bar, in order."""
    found = [bar_of(row) for row in rows]
    return {part: found.count(part) for part in BARS if part in found}


def headline(paper: Paper, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The verdict on a paper's main claim."""
    return next((row for row in rows if row["id"] == paper.headline), None)


def finding(paper: Paper, rows: Sequence[Mapping[str, Any]]) -> str:
    """What became of a paper's main claim, as a sentence with the printed number and ours; "" if it has none."""
    row = headline(paper, rows)
    if row is None:
        return ""
    ours = f"; here: {row['replicated']}" if row["replicated"] else ""
    printed = f" Printed: {row['printed']}{ours}." if row["printed"] else ""
    return f"“{row['claim'].rstrip('.')}.” This claim is {row['headline']}.{printed}"


def asks(sampler: type[Sampler]) -> str:
    """What a sampler asks of clients beside the training of those it chose (one of `ASKED`)."""
    if sampler.asks is None:
        return UPDATES
    reveals = {question.reveals for question in sampler.asks}
    return UPDATES if "updates" in reveals else LOSSES if "losses" in reveals else NOTHING


def holds(run: Any) -> str:
    """Which labels a client holds in a run's partition (one of `HELD`)."""
    return ONE if run.partition.mostly_one_label else MORE


def which_sampler(arena: Path, planned: Iterable[tuple[str, Labelled]]) -> pd.DataFrame:
    """The best sampler of the arena, by what clients hold and by what they may be asked; empty without an arena.

    planned: (experiment, run) of the arena. Each setting that the arena ranks counts once. -> for each kind of setting
    and each of `ASKED` (in one row where the answer is the same), of the samplers that ask no more than that the one
    with the best mean rank by the accuracy over all rounds, and of it the medians over these settings of how many times
    fewer rounds and bytes than Random it needs to Random's final accuracy (0: it never arrives).
    """
    names = ("mean_accuracy", "rounds", "megabytes")
    if not all((arena / f"{name}.csv").exists() for name in names):
        return pd.DataFrame()
    accuracy, rounds, megabytes = (pd.read_csv(arena / f"{name}.csv") for name in names)
    cases = list(accuracy[["experiment", "setting"]].fillna("").itertuples(index=False, name=None))
    keys = [" ".join(filter(None, case)).replace("arena_", "") for case in cases]
    ranks = accuracy.drop(columns=["experiment", "setting"]).rank(axis=1, ascending=False).set_axis(keys)
    fewer = {
        name: table.set_index(table.columns[0]).reindex(keys)
        for name, table in (("rounds", rounds), ("bytes", megabytes))
    }
    held, asked = {}, {}
    for experiment, one in planned:
        held[experiment, one.setting] = holds(one.run)
        asked[one.method] = asks(SAMPLERS[one.run.method.sampler])
    rows = []
    for kind in HELD:
        here = [key for key, case in zip(keys, cases, strict=True) if held.get(case) == kind]
        for k, most in enumerate(ASKED if here else ()):
            allowed = [m for m in ranks if m != BASE and asked.get(m) in ASKED[: k + 1]]
            if not allowed:
                continue
            best = ranks.loc[here, allowed].mean().sort_values()
            name = best.index[0]
            if rows and (rows[-1]["kind"], rows[-1]["best sampler"]) == (
                kind,
                name,
            ):
                # nothing is gained by asking more
                rows[-1]["clients may be asked"] += f"; {most}"
                continue
            rows.append(
                {
                    "kind": kind,
                    "clients hold": f"{kind} ({len(here)} setting{'s' * (len(here) > 1)})",
                    "clients may be asked": most,
                    "best sampler": name,
                    f"mean rank of {ranks.shape[1]}": f"{best[name]:.1f}",
                    **{f"times fewer {what}": times(t.loc[here, name].median()) for what, t in fewer.items()},
                }
            )
    return pd.DataFrame(rows).drop(columns="kind", errors="ignore")


def times(ratio: float) -> str:
    """How many times less than Random: "2.1"; "never" for 0, of a sampler that does not arrive."""
    return "never" if ratio == 0 else "–" if pd.isna(ratio) else f"{ratio:.1f}"


def story(
    rows: Mapping[str, Sequence[Mapping[str, Any]]],
    findings: Mapping[str, str],
    ran: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Paper by paper, what was found, its bar, what became of its main claim, and up to three settled claims.

    rows: paper -> its verdicts. findings: paper -> what its pages say in words, in place of its main claim.
    ran: paper -> how many of its runs there are, by dataset.
    """
    return [
        {
            "section": section,
            "title": paper.title,
            "citation": paper.citation,
            "finding": findings.get(section) or finding(paper, rows[section]),
            "page": main["artifact"] if (main := headline(paper, rows[section])) else "",
            "main": main or {},
            "mark": layout.mark(main) if main else "",
            "bar": [{"name": name, "n": n} for name, n in counted(rows[section]).items()],
            "claims": [row["claim"].rstrip(".") for row in rows[section] if bar_of(row) == "settled"][:3],
            "ran": (ran or {}).get(section, ""),
        }
        for section, paper in papers().items()
        if rows.get(section)
    ]


def runs_by_data(planned: Mapping[str, str], there: Iterable[str]) -> str:
    """How many runs there are, dataset by dataset: "Fashion-MNIST 305 of 305 runs, CIFAR-10 none of 300 runs".

    planned: run -> its dataset. there: the runs that are finished.
    """
    done = set(there)
    texts = []
    for data in dict.fromkeys(planned.values()):
        mine = [run for run, of in planned.items() if of == data]
        n = len(done.intersection(mine))
        texts.append(f"{DATA.get(data, data)} {f'{n:,}' if n else 'none'} of {len(mine):,}")
    return ", ".join(texts)
