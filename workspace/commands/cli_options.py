"""What the commands of `fedlib` share: groups of commands, the option --scale, and how they print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fedlib.settings import Scale as Scale

if TYPE_CHECKING:
    from fedlib.settings.params import Experiments

MAINTAIN = "To maintain the repository"  # the group of commands that nobody needs to use it


class Group(TyperGroup):
    """Commands whose flags show no type in their help, and whose errors are sentences."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_type(command.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> Any:
        return _without_type(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = getattr(error, "message", "")
            if message.startswith("No such command") and "Did you mean" not in message:
                error.message = f"{message.rstrip('.')}; there are {', '.join(self.commands)}."  # ty: ignore[missing-attribute]
            raise

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if "Value error, " in (message := str(getattr(error, "message", ""))):
                error.message = message.replace("Value error, ", "")  # ty: ignore[missing-attribute]
            raise


def _without_type(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


ScaleOption = Annotated[
    Scale | None, typer.Option("--scale", help="demo, cpu or paper; default: the scale in params.yaml.")
]


def settings_at(scale: Scale | None) -> tuple[Experiments, Scale]:
    """The settings, and the scale: the one that is given, or else theirs."""
    from fedlib.settings import params

    settings = params.load()
    return settings, scale or settings.scale


def tell(line: str) -> None:
    typer.echo(line, err=True)


def short(path: Path) -> Path:
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
