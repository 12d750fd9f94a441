"""`fedlib verify`: what is stored, checked; archived runs, trained again; archives of before, sealed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.table import Table

from fedlib.commands.listing import table
from fedlib.commands.pipeline import INPUTS
from fedlib.runs import retrain, verify
from fedlib.runs.archive import ARCHIVE
from fedlib.runs.place import Place
from fedlib.runs.results import RESULTS
from fedlib.settings.schema import ROOT, Scale


def checked() -> tuple[Table, list[str]]:
    """A row a kind of file, and a sentence for each that is not what was written."""
    found = verify.everything(Place.from_environment(), RESULTS, ARCHIVE, INPUTS)
    rows = [
        (one.kind, one.files, one.files - one.older - len(one.wrong), one.older, len(one.wrong))
        for one in found
    ]
    title = "What is stored (older: written before files carried digests; read by their addresses alone)"
    return table(title, ("", "files", "as written", "older", "wrong"), rows), [
        s for one in found for s in one.wrong
    ]


def trained_again(
    scale: Scale, n: int, rounds: int, seed: int, tell: Callable[[str], None]
) -> tuple[Table, bool]:
    """A row an archived run that was trained again, and whether all are as `docs/determinism.md` allows."""
    place = Place.from_environment()
    sample = retrain.sample(scale, n, seed, ARCHIVE, place)
    found = []
    for i, one in enumerate(sample, start=1):
        tell(f"{i} of {len(sample)}: {_name(one)}")
        found += retrain.again([one], rounds, place)
    rows = [
        (_name(one.run), f"{one.rounds} of {len(one.run.rows) - 1}", f"{one.largest:.0e}", one.verdict)
        for one in found
    ]
    columns = ("run", "rounds", "losses differ by", "")
    title = f"Archived runs of scale {scale}, trained again (seed {seed})"
    return table(title, columns, rows), all(one.allowed for one in found)


def _name(one: retrain.Archived) -> str:
    names = (one.experiment, one.record["setting"], one.record["method"], f"seed {one.record['seed']}")
    return ", ".join(name for name in names if name)


def renewed() -> Iterable[str]:
    """Seal the archives of before; a line each, and the counts of all before and after."""
    before, after = [], []
    for path, one in verify.renew(ARCHIVE):
        before.append(one.before)
        after.append(one.after)
        what = "sealed" if one.rewritten else "as it was"
        runs, rows = one.after
        yield f"{path.relative_to(ROOT)}: {what}; {runs:,} runs, {rows:,} rows, {one.moved:,} with another address"
    yield "; ".join(
        f"{when}: {len(counts)} files, {sum(c[0] for c in counts):,} runs, {sum(c[1] for c in counts):,} rows"
        for when, counts in (("before", before), ("after", after))
    )
