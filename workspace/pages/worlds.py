"""How the pages of worlds show claims: a figure of effects with their intervals, and the numbers behind it."""

from __future__ import annotations

import pandas as pd

from workspace.analysis import worlds
from workspace.figures import summary
from workspace.pages import tables
from workspace.pages.artifact import Artifact


def show(
    artifact: Artifact,
    claims: pd.DataFrame,
    name: str,
    xlabel: str = "ahead of Random (points)",
    rows: str = "method",
) -> None:
    """Display claims (`analysis.worlds.claims`) as a figure, and their numbers as a table that opens on a click.

    rows: "method", with a panel for each setting, or "setting", with a panel for each method.
    """
    artifact.show(summary.claims_in_worlds(claims, xlabel, rows), name, data=claims)
    tables.fold(worlds.numbers(claims), "The numbers")
