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
    kinds = verify.everything(Place.from_environment(), RESULTS, ARCHIVE, INPUTS)
    pages = sorted((ROOT / "data" / "artifacts").glob("*/*/notebook.ipynb"))
    kinds += [
        verify.check_each("pages", pages, _page),
        verify.check_each("logs", sorted(RESULTS.glob("*/*.ipynb")), _page),
        verify.check_each("error rates of claims", [power.TABLE], lambda path: power.stored(path).empty),
        verify.check_each(
            "reference curves", list(reference.programs()), lambda paper: reference.reference(paper).empty
        ),
    ]
    rows = [
        (kind.kind, kind.files, kind.files - kind.older - len(kind.wrong), kind.older, len(kind.wrong))
        for kind in kinds
    ]
    title = "Stored files (older: written before files had digests; identified only by their addresses)"
    return table(title, ("", "files", "as written", "older", "wrong"), rows), [
        s for kind in kinds for s in kind.wrong
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
    compared = []
    for i, archived in enumerate(sample, start=1):
        tell(f"{i} of {len(sample)}: {archived.experiment}, {_name(archived)}")
        compared.append(
            retrain.train_again(archived, rounds or retrain.rounds_within(archived, SECONDS), place)
        )
    rows = [
        (
            run.run.experiment,
            _name(run.run),
            f"{run.rounds} of {len(run.run.rows) - 1}",
            f"{run.largest:.0e}",
            run.verdict,
        )
        for run in compared
    ]
    columns = ("experiment", "run", "rounds", "losses differ by", "")
    title = f"Archived runs of scale {scale}, trained again (seed {seed})"
    return table(title, columns, rows), all(run.allowed for run in compared)


def _name(archived: retrain.ArchivedRun) -> str:
    names = (archived.record["setting"], archived.record["method"], f"seed {archived.record['seed']}")
    return ", ".join(name for name in names if name)


def renewed() -> Iterable[str]:
    """Seal the old archives; yields one line per archive, then the counts of all before and after."""
    before, after = [], []
    for path, renewed_file in verify.renew(ARCHIVE):
        before.append(renewed_file.before)
        after.append(renewed_file.after)
        outcome = "sealed" if renewed_file.rewritten else "unchanged"
        runs, rows = renewed_file.after
        counts = f"{runs:,} runs, {rows:,} rows, {renewed_file.moved:,} with another address"
        yield f"{path.relative_to(ROOT)}: {outcome}; {counts}"
    yield "; ".join(
        f"{when}: {len(counts)} files, {sum(c[0] for c in counts):,} runs, {sum(c[1] for c in counts):,} rows"
        for when, counts in (("before", before), ("after", after))
    )
