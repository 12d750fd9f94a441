"""Commands about experiments: show, train, collect, archive and check their runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlib.errors import ConfigError, Unfinished
from workspace.commands.cli_options import Scale, ScaleOption, settings_at, short, tell

if TYPE_CHECKING:
    from fedlib.settings.params import Experiments

commands = typer.Typer()
SEEDS = 10_000  # of a range
Names = Annotated[list[str] | None, typer.Argument(help="Experiments and studies. Default: all.")]

InFolder = Annotated[
    Path | None,
    typer.Option(
        "--into",
        help="Write runs, tables and archives into this folder, not into data/; what data/archive has is still read.",
        metavar="FOLDER",
    ),
]


@commands.command("list")
def list_(
    paper: Annotated[
        str | None, typer.Option(help="Only the entries of this paper (or `arena`).", metavar="NAME")
    ] = None,
    scale: ScaleOption = None,
) -> None:
    """List experiments, studies, artifacts, samplers and datasets, by the names that the other commands take.

    Example: fedlib list --paper fedcor
    """
    from rich.console import Console

    from workspace.commands import listing

    Console().print(listing.everything(*settings_at(scale), paper))


@commands.command()
def run(
    experiment: Annotated[
        str,
        typer.Argument(help="The name of an experiment or study in params.yaml; `fedlib list` shows them."),
    ],
    scale: ScaleOption = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="Only these: `--methods MD,FedCor`, or the option repeated.", metavar="NAMES"),
    ] = None,
    seeds: Annotated[
        list[str] | None,
        typer.Option(help="Only these: 0,3 or 0-4, or the option repeated.", metavar="NUMBERS"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--setting", help="Only this one of the experiment's grid; may be repeated.", metavar="NAME"
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="Only on this data set; may be repeated.", metavar="NAME"),
    ] = None,
    folder: InFolder = None,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show the traceback of runs that fail.")
    ] = False,
) -> None:
    """Train the missing runs of an experiment, or make the missing measurements of a study, and write its table.

    Nothing is trained twice. After an interruption, the same command continues from the last checkpoints.

    Environment variables say where to train:

    - FEDLIB_WORKERS: number of processes (default: chosen by cores and work)

    - FEDLIB_DEVICE: cpu (default) or cuda

    - FEDLIB_SCHEDULER: address of a Dask scheduler, whose workers then train

    Example: fedlib run cs_mnist --scale demo --methods MD --seeds 0-2
    """
    from workspace.analysis.experiments import plan

    whole = plan(experiment, scale)
    part = whole.only(
        _named(methods, {work.columns["method"] for work in whole.work}) if methods else None,
        [number for text in seeds for number in _numbers(text)] if seeds else None,
        settings or None,
        datasets or None,
    )
    from fedlib.runs import experiment as runs  # after the names are checked: it imports pandas

    place, tables, _ = runs.places(folder)
    try:
        path = runs.simulate(whole, part, place=place, results=tables, tell=tell)
    except runs.Failed as failed:
        for name, trace in failed.traces.items() if traceback else ():
            tell(f"{name}:\n{trace}")
        raise
    typer.echo(f"{short(path)}: written.")


@commands.command("next")
def next_(
    within: Annotated[str, typer.Option(help="How long it may take: 90s, 150m, 8h.", metavar="TIME")],
    scale: ScaleOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
) -> None:
    """Train for a given time the runs that decide most core claims per hour, and archive each when it is finished.

    Times are those that finished runs took; where there are none alike, this machine's speed is measured.
    Unfinished runs are kept at their last checkpoint; repeat the command to continue.

    Example: fedlib next --within 8h --scale paper
    """
    import time

    from workspace.analysis import worth
    from workspace.commands import next as next_runs

    began, seconds = time.monotonic(), next_runs.seconds_of(within)
    settings, scale = settings_at(scale)
    ordered = next_runs.plan(settings, scale, tell, without_data=dry_run)
    chosen = worth.fitting(ordered, began + seconds - time.monotonic())
    if warning := next_runs.busy():
        typer.echo(warning)
    for line in next_runs.lines(chosen) or ["Nothing that could decide a claim fits into this time."]:
        typer.echo(line)
    if not dry_run:
        next_runs.train(chosen, scale, began + seconds, tell)


@commands.command()
def scale(name: Annotated[Scale | None, typer.Argument(help="demo, cpu or paper.")] = None) -> None:
    """Show the current scale, or change it: rewrites that one line of params.yaml."""
    from fedlib.settings import params
    from workspace.commands import pipeline

    if name:
        pipeline.set_scale(name)
    typer.echo(f"scale: {params.load().scale}")


@commands.command("set")
def set_(
    change: Annotated[str, typer.Argument(help="KEY=VALUE, such as experiments.cs_mnist.scales.demo.T=20.")],
) -> None:
    """Change one value in params.yaml, and nothing else there: no comment, no anchor, no order.

    Example: fedlib set experiments.cs_mnist.scales.demo.T=20
    """
    from workspace.commands.change import set_value

    key, _, value = change.rpartition("=")
    before, entries = set_value(key.strip(), value.strip())
    typer.echo(
        f"{key.strip()}: {before or 'not set'} -> {value.strip()}; changed: {', '.join(entries) or 'nothing'}."
    )


@commands.command()
def results(names: Names = None, scale: ScaleOption = None) -> None:
    """Write the tables of finished or archived runs, without training; experiments may be incomplete."""
    from workspace.analysis.experiments import collect

    _make_each(names, scale, collect)


@commands.command()
def archive(names: Names = None, scale: ScaleOption = None, folder: InFolder = None) -> None:
    """Pack finished runs into data/archive, which is in git; experiments may be incomplete.

    Runs that are already archived stay, as long as params.yaml still has their settings. An experiment whose runs are
    all in other archives gets no archive.
    """
    from fedlib.files import ROOT, alone

    def packed(name: str, scale: Scale, tell: Callable[[str], None], settings: Experiments) -> Path:
        from fedlib.runs.experiment import pack
        from workspace.analysis.experiments import plan

        return pack(plan(name, scale, settings), tell, folder)

    with alone(ROOT / "data"):
        _make_each(names, scale, packed, folder)


def _make_each(
    names: list[str] | None,
    scale: Scale | None,
    make: Callable[[str, Scale, Callable[[str], None], Experiments], Path],
    folder: Path | None = None,
) -> None:
    """Make something of the named experiments and studies, or of all that have results; `folder` as for `archive`.

    A named one that is unknown or has no results stops no other; the exit status is then 1.
    """
    settings, scale = settings_at(scale)
    registered = {*settings.names, *settings.studies}
    unknown = [name for name in names or [] if name not in registered]
    for name in unknown:
        try:
            settings.describe(name, scale)
        except ConfigError as reason:
            tell(str(reason))
    names, lacks = names and [name for name in names if name in registered], bool(unknown)
    if lacks and not names:
        raise typer.Exit(1)
    from fedlib.runs.experiment import places  # after the names are checked: it imports pandas
    from fedlib.runs.results import lacking, record

    for name in names or [*settings.names, *settings.studies]:
        try:
            path = make(name, scale, tell if names else lambda line: None, settings)
        except Unfinished as reason:
            if names:
                tell(str(reason))
                lacks = True
            continue
        typer.echo(f"{short(path)}: {path.stat().st_size / 1024:,.0f} KiB")
        if missing := lacking(record(name, scale, places(folder)[1])) if names else "":
            typer.echo(f"Missing: {missing}.")
    raise typer.Exit(int(lacks))


@commands.command()
def verify(
    retrain: Annotated[
        int,
        typer.Option(
            min=0,
            max=10_000,
            help="Number of archived runs to train again, drawn at random from different experiments.",
            metavar="N",
        ),
    ] = 0,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="First rounds of each run. Default: those that took five seconds when archived.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed that draws the runs.")] = 0,
    scale: ScaleOption = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Add digests and current addresses to old archives.")
    ] = False,
) -> None:
    """Check that stored files are unchanged; with --retrain N, also that N archived runs can be reproduced.

    The exit status is 0 only if all checks pass. Example: fedlib verify --retrain 3 --scale paper
    """
    from rich.console import Console

    from fedlib.files import ROOT, alone
    from workspace.commands import verify as verifying

    if renew:
        with alone(ROOT / "data"):
            for line in verifying.renewed():
                typer.echo(line)
    if retrain:
        _, scale = settings_at(scale)
        report, good = verifying.trained_again(scale, retrain, rounds, seed, tell)
        Console().print(report)
        raise typer.Exit(0 if good else 1)
    report, wrong = verifying.checked()
    Console().print(report)
    for sentence in wrong:
        tell(sentence)
    raise typer.Exit(1 if wrong else 0)


def _named(texts: list[str], methods: set[str]) -> list[str]:
    """Methods as given: each a name (which may contain commas: "Random, attrition") or names separated by commas."""
    return [
        name.strip()
        for text in texts
        for name in ([text] if text.strip() in methods else text.split(","))
        if name.strip()
    ]


def _numbers(text: str) -> list[int]:
    """ "0,3" or "0-4" -> the numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        if not (ends := re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)):
            raise typer.BadParameter(f"{text[:80]!r} is no list of seeds; write 0,3 or 0-4")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < first + SEEDS:
            raise typer.BadParameter(f"{text[:80]!r}: a range must increase and have at most {SEEDS:,} seeds")
        numbers += range(first, last + 1)
    return numbers
