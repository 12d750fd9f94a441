"""The command line, `fedlib`: every command by its theme. Every command imports only what it needs."""

from __future__ import annotations

import sys

import typer

from fedlib.errors import ConfigError, DataError, SamplerError, StoreError
from workspace.commands import cli_arena, cli_data, cli_pages, cli_runs

FOR_USERS = ("ConfigError", "DataError", "SamplerError", "StoreError", "Unfinished", "InUse")
commands = typer.Typer(
    name="fedlib",
    help="Client selection in federated learning: four papers, re-run claim by claim.",
    epilog="Begin with `fedlib doctor` and `fedlib list`; then `fedlib run cs_mnist`, or `fedlib repro` for all pages.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for theme in (cli_runs, cli_pages, cli_data):
    commands.add_typer(theme.commands)
commands.add_typer(cli_data.data_commands, name="data")
commands.add_typer(cli_data.revision_commands, name="revision")
commands.add_typer(cli_pages.notebook_commands, name="notebook")
commands.add_typer(cli_arena.commands, name="arena")


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
