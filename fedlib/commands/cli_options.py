"""What the commands of `fedlib` share: the option --scale, and how they print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedlib.settings import Scale as Scale

ScaleOption = Annotated[
    Scale | None, typer.Option("--scale", help="demo, cpu or paper; default: the scale in params.yaml.")
]


def tell(line: str) -> None:
    typer.echo(line, err=True)


def short(path: Path) -> Path:
    folder = Path.cwd()
    return path.relative_to(folder) if path.is_relative_to(folder) else path
