"""What the commands of `fedlib` share: the option --scale, and how they print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedlib.settings import Scale as Scale

if TYPE_CHECKING:
    from fedlib.settings.params import Experiments

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
