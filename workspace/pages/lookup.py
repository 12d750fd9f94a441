"""The results that a page may read; looking up what has not been run ends its notebook with a notice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from fedlib.settings.schema import Scale


class ResultsMissing(Exception):
    """An experiment has not been run at this scale; the notebook ends with a notice and no traceback."""

    def __init__(self, experiment: str, scale: str) -> None:
        super().__init__(f"{experiment} has not been run at scale {scale}")
        self.experiment, self.scale = experiment, scale

    def _render_traceback_(self) -> list[str]:  # IPython's hook
        return [f"{self}."]


@dataclass(frozen=True)
class Results(Mapping[str, pd.DataFrame]):
    """Experiment -> tidy table, for those that have been run.

    Raises:
        ResultsMissing: a lookup of another one.
    """

    scale: Scale
    tables: dict[str, pd.DataFrame]

    def __getitem__(self, experiment: str) -> pd.DataFrame:
        if experiment not in self.tables:
            raise ResultsMissing(experiment, self.scale)
        return self.tables[experiment]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __contains__(self, experiment: object) -> bool:
        return experiment in self.tables
