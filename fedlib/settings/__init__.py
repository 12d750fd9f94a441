"""The settings of runs, experiments and studies. Here stand the scales alone, so that the command line starts fast."""

from typing import Literal, get_args

Scale = Literal["demo", "cpu", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
