"""The command line, `fedlib`: every command by its theme. Every command imports only what it needs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedlib.errors import ConfigError, DataError, SamplerError, StoreError
from workspace.commands import cli_arena, cli_data, cli_pages, cli_runs
from workspace.commands.cli_options import MAINTAIN, Group

FOR_USERS = ("ConfigError", "DataError", "SamplerError", "StoreError", "Unfinished", "InUse")
commands = typer.Typer(
    name="fedlib",
    cls=Group,
    help="Client selection in federated learning: papers, re-run claim by claim.",
    epilog="Begin with `fedlib repro` and `fedlib open`: every page, then the site. `fedlib list` shows what there is, "
    "`fedlib run cs_mnist` trains one experiment, `make lab` opens the lab.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for theme in (cli_runs, cli_pages, cli_data):
    commands.add_typer(theme.commands)
commands.add_typer(cli_data.data_commands, name="data")
commands.add_typer(cli_data.revision_commands, name="revision", rich_help_panel=MAINTAIN)
commands.add_typer(cli_pages.notebook_commands, name="notebook", rich_help_panel=MAINTAIN)
commands.add_typer(cli_pages.new_commands, name="new", rich_help_panel=MAINTAIN)
commands.add_typer(cli_arena.commands, name="arena")


@commands.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    shown: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if shown:
        from fedlib import __version__

        typer.echo(__version__)
        raise typer.Exit()


def app() -> int:
    """Run a command; an error that the user can fix is printed as one sentence, with exit status 1."""
    try:
        return commands(standalone_mode=True) or 0
    except (IsADirectoryError, NotADirectoryError) as error:
        print(
            f"{error.filename}: a folder stands where a file belongs, or a file where a folder; move it away.",
            file=sys.stderr,
        )
        return 1
    except Exception as error:
        for_users = isinstance(error, (ConfigError, DataError, SamplerError, StoreError))
        if not for_users and type(error).__name__ != "PapermillExecutionError":  # whose module loads slowly
            raise
        sentence = getattr(error, "ename", "") in FOR_USERS  # of a notebook's cell
        print(error.evalue if sentence else error, file=sys.stderr)  # ty: ignore[missing-attribute]
        return 1
