"""`fedlib verify`: check stored files, train archived runs again, and add digests to old archives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rich.table import Table

from fedlib.analysis import power, reference
from fedlib.commands.listing import table
from fedlib.commands.pipeline import INPUTS
from fedlib.pages import seals
from fedlib.runs import retrain, verify
from fedlib.runs.archive import ARCHIVE
from fedlib.runs.place import Place
from fedlib.runs.results import RESULTS
from fedlib.settings.schema import ROOT, Scale

SECONDS = 5.0


def checked() -> tuple[Table, list[str]]:
    """One row per kind of file, and a sentence for each file that is not as written."""
    found = verify.everything(Place.from_environment(), RESULTS, ARCHIVE, INPUTS)
    pages = sorted((ROOT / "data" / "artifacts").glob("*/*/notebook.ipynb"))
    found += [
        verify.each("pages", pages, _page),
        verify.each("logs", sorted(RESULTS.glob("*/*.ipynb")), _page),
        verify.each("error rates of claims", [power.TABLE], lambda path: power.stored(path).empty),
        verify.each(
            "reference curves", list(reference.programs()), lambda paper: reference.reference(paper).empty
        ),
    ]
    rows = [
        (one.kind, one.files, one.files - one.older - len(one.wrong), one.older, len(one.wrong))
        for one in found
    ]
    title = "Stored files (older: written before files had digests; identified only by their addresses)"
    return table(title, ("", "files", "as written", "older", "wrong"), rows), [
        s for one in found for s in one.wrong
    ]


def _page(path: Path) -> bool:
    """Check a page with its files, or a log; True if it is a log from before there were seals."""
    seals.opened(path)
    return not seals.is_sealed(path)


def trained_again(
    scale: Scale, n: int, rounds: int | None, seed: int, tell: Callable[[str], None]
) -> tuple[Table, bool]:
    """One row per archived run that was trained again, and whether all differ only as `docs/determinism.md` allows.

    rounds: the first rounds of each run; None: those that took `SECONDS` when it was archived.
    """
    place = Place.from_environment()
    sample = retrain.sample(scale, n, seed, ARCHIVE, place)
    found = []
    for i, one in enumerate(sample, start=1):
        tell(f"{i} of {len(sample)}: {one.experiment}, {_name(one)}")
        found.append(retrain.again(one, rounds or retrain.rounds_within(one, SECONDS), place))
    rows = [
        (
            one.run.experiment,
            _name(one.run),
            f"{one.rounds} of {len(one.run.rows) - 1}",
            f"{one.largest:.0e}",
            one.verdict,
        )
        for one in found
    ]
    columns = ("experiment", "run", "rounds", "losses differ by", "")
    title = f"Archived runs of scale {scale}, trained again (seed {seed})"
    return table(title, columns, rows), all(one.allowed for one in found)


def _name(one: retrain.Archived) -> str:
    names = (one.record["setting"], one.record["method"], f"seed {one.record['seed']}")
    return ", ".join(name for name in names if name)


def renewed() -> Iterable[str]:
    """Seal the old archives; yields one line per archive, then the counts of all before and after."""
    before, after = [], []
    for path, one in verify.renew(ARCHIVE):
        before.append(one.before)
        after.append(one.after)
        what = "sealed" if one.rewritten else "unchanged"
        runs, rows = one.after
        yield f"{path.relative_to(ROOT)}: {what}; {runs:,} runs, {rows:,} rows, {one.moved:,} with another address"
    yield "; ".join(
        f"{when}: {len(counts)} files, {sum(c[0] for c in counts):,} runs, {sum(c[1] for c in counts):,} rows"
        for when, counts in (("before", before), ("after", after))
    )
