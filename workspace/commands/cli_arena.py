"""Commands of the arena: train, check and score submissions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workspace.commands.cli_options import Group, ScaleOption, settings_at, short, tell

commands = typer.Typer(cls=Group, no_args_is_help=True, help="The arena: train, check and score submissions.")
Folders = Annotated[list[Path], typer.Argument(help="Folders below arena/submissions.")]


@commands.command()
def rules() -> None:
    """Print the version and the digest of the rules, as a submission's YAML has them."""
    from workspace.analysis.submission import Rules

    typer.echo(Rules.read().stamp)


@commands.command()
def run(folders: Folders, scale: ScaleOption = None) -> None:
    """Train what the archives of submissions lack, and write them.

    Example: fedlib arena run arena/submissions/last_loss --scale paper
    """
    from workspace.analysis.submission import Submission
    from workspace.commands import arena

    settings, scale = settings_at(scale)
    for folder in folders:
        path = arena.run(Submission.open(folder), scale, settings, tell)
        typer.echo(f"{short(path)}: {path.stat().st_size / 1024:,.0f} KiB")


@commands.command()
def check(
    folders: Folders,
    scale: ScaleOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Draws the fresh seeds. Default: a new one.",
        ),
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Write the runs on the fresh seeds, to be committed by who merges."),
    ] = False,
) -> None:
    """Check submissions as they are checked before they are merged; their code runs in processes of their own.

    The exit status is 0 only if all keep the rules. Example: fedlib arena check arena/submissions/*
    """
    from workspace.analysis.submission import Submission
    from workspace.commands import arena

    settings, scale = settings_at(scale)
    for folder in folders:
        arena.check(Submission.open(folder), scale, settings, tell, seed, record)
        typer.echo(f"{folder.resolve().name}: keeps the rules.")


@commands.command()
def score(scale: ScaleOption = None) -> None:
    """Score every submission and every method of the arena that has run at a scale."""
    from rich.console import Console

    from fedlib.errors import StoreError
    from fedlib.measure import Missing
    from workspace.analysis import arena
    from workspace.analysis.experiments import opened
    from workspace.analysis.submission import Rules
    from workspace.commands.listing import table

    under = Rules.read()
    settings, scale = settings_at(scale)
    run_first = (
        f"run: fedlib run {under.experiment} --scale {scale} --methods {under.baseline},{under.target}"
    )
    if not (baseline := opened(under.experiment, scale, settings)):
        raise StoreError(f"{under.experiment} has not been run at scale {scale}; {run_first}")
    try:
        board = arena.scored(baseline[0], scale, under, settings)
    except Missing as missing:
        raise StoreError(f"{under.experiment} [{scale}]: {missing}; {run_first}") from None
    rows = [
        (method, f"{iqm:.2f}", f"{low:.2f} to {high:.2f}", f"{sent:.2g}", f"{steps:.2g}", sees)
        for method, iqm, low, high, _, _, sent, steps, sees, *_ in board.table.itertuples()
    ]
    title = f"Scale {scale}, rules {under.stamp}; bytes and steps are multiples of {under.baseline}'s"
    columns = ("method", "score", "95 % interval", "bytes", "steps", "sees")
    Console().print(table(title, columns, rows), markup=False)
    for name, seeds in board.table["checked"].items():
        if seeds:
            typer.echo(f"{name}: checked on seeds {seeds}")
    for name, why in board.left_out.items():
        typer.echo(f"without a score: {name}: {why}")
