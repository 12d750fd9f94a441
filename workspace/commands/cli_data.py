"""Commands about the machine, its datasets and the code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from workspace.commands.cli_options import Group, ScaleOption, settings_at, short, tell

commands = typer.Typer()
revision_commands = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="Shipped code and its revisions: what differs from the record, and recording it.",
)
data_commands = typer.Typer(cls=Group, no_args_is_help=True, help="Datasets: show, prepare and verify them.")


@commands.command()
def doctor(
    scale: ScaleOption = None,
    node_cores: Annotated[
        int | None,
        typer.Option(min=1, help="Estimate a whole scale on 1, 10 and 100 nodes with this many cores each."),
    ] = None,
) -> None:
    """Check the environment, the data and the disk, and estimate how long a scale takes on this machine."""
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from workspace.commands import listing

    console = Console()
    settings, scale = settings_at(scale)
    if node_cores:
        with console.status("measuring this machine ..."):
            report = listing.cluster(settings, scale, node_cores)
        console.print(report)
        return
    console.print(listing.environment())
    tell(
        "How long this machine takes, by experiment; the speed of each kind of model is measured for a second."
    )
    with Live(console=console) as live:

        def show(table: Table, measured: str) -> None:
            live.update(table)
            if measured and not console.is_terminal:  # where the table itself cannot be seen to grow
                tell(measured)

        listing.costs(settings, scale, show)
    console.print(listing.measurements(settings, scale))


@data_commands.command("status")
def data_status() -> None:
    """Show every dataset: prepared, missing or damaged, and its source."""
    from rich.console import Console

    from workspace.commands import listing

    Console().print(listing.datasets())


@data_commands.command("prepare")
def data_prepare(
    names: Annotated[
        list[str] | None, typer.Argument(help="digits, mnist, ...; `fedlib data status` lists all.")
    ] = None,
    needed: Annotated[
        bool, typer.Option("--needed", help="All datasets that the experiments need at a scale.")
    ] = False,
    scale: ScaleOption = None,
    mirror: Annotated[Path | None, typer.Option(help="Folder to take files from (or FEDLIB_MIRROR).")] = None,
) -> None:
    """Prepare datasets from a mirror folder if there is one, otherwise by download. Contents are verified."""
    if not names and not needed:
        raise typer.BadParameter("name the datasets, or use --needed")
    from fedlib.data import datasets
    from workspace.commands import pipeline

    if needed:
        for problem in pipeline.prepare_inputs(scale).values():
            typer.secho(f"Not available (its experiments will say so): {problem}", fg="yellow", err=True)
    for name in names or []:
        path = datasets.prepare(name, mirror)
        pipeline.forget_missing(name)
        typer.echo(f"{short(path)}: {datasets.status(name)['provenance']}")


@data_commands.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Default: all prepared.")] = None,
) -> None:
    """Hash the prepared arrays again and compare the digests with the recorded ones."""
    from fedlib.data import datasets

    for name in names or [n for n in datasets.KINDS if datasets.status(n)["state"] != "missing"]:
        typer.echo(f"{name}: {datasets.verify(name)}")


@revision_commands.command("status")
def revision_status() -> None:
    """Show the samplers, schemes, algorithms and models whose code differs from the record of their revision."""
    from fedlib.settings import code

    for line in code.departures().values() or ["All code is that of its recorded revision."]:
        typer.echo(line)


@revision_commands.command("keep")
def revision_keep(
    names: Annotated[list[str] | None, typer.Argument(help="md, fedavg, ... or: sampler md")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All that differ.")] = False,
) -> None:
    """Record changed code as that of its revision, if its pins and the golden tests still hold.

    If its revision was raised, or it had none, the record is new, and runs that exist keep their addresses.
    Otherwise the change is declared neutral: earlier runs are shown again.

    Example: fedlib revision keep md
    """
    if bool(names) == all_:
        raise typer.BadParameter("name what to record, or use --all")
    from workspace.commands import revision

    for key in revision.keep(names or []):
        typer.echo(f"{key}: recorded.")
